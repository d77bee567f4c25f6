"""What became of the texts of one shape."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.ordinary_models.judging import REPEATED

KINDS = ("good", "cut", "not_satisfied", "refused", "error", "dead", "repeated", "wrong")
"""What a text can be: wrong ones broke their schema and were not caught."""


@dataclass(slots=True)
class Count:
    """The texts of one shape, with one backend, in one way of asking."""

    shape: str
    backend: str
    way: str
    """`walk`, `default` (the server as it is) or `no retries`."""
    texts: Counter[str] = field(default_factory=Counter)
    """How many of each of KINDS."""
    faults: list[str] = field(default_factory=list)
    """An example of each that is none of good, cut."""
    tokens: int = 0
    seconds: float = 0.0
    """Of all its texts; of a walk those in the masks alone."""
    base_tokens: int = 0
    base_seconds: float = 0.0
    """The same of the schema without what makes it hard; 0 where there is none."""
    admission_ms: float = 0.0
    checked: bool = False
    """The finished text is validated, as the masks do not hold all."""

    def add(self, kind: str, why: str = "") -> None:
        """One more text."""
        self.texts[kind] += 1
        if why and len(self.faults) < 3:
            self.faults.append(f"{kind}: {' '.join(why.split())[:200]}")

    def judged(self, fault: str | None, text: str) -> None:
        """A finished text that nobody objected to, but perhaps the validator."""
        if fault is None:
            self.add("good")
        else:
            self.add("repeated" if fault == REPEATED else "wrong", f"{fault}, in {text}")

    @property
    def cost(self) -> float | None:
        """Seconds a token over those of the base; None where there is nothing to compare."""
        if not (self.tokens and self.base_tokens and self.base_seconds):
            return None
        return self.seconds / self.tokens * self.base_tokens / self.base_seconds

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "texts": dict(self.texts)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Count":
        """What record wrote."""
        return cls(**{**record, "texts": Counter(record["texts"])})


def total(counts: Iterable[Count]) -> Counter[str]:
    """Of several shapes."""
    found: Counter[str] = Counter()
    for count in counts:
        found += count.texts
    return found
