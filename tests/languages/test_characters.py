"""Sets of characters as ranges behave as sets do."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.languages.characters import (
    CHARACTERS,
    SURROGATES,
    TEXT,
    Ranges,
    complement,
    intersection,
    only,
    single,
    union,
)

LAST = 0x10FFFF
EDGES = [0, 1, 2, 0x40, 0x41, 0x42, 0xD7FF, 0xD800, 0xDFFF, 0xE000, LAST - 1, LAST]
PAIRS = st.tuples(st.sampled_from(EDGES), st.sampled_from(EDGES)).map(
    lambda pair: (min(pair), max(pair))
)
SETS = st.lists(PAIRS, max_size=4).map(lambda pairs: union(tuple(pairs)))


def held(ranges: Ranges) -> set[int]:
    """Which of the edges a set holds."""
    return {point for point in EDGES if any(low <= point <= high for low, high in ranges)}


@given(one=SETS, other=SETS)
def test_algebra(one: Ranges, other: Ranges) -> None:
    """Union, intersection and complement are those of sets, and complements of complements."""
    assert held(union(one, other)) == held(one) | held(other)
    assert held(intersection(one, other)) == held(one) & held(other)
    assert held(complement(one)) == set(EDGES) - held(one)
    assert complement(complement(one)) == one


@given(pairs=st.lists(PAIRS, max_size=5))
def test_ranges_are_sorted_and_apart(pairs: list[tuple[int, int]]) -> None:
    """Whatever order ranges come in, those of a set neither touch nor overlap."""
    ranges = union(tuple(pairs))
    assert held(ranges) == held(tuple(pairs))
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(ranges))


def test_text_has_neither_surrogates_nor_nul() -> None:
    """What can be generated is what UTF-8 can encode, but for NUL."""
    assert held(CHARACTERS) == set(EDGES) - {0xD800, 0xDFFF}
    assert held(TEXT) == held(CHARACTERS) - {0}
    assert intersection(CHARACTERS, SURROGATES) == ()


@pytest.mark.parametrize(("chars", "point"), [("a", 97), ("aa", 97), ("ab", None), ("", None)])
def test_single(chars: str, point: int | None) -> None:
    """A set of one character is told from all others."""
    assert single(only(chars)) == point
