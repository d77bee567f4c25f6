"""Which runs there are, in which order, and the command line of each."""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endpoint.workloads import Load, Variant, Workload
from benchmarks.running.server import PATHS, ROUTES, Route

PROGRAM = "benchmarks.endpoint.vllm_bench"
WHOLE_BACKEND = "openai-whole"
"""The name of the requests in one piece, which vllm_bench adds to vLLM's."""

PERCENTILES = (50, 90, 95, 99)
METRICS = ("ttft", "tpot", "itl", "e2el")

_MOST_WARMUPS = 16


@dataclass(frozen=True, slots=True)
class Target:
    """What `vllm bench serve` is pointed at."""

    base_url: str
    """Without a slash at its end."""
    model: str
    """The name it is served under."""
    tokenizer: str
    """A folder, or a name on the model hub."""
    same_prompts: bool = True
    """Whether the server forgets its prefix cache before each run.

    Only then may two runs send the same prompts: otherwise the second would find them computed.
    """


@dataclass(frozen=True, slots=True)
class Run:
    """One load on one route."""

    workload: Workload
    variant: Variant
    load: Load
    repeat: int
    """From 1."""
    route: Route

    @property
    def name(self) -> str:
        """Of its files, without the ending."""
        cell = f"{self.workload.name}_{self.variant.name}_{self.load.name}"
        return f"{cell}_{self.repeat}_{self.route}"

    def seed(self, seed: int, *, same_prompts: bool) -> int:
        """The repeat's, which both routes share; or, where no prompt may come twice, its own."""
        if same_prompts:
            return seed + self.repeat
        return seed + zlib.crc32(self.name.encode()) % 1_000_000


def planned(
    workloads: Sequence[Workload],
    variants: Sequence[Variant],
    loads: Sequence[Load],
    repeats: int,
) -> Iterator[Run]:
    """All runs; the two routes in turn, so that neighbours can be compared."""
    for workload in workloads:
        for variant in variants:
            for load in loads:
                for repeat in range(1, repeats + 1):
                    for route in ROUTES:
                        yield Run(workload, variant, load, repeat, route)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all runs share."""

    seed: int = 0
    num_prompts: int | None = None
    """Requests of each run; by the load where None."""
    goodput: Sequence[str] = ()
    """Such as `ttft:200`, milliseconds."""


def flags(run: Run, target: Target, settings: Settings, folder: Path) -> list[str]:
    """The flags of `vllm bench serve` for a run, whose files go to a result folder."""
    prompts = settings.num_prompts or run.load.prompts()
    result = [
        *("--backend", "openai" if run.variant.streamed else WHOLE_BACKEND),
        *("--base-url", target.base_url),
        *("--endpoint", PATHS[run.route]),
        *("--model", target.model),
        *("--tokenizer", target.tokenizer),
        *run.workload.flags,
        *run.load.flags(),
        *("--num-prompts", str(prompts)),
        *("--num-warmups", str(_warmups(run.load, prompts))),
        *("--seed", str(run.seed(settings.seed, same_prompts=target.same_prompts))),
        *("--percentile-metrics", ",".join(METRICS)),
        *("--metric-percentiles", ",".join(map(str, PERCENTILES))),
        "--disable-tqdm",
        "--save-result",
        *("--result-dir", str(raw_folder(folder))),
        *("--result-filename", raw_file(folder, run.name).name),
        *("--client-usage", str(client_file(folder, run.name))),
        *("--metadata", *_metadata(run)),
    ]
    variant = run.variant
    if variant.temperature is not None:
        result += ["--temperature", f"{variant.temperature:g}"]
    if not variant.ends_freely:
        result.append("--ignore-eos")
    if variant.logprobs is not None:
        result += ["--logprobs", str(variant.logprobs)]
    if body := variant.body(run.route):
        result += ["--extra-body", json.dumps(body)]
    if settings.goodput:
        result += ["--goodput", *settings.goodput]
    return result


def raw_folder(folder: Path) -> Path:
    """Where vLLM's files are, in a result folder."""
    return folder / "raw"


def raw_file(folder: Path, name: str) -> Path:
    """vLLM's file of a run."""
    return raw_folder(folder) / f"{name}.json"


def client_file(folder: Path, name: str) -> Path:
    """The file with the client's use of CPU in a run."""
    return folder / "client" / f"{name}.json"


def log_file(folder: Path, name: str) -> Path:
    """What `vllm bench serve` printed in a run."""
    return folder / "client" / f"{name}.log"


def _warmups(load: Load, prompts: int) -> int:
    streams = getattr(load, "streams", 1)
    return int(min(streams, prompts, _MOST_WARMUPS))


def _metadata(run: Run) -> list[str]:
    facts = {
        "route": run.route,
        "workload": run.workload.name,
        "variant": run.variant.name,
        "load": run.load.name,
        "repeat": run.repeat,
    }
    return [f"{name}={value}" for name, value in facts.items()]
