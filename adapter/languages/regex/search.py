"""Patterns as JSON Schema reads them: found anywhere in a string."""

from typing import Any

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.regex import parse
from adapter.languages.regex.classes import code
from adapter.languages.regex.tree import ANY_TEXT, Node, PatternError, choice, sequence


def search_tree(pattern: str) -> Node:
    """The texts in which a pattern is found, as re.search finds it.

    Raises:
        PatternError: as `parse` does; also where an anchor stands in one part of a group alone.
    """
    try:
        items = parse.parsed(pattern)
        flags = parse.known_flags(items.state.flags)
        return parse.bounded(choice([_found(part, flags) for part in _parts(items)]))
    except RecursionError:
        raise PatternError("it is nested too deeply") from None
    except BudgetExceededError:
        raise PatternError("its character classes are too large together") from None


def _parts(items: Any) -> list[Any]:
    """The alternatives of a whole pattern."""
    if len(items) == 1 and items.data[0][0] is code.BRANCH:
        parts: list[Any] = items.data[0][1][1]
        return parts
    return [items]


def _found(items: Any, flags: int) -> Node:
    """An alternative, with any text where it has no anchor."""
    data = items.data
    starts = bool(data) and data[0][0] is code.AT and data[0][1] in parse.STARTS
    ends = bool(data) and data[-1][0] is code.AT and data[-1][1] in parse.ENDS
    inner = parse.tree(items, parse.Where(flags, starts, ends, 0, Budget(parse.MAX_RANGES)))
    return sequence([*([] if starts else [ANY_TEXT]), inner, *([] if ends else [ANY_TEXT])])
