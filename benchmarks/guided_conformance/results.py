"""Outcomes counted by set and backend, and the report of them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.guided_conformance.cases import SETS
from benchmarks.guided_conformance.outcomes import Outcome, short
from benchmarks.reporting.report import Grid, Section


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
        self.forbidding = [outcome for outcome in self.all if outcome.forbids]

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
    def held(self) -> float:
        """Of the schemas with forbidden instances: all such texts were stopped by a mask."""
        held = sum(outcome.held for outcome in self.forbidding)
        return held / max(len(self.forbidding), 1)

    @property
    def checked(self) -> int:
        """Schemas whose finished texts are validated."""
        return sum(outcome.checked for outcome in self.all)

    @property
    def under(self) -> int:
        """Schemas that are under, those without instances too."""
        return sum(outcome.verdict == "under" for outcome in self.all)

    @property
    def dead(self) -> int:
        """Texts that no token could continue, walked and drawn, and draws that came to no end."""
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
            f"{100 * self.held:.1f}",
            self._percent(len(self.served)),
            str(self.checked),
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
        names = ("finished", "wrong", "not_json", "repeated", "caught", "unfinished", "dead")
        walks = sum(len(outcome.caught) - outcome.draws["caught"] for outcome in self.all)
        return [backend, *(str(self.draws(name)) for name in names), str(walks)]


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
        values[f"{prefix}_held"] = tally.held
        values[f"{prefix}_served"] = tally.share(len(tally.served))
        values[f"{prefix}_refused"] = tally.share(tally.count("refused"))
        values[f"{prefix}_under"] = tally.under
        values[f"{prefix}_wrong"] = tally.draws("wrong")
        values[f"{prefix}_dead"] = tally.dead
        values[f"{prefix}_checked"] = tally.checked
        values[f"{prefix}_failed"] = sum(outcome.verdict == "failed" for outcome in tally.all)
    values["caught"] = sum(len(outcome.caught) for tally in found.values() for outcome in tally.all)
    if admission:
        values["admission_p50_ms"] = percentile(admission, 0.5)
        values["admission_p99_ms"] = percentile(admission, 0.99)
    return values


def is_bad(values: dict[str, float]) -> bool:
    """Whether something broke its schema unnoticed."""
    return any(value > 0 for name, value in values.items() if name.endswith(("_under", "_wrong")))


UNITS = {
    "_held": "share of the schemas with forbidden instances",
    **dict.fromkeys(("_exact", "_served", "_refused"), "share of the schemas with instances"),
    "_ms": "ms",
}

PRINTED_FAULTS = 60

VERDICT_HEADER = [
    "backend",
    "refused %",
    "over %",
    "under %",
    "exact %",
    "held %",
    "served %",
    "checked",
    "failed",
    "random wrong, % of served",
    "dead ends",
    "admission ms p50 / p99",
    "fill CPU us p50 / p99 / max",
]

DRAW_HEADER = [
    "backend",
    "finished",
    "wrong",
    "not JSON",
    "name twice",
    "caught",
    "no end",
    "dead",
    "walks caught",
]

_HELD = "held"
_MARKS = ("exact", "over", "under", "refused", _HELD)


def keyword_grid(outcomes: Iterable[Outcome], backends: Sequence[str]) -> Grid:
    """Groups of the suite by keyword."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for outcome in outcomes:
        counts[outcome.keyword][outcome.backend][outcome.verdict] += 1
        counts[outcome.keyword][outcome.backend][_HELD] += outcome.forbids and outcome.held
    rows = []
    for keyword, by_backend in sorted(counts.items()):
        groups = max(counter.total() - counter[_HELD] for counter in by_backend.values())
        cells = ["/".join(str(by_backend[name][mark]) for mark in _MARKS) for name in backends]
        rows.append([f"{keyword} ({groups})", *cells])
    return Grid(["keyword (groups)", *backends], rows, "/".join(_MARKS))


