"""What a set in brackets holds, as Python's own parser reads it.

A class holds the characters that it holds both with and without re.ASCII, for whoever checks the
text may read it either way.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

from adapter.languages import characters
from adapter.languages.budget import Budget
from adapter.languages.characters import Ranges, complement, intersection, union
from adapter.languages.regex.tree import Node, PatternError, counted

code: Any = import_module("re._constants")  # the opcodes have no public name

Items: TypeAlias = tuple[tuple[Any, Any], ...]
"""The opcodes of a set and their values; NEGATE comes first."""

_CATEGORIES = {
    code.CATEGORY_DIGIT: ("d", False),
    code.CATEGORY_NOT_DIGIT: ("d", True),
    code.CATEGORY_SPACE: ("s", False),
    code.CATEGORY_NOT_SPACE: ("s", True),
    code.CATEGORY_WORD: ("w", False),
    code.CATEGORY_NOT_WORD: ("w", True),
}


def read_class(
    items: Iterable[tuple[Any, Any]], flags: int, budget: Budget, *, widest: bool = False
) -> Node:
    """The characters of text in a set; budget: of ranges, and of letters in any case.

    widest: those that it holds under either reading, for a set of what must not match.

    Raises:
        PatternError: there are none.
        BudgetExceededError: there are too many ranges, or letters.
    """
    items = tuple(items)
    flags &= re.IGNORECASE | re.ASCII
    if flags & re.IGNORECASE:
        budget.spend(characters.count_cased(_members(items)))
    ranges = _read(items, flags, widest)
    budget.spend(len(ranges))
    if not ranges and not widest:
        raise PatternError("a character class matches no character, or none but NUL and surrogates")
    return counted(ranges, 1, 1)


@lru_cache(64)
def _read(items: Items, flags: int, widest: bool) -> Ranges:
    if widest:
        others = items[1:] if items[0][0] is code.NEGATE else ((code.NEGATE, None), *items)
        return intersection(complement(_read(others, flags, False)), characters.TEXT)
    negated = items[0][0] is code.NEGATE
    return intersection((_left_out if negated else _held)(items, flags), characters.TEXT)


def _held(items: Items, flags: int) -> Ranges:
    """What the items hold under both readings."""
    members = union(_members(items))
    if flags & re.IGNORECASE:
        members = characters.with_other_case(members, ascii_only=bool(flags & re.ASCII))
    return union(members, _in_both_readings(_categories(items)))


def _left_out(items: Items, flags: int) -> Ranges:
    """What the items hold under neither reading."""
    members = union(_members(items))
    if flags & re.IGNORECASE:
        members = characters.with_every_case(members)
    return complement(union(members, _in_either_reading(_categories(items))))


def _members(items: Items) -> Ranges:
    """What a set names one by one, as it stands there."""
    literals = ((value, value) for op, value in items if op is code.LITERAL)
    return (*literals, *(value for op, value in items if op is code.RANGE))


def _categories(items: Items) -> frozenset[Any]:
    return frozenset(value for op, value in items if op is code.CATEGORY)


@lru_cache(64)
def _in_both_readings(categories: frozenset[Any]) -> Ranges:
    return intersection(
        _together(categories, characters.ASCII_CLASSES),
        _together(categories, characters.unicode_classes()),
    )


@lru_cache(64)
def _in_either_reading(categories: frozenset[Any]) -> Ranges:
    return union(
        _together(categories, characters.ASCII_CLASSES),
        _together(categories, characters.unicode_classes()),
    )


def _together(categories: frozenset[Any], classes: Mapping[str, Ranges]) -> Ranges:
    """What \\d, \\w and the like stand for together."""
    return union(*(_category(value, classes) for value in categories))


def _category(value: Any, classes: Mapping[str, Ranges]) -> Ranges:
    name, negated = _CATEGORIES[value]
    return complement(classes[name]) if negated else classes[name]
