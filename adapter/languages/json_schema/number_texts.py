"""The texts of JSON numbers within a bound, of multiples, and of given ones, as languages.

Integers are written without a fraction and an exponent, a number of a list in its shortest form,
all others without an exponent unless nothing is asked of them.
"""

from collections.abc import Iterable
from decimal import Context, Decimal
from functools import cache

from adapter.languages.budget import BudgetExceededError
from adapter.languages.regex.equations import solved
from adapter.languages.regex.tree import (
    EMPTY,
    NOTHING,
    Chars,
    Node,
    choice,
    every,
    repeat,
    sequence,
)

EXACT = Context(prec=3000, Emin=-100_000, Emax=100_000)
"""What numbers are calculated with."""
MOST_DIGITS = 400
"""Of a bound written out; beyond it the text would be longer than any that is wanted."""
_MOST_ENDINGS = 1000


def _digits(low: int, high: int) -> Node:
    return Chars(((0x30 + low, 0x30 + high),)) if low <= high else NOTHING


_DIGIT = _digits(0, 9)
_MINUS, _POINT = Chars(((0x2D, 0x2D),)), Chars(((0x2E, 0x2E),))
_NATURAL = choice([_digits(0, 0), sequence([_digits(1, 9), repeat(_DIGIT, 0, None)])])
_POSITIVE = sequence([_digits(1, 9), repeat(_DIGIT, 0, None)])
INTEGER = choice([_digits(0, 0), sequence([repeat(_MINUS, 0, 1), _POSITIVE])])
_FRACTION = sequence([_POINT, repeat(_DIGIT, 1, None)])
_ZEROS = sequence([_POINT, repeat(_digits(0, 0), 1, None)])
POWER = sequence(
    [
        Chars(((0x45, 0x45), (0x65, 0x65))),
        repeat(Chars(((0x2B, 0x2B), (0x2D, 0x2D))), 0, 1),
        repeat(_DIGIT, 1, None),
    ]
)


WHOLE = sequence([repeat(_MINUS, 0, 1), _NATURAL, repeat(_ZEROS, 0, 1)])
"""Numbers without a fraction but zeros."""


def plain_number() -> Node:
    """Numbers without an exponent."""
    return sequence([repeat(_MINUS, 0, 1), _NATURAL, repeat(_FRACTION, 0, 1)])


def _text(text: str) -> Node:
    return sequence(Chars(((ord(char), ord(char)),)) for char in text)


def number_text(values: Iterable[Decimal], *, zeros: bool = False) -> Node:
    """Exactly these numbers; zeros: also with zeros behind, as `1.0` and `1.50`.

    Raises:
        BudgetExceededError: one has too many digits.
    """
    texts = [_spelled(value, zeros) for value in values]
    return choice(texts) if texts else NOTHING


@cache
def _spelled(value: Decimal, with_zeros: bool) -> Node:
    sign, whole, part = _parts(value)
    shortest = _text(f"{sign}{whole}.{part}" if part else sign + whole)
    if not with_zeros:
        return shortest
    if part:
        return sequence([shortest, repeat(_digits(0, 0), 0, None)])
    text = sequence([shortest, repeat(_ZEROS, 0, 1)])
    return sequence([repeat(_MINUS, 0, 1), text]) if value == 0 else text


def _parts(value: Decimal) -> tuple[str, str, str]:
    """The sign, the digits before the point, and those behind it without zeros at their end."""
    if abs(value.adjusted()) > MOST_DIGITS or -exponent_of(value) > MOST_DIGITS:
        raise BudgetExceededError
    text = f"{abs(value):f}"
    whole, _, part = text.partition(".")
    return "-" if value < 0 else "", whole.lstrip("0") or "0", part.rstrip("0")


def at_least(bound: Decimal, strict: bool, integer: bool) -> Node:
    """Numbers from a bound on."""
    sign, whole, part = _parts(bound)
    if sign:
        below = sequence([_MINUS, _upto(whole, part, strict, integer)])
        return choice([_from("0", "", False, integer), below])
    above = _from(whole, part, strict, integer)
    return _with_zero(above, bound, strict, integer)


