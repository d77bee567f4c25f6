"""Tokens a second of streams that are held to a constraint, over the same unguided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.guided_serving.requests import PATHS, PROMPT, guided, streamed
from benchmarks.running import program
from benchmarks.running.load import Load, run_load
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import Server

STREAMS = 16
MAX_TOKENS = 64


@dataclass
class Paired:
    """Tokens a second, run by run, guided and unguided in turn."""

    guided: list[float] = field(default_factory=list)
    unguided: list[float] = field(default_factory=list)
    refused: str | None = None


Throughput = dict[str, dict[str, Paired]]
"""By workload and contender."""


def measure_throughput(
    server: Server, contenders: Sequence[str], workloads: Mapping[str, Any], runs: int
) -> Throughput:
    """Every contender's runs, in turn; the first of each only warms up.

    workloads: some of WORKLOADS.
    """
    found: Throughput = {kind: {name: Paired() for name in contenders} for kind in workloads}
    total = (runs + 1) * len(workloads) * len(contenders)
    with program.progress_bar(total, "pairs") as bar:
        for run in range(runs + 1):
            for kind, contender_runs in found.items():
                for name, paired in contender_runs.items():
                    fields = guided(name, kind, workloads[kind])
                    _one_pair(server, name, fields, paired, warm_up=run == 0)
                    bar.update()
    return found


def _one_pair(
    server: Server, name: str, fields: dict[str, Any], paired: Paired, *, warm_up: bool
) -> None:
    if paired.refused is not None:
        return
    if warm_up:
        try:
            server.ask(PATHS[name], prompt=PROMPT, max_tokens=1, **fields)
        except BenchmarkError as error:
            paired.refused = str(error)
            return
        tokens_per_second(server, PATHS[name], fields)
        return
    unguided = tokens_per_second(server, PATHS[name], {"ignore_eos": True})
    paired.unguided.append(unguided)
    paired.guided.append(tokens_per_second(server, PATHS[name], fields))


def tokens_per_second(server: Server, path: str, fields: dict[str, Any]) -> float:
    """Of STREAMS streams at once.

    Raises:
        BenchmarkError: a text ended early.
    """
    body = streamed(server, MAX_TOKENS) | fields
    result = run_load(Load(server.port, path, body, STREAMS, 1))
    if result.completion_tokens != STREAMS * MAX_TOKENS:
        raise BenchmarkError(f"A text ended early: {result.completion_tokens} tokens, {fields}")
    return result.completion_tokens / result.seconds
