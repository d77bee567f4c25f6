"""What is sent: shapes of prompts and answers, by name, and how fast they are sent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.running.process import BenchmarkError

SHAREGPT = "sharegpt"

FEWEST_PROMPTS = 20
_PROMPTS_PER_STREAM = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts and answers of one shape."""

    name: str
    label: str
    tokens: int
    """The most that a prompt and its answer may have together."""
    flags: Sequence[str]
    """Of `vllm bench serve`."""


def _random(name: str, prompt: int, answer: int) -> Workload:
    lengths = ("--random-input-len", str(prompt), "--random-output-len", str(answer))
    label = f"random, {prompt} tokens in, {answer} out"
    return Workload(name, label, prompt + answer, ("--dataset-name", "random", *lengths))


def _prefix_repetition(prefix: int, suffix: int, answer: int, prefixes: int) -> Workload:
    name = "prefix_repetition"
    sizes = {"prefix-len": prefix, "suffix-len": suffix, "output-len": answer}
    flags = ["--dataset-name", name]
    for size, value in (sizes | {"num-prefixes": prefixes}).items():
        flags += [f"--prefix-repetition-{size}", str(value)]
    label = f"{prefixes} shared prefixes of {prefix} tokens, {suffix} more in, {answer} out"
    return Workload(name, label, prefix + suffix + answer, flags)


WORKLOADS = {
    workload.name: workload
    for workload in (
        _random("tiny", 32, 32),
        # The grid that vLLM's own continuous benchmark measures.
        _random("128x128", 128, 128),
        _random("128x2048", 128, 2048),
        _random("2048x128", 2048, 128),
        _random("2048x2048", 2048, 2048),
        _prefix_repetition(1024, 256, 128, prefixes=5),
        # vLLM leaves out conversations that are longer.
        Workload(SHAREGPT, "conversations of ShareGPT", 2048, ("--dataset-name", SHAREGPT)),
    )
}


def workloads(names: Sequence[str], sharegpt: Path | None) -> list[Workload]:
    """The workloads of these names.

    Raises:
        BenchmarkError: ShareGPT without its file.
    """
    chosen = []
    for name in names:
        workload = WORKLOADS[name]
        if name == SHAREGPT:
            if sharegpt is None or not sharegpt.is_file():
                raise BenchmarkError(f"The workload {SHAREGPT} needs its file: --sharegpt-file.")
            flags = (*workload.flags, "--dataset-path", str(sharegpt))
            workload = Workload(name, workload.label, workload.tokens, flags)
        chosen.append(workload)
    return chosen


def check_lengths(chosen: Sequence[Workload], max_model_len: int) -> None:
    """Refuse what the model cannot hold.

    Raises:
        BenchmarkError: with every workload that is too long.
    """
    long = [f"{w.name} ({w.tokens} tokens)" for w in chosen if w.tokens > max_model_len]
    if long:
        raise BenchmarkError(
            f"Too long for the model, which holds {max_model_len} tokens: {', '.join(long)}."
        )


@dataclass(frozen=True, slots=True)
class Closed:
    """So many requests at a time: each that ends is followed by the next at once."""

    streams: int
    fewest: int = FEWEST_PROMPTS
    """Requests of a run, at least."""

    @property
    def name(self) -> str:
        """Such as `c16`."""
        return f"c{self.streams}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.streams} at a time"

    def prompts(self) -> int:
        """How many requests a run has."""
        return max(self.fewest, self.streams * _PROMPTS_PER_STREAM)

    def flags(self) -> list[str]:
        """Of `vllm bench serve`."""
        return ["--request-rate", "inf", "--max-concurrency", str(self.streams)]


@dataclass(frozen=True, slots=True)
class Open:
    """So many requests a second on average, as a Poisson process, however many are under way."""

    rate: float
    seconds: float = 60.0
    """How long requests are sent."""
    fewest: int = FEWEST_PROMPTS
    """Requests of a run, at least."""

    @property
    def name(self) -> str:
        """Such as `r0.5`."""
        return f"r{self.rate:g}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.rate:g} a second"

    def prompts(self) -> int:
        """How many requests a run has."""
        return max(self.fewest, math.ceil(self.rate * self.seconds))

    def flags(self) -> list[str]:
        """Of `vllm bench serve`."""
        return ["--request-rate", f"{self.rate:g}", "--burstiness", "1"]


Load = Closed | Open