def at_most(bound: Decimal, strict: bool, integer: bool) -> Node:
    """Numbers up to a bound."""
    sign, whole, part = _parts(bound)
    if sign:
        return sequence([_MINUS, _from(whole, part, strict, integer)])
    # -0 is 0, which is not below 0.
    negative = sequence([_MINUS, _from("0", "", integer or (strict and not bound), integer)])
    above = _upto(whole, part, strict, integer)
    return negative if above == NOTHING else choice([above, negative])


def _with_zero(node: Node, bound: Decimal, strict: bool, integer: bool) -> Node:
    if bound or strict or integer:
        return node
    return choice([node, sequence([_MINUS, _digits(0, 0), repeat(_ZEROS, 0, 1)])])


def _from(whole: str, part: str, strict: bool, integer: bool) -> Node:
    """Texts without a sign of what is at least whole.part, or above it."""
    any_part = EMPTY if integer else repeat(_FRACTION, 0, 1)
    options = [sequence([_larger(whole), any_part])]
    if integer:
        options += [_text(whole)] if not part and not strict else []
    else:
        options.append(sequence([_text(whole), _part_from(part, strict)]))
    return choice(options)


def _upto(whole: str, part: str, strict: bool, integer: bool) -> Node:
    """Texts without a sign of what is at most whole.part, or below it."""
    any_part = EMPTY if integer else repeat(_FRACTION, 0, 1)
    smaller = _smaller(whole)
    options = [] if smaller == NOTHING else [sequence([smaller, any_part])]
    if integer:
        options += [_text(whole)] if part or not strict else []
    else:
        last = _part_upto(part, strict)
        options += [] if last == NOTHING else [sequence([_text(whole), last])]
    return choice(options) if options else NOTHING


def _larger(whole: str) -> Node:
    """Whole numbers above one."""
    options: list[Node] = [sequence([_digits(1, 9), repeat(_DIGIT, len(whole), None)])]
    for index, digit in enumerate(whole):
        if digit < "9":
            rest = len(whole) - index - 1
            options.append(
                sequence(
                    [_text(whole[:index]), _digits(int(digit) + 1, 9), repeat(_DIGIT, rest, rest)]
                )
            )
    return choice(options)


def _smaller(whole: str) -> Node:
    """Whole numbers from 0 below one."""
    options: list[Node] = []
    if len(whole) > 1:
        options.append(_digits(0, 0))
        options.append(sequence([_digits(1, 9), repeat(_DIGIT, 0, len(whole) - 2)]))
    for index, digit in enumerate(whole):
        least = 1 if index == 0 and len(whole) > 1 else 0
        if int(digit) > least:
            rest = len(whole) - index - 1
            options.append(
                sequence(
                    [
                        _text(whole[:index]),
                        _digits(least, int(digit) - 1),
                        repeat(_DIGIT, rest, rest),
                    ]
                )
            )
    return choice(options) if options else NOTHING


def _part_from(part: str, strict: bool) -> Node:
    """Fractions, with their point, of at least 0.part, or above it."""
    some = repeat(_DIGIT, 0, None)
    options: list[Node] = []
    for index, digit in enumerate(part):
        if digit < "9":
            options.append(sequence([_text(part[:index]), _digits(int(digit) + 1, 9), some]))
    if strict:
        zeros = repeat(_digits(0, 0), 0, None)
        options.append(sequence([_text(part), zeros, _digits(1, 9), some]))
    elif part:
        options.append(sequence([_text(part), some]))
    else:
        return repeat(_FRACTION, 0, 1)
    return sequence([_POINT, choice(options)])


def _part_upto(part: str, strict: bool) -> Node:
    """Fractions, with their point or none at all, of at most 0.part, or below it."""
    some = repeat(_DIGIT, 0, None)
    zeros = repeat(_digits(0, 0), 0, None)
    if not part:
        return NOTHING if strict else repeat(_ZEROS, 0, 1)
    options: list[Node] = [
        sequence([_POINT, _text(part[: end + 1])]) for end in range(len(part) - 1)
    ]
    for index, digit in enumerate(part):
        if digit > "0":
            options.append(
                sequence([_POINT, _text(part[:index]), _digits(0, int(digit) - 1), some])
            )
    if not strict:
        options.append(sequence([_POINT, _text(part), zeros]))
    return choice([EMPTY, *options])