def fault_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """What has to be mended, a line each: the worst first."""
    lines: list[tuple[int, str]] = []
    for outcome in outcomes:
        where = f"{outcome.backend} {outcome.set} {outcome.id}"
        for rank, name, texts in (
            (0, "under", outcome.under),
            (1, "wrong", outcome.wrong),
            (2, "dead end", outcome.dead),
            (4, "failed", [outcome.reason] if outcome.verdict == "failed" else []),
            (5, "crashed", [outcome.reason] if outcome.crashed else []),
            (6, "not judged", outcome.unjudged),
        ):
            if texts:
                more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
                lines.append((rank, f"{name}: {where}: {texts[0]}{more}"))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def text_lines(outcomes: Iterable[Outcome], field: str) -> list[str]:
    """The first text of each schema that has some in a field of its outcome, a line each."""
    lines = []
    for outcome in outcomes:
        texts = getattr(outcome, field)
        if texts:
            more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
            lines.append(f"{outcome.id}: {texts[0]}{more}")
    return lines


def refusal_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """What a backend refuses, the same reasons together: how many, the reason, some ids."""
    groups: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.verdict == "refused":
            groups[re.sub(r'"[^"]*"|\d+', "_", outcome.reason)].append(outcome.id)
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    return [f"{len(ids)}: {short(reason)} ({', '.join(ids[:3])})" for reason, ids in ranked]


def _notes(tally: Tally, backend: str) -> Iterator[str]:
    formats = sum(outcome.by_format for outcome in tally.served)
    if formats:
        through = sum(outcome.by_format_accepted for outcome in tally.served)
        yield f"Invalid by a format alone: {backend} lets {through} of {formats} through."
    remote = [outcome for outcome in tally.all if outcome.remote]
    if remote:
        refused = sum(not outcome.served for outcome in remote)
        yield f"Of documents elsewhere: {backend} refuses {refused} of {len(remote)}."


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what the program wrote."""
    outcomes = [Outcome.from_record(each) for each in record["outcomes"]]
    found = tallies(outcomes, record["fill_us"])
    left_out = [
        f"{backend} left out, it cannot be loaded: {why}"
        for backend, why in record["broken"].items()
    ]
    missing = record.get("missing", {})
    left_out += [f"{name} left out, it cannot be had: {why}" for name, why in missing.items()]
    libraries = f"libraries: {record['libraries']}"
    parts = [Section("Guided decoding: what was run", [libraries, *left_out])]
    for name in dict.fromkeys(outcome.set for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.set == name]
        backends = [backend for backend in record["backends"] if (name, backend) in found]
        parts += _set_sections(name, mine, backends, found)
    faults = fault_lines(outcomes)
    more = [f"and {len(faults) - PRINTED_FAULTS} more"] if len(faults) > PRINTED_FAULTS else []
    title = f"Guided decoding, faults: {len(faults)}"
    return [*parts, Section(title, [*faults[:PRINTED_FAULTS], *more])]


def _set_sections(
    name: str, outcomes: Sequence[Outcome], backends: Sequence[str], found: Tallies
) -> Iterator[Section]:
    """Those of one set of schemas."""
    first = found[name, backends[0]]
    grids = [
        Grid(VERDICT_HEADER, [found[name, each].row(each) for each in backends]),
        Grid(
            DRAW_HEADER,
            [found[name, each].draw_row(each) for each in backends],
            "Random draws, and texts that the validation of checked schemas caught:",
        ),
    ]
    if any(outcome.keyword for outcome in first.all):
        grids.append(keyword_grid(outcomes, backends))
    title = f"{len(first.judged)} schemas with instances of {len(first.all)}"
    yield Section(f"Guided decoding, {name}: {title}", list(_notes(first, backends[0])), grids)
    refusals = refusal_lines(first.all)
    if refusals:
        yield Section(f"Guided decoding, {name}: what {backends[0]} refuses", refusals)
    for field, what in (("rejected", "rejects wrongly"), ("caught", "only checks")):
        lines = text_lines(first.all, field)
        if lines:
            more = [f"and {len(lines) - PRINTED_FAULTS} more"] * (len(lines) > PRINTED_FAULTS)
            title = f"Guided decoding, {name}: what {backends[0]} {what}: {len(lines)}"
            yield Section(title, [*lines[:PRINTED_FAULTS], *more])
