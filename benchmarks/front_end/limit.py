"""The floor under any HTTP route: vLLM's AsyncLLM in a process of its own, its streams read."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.front_end.cells import MICRO, PROMPT, Cell
from benchmarks.running.process import BenchmarkError, answer, ask
from benchmarks.running.server import ENGINE_ENVIRONMENT

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
    question = {"model": str(model_folder), "cell": cell, "runs": runs}
    environment = ENGINE_ENVIRONMENT | {"VLLM_LOGGING_LEVEL": "WARNING"}
    found = ask("benchmarks.front_end.limit", question, environment=environment)
    return [LimitRun(**run) for run in found]


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


if __name__ == "__main__":
    answer(lambda given: uvloop.run(_measure(given["model"], Cell(**given["cell"]), given["runs"])))
