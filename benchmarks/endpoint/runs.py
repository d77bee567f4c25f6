"""Runs as they were recorded, and those of one load on both routes beside each other."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.endpoint.plan import METRICS, PERCENTILES, WHOLE_BACKEND, client_file, raw_folder
from benchmarks.endpoint.workloads import VARIANTS, WORKLOADS
from benchmarks.reporting.result import Spread, spread
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import ROUTES

BUSY_CLIENT = 0.8
"""CPU cores, user and system, from which on the figures may be the client's, which has one thread
for all of its connections."""
SATURATED = 0.9
"""The part of the rate that a server which keeps up would reach, below which one did not."""

FACTS = ("route", "workload", "variant", "load", "repeat")
"""What the program adds to vLLM's file, as texts."""

COUNTS = ("num_prompts", "completed", "failed", "total_input_tokens", "total_output_tokens")
RATES = (
    "duration",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
)
STATISTICS = ("mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES))
LATENCIES = tuple(f"{kind}_{metric}_ms" for metric in METRICS for kind in STATISTICS)

# Of an answer in one piece, vLLM's benchmark takes the end for the first token.
_ONLY_STREAMED = (
    "max_output_tokens_per_s",
    *(name for name in LATENCIES if not name.endswith("_e2el_ms")),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run."""

    route: str
    workload: str
    variant: str
    load: str
    repeat: int
    figures: Mapping[str, float]
    """By vLLM's names, in vLLM's units; what means nothing for this run is left out."""
    offered_rate: float
    """Requests a second; infinite in a closed loop."""
    quickest: float
    """Seconds that the quickest request took."""
    client_cores: float | None
    """CPU that the client used, in cores, while it sent requests; None where not recorded."""

    def as_json(self) -> dict[str, Any]:
        """For a file, with what flags says; from_json reads it."""
        rate = self.offered_rate if math.isfinite(self.offered_rate) else None
        return asdict(self) | {"offered_rate": rate, "flags": self.flags()}

    @classmethod
    def from_json(cls, run: Mapping[str, Any]) -> "Recorded":
        """The run that as_json wrote."""
        fields = {name: value for name, value in run.items() if name != "flags"}
        rate = math.inf if run["offered_rate"] is None else run["offered_rate"]
        return cls(**fields | {"offered_rate": rate})

    @property
    def cell(self) -> tuple[str, str, str]:
        """Workload, variant and load: what is compared between the routes."""
        return self.workload, self.variant, self.load

    @property
    def _reachable_rate(self) -> float:
        """Requests a second of a server that keeps up with the offered rate; 0 in a closed loop.

        A run ends when its last request does, which in a short run is a good while after it came.
        """
        if math.isinf(self.offered_rate):
            return 0.0
        count = self.figures["num_prompts"]
        return count / (count / self.offered_rate + self.quickest)

    @property
    def valid(self) -> bool:
        """Whether every request succeeded: only then does a figure say what it seems to."""
        return self.figures["failed"] == 0 and self.figures["completed"] > 0

    def flags(self) -> list[str]:
        """What to know before believing the figures; empty where there is nothing."""
        found = []
        if not self.valid:
            found.append(f"{self.figures['failed']:.0f} requests failed")
        if self.figures["request_throughput"] < SATURATED * self._reachable_rate:
            found.append("over-saturated: the server did not keep up with the offered rate")
        if self.client_cores is not None and self.client_cores > BUSY_CLIENT:
            found.append(
                f"the client used over {BUSY_CLIENT:.0%} of a core: the figures may be its own"
            )
        return found


def recorded_runs(folder: Path) -> list[Recorded]:
    """All runs of a result folder, by workload, variant, load, repeat and route.

    Raises:
        BenchmarkError: there is none, or a file is not what vLLM writes.
    """
    runs = [
        recorded(path, client_file(folder, path.stem))
        for path in sorted(raw_folder(folder).glob("*.json"))
    ]
    if not runs:
        raise BenchmarkError(f"No runs are recorded in {raw_folder(folder)}.")
    return sorted(runs, key=_order)


def recorded(file: Path, client: Path) -> Recorded:
    """The run of one of vLLM's files.

    Raises:
        BenchmarkError: something that vLLM writes is missing in it, or is no number.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        facts = {name: str(content[name]) for name in FACTS}
        streamed = content["backend"] != WHOLE_BACKEND
        figures = {
            name: _number(content, name)
            for name in (*COUNTS, *RATES, *LATENCIES)
            if streamed or name not in _ONLY_STREAMED
        }
        if content.get("request_goodput") is not None:
            figures["request_goodput"] = _number(content, "request_goodput")
        for name, known in {"route": ROUTES, "workload": WORKLOADS, "variant": VARIANTS}.items():
            if facts[name] not in known:
                raise ValueError(f"there is no {name} {facts[name]}")
        return Recorded(
            facts["route"],
            facts["workload"],
            facts["variant"],
            facts["load"],
            int(facts["repeat"]),
            figures,
            float(content["request_rate"]),
            min(content["latencies"], default=0.0),
            _client_cores(client),
        )
    except KeyError as error:
        raise BenchmarkError(f"{file.name} has no {error}: no file of this program.") from error
    except (TypeError, ValueError) as error:
        raise BenchmarkError(f"{file.name} cannot be read: {error}") from error


def load_order(load: str) -> tuple[str, float]:
    """Sorts `c4`, `c16`, `r0.5`: closed loops first, each by number."""
    return load[0], float(load[1:])


def _order(run: Recorded) -> tuple[Any, ...]:
    workload, variant = list(WORKLOADS).index(run.workload), list(VARIANTS).index(run.variant)
    return workload, variant, load_order(run.load), run.repeat, run.route


def _number(content: Mapping[str, Any], name: str) -> float:
    value = content[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number")
    return value


def _client_cores(file: Path) -> float | None:
    if not file.is_file():
        return None
    usage = json.loads(file.read_text(encoding="utf-8"))
    return float((usage["user_seconds"] + usage["system_seconds"]) / usage["wall_seconds"])


UNEQUAL_WORK = 0.01
"""The part by which the routes' generated tokens may differ before it is said."""

COMPARED = {
    "ttft": "median_ttft_ms",
    "tpot": "median_tpot_ms",
    "e2el": "median_e2el_ms",
    "output_throughput": "output_throughput",
}
"""The figures that are compared, by a short name."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload, a variant and a load, and its runs."""

    workload: str
    variant: str
    load: str
    v1: Sequence[Recorded]
    v2: Sequence[Recorded]

    def spread(self, route: str, figure: str) -> Spread | None:
        """Of a figure by vLLM's name, over a route's valid runs; None where none has it."""
        values = [
            run.figures[figure] for run in self._runs(route) if run.valid and figure in run.figures
        ]
        return spread(values) if values else None

    def ratio(self, figure: str) -> Spread | None:
        """/v2 over /v1 of a figure, over the repeats that are valid on both routes."""
        theirs = {run.repeat: run.figures for run in self.v1 if run.valid}
        ours = {run.repeat: run.figures for run in self.v2 if run.valid}
        ratios = [
            ours[repeat][figure] / theirs[repeat][figure]
            for repeat in ours.keys() & theirs.keys()
            # Zero where nothing was to be timed, such as gaps in texts of one token.
            if theirs[repeat].get(figure) and figure in ours[repeat]
        ]
        return spread(ratios) if ratios else None

    def flags(self) -> list[str]:
        """What to know before believing the figures."""
        flagged: dict[tuple[str, str], list[str]] = {}
        for run in (*self.v1, *self.v2):
            for flag in run.flags():
                flagged.setdefault((run.route, flag), []).append(str(run.repeat))
        found = [
            f"/{route}, run {', '.join(repeats)}: {flag}"
            for (route, flag), repeats in flagged.items()
        ]
        work = self.ratio("total_output_tokens")
        if work is not None and abs(work.median - 1) > UNEQUAL_WORK:
            found.append(
                f"the routes made different amounts of text, /v2 {work.median:.3f} times /v1's: "
                "e2el and throughput are not of the same work"
            )
        return found

    def _runs(self, route: str) -> Sequence[Recorded]:
        return self.v1 if route == "v1" else self.v2


def cells(runs: Iterable[Recorded]) -> list[Cell]:
    """The runs by what was measured, in the order in which they come."""
    grouped: dict[tuple[str, str, str], list[Recorded]] = {}
    for run in runs:
        grouped.setdefault(run.cell, []).append(run)
    return [
        Cell(
            *names,
            [run for run in members if run.route == "v1"],
            [run for run in members if run.route == "v2"],
        )
        for names, members in grouped.items()
    ]


def named_ratios(compared: Iterable[Cell]) -> dict[str, float]:
    """Median ratios by name, such as `e2el_ratio_plain_tiny_c16`."""
    return {
        f"{name}_ratio_{cell.variant}_{cell.workload}_{cell.load}": ratio.median
        for cell in compared
        for name, figure in COMPARED.items()
        if (ratio := cell.ratio(figure)) is not None
    }
