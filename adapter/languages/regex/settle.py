"""What looks around no further than the trees beside it, as a part of them."""

from math import inf
from typing import TypeGuard

from adapter.languages.regex.items import (
    PLAIN,
    Ahead,
    Atomic,
    Behind,
    Item,
    Options,
    Rounds,
    Series,
    series,
)
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    All,
    Choice,
    Node,
    Not,
    Repeat,
    Sequence,
    every,
    lengths,
    negation,
    sequence,
)


def settled(item: Item) -> Item:
    """The item; `(?!-)[a-z-]+` is a tree, of what both `[a-z-]+` and not `-.*` match."""
    parts: list[Item] = []
    for part in item.parts if isinstance(item, Series) else (item,):
        if isinstance(part, Behind) and parts and _decides(parts[-1], part.before, 0):
            parts[-1] = every([parts[-1], part.before])
        else:
            parts.append(part)
    found: list[Item] = []
    for part in reversed(parts):
        ahead = _ahead(part)
        if ahead is not None and found and _decides(found[-1], ahead, -1):
            found[-1] = every([found[-1], ahead])
        else:
            found.append(part)
    return series(reversed(found))


def settled_at_start(item: Item) -> Item:
    """An item that stands at the start of the text, where a tree is all the text before.

    What asks for one character is left: it needs no intersection.
    """
    parts = list(item.parts) if isinstance(item, Series) else [item]
    tree: Node = EMPTY
    while parts:
        match parts[0]:
            case Behind(before) if _reach(before, 0) > 1:
                tree = every([tree, before])
            case Ahead() | Behind() | Series() | Options() | Rounds() | Atomic():
                break
            case plain:
                tree = sequence([tree, plain])
        parts.pop(0)
    return series([tree, *parts])


def _ahead(item: Item) -> Node | None:
    """All the text that may follow, where a tree says it."""
    if not isinstance(item, Ahead) or not isinstance(item.after, PLAIN):
        return None
    return negation(item.after) if item.negative else item.after


def _decides(item: Item, around: Node, far: int) -> TypeGuard[Node]:
    """Whether an item is a tree whose texts alone decide if all the text on a side matches."""
    return isinstance(item, PLAIN) and _reach(around, far) <= lengths(item)[0]


def _reach(node: Node, far: int) -> float:
    """How many characters beside a place decide whether all the text on that side matches.

    far: the index of the part of a sequence that is farthest from the place.
    """
    match node:
        case Not(inner):
            return _reach(inner, far)
        case Choice(inner) | All(inner):
            return max(_reach(each, far) for each in inner)
        case Repeat(inner, 0, 1):
            return max(1, _reach(inner, far))
        case Sequence(()):
            return 1
        case Sequence(parts) if parts[far] == ANY_TEXT:
            return lengths(sequence(parts[1:] if far == 0 else parts[:-1]))[1]
    return 0 if node == ANY_TEXT else inf
