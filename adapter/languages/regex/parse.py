"""Reads a caller's regular expression: what it means, whoever enforces it.

The libraries read four dialects (Rust's regex-syntax, xgrammar's EBNF, interegular's Python), and
the same text means different things in them. So Python's own parser reads it, as vLLM's does, and
what it means becomes a tree of the few forms that all of them read alike: characters by their
numbers, sequence, choice, repeat; and intersection and complement, where a pattern looks around.
The language is that of re.fullmatch, but for characters that no generated text has (surrogates,
NUL), and for what a class holds: see `classes`.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import TEXT, only
from adapter.languages.regex.boundaries import boundary
from adapter.languages.regex.classes import code, read_class
from adapter.languages.regex.items import (
    Ahead,
    Behind,
    Item,
    atomic,
    consumed,
    inside,
    options,
    rounds,
    series,
)
from adapter.languages.regex.look import is_once, meaning
from adapter.languages.regex.settle import settled
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    Chars,
    Node,
    PatternError,
    children,
    choice,
    is_plain,
    matches_empty,
    negation,
    positions,
    sequence,
)

_parser: Any = import_module("re._parser")  # Python's own, which has no public name

MAX_DEPTH = 100
"""Nodes inside one another. regex-syntax refuses 250 levels, of which a node takes up to two."""

MAX_POSITIONS = 100_000
"""Characters of a pattern with its repeats written out; outlines_core takes seconds for as many."""

MAX_RANGES = 100_000
"""Ranges of all classes together, and letters in any case: a byte can stand for 700 of them."""

_MAX_PROOFS = 20_000


def parse(pattern: str) -> Node:
    """What a pattern means to re.fullmatch.

    Raises:
        PatternError: it is not a regular expression, or has what cannot be enforced (references to
            groups; look-around, atomic groups and possessive quantifiers in some places), or a
            class that holds no character, or is too deep or too large.
    """
    return _meaning(pattern)


def parse_part(pattern: str) -> Node:
    """What a pattern means to re.fullmatch, inside a text of which it is a part.

    Raises:
        PatternError: as `parse`; or it could look at the text around its own.
    """
    node = _meaning(pattern, part=True)
    if not is_plain(node):
        raise PatternError("anchors are supported at the start and the end of the pattern only")
    return node


def search_tree(pattern: str, *, widest: bool = False) -> Node:
    """The texts in which a pattern is found, by re.search and by readers of ECMA 262 alike.

    So `$` is the end of the text alone, and not what is before a newline there, too.

    widest: those in which any of them finds it, for who asks where it is not found.

    Raises:
        PatternError: as `parse`.
    """
    find = _search_tree if len(pattern) < _MOST_KEPT else _search_tree.__wrapped__
    return find(pattern, widest)


_MOST_KEPT = 1000
"""Characters of a pattern whose tree is kept: a schema says the same of many members."""


@lru_cache(256)
def _search_tree(pattern: str, widest: bool) -> Node:
    return _meaning(pattern, _anywhere, strict_end=True, negative=widest)


def _anywhere(item: Item) -> Item:
    return series([ANY_TEXT, item, ANY_TEXT])


def _meaning(
    pattern: str, around: Callable[[Item], Item] = lambda item: item, **place: bool
) -> Node:
    """The texts that match as a whole, of what is put around a pattern."""
    try:
        items = _parsed(pattern)
        flags = _known_flags(items.state.flags)
        start = _Place(flags, 0, Budget(MAX_RANGES), Budget(_MAX_PROOFS), **place)
        return _bounded(meaning(around(_item_of(items, start))))
    except RecursionError:
        raise PatternError(_TOO_DEEP) from None
    except BudgetExceededError:
        raise PatternError("its classes and atomic groups are too large together") from None


_TOO_DEEP = f"it is nested too deeply, more than {MAX_DEPTH} levels"

_UNSUPPORTED = {
    code.GROUPREF: "back-references are not supported",
    code.GROUPREF_EXISTS: "conditional groups are not supported",
}
_UNSUPPORTED_IN_PARTS = {
    code.ASSERT: "look-around assertions are not supported",
    code.ASSERT_NOT: "look-around assertions are not supported",
    code.ATOMIC_GROUP: "atomic groups are not supported",
    code.POSSESSIVE_REPEAT: "possessive quantifiers are not supported",
}
_BOUNDARIES = {code.AT_BOUNDARY: r"\b", code.AT_NON_BOUNDARY: r"\B"}

_FLAGS = re.IGNORECASE | re.DOTALL | re.VERBOSE | re.ASCII | re.MULTILINE | re.UNICODE
_CLASS_FLAGS = re.ASCII | re.UNICODE


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an item stands: what its meaning depends on."""

    flags: int
    depth: int
    budget: Budget
    proofs: Budget
    """Of work to find out in how many ways what is atomic can match."""
    strict_end: bool = False
    """Nothing comes behind `$`, not even a newline."""
    part: bool = False
    """The pattern is of a part of a text."""
    negative: bool = False
    """What stands here is what must not match."""

    def inside(self) -> "_Place":
        """The place of an item of the sequence that stands here."""
        return replace(self, depth=self.depth + 1)

    def widest(self) -> "_Place":
        """This place, where classes hold what any reader takes them for."""
        return replace(self, negative=True)

    def with_flags(self, add: int, remove: int) -> "_Place":
        kept = self.flags & ~_CLASS_FLAGS if add & _CLASS_FLAGS else self.flags
        return replace(self, flags=(kept | _known_flags(add)) & ~remove)


