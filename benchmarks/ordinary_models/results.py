"""Figures and tables of what became of the texts."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.ordinary_models.counts import KINDS, Count, total
from benchmarks.reporting.report import Grid, Section

UNITS = {"_cost": "times the schema without the keyword", "_share": "share of the texts"}
PRINTED_FAULTS = 60

_HEADER = ["shape", *(kind.replace("_", " ") for kind in KINDS), "checked", "us a token", "cost"]

Groups = dict[tuple[str, str], list[Count]]
"""By backend and way."""


def groups(counts: Sequence[Count]) -> Groups:
    """The counts of each backend in each way of asking."""
    found: Groups = defaultdict(list)
    for count in counts:
        found[count.backend, count.way].append(count)
    return dict(found)


def figures(counts: Sequence[Count]) -> dict[str, float]:
    """The values of the last line."""
    values: dict[str, float] = {}
    for (backend, way), mine in groups(counts).items():
        prefix = f"{way}_{backend}".replace(" ", "_").replace("-", "_")
        texts = total(mine)
        values[f"{prefix}_not_satisfied_share"] = texts["not_satisfied"] / max(texts.total(), 1)
        values[f"{prefix}_refused"] = sum(bool(count.texts["refused"]) for count in mine)
        for kind in ("cut", "error", "dead", "repeated", "wrong"):
            values[f"{prefix}_{kind}"] = texts[kind]
        costs = [cost for count in mine if (cost := count.cost) is not None]
        if costs:
            values[f"{prefix}_cost"] = statistics.median(costs)
            values[f"{prefix}_largest_cost"] = max(costs)
    return values


def is_bad(values: Mapping[str, float]) -> bool:
    """Whether a text broke its schema unnoticed, or could not go on."""
    return any(value > 0 for name, value in values.items() if name.endswith(("_wrong", "_dead")))


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what the program wrote."""
    counts = [Count.from_record(each) for each in record["counts"]]
    found = [
        Section(f"Ordinary models, {backend}, {way}", [], [Grid(_HEADER, _rows(mine))])
        for (backend, way), mine in groups(counts).items()
    ]
    notes = [f"{way} left out: {why}" for way, why in record["left_out"].items()]
    faults = [
        f"{count.shape}, {count.backend}, {count.way}: {fault}"
        for count in counts
        for fault in count.faults
    ]
    more = [f"and {len(faults) - PRINTED_FAULTS} more"] * (len(faults) > PRINTED_FAULTS)
    title = f"Ordinary models, faults: {len(faults)}"
    return [*found, Section(title, [*notes, *faults[:PRINTED_FAULTS], *more])]


def _rows(counts: Sequence[Count]) -> list[list[str]]:
    rows = [_row(count) for count in counts]
    texts = total(counts)
    sums = [str(texts[kind]) for kind in KINDS]
    tokens = sum(count.tokens for count in counts)
    time = sum(count.seconds for count in counts) / max(tokens, 1)
    costs = [each for count in counts if (each := count.cost) is not None]
    median = f"{statistics.median(costs):.2f}" if costs else ""
    checked = str(sum(count.checked for count in counts))
    return [*rows, ["all (cost: median)", *sums, checked, f"{1e6 * time:.0f}", median]]


def _row(count: Count) -> list[str]:
    time = f"{1e6 * count.seconds / count.tokens:.0f}" if count.tokens else ""
    cost = "" if count.cost is None else f"{count.cost:.2f}"
    numbers = [str(count.texts[kind]) for kind in KINDS]
    return [count.shape, *numbers, "yes" if count.checked else "", time, cost]
