"""The report of a conformance run."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.guided_conformance.figures import Tallies, Tally, tallies
from benchmarks.guided_conformance.outcomes import Outcome, short
from benchmarks.page import Grid, Section

PRINTED_FAULTS = 60

VERDICT_HEADER = [
    "backend",
    "refused %",
    "over %",
    "under %",
    "exact %",
    "served %",
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
    "caught",
    "unfinished",
    "dead",
    "schemas checked",
    "walks caught",
]

_MARKS = ("exact", "over", "under", "refused")


def keyword_grid(outcomes: Iterable[Outcome], backends: Sequence[str]) -> Grid:
    """Groups of the suite by keyword."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for outcome in outcomes:
        counts[outcome.keyword][outcome.backend][outcome.verdict] += 1
    rows = []
    for keyword, by_backend in sorted(counts.items()):
        groups = max(sum(counter.values()) for counter in by_backend.values())
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
            (3, "dead end", outcome.dead),
            (4, "failed", [outcome.reason] if outcome.verdict == "failed" else []),
            (5, "crashed", [outcome.reason] if outcome.crashed else []),
            (6, "not judged", outcome.unjudged),
        ):
            if texts:
                more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
                lines.append((rank, f"{name}: {where}: {texts[0]}{more}"))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


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
