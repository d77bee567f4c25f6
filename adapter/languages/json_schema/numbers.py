"""JSON numbers that meet bounds, multiples and exclusions, exactly."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import lcm

from adapter.languages.budget import BudgetExceededError
from adapter.languages.json_schema.number_texts import (
    EXACT,
    INTEGER,
    MOST_DIGITS,
    POWER,
    WHOLE,
    at_least,
    at_most,
    exponent_of,
    multiples_of,
    number_text,
    plain_number,
)
from adapter.languages.regex.tree import Node, every, negation, repeat, sequence

_MOST_LISTED = 2000


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that meet all of some conditions."""

    integer: bool | None = None
    """True: without a fraction; False: with one; None: either."""
    minimum: Decimal | None = None
    exclusive_minimum: bool = False
    maximum: Decimal | None = None
    exclusive_maximum: bool = False
    multiples: frozenset[Decimal] = frozenset()
    """A multiple of each."""
    not_multiples: frozenset[Decimal] = frozenset()
    """A multiple of none."""
    excluded: frozenset[Decimal] = frozenset()
    never: bool = False
    """Conditions that cannot be met together."""

    def meet(self, other: "Numbers") -> "Numbers":
        """What both allow."""
        low = max(_lows(self) + _lows(other), default=(None, False))
        high = min(_highs(self) + _highs(other), default=(None, True))
        return Numbers(
            self.integer if other.integer is None else other.integer,
            low[0],
            low[1],
            high[0],
            not high[1],
            self.multiples | other.multiples,
            self.not_multiples | other.not_multiples,
            self.excluded | other.excluded,
            self.never or other.never or {self.integer, other.integer} >= {True, False},
        )

    def is_empty(self) -> bool:
        """Whether there is no such number."""
        if self.never:
            return True
        if self.minimum is None or self.maximum is None:
            return bool(self.multiples & self.not_multiples)
        if self.minimum > self.maximum:
            return True
        if self.minimum == self.maximum:
            return not self._has(self.minimum)
        listed = self.values(_MOST_LISTED)
        return listed is not None and not listed

    def _has(self, value: Decimal) -> bool:
        return (
            not (self.integer is not None and _is_multiple(value, Decimal(1)) != self.integer)
            and not (self.minimum is not None and value < self.minimum)
            and not (self.maximum is not None and value > self.maximum)
            and not (self.exclusive_minimum and value == self.minimum)
            and not (self.exclusive_maximum and value == self.maximum)
            and all(_is_multiple(value, step) for step in self.multiples)
            and not any(_is_multiple(value, step) for step in self.not_multiples)
            and value not in self.excluded
        )

    def values(self, most: int) -> list[Decimal] | None:
        """All of them in order, None where there are more than most."""
        if self.never:
            return []
        if self.minimum is None or self.maximum is None:
            return None
        step = self._step()
        if step is None:
            if self.minimum < self.maximum:
                return None
            return [self.minimum] if self._has(self.minimum) else []
        first = _divided(self.minimum, step, ROUND_CEILING)
        last = _divided(self.maximum, step, ROUND_FLOOR)
        if last - first >= most + len(self.excluded) + 2:
            return None
        found = (EXACT.multiply(Decimal(n), step) for n in range(first, last + 1))
        held = [value for value in found if self._has(value)]
        return held if len(held) <= most else None

    def _step(self) -> Decimal | None:
        """What all of them are multiples of."""
        steps = [*self.multiples, *([Decimal(1)] if self.integer else [])]
        if not steps:
            return None
        scale = min(*map(exponent_of, steps), 0)
        return Decimal(lcm(*(int(step.scaleb(-scale, EXACT)) for step in steps))).scaleb(
            scale, EXACT
        )

    def written(self) -> Node:
        """Their texts, each number in the spellings that the module names.

        Raises:
            BudgetExceededError: they cannot be told by a regular expression of bounded size.
        """
        if self == ANY:
            return sequence([plain_number(), repeat(POWER, 0, 1)])
        listed = self.values(_MOST_LISTED)
        if listed is not None:
            return number_text(listed)
        parts: list[Node] = []
        if self.minimum is not None:
            parts.append(at_least(self.minimum, self.exclusive_minimum, bool(self.integer)))
        if self.maximum is not None:
            parts.append(at_most(self.maximum, self.exclusive_maximum, bool(self.integer)))
        # What is within a bound is the text of a number, or of an integer, already.
        parts = parts or [INTEGER if self.integer else plain_number()]
        parts += [multiples_of(step, bool(self.integer)) for step in sorted(self.multiples)]
        if self.integer is False:
            parts.append(negation(WHOLE))
        parts += [negation(multiples_of(step, False)) for step in sorted(self.not_multiples)]
        if self.excluded:
            parts.append(negation(number_text(sorted(self.excluded), zeros=True)))
        return every(parts)


ANY = Numbers()


def _lows(numbers: Numbers) -> list[tuple[Decimal, bool]]:
    return [] if numbers.minimum is None else [(numbers.minimum, numbers.exclusive_minimum)]


def _highs(numbers: Numbers) -> list[tuple[Decimal, bool]]:
    return [] if numbers.maximum is None else [(numbers.maximum, not numbers.exclusive_maximum)]


def _is_multiple(value: Decimal, step: Decimal) -> bool:
    scale = min(exponent_of(value), exponent_of(step))
    if max(abs(value.adjusted()), abs(step.adjusted()), -scale) > MOST_DIGITS:
        raise BudgetExceededError
    return int(value.scaleb(-scale, EXACT)) % int(step.scaleb(-scale, EXACT)) == 0


def _divided(value: Decimal, step: Decimal, rounding: str) -> int:
    scale = min(exponent_of(value), exponent_of(step))
    if max(abs(value.adjusted()), abs(step.adjusted()), -scale) > MOST_DIGITS:
        raise BudgetExceededError
    whole, rest = divmod(int(value.scaleb(-scale, EXACT)), int(step.scaleb(-scale, EXACT)))
    return whole + (rounding == ROUND_CEILING and rest != 0)