def _parsed(pattern: str) -> Any:
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


def _known_flags(flags: int) -> int:
    if flags & ~_FLAGS:
        raise PatternError("inline flags other than i, s, x, a, m and u are not supported")
    return flags


def _item_of(items: Any, place: _Place) -> Item:
    """A list of items, one after the other."""
    if place.depth > MAX_DEPTH:
        raise PatternError(_TOO_DEEP)
    return series([_item(op, value, place.inside()) for op, value in items.data])


def _item(op: Any, value: Any, place: _Place) -> Item:
    if op in _UNSUPPORTED:
        raise PatternError(_UNSUPPORTED[op])
    if place.part and op in _UNSUPPORTED_IN_PARTS:
        raise PatternError(_UNSUPPORTED_IN_PARTS[op])
    return _READERS[op](value, place)


def _read_literal(value: int, place: _Place) -> Item:
    if value == 0:
        raise PatternError("NUL characters are not supported")
    return _read_class([(code.LITERAL, value)], place)


def _read_class(items: list[tuple[Any, Any]], place: _Place) -> Node:
    return read_class(items, place.flags, place.budget, widest=place.negative)


def _read_dot(place: _Place) -> Item:
    if place.flags & re.DOTALL:
        return Chars(TEXT)
    return _read_class([(code.NEGATE, None), (code.LITERAL, ord("\n"))], place)


def _read_group(value: tuple[Any, int, int, Any], place: _Place) -> Item:
    _, add, remove, items = value
    return _item_of(items, place.with_flags(add, remove))


def _read_repeat(value: tuple[int, int, Any], place: _Place) -> Item:
    low, high, items = value
    return rounds(settled(_item_of(items, place)), int(low), _bound(high))


def _bound(high: Any) -> int | None:
    return None if high == code.MAXREPEAT else int(high)


# Of what is atomic, the first of all ways to match is taken and never reconsidered.


def _read_possessive(value: tuple[int, int, Any], place: _Place) -> Item:
    """As many rounds as there can be: fewer than the most, where no other one can follow."""
    low, high, items = int(value[0]), _bound(value[1]), value[2]
    if high == 0:
        return EMPTY
    widest = _item_of(items, place.widest())
    if low != high and matches_empty(consumed(widest)):
        raise PatternError("a possessive quantifier is not supported on what can be empty")
    if low <= 1:
        # A further round that fails ends them: no round before it is reconsidered.
        item = _read_atomic(items, place)
    elif is_once(widest, place.proofs):
        item = _item_of(items, place)
    else:
        raise PatternError(
            "a possessive quantifier of two rounds or more is not supported where a round can "
            "match in several ways"
        )
    return atomic(_most_rounds(settled(item), low, high, _none_ahead(items, place)))


