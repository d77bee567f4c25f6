"""A pattern as it was read: trees, and between them what looks ahead or behind."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from adapter.languages.regex.tree import (
    EMPTY,
    All,
    Chars,
    Choice,
    Node,
    Not,
    Repeat,
    Sequence,
    choice,
    repeat,
    sequence,
)


@dataclass(frozen=True, slots=True)
class Behind:
    """Nothing, where all the text before matches a tree."""

    before: Node


@dataclass(frozen=True, slots=True)
class Ahead:
    """Nothing, where all the text behind matches an item, or with negative where it does not."""

    after: "Item"
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One after the other."""

    parts: "tuple[Item, ...]"


@dataclass(frozen=True, slots=True)
class Options:
    """One of them."""

    options: "tuple[Item, ...]"


@dataclass(frozen=True, slots=True)
class Rounds:
    """low to high times; possessive: as often as it can be, which is never reconsidered."""

    item: "Item"
    low: int
    high: int | None
    possessive: bool = False


Item: TypeAlias = Node | Behind | Ahead | Series | Options | Rounds

PLAIN = (Chars, Sequence, Choice, Repeat, All, Not)
"""What is a tree already: it looks at no text but its own."""


def series(parts: Iterable[Item]) -> Item:
    """One after the other; what is plain in a row is one tree."""
    flat: list[Item] = []
    for part in parts:
        for inner in part.parts if isinstance(part, Series) else (part,):
            if isinstance(inner, PLAIN) and flat and isinstance(flat[-1], PLAIN):
                flat[-1] = sequence([flat[-1], inner])
            elif inner != EMPTY:
                flat.append(inner)
    return EMPTY if not flat else flat[0] if len(flat) == 1 else Series(tuple(flat))


def options(items: Iterable[Item]) -> Item:
    """One of them; what is plain is one tree."""
    items = list(items)
    plain = [item for item in items if isinstance(item, PLAIN)]
    others = [item for item in items if not isinstance(item, PLAIN)]
    if not others:
        return choice(plain)
    return Options((*([choice(plain)] if plain else []), *others))


def rounds(item: Item, low: int, high: int | None) -> Item:
    """low to high times."""
    if isinstance(item, PLAIN):
        return repeat(item, low, high)
    if is_zero_width(item):
        # Once more at the same place says nothing more.
        return item if low else EMPTY
    return item if (low, high) == (1, 1) else Rounds(item, low, high)


def inside(item: Item) -> Iterator[Item]:
    """An item and all items in it, without the insides of trees."""
    pending = [item]
    while pending:
        each = pending.pop()
        yield each
        match each:
            case Series(inner) | Options(inner):
                pending += inner
            case Rounds(one, _, _, _) | Ahead(one, _):
                pending.append(one)


def is_zero_width(item: Item) -> bool:
    """Whether no character matches, ever."""
    match item:
        case Behind() | Ahead():
            return True
        case Series(inner) | Options(inner):
            return all(map(is_zero_width, inner))
        case Rounds(one, _, _, _):
            return is_zero_width(one)
    return item == EMPTY
