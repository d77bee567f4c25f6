"""Sets of characters as ranges of code points: their algebra, Python's classes, and letter case."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import chain, groupby, pairwise
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points: sorted, apart from one another."""


def union(*sets: Ranges) -> Ranges:
    """What is in any of the sets, whose ranges may stand in any order, and overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(chain(*sets)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """All other code points, surrogates and NUL too."""
    edges = [(-1, -1), *ranges, (0x110000, 0x110000)]
    return tuple(
        (before + 1, after - 1) for (_, before), (after, _) in pairwise(edges) if after > before + 1
    )


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """What is in both sets."""
    return complement(union(complement(one), complement(other)))


def only(chars: str) -> Ranges:
    """These characters."""
    return union(tuple((ord(char), ord(char)) for char in chars))


def single(ranges: Ranges) -> int | None:
    """The only character of a set, if it is one."""
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


SURROGATES: Ranges = ((0xD800, 0xDFFF),)

CHARACTERS = complement(SURROGATES)
"""What Unicode can encode."""

TEXT = intersection(CHARACTERS, complement(((0, 0),)))
"""What generated text can have: all characters but NUL."""


# Classes, by the letter that names them: d, s and w.

ASCII_CLASSES: dict[str, Ranges] = {
    "d": ((0x30, 0x39),),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
}
"""What Python reads a class as with re.ASCII."""


@cache
def unicode_classes() -> dict[str, Ranges]:
    """What Python reads a class as without re.ASCII, from Python itself."""
    every = "".join(map(chr, range(0x110000)))
    return {
        name: tuple((run.start(), run.end() - 1) for run in re.finditer(rf"\{name}+", every))
        for name in ASCII_CLASSES
    }


# Upper and lower case.


@cache
def _cased() -> list[int]:
    """The characters with another case, in order. Scripts that have cases are in planes 0 and 1."""
    letters = map(chr, range(0x20000))
    return [ord(c) for c in letters if c.lower() != c or c.upper() != c]


def _cased_in(ranges: Ranges) -> Iterator[int]:
    cased = _cased()
    for low, high in ranges:
        yield from cased[bisect_left(cased, low) : bisect_right(cased, high)]


def count_cased(ranges: Ranges) -> int:
    """How many characters of a set have another case."""
    cased = _cased()
    return sum(bisect_right(cased, high) - bisect_left(cased, low) for low, high in ranges)


@cache
def _pairs() -> dict[int, int]:
    """The other case of the characters that have exactly one, which leads back."""
    pairs: dict[int, int] = {}
    for upper in _cased():
        lower = chr(upper).lower()
        if len(lower) == 1 and ord(lower) != upper and lower.upper() == chr(upper):
            pairs[upper], pairs[ord(lower)] = ord(lower), upper
    return pairs


def with_other_case(ranges: Ranges, *, ascii_only: bool) -> Ranges:
    """With the other case of each letter: less than re.IGNORECASE matches, never more.

    What Python takes beside them (the sign of Kelvin for k) other readers of (?i) may not.
    """
    pairs = _pairs()
    others = [pairs[char] for char in _cased_in(ranges) if char in pairs]
    return union(ranges, tuple((char, char) for char in others if not ascii_only or char < 0x80))


def _fold_key(char: int) -> str:
    """The same for all characters that re.IGNORECASE may take for one another."""
    return chr(char).lower()[0].upper()


@cache
def _folds() -> dict[str, tuple[int, ...]]:
    by_key = groupby(sorted(_cased(), key=_fold_key), _fold_key)
    return {key: tuple(chars) for key, chars in by_key}


def with_every_case(ranges: Ranges) -> Ranges:
    """With all that Python may take for one of them: for a set of what is left out."""
    folds = _folds()
    alike = chain.from_iterable(folds[_fold_key(char)] for char in _cased_in(ranges))
    return union(ranges, tuple((char, char) for char in alike))