def _most_rounds(item: Item, low: int, high: int | None, stop: Item) -> Item:
    if low == high:
        return rounds(item, low, high)
    if high is None:
        return series([rounds(item, low, None), stop])
    return options([rounds(item, high, high), series([rounds(item, low, high - 1), stop])])


def _read_atomic(items: Any, place: _Place) -> Item:
    if _is_once(items, place):
        return atomic(_item_of(items, place))
    if not _is_once(items[:-1], place):
        raise PatternError(
            "an atomic group is not supported where what comes before its last part can match in "
            "several ways"
        )
    op, value = items.data[-1]
    return atomic(series([_item_of(items[:-1], place), _first_way(op, value, place.inside())]))


def _first_way(op: Any, value: Any, place: _Place) -> Item:
    """The first way in which an item matches."""
    match op:
        case code.MAX_REPEAT:
            return _read_possessive(value, place)
        case code.MIN_REPEAT:
            return _read_possessive((value[0], value[0], value[2]), place)
        case code.SUBPATTERN:
            _, add, remove, items = value
            return _read_atomic(items, place.with_flags(add, remove))
        case code.BRANCH:
            earlier = [_none_ahead(option, place) for option in value[1]]
            return options(
                series([*earlier[:index], _read_atomic(option, place)])
                for index, option in enumerate(value[1])
            )
    return _item(op, value, place)


def _none_ahead(items: Any, place: _Place) -> Item:
    """Nothing, where the items do not match."""
    return _read_ahead((1, items), place, negative=True)


def _is_once(items: Any, place: _Place) -> bool:
    """Whether there is one way at most to match, whatever readers take a class for."""
    return is_once(_item_of(items, place.widest()), place.proofs)


# Look-around and anchors.


def _read_ahead(value: tuple[int, Any], place: _Place, *, negative: bool) -> Item:
    direction, items = value
    inner = _item_of(items, replace(place, negative=place.negative ^ negative))
    if direction > 0:
        return Ahead(series([inner, ANY_TEXT]), negative)
    if any(isinstance(each, Ahead) for each in inside(inner)):
        raise PatternError("look-ahead inside a look-behind is not supported")
    before = meaning(series([ANY_TEXT, inner]))
    return Behind(negation(before) if negative else before)


_NEWLINE = Chars(only("\n"))


def _read_anchor(value: Any, place: _Place) -> Item:
    several = place.flags & re.MULTILINE
    match value:
        case code.AT_BEGINNING_STRING:
            return Behind(EMPTY)
        case code.AT_BEGINNING:
            lines = sequence([ANY_TEXT, _NEWLINE])
            return Behind(choice([EMPTY, lines]) if several else EMPTY)
        case code.AT_END_STRING:
            return Ahead(EMPTY)
        case code.AT_END if several:
            return Ahead(choice([EMPTY, sequence([_NEWLINE, ANY_TEXT])]))
        case code.AT_END:
            # Of what must not match, both readings are left out.
            strict = place.strict_end and not place.negative
            return Ahead(EMPTY if strict else choice([EMPTY, _NEWLINE]))
    if place.part:
        raise PatternError(f"word boundaries ({_BOUNDARIES[value]}) are not supported")
    return boundary(inner=value is code.AT_NON_BOUNDARY, widest=place.negative)


_READERS: dict[Any, Callable[[Any, _Place], Item]] = {
    code.LITERAL: _read_literal,
    code.NOT_LITERAL: lambda value, place: _read_class(
        [(code.NEGATE, None), (code.LITERAL, value)], place
    ),
    code.IN: _read_class,
    code.ANY: lambda _, place: _read_dot(place),
    code.BRANCH: lambda value, place: options([_item_of(option, place) for option in value[1]]),
    code.SUBPATTERN: _read_group,
    code.MAX_REPEAT: _read_repeat,
    # Lazy or greedy, the language is the same.
    code.MIN_REPEAT: _read_repeat,
    code.POSSESSIVE_REPEAT: _read_possessive,
    code.ATOMIC_GROUP: _read_atomic,
    code.ASSERT: lambda value, place: _read_ahead(value, place, negative=False),
    code.ASSERT_NOT: lambda value, place: _read_ahead(value, place, negative=True),
    code.AT: _read_anchor,
}


def _bounded(node: Node) -> Node:
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
