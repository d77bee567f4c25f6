"""Sets of numbers as languages of texts: compared with exact arithmetic over all short texts."""

import re
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.budget import BudgetExceededError
from adapter.languages.json_schema.number_texts import number_text
from adapter.languages.json_schema.numbers import Numbers
from adapter.languages.regex.language import Language

NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
TEXTS = [
    text
    for length in range(1, 6)
    for text in map("".join, product("-.0159", repeat=length))
    if NUMBER.fullmatch(text)
]
SMALL = st.decimals(-20, 20, places=2) | st.integers(-120, 120).map(Decimal)
STEPS = st.sampled_from(
    ["1", "2", "5", "10", "0.5", "0.25", "0.01", "7", "1.5", "0.21", "15", "11"]
).map(Decimal)


def meets(numbers: Numbers, value: Fraction) -> bool:
    """By exact arithmetic."""
    low, high = numbers.minimum, numbers.maximum
    return not numbers.never and (
        (numbers.integer is None or (value.denominator == 1) == numbers.integer)
        and (low is None or value >= Fraction(low))
        and (high is None or value <= Fraction(high))
        and not (value == low and numbers.exclusive_minimum)
        and not (value == high and numbers.exclusive_maximum)
        and all((value / Fraction(step)).denominator == 1 for step in numbers.multiples)
        and all((value / Fraction(step)).denominator != 1 for step in numbers.not_multiples)
        and value not in numbers.excluded
    )


@st.composite
def sets(draw: st.DrawFn) -> Numbers:
    """Conjunctions of one to three conditions."""
    one = Numbers(
        integer=draw(st.sampled_from([None, None, True, False])),
        minimum=draw(st.none() | SMALL),
        exclusive_minimum=draw(st.booleans()),
        maximum=draw(st.none() | SMALL),
        exclusive_maximum=draw(st.booleans()),
    )
    more = Numbers(
        multiples=draw(st.frozensets(STEPS, max_size=1)),
        excluded=draw(st.frozensets(SMALL, max_size=2)),
        maximum=draw(st.none() | SMALL),
    )
    not_multiple = Numbers(not_multiples=draw(st.frozensets(STEPS, max_size=1)))
    return one.meet(more).meet(draw(st.sampled_from([Numbers(), not_multiple])))


@settings(deadline=None, max_examples=150)
@given(numbers=sets())
def test_texts_are_those_of_the_numbers(numbers: Numbers) -> None:
    """A text is written where its value meets all conditions; integers and lists have one form."""
    try:
        language = Language(numbers.written())
        empty = numbers.is_empty()
    except BudgetExceededError:  # multiples of 11 without bounds
        assert Decimal(11) in numbers.multiples | numbers.not_multiples
        return
    assert not empty or language.is_empty()
    listed = numbers.values(2000) is not None
    for text in TEXTS:
        if ("." in text and numbers.integer) or (listed and "." in text and text.endswith("0")):
            assert not language.matches(text), text
        elif Fraction(text) or not text.startswith("-"):
            assert language.matches(text) == meets(numbers, Fraction(text)), text
        else:  # minus zero need not be written
            assert not language.matches(text) or meets(numbers, Fraction(0)), text


@settings(deadline=None, max_examples=150)
@given(numbers=sets())
def test_values_are_all_of_them(numbers: Numbers) -> None:
    """Listed where they are few, each met and each different."""
    values = numbers.values(300)
    if values is None:
        return
    assert len(set(values)) == len(values)
    assert all(meets(numbers, Fraction(value)) for value in values)
    known = {Fraction(value) for value in values}
    assert all(Fraction(text) in known for text in TEXTS if meets(numbers, Fraction(text)))


@pytest.mark.parametrize(
    ("numbers", "texts", "others"),
    [
        (Numbers(minimum=Decimal(2**53 + 1), maximum=Decimal(2**53 + 1)), [2**53 + 1], [2**53]),
        (Numbers(integer=True, maximum=Decimal(2**64 - 1)), [2**64 - 1, -(2**70)], [2**64]),
        (Numbers(minimum=Decimal("1e20"), maximum=Decimal("1e20")), [10**20], [10**20 + 1]),
        (
            Numbers(minimum=Decimal("0.30000000000000004")),
            ["0.30000000000000004", "0.3000000000000001"],
            ["0.3", "0.30000000000000003"],
        ),
        (
            Numbers(None, Decimal(0), True, Decimal(1), True),
            ["0.5", "0.00001", "0.99"],
            ["0", "0.0", "1", "1.0", "-0.5", "-0"],
        ),
        (Numbers(integer=True, multiples=frozenset({Decimal("0.5")})), [1, 0, -7], ["0.5", "1.5"]),
        (
            Numbers(integer=True, multiples=frozenset({Decimal(21)})),
            [0, 21, -42, 21 * 10**30 + 42],
            [7, 3, 20, 21 * 10**30 + 1, "21.0", "-0"],
        ),
        (
            Numbers(multiples=frozenset({Decimal("0.3")}), minimum=Decimal(1)),
            ["1.2", "1.20", "3", "3.0", "123456789.3"],
            ["0.9", "1", "1.25", "1.3", "123456789.4", "1.21"],
        ),
        (Numbers(integer=True, not_multiples=frozenset({Decimal(7)})), [1, -8, 22], [0, 7, -21]),
        (Numbers(), ["1e5", "-0", "2.5E-7"], ["01", "1.", ".5", "+1", ""]),
    ],
)
def test_extremes(numbers: Numbers, texts: list[int | str], others: list[int | str]) -> None:
    """Of any size, and at the edges of bounds."""
    language = Language(numbers.written())
    assert [text for text in texts if not language.matches(str(text))] == []
    assert [text for text in others if language.matches(str(text))] == []


def test_constants_may_end_in_zeros() -> None:
    """Where they are left out of other numbers; they are written in their shortest form."""
    language = Language(number_text([Decimal("1.5"), Decimal(2)], zeros=True))
    for text in ("1.5", "1.500", "2", "2.0"):
        assert language.matches(text)
    shortest = Language(number_text([Decimal("1.50"), Decimal("2.0"), Decimal("1e2")]))
    assert shortest.words(4) == ["2", "1.5", "100"]
