"""Statistics of repeated runs, and how they are printed."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.page import Section


class Spread(NamedTuple):
    """Several runs of one thing: their median, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    def text(self, decimals: int = 2) -> str:
        """Such as `0.68 (0.66 to 0.71)`."""
        return f"{self.median:.{decimals}f} ({self.low:.{decimals}f} to {self.high:.{decimals}f})"


def spread(values: Iterable[float]) -> Spread:
    """The spread of at least one value."""
    known = list(values)
    return Spread(statistics.median(known), min(known), max(known))


def paired_ratio(values: Sequence[float], baseline: Sequence[float]) -> Spread:
    """The spread of value over baseline, run by run.

    Interleaved runs are compared with their neighbours: a machine that slows down over minutes
    slows both.
    """
    return spread(value / base for value, base in zip(values, baseline, strict=True))


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, and never in exponents: 0.683, 81.4, 1230."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:.{decimals}f}"


def name_value_line(values: Mapping[str, float]) -> str:
    """`name=value` pairs on one line, to be read by programs."""
    return " ".join(
        f"{name}={value}" if isinstance(value, int) else f"{name}={significant(value)}"
        for name, value in values.items()
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; the first is text, the others are numbers."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(
        "| " + " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) + " |"
        for line in [header, ruler, *rows]
    )


def as_text(sections: Iterable[Section]) -> str:
    """Sections for a terminal, their pictures left out."""
    parts = []
    for section in sections:
        parts.append(f"## {section.title}")
        if section.text:
            parts.append("\n".join(section.text))
        for grid in section.grids:
            if grid.note:
                parts.append(grid.note)
            parts.append(table(grid.header, grid.rows))
    return "\n\n".join(parts)
