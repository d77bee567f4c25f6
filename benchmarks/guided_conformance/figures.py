"""Outcomes counted, by set and backend."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.guided_conformance.cases import SETS
from benchmarks.guided_conformance.outcomes import Outcome


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them stay at or below; nan of none."""
    if not values:
        return float("nan")
    ranked = sorted(values)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


class Fills(NamedTuple):
    """Microseconds of CPU that filling a mask took."""

    median: float
    high: float
    """99 % of the fills took no longer."""
    largest: float


def fills_of(outcomes: Iterable[Outcome]) -> Fills | None:
    """Over all of their fills; None where there were none."""
    times = [time for outcome in outcomes for time in outcome.fill_us]
    if not times:
        return None
    return Fills(*(float(value) for value in np.percentile(times, [50, 99, 100])))


class Tally:
    """The outcomes of one set with one backend."""

    def __init__(self, outcomes: Iterable[Outcome], fills: Fills | None = None) -> None:
        """fills: where the outcomes came from a file, and have no times."""
        self.all = list(outcomes)
        self.fills = fills or fills_of(self.all)
        self.judged = [outcome for outcome in self.all if outcome.has_instances]
        self.served = [outcome for outcome in self.judged if outcome.served]

    def count(self, name: str) -> int:
        """Schemas with instances and this verdict."""
        return sum(outcome.verdict == name for outcome in self.judged)

    def share(self, count: int) -> float:
        """Of the schemas with instances."""
        return count / max(len(self.judged), 1)

    def draws(self, name: str) -> int:
        """Random draws that ended so, over all schemas."""
        return sum(outcome.draws[name] for outcome in self.all)

    @property
    def under(self) -> int:
        """Schemas that are under, those without instances too."""
        return sum(outcome.verdict == "under" for outcome in self.all)

    @property
    def dead(self) -> int:
        """Texts that no token could continue, walked and drawn."""
        return sum(len(outcome.dead) for outcome in self.all)

    def row(self, backend: str) -> list[str]:
        """A row of the verdicts' table."""
        served = [outcome for outcome in self.all if outcome.served]
        wrong = sum(bool(outcome.draws["wrong"]) for outcome in served)
        slow = sum(outcome.too_slow for outcome in self.judged)
        times = [outcome.admission_ms for outcome in self.all]
        return [
            backend,
            f"{self._percent(self.count('refused'))}" + (f" ({slow} too slow)" if slow else ""),
            self._percent(self.count("over")),
            self._percent(self.count("under")),
            self._percent(self.count("exact")),
            self._percent(len(self.served)),
            str(self.count("failed")),
            f"{100 * wrong / max(len(served), 1):.1f}",
            str(self.dead),
            f"{percentile(times, 0.5):.1f} / {percentile(times, 0.99):.1f}",
            self._fill_text(),
        ]

    def _percent(self, count: int) -> str:
        return f"{100 * self.share(count):.1f}"

    def _fill_text(self) -> str:
        return "-" if self.fills is None else " / ".join(f"{value:.0f}" for value in self.fills)

    def draw_row(self, backend: str) -> list[str]:
        """A row of the random draws' table."""
        names = ("finished", "wrong", "not_json", "caught", "unfinished", "dead")
        walks = sum(outcome.caught - outcome.draws["caught"] for outcome in self.all)
        checked = sum(outcome.checked for outcome in self.all)
        return [backend, *(str(self.draws(name)) for name in names), str(checked), str(walks)]


Tallies = dict[tuple[str, str], Tally]
"""By set and backend."""


def tallies(outcomes: Iterable[Outcome], fills: Mapping[str, Any] | None = None) -> Tallies:
    """fills: what recorded_fills wrote, where the outcomes came from a file."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.set, outcome.backend].append(outcome)
    known = fills or {}
    return {
        (name, backend): Tally(group, Fills(*times) if times else None)
        for (name, backend), group in groups.items()
        for times in [known.get(name, {}).get(backend)]
    }


def recorded_fills(found: Tallies) -> dict[str, dict[str, Fills | None]]:
    """As JSON, by set and backend."""
    recorded: dict[str, dict[str, Fills | None]] = defaultdict(dict)
    for (name, backend), tally in found.items():
        recorded[name][backend] = tally.fills
    return recorded


def figures(found: Tallies, admission: Sequence[float]) -> dict[str, float]:
    """The values of the last line."""
    values: dict[str, float] = {}
    for (name, backend), tally in found.items():
        prefix = f"{SETS[name]}_{backend.replace('-', '_')}"
        values[f"{prefix}_exact"] = tally.share(tally.count("exact"))
        values[f"{prefix}_served"] = tally.share(len(tally.served))
        values[f"{prefix}_refused"] = tally.share(tally.count("refused"))
        values[f"{prefix}_under"] = tally.under
        values[f"{prefix}_wrong"] = tally.draws("wrong")
        values[f"{prefix}_dead"] = tally.dead
        values[f"{prefix}_failed"] = sum(outcome.verdict == "failed" for outcome in tally.all)
    values["caught"] = sum(outcome.caught for tally in found.values() for outcome in tally.all)
    if admission:
        values["admission_p50_ms"] = percentile(admission, 0.5)
        values["admission_p99_ms"] = percentile(admission, 0.99)
    return values


def is_bad(values: dict[str, float]) -> bool:
    """Whether something broke its schema unnoticed."""
    return any(value > 0 for name, value in values.items() if name.endswith(("_under", "_wrong")))
