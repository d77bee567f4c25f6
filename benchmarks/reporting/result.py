"""A result: what every program finds out, keeps as JSON and prints; and the statistics in it."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.running.machine import Environment

OVER_RIVAL = "times the rival"
"""The unit of a ratio: ours over that of vLLM's own route, run by run."""


@dataclass(frozen=True)
class Result:
    """What a program found out.

    As JSON: `environment`, `values`, `units`, and beside them what the record has.
    """

    values: Mapping[str, float]
    """The figures by name; nan where there is none."""
    record: Mapping[str, Any]
    """As JSON: all that the report can be made of again."""
    units: Mapping[str, str] = field(default_factory=dict)
    """By a part of the figures' names: the first that is in a name is its unit."""
    environment: Environment | None = None
    """The machine and the versions; the runner of programs knows them."""
    text: str = ""
    """For people, where the report of the record is not what is to be printed."""
    failure: str = ""
    """Why the exit status is 1, though everything was measured."""

    def unit(self, name: str) -> str:
        """Of a figure; empty where it is a count, or not known."""
        return next((unit for part, unit in self.units.items() if part in name), "")

    def line(self) -> str:
        """`name=value` pairs on one line, to be read by programs."""
        return " ".join(
            f"{name}={value}" if isinstance(value, int) else f"{name}={significant(value)}"
            for name, value in self.values.items()
        )

    def write(self, file: Path, environment: Environment) -> None:
        """Keep it, as measured on a machine."""
        # JSON has no word for a figure that is none.
        values = {name: v if math.isfinite(v) else None for name, v in self.values.items()}
        units = {name: self.unit(name) for name in values}
        content = {"environment": asdict(environment), "values": values, "units": units}
        file.write_text(json.dumps({**content, **self.record}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> "Result":
        """What write kept; files from before units were kept have none."""
        content = json.loads(file.read_text(encoding="utf-8"))
        facts = content.pop("environment", None)
        machine = None if facts is None else Environment(**facts)
        values = {n: math.nan if v is None else v for n, v in content.pop("values").items()}
        return cls(values, content, content.pop("units", {}), machine)


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
