"""Reads a caller's regular expression: what it means, whoever enforces it.

The libraries read four dialects (Rust's regex-syntax, xgrammar's EBNF, interegular's Python), and
the same text means different things in them. So Python's own parser reads it, as vLLM's does, and
what it means becomes a tree of the few forms that all of them read alike: characters by their
numbers, sequence, choice, repeat. The language is that of re.fullmatch, but for characters that no
generated text has (surrogates, NUL), and for what a class holds: see `classes`.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import TEXT
from adapter.languages.regex.classes import code, read_class
from adapter.languages.regex.tree import (
    EMPTY,
    Chars,
    Node,
    PatternError,
    children,
    choice,
    positions,
    repeat,
    sequence,
)

_parser: Any = import_module("re._parser")  # Python's own, which has no public name

MAX_DEPTH = 100
"""Nodes inside one another. regex-syntax refuses 250 levels, of which a node takes up to two."""

MAX_POSITIONS = 100_000
"""Characters of a pattern with its repeats written out; outlines_core takes seconds for as many."""

MAX_RANGES = 100_000
"""Ranges of all classes together, and letters in any case: a byte can stand for 700 of them."""


def parse(pattern: str) -> Node:
    """What a pattern means to re.fullmatch.

    Raises:
        PatternError: it is not a regular expression, or has what not all libraries can enforce
            (look-around, references to groups, word boundaries, atomic groups, anchors between
            characters), or a class that holds no character, or is too deep or too large.
    """
    try:
        items = parsed(pattern)
        flags = known_flags(items.state.flags)
        return bounded(tree(items, Where(flags, True, True, 0, Budget(MAX_RANGES))))
    except RecursionError:
        raise PatternError(_TOO_DEEP) from None
    except BudgetExceededError:
        raise PatternError("its character classes are too large together") from None


_TOO_DEEP = f"it is nested too deeply, more than {MAX_DEPTH} levels"

_UNSUPPORTED = {
    code.ASSERT: "look-around assertions are not supported",
    code.ASSERT_NOT: "look-around assertions are not supported",
    code.GROUPREF: "back-references are not supported",
    code.GROUPREF_EXISTS: "conditional groups are not supported",
    code.ATOMIC_GROUP: "atomic groups are not supported",
    code.POSSESSIVE_REPEAT: "possessive quantifiers are not supported",
}

_ANCHORS = {
    code.AT_BEGINNING: "^",
    code.AT_BEGINNING_STRING: r"\A",
    code.AT_END: "$",
    code.AT_END_STRING: r"\Z",
    code.AT_BOUNDARY: r"\b",
    code.AT_NON_BOUNDARY: r"\B",
}
STARTS = (code.AT_BEGINNING, code.AT_BEGINNING_STRING)
ENDS = (code.AT_END, code.AT_END_STRING)

_FLAGS = re.IGNORECASE | re.DOTALL | re.VERBOSE | re.ASCII | re.MULTILINE | re.UNICODE
_CLASS_FLAGS = re.ASCII | re.UNICODE


@dataclass(frozen=True, slots=True)
class Where:
    """Where an item stands: what its meaning depends on."""

    flags: int
    at_start: bool
    """No character can come before it."""
    at_end: bool
    depth: int
    budget: Budget

    def inside(self, first: bool, last: bool) -> "Where":
        """The place of an item of the sequence that stands here."""
        start, end = self.at_start and first, self.at_end and last
        return Where(self.flags, start, end, self.depth + 1, self.budget)

    def with_flags(self, add: int, remove: int) -> "Where":
        kept = self.flags & ~_CLASS_FLAGS if add & _CLASS_FLAGS else self.flags
        flags = (kept | known_flags(add)) & ~remove
        return Where(flags, self.at_start, self.at_end, self.depth, self.budget)


def parsed(pattern: str) -> Any:
    """Python's parse tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _parser.parse(pattern)
        except re.error as error:
            where = "" if error.pos is None else f" at position {error.pos}"
            raise PatternError(f"{error.msg}{where}") from None
        except (OverflowError, ValueError) as error:
            raise PatternError(str(error).partition(";")[0]) from None


def known_flags(flags: int) -> int:
    if flags & ~_FLAGS:
        raise PatternError("inline flags other than i, s, x, a, m and u are not supported")
    return flags


def tree(items: Any, place: Where) -> Node:
    """A list of items, one after the other."""
    if place.depth > MAX_DEPTH:
        raise PatternError(_TOO_DEEP)
    wide = [index for index in range(len(items)) if is_wide(items[index : index + 1])]
    first, last = (wide[0], wide[-1]) if wide else (len(items), -1)
    return sequence(
        [
            item(op, value, place.inside(index <= first, index >= last))
            for index, (op, value) in enumerate(items.data)
        ]
    )


def is_wide(items: Any) -> bool:
    """Whether they can match more than the empty text."""
    _, longest = items.getwidth()
    return bool(longest)


def item(op: Any, value: Any, place: Where) -> Node:
    if op in _UNSUPPORTED:
        raise PatternError(_UNSUPPORTED[op])
    return _READERS[op](value, place)


def _read_literal(value: int, place: Where) -> Node:
    if value == 0:
        raise PatternError("NUL characters are not supported")
    return _read_class([(code.LITERAL, value)], place)


def _read_class(items: list[tuple[Any, Any]], place: Where) -> Node:
    return read_class(items, place.flags, place.budget)


def _read_dot(place: Where) -> Node:
    if place.flags & re.DOTALL:
        return Chars(TEXT)
    return _read_class([(code.NEGATE, None), (code.LITERAL, ord("\n"))], place)


def _read_group(value: tuple[Any, int, int, Any], place: Where) -> Node:
    _, add, remove, items = value
    return tree(items, place.with_flags(add, remove))


def _read_repeat(value: tuple[int, int, Any], place: Where) -> Node:
    low, high, items = value
    # Of more than one round, one is not the first and one not the last.
    once = high <= 1 or not is_wide(items)
    node = tree(items, place.inside(once, once))
    return repeat(node, int(low), None if high == code.MAXREPEAT else int(high))


def _read_anchor(value: Any, place: Where) -> Node:
    name = _ANCHORS[value]
    if (value in STARTS and place.at_start) or (value in ENDS and place.at_end):
        return EMPTY
    if value in STARTS:
        raise PatternError(f"the anchor {name} is supported at the start of the pattern only")
    if value in ENDS:
        raise PatternError(f"the anchor {name} is supported at the end of the pattern only")
    raise PatternError(f"word boundaries ({name}) are not supported")


_READERS: dict[Any, Callable[[Any, Where], Node]] = {
    code.LITERAL: _read_literal,
    code.NOT_LITERAL: lambda value, place: _read_class(
        [(code.NEGATE, None), (code.LITERAL, value)], place
    ),
    code.IN: _read_class,
    code.ANY: lambda _, place: _read_dot(place),
    code.BRANCH: lambda value, place: choice([tree(option, place) for option in value[1]]),
    code.SUBPATTERN: _read_group,
    code.MAX_REPEAT: _read_repeat,
    # Lazy or greedy, the language is the same.
    code.MIN_REPEAT: _read_repeat,
    code.AT: _read_anchor,
}


def bounded(node: Node) -> Node:
    """The node, if the libraries can take it."""
    if _is_deep(node):
        raise PatternError(_TOO_DEEP)
    if positions(node) > MAX_POSITIONS:
        raise PatternError(f"its repeats add up to more than {MAX_POSITIONS} characters")
    return node


def _is_deep(node: Node) -> bool:
    level = [node]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in children(outer)]
    return bool(level)
