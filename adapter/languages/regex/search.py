"""Patterns with look-ahead and anchors anywhere, as trees: of texts found in, or matched whole.

What may follow an item is known when the item is read: so `A(?=B)C` is A, then what both B with any
text behind it and C match, and `$` is the empty text there.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import TEXT
from adapter.languages.regex import parse
from adapter.languages.regex.classes import code
from adapter.languages.regex.parse import Where
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Chars,
    Node,
    PatternError,
    choice,
    every,
    negation,
    repeat,
    sequence,
)


def search_tree(pattern: str, *, exact: bool = False) -> Node:
    """The texts in which a pattern is found, as re.search finds it.

    exact: for who asks in which texts it is not found. Classes such as \\w are read as all readers
    do, so a text that is not matched here may be elsewhere.

    Raises:
        PatternError: as `parse` does; look-ahead and anchors are supported outside of repeats.
    """
    return _read(pattern, _found, exact=exact)


def match_tree(pattern: str) -> Node:
    """The texts that a pattern matches as a whole, as re.fullmatch does.

    Raises:
        PatternError: as `search_tree`.
    """
    return _read(pattern, lambda items, where: _behind(items, where, EMPTY))


def _read(pattern: str, tree: Callable[[Any, Where], Node], *, exact: bool = False) -> Node:
    try:
        items = parse.parsed(pattern)
        flags = parse.known_flags(items.state.flags)
        if exact:
            _check_exact(items, flags)
        where = Where(flags, True, False, 0, Budget(parse.MAX_RANGES))
        return parse.bounded(tree(items, where))
    except RecursionError:
        raise PatternError("it is nested too deeply") from None
    except BudgetExceededError:
        raise PatternError("its character classes are too large together") from None


def _found(items: Any, where: Where) -> Node:
    """At the start of a text, or behind some of it."""
    first = _behind(items, where, ANY_TEXT)
    later = _behind(items, where.inside(first=False, last=False), ANY_TEXT)
    if first == later:
        return sequence([ANY_TEXT, first])
    return _either([first, _joined(repeat(Chars(TEXT), 1, None), later)])


def _behind(items: Any, where: Where, rest: Node) -> Node:
    """Some items and what may follow them."""
    if where.depth > parse.MAX_DEPTH:
        raise PatternError("it is nested too deeply")
    wide = [index for index in range(len(items)) if parse.is_wide(items[index : index + 1])]
    first = wide[0] if wide else len(items)
    for index in reversed(range(len(items))):
        op, value = items.data[index]
        rest = _item(op, value, where.inside(first=index <= first, last=False), rest)
    return rest


def _item(op: Any, value: Any, where: Where, rest: Node) -> Node:
    """An item and what may follow it."""
    if op is code.AT and where.flags & re.MULTILINE:
        raise PatternError("anchors of lines are not supported")
    if op is code.AT and value in parse.STARTS:
        return rest if where.at_start else NOTHING
    if op is code.AT and value in parse.ENDS:
        return every([EMPTY, rest])
    if op is code.BRANCH:
        return _either([_behind(option, where, rest) for option in value[1]])
    if op is code.SUBPATTERN:
        _, add, remove, items = value
        return _behind(items, where.with_flags(add, remove), rest)
    if op in (code.ASSERT, code.ASSERT_NOT):
        direction, items = value
        if direction < 0:
            raise PatternError("look-behind assertions are not supported")
        if op is code.ASSERT_NOT:
            _check_exact(items, where.flags)
        ahead = _behind(items, where, ANY_TEXT)
        return every([rest, ahead if op is code.ASSERT else negation(ahead)])
    # The place is of one round, so that an anchor inside is refused.
    node = parse.item(op, value, Where(where.flags, False, False, where.depth, where.budget))
    return _joined(node, rest)


def _check_exact(items: Any, flags: int) -> None:
    """Refuse what readers differ on, of whose texts only those that all agree on are in a tree.

    Raises:
        PatternError: there is such an item.
    """
    if flags & re.IGNORECASE or any(_differs(item) for item in _within(items)):
        raise PatternError("classes such as \\w, or letters in any case, that are not to match")


def _differs(item: Any) -> bool:
    """Whether it is a class with a name, or a group of letters in any case."""
    op, value = item
    return op is code.CATEGORY or (op is code.SUBPATTERN and bool(value[1] & re.IGNORECASE))


def _within(items: Any) -> Iterator[Any]:
    """All items anywhere inside: pairs of an opcode and its argument."""
    waiting = [items]
    while waiting:
        one = waiting.pop()
        if isinstance(one, type(items)):
            waiting += one.data
        elif isinstance(one, list | tuple):
            waiting += one
            if len(one) == 2 and isinstance(one[0], type(code.CATEGORY)):
                yield one


def _joined(node: Node, rest: Node) -> Node:
    return NOTHING if rest == NOTHING else sequence([node, rest])


def _either(options: list[Node]) -> Node:
    some = [option for option in options if option != NOTHING]
    return choice(some) if some else NOTHING