def multiples_of(step: Decimal, integer: bool) -> Node:
    """The multiples of a number, by their last digits, and the remainder of all for 3 and 7.

    Raises:
        BudgetExceededError: these do not tell.
    """
    value = step.normalize(EXACT)
    exponent = exponent_of(value)
    size = int(value.scaleb(-exponent, EXACT))
    parts: list[Node] = []
    for prime in _TOLD_BY_REMAINDER:
        if size % prime == 0:
            size //= prime
            parts.append(_divisible(prime))
    return every([*parts, _by_last_digits(size, exponent, integer)])


_TOLD_BY_REMAINDER = (3, 7)
"""What no last digits tell; the expressions for others are too large."""


@cache
def _divisible(prime: int) -> Node:
    """Texts whose digits are those of a multiple, wherever the point is: 10 has no part in it."""
    moves: dict[tuple[int, int], Node] = {}
    for remainder in range(prime):
        moves[remainder, remainder] = _POINT
        for digit in range(10):
            edge = remainder, (10 * remainder + digit) % prime
            moves[edge] = choice([moves.get(edge, NOTHING), _digits(digit, digit)])
    ends: list[Node] = [EMPTY, *[NOTHING] * (prime - 1)]
    return sequence([repeat(_MINUS, 0, 1), solved(moves, ends, 0, lambda node: node)])


def _by_last_digits(size: int, exponent: int, integer: bool) -> Node:
    """The multiples of size * 10**exponent.

    Raises:
        BudgetExceededError: the last digits do not tell.
    """
    signed = repeat(_MINUS, 0, 1)
    places = next((places for places in range(12) if 10**places % size == 0), None)
    if places is None:
        raise BudgetExceededError
    if exponent >= 0:
        return _whole_multiples(size, places, exponent, integer)
    fraction = -exponent
    if places > fraction:
        raise BudgetExceededError
    if 10**places // size > _MOST_ENDINGS:
        raise BudgetExceededError
    zeros = repeat(_digits(0, 0), 0, None)
    free_digits = fraction - places
    shorter = repeat(_DIGIT, 1, free_digits) if free_digits else None
    endings = (
        [f"{n:0{places}d}".rstrip("0") for n in range(0, 10**places, size)] if places else [""]
    )
    parts: list[Node] = [EMPTY, sequence([_POINT, repeat(_digits(0, 0), 1, None)])]
    if shorter is not None:
        parts.append(sequence([_POINT, shorter, zeros]))
    full = repeat(_DIGIT, free_digits, free_digits)
    parts += [sequence([_POINT, full, _text(ending), zeros]) for ending in endings if ending]
    return sequence([signed, _NATURAL, choice(parts)])


def _whole_multiples(size: int, places: int, exponent: int, integer: bool) -> Node:
    """Multiples of size * 10**exponent, a whole number."""
    if 10**places // size > _MOST_ENDINGS:
        raise BudgetExceededError
    tail = "0" * exponent
    short = [str(n) for n in range(size, 10**places, size)]
    long = [f"{n:0{places}d}" for n in range(0, 10**places, size)] if places else [""]
    positive = choice(
        [
            *[_text(text + tail) for text in short],
            sequence([_POSITIVE, choice([_text(text + tail) for text in long])]),
        ]
    )
    if integer:
        return choice([_digits(0, 0), sequence([repeat(_MINUS, 0, 1), positive])])
    whole = choice([_digits(0, 0), positive])
    return sequence([repeat(_MINUS, 0, 1), whole, repeat(_ZEROS, 0, 1)])


def exponent_of(value: Decimal) -> int:
    """Of its last digit that is not 0."""
    exponent = value.normalize(EXACT).as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent
