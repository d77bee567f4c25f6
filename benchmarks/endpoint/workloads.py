"""What is sent: shapes of prompts and answers, how fast, and in what words on each route."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import Route

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


CHOICES = 4
TOP_LOGPROBS = 5

# Small, and bounded everywhere, so that a text ends before max_tokens does in most shapes.
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["ship", "train", "plane"]},
        "fast": {"type": "boolean"},
    },
    "required": ["name", "kind", "fast"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of asking, on both routes."""

    name: str
    label: str
    v1: Mapping[str, Any] = field(default_factory=dict)
    """What a body of /v1/completions has beside the prompt and max_tokens."""
    v2: Mapping[str, Any] = field(default_factory=dict)
    """The same for /v2/completions."""
    note: str = ""
    """What to know when the two are compared."""
    logprobs: int | None = None
    temperature: float | None = 0.0
    ends_freely: bool = False
    """Not held to exactly max_tokens: the text ends where the constraint lets it end."""
    streamed: bool = True

    def body(self, route: Route) -> dict[str, Any]:
        """The fields of --extra-body on a route.

        `vllm bench serve` adds them last, so that they also take back what it sets by itself:
        ignore_eos for random prompts.
        """
        fields = dict(self.v1 if route == "v1" else self.v2)
        return fields | ({"ignore_eos": False} if self.ends_freely else {})


def _guided(backend: str, name: str | None = None) -> Variant:
    return Variant(
        f"guided-{name or backend}",
        f"a JSON schema, {backend}",
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_json": SCHEMA, "guided_decoding_backend": backend},
        note="/v1 has one backend for the whole server, vLLM's own choice unless flags say "
        "otherwise. The texts may differ in length: compare ttft and tpot.",
        ends_freely=True,
    )


_WHOLE = "Not streamed, so only latency and throughput of whole answers are measured."

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("plain", "greedy, one text"),
        Variant("whole", "greedy, one text, not streamed", streamed=False, note=_WHOLE),
        Variant("logprobs", f"with {TOP_LOGPROBS} logprobs a token", logprobs=TOP_LOGPROBS),
        # vLLM refuses several greedy texts.
        Variant("n4", f"{CHOICES} sampled texts", {"n": CHOICES}, {"n": CHOICES}, temperature=1.0),
        _guided("xgrammar"),
        _guided("guidance"),
        _guided("outlines"),
        _guided("lm-format-enforcer"),
        _guided("auto"),
        Variant(
            "best_of",
            f"the best of {CHOICES} sampled texts",
            {"n": CHOICES},
            {"n": 1, "best_of": CHOICES},
            note=f"/v1 takes best_of without a word and ignores it, so there n is {CHOICES}: the "
            f"same tokens are generated, and none is chosen. {_WHOLE}",
            temperature=1.0,
            streamed=False,
        ),
        Variant(
            "beam",
            f"beam search, {CHOICES} wide",
            {"n": CHOICES, "use_beam_search": True},
            {"n": CHOICES, "use_beam_search": True},
            note=f"Both routes refuse to stream beam search. {_WHOLE}",
            temperature=None,  # means nothing here
            streamed=False,
        ),
    )
}
