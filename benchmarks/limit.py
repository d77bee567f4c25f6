"""The floor under any HTTP route: vLLM's AsyncLLM in this process, its streams read to the end.

`python -m benchmarks.limit RESULT_FILE --runs N` takes a Cell as JSON on stdin. vLLM logs to
stdout, so the result, a list of LimitRuns, goes to a file.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.cells import MICRO, PROMPT, Cell
from benchmarks.server import ENGINE_ENVIRONMENT, REPOSITORY, BenchmarkError

# The engine that runs under both: the same keyword arguments here, the same flags there.
ENGINE: dict[str, str | int | bool] = {
    "load_format": "dummy",
    "enforce_eager": True,
    "max_model_len": 2048,
    # More than the largest load runs at once: no request waits for another.
    "max_num_seqs": 1024,
}


def engine_flags(settings: Mapping[str, str | int | bool]) -> list[str]:
    """Engine arguments as flags; True is a flag without a value."""
    flags: list[str] = []
    for name, value in settings.items():
        flags.append(f"--{name.replace('_', '-')}")
        if value is not True:
            flags.append(str(value))
    return flags


@dataclass(frozen=True, slots=True)
class LimitRun:
    """One run without HTTP."""

    cpu_seconds: float
    """Of the process that reads the streams, without the engine's own."""
    seconds: float
    completion_tokens: int
    updates: int
    """What was read from the streams; fewer than tokens where vLLM joined some."""

    @property
    def us_per_token(self) -> float:
        """CPU microseconds for each generated token."""
        return self.cpu_seconds * MICRO / self.completion_tokens


def measure_limit(model_folder: Path, cell: Cell, runs: int) -> list[LimitRun]:
    """Measure in a process of its own. No other engine should run meanwhile.

    Raises:
        BenchmarkError: that process failed; the end of what it said is in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "limit.json")
        arguments = [str(result), "--model", str(model_folder), "--runs", str(runs)]
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.limit", *arguments],
            cwd=REPOSITORY,
            env=os.environ | ENGINE_ENVIRONMENT | {"VLLM_LOGGING_LEVEL": "WARNING"},
            input=json.dumps(asdict(cell)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if process.returncode != 0 or not result.exists():
            raise BenchmarkError(f"The run without HTTP failed:\n{process.stdout[-2000:]}")
        return [LimitRun(**run) for run in json.loads(result.read_text(encoding="utf-8"))]


async def _measure(model: str, cell: Cell, runs: int) -> list[LimitRun]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, **ENGINE))
    try:
        await _run(engine, cell)  # warms up
        return [await _run(engine, cell) for _ in range(runs)]
    finally:
        engine.shutdown()


async def _run(engine: Any, cell: Cell) -> LimitRun:
    token_ids = engine.renderer.get_tokenizer().encode(PROMPT)
    streams = range(cell.streams)
    cpu, wall = time.process_time(), time.perf_counter()
    counts = await asyncio.gather(*(_stream(engine, cell, token_ids, i) for i in streams))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    tokens = sum(tokens for tokens, _ in counts)
    if tokens != cell.completion_tokens:
        raise BenchmarkError(f"{tokens} tokens came, not {cell.completion_tokens}")
    return LimitRun(cpu, wall, tokens, sum(updates for _, updates in counts))


async def _stream(engine: Any, cell: Cell, token_ids: list[int], stream: int) -> tuple[int, int]:
    """One stream's requests, one after the other; how many tokens and updates came."""
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    tokens = updates = 0
    for request in range(cell.requests_per_stream):
        params = SamplingParams(
            n=cell.n,
            temperature=cell.body()["temperature"],
            max_tokens=cell.max_tokens,
            ignore_eos=True,
            logprobs=cell.body().get("logprobs"),
            output_kind=RequestOutputKind.DELTA,
        )
        async for update in engine.generate(
            tokens_input(token_ids), params, f"limit-{stream}-{request}"
        ):
            updates += 1
            tokens += sum(len(candidate.token_ids) for candidate in update.outputs)
    return tokens, updates


def main() -> None:
    """Measure the cell on stdin; write the runs to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limit")
    parser.add_argument("result_file", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    cell = Cell(**json.load(sys.stdin))
    runs = uvloop.run(_measure(options.model, cell, options.runs))
    options.result_file.write_text(json.dumps([asdict(run) for run in runs]), encoding="utf-8")


if __name__ == "__main__":
    main()
