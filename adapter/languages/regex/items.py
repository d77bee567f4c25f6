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
    """low to high times."""

    item: "Item"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Atomic:
    """What matches in one way at most at a place."""

    item: "Item"


Item: TypeAlias = Node | Behind | Ahead | Series | Options | Rounds | Atomic

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


def atomic(item: Item) -> Item:
    """What is known to match in one way at most; of a tree that can be seen."""
    return item if isinstance(item, PLAIN) else Atomic(item)


def inside(item: Item) -> Iterator[Item]:
    """An item and all items in it, without the insides of trees."""
    pending = [item]
    while pending:
        each = pending.pop()
        yield each
        match each:
            case Series(inner) | Options(inner):
                pending += inner
            case Rounds(one, _, _) | Ahead(one, _) | Atomic(one):
                pending.append(one)


def is_zero_width(item: Item) -> bool:
    """Whether no character matches, ever."""
    match item:
        case Behind() | Ahead():
            return True
        case Series(inner) | Options(inner):
            return all(map(is_zero_width, inner))
        case Rounds(one, _, _) | Atomic(one):
            return is_zero_width(one)
    return item == EMPTY


def consumed(item: Item) -> Node:
    """What an item matches, and maybe more, where nothing that looks around is asked."""
    match item:
        case Behind() | Ahead():
            return EMPTY
        case Series(parts):
            return sequence(map(consumed, parts))
        case Options(inner):
            return choice(map(consumed, inner))
        case Rounds(one, low, high):
            return repeat(consumed(one), low, high)
        case Atomic(one):
            return consumed(one)
    return item
