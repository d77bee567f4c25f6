"""Conditions on the number that a rule of llguidance carries (its parametric grammars)."""

from collections.abc import Iterable
from functools import reduce

TRUE = "true"


def both(parts: Iterable[str]) -> str:
    """All of them."""
    real = [part for part in parts if part != TRUE]
    return reduce(lambda one, two: f"and({one}, {two})", real) if real else TRUE


def any_of(parts: Iterable[str]) -> str:
    """One of one or more."""
    return reduce(lambda one, two: f"or({one}, {two})", parts)


def when(condition: str) -> str:
    """What stands behind an alternative."""
    return "" if condition == TRUE else f" %if {condition}"


class Tally:
    """Bits that are set once each, and a counter above them: how many there are of both."""

    def __init__(self, bits: tuple[int, int], counter: tuple[int, int] | None) -> None:
        """Ranges of bits, their ends left out."""
        self._low, self._high = bits
        self._counter = counter

    @property
    def _set(self) -> str:
        return f"[{self._low}:{self._high}]"

    def below(self, limit: int) -> str:
        """There are fewer than limit."""
        return self._compare("lt", limit)

    def at_least(self, count: int) -> str:
        """There are count or more."""
        return self._compare("ge", count)

    def _compare(self, relation: str, value: int) -> str:
        count = self._high - self._low
        if self._counter is None:
            return (
                f"bit_count_{relation}({self._set}, {value})"
                if count
                else _fixed(0, relation, value)
            )
        counter = f"[{self._counter[0]}:{self._counter[1]}]"
        if not count:
            return f"{relation}({counter}, {value})"
        return any_of(
            both((f"bit_count_eq({self._set}, {have})", _rest(relation, counter, value - have)))
            for have in range(count + 1)
            if relation == "ge" or have < value
        )


def _rest(relation: str, counter: str, value: int) -> str:
    return TRUE if relation == "ge" and value <= 0 else f"{relation}({counter}, {value})"


def _fixed(have: int, relation: str, value: int) -> str:
    return TRUE if (have < value if relation == "lt" else have >= value) else "not(true)"
