"""A regular expression as a tree of few kinds of nodes, and its normal form.

The functions that make nodes keep to the normal form, which spares the libraries what they are bad
at: nothing is nested that need not be.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from adapter.languages.characters import Ranges, union


class PatternError(ValueError):
    """What is wrong with a pattern, in words for the caller."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set that is not empty."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; with no parts, the empty text."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two or more; none of them is the empty text, which is an optional Repeat."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """low to high times; high is None where there is no bound."""

    node: "Node"
    low: int
    high: int | None


Node: TypeAlias = Chars | Sequence | Choice | Repeat

EMPTY = Sequence(())


def sequence(parts: Iterable[Node]) -> Node:
    """One after the other."""
    flat = list(flattened(parts))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def flattened(parts: Iterable[Node]) -> Iterator[Node]:
    """The parts of a sequence, those inside it taken apart."""
    for part in parts:
        yield from part.parts if isinstance(part, Sequence) else (part,)


def choice(options: Iterable[Node]) -> Node:
    """One of one or more."""
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Choice) else (option,))
    wide = [option for option in flat if option != EMPTY]
    if len(wide) < len(flat):
        return repeat(choice(wide), 0, 1) if wide else EMPTY
    wide = _with_one_set(wide)
    return wide[0] if len(wide) == 1 else Choice(tuple(wide))


def _with_one_set(options: list[Node]) -> list[Node]:
    """The options, single characters as one set."""
    sets = [option.ranges for option in options if isinstance(option, Chars)]
    if len(sets) < 2:
        return options
    return [*(o for o in options if not isinstance(o, Chars)), Chars(union(*sets))]


def repeat(node: Node, low: int, high: int | None) -> Node:
    """low to high times; high is None where there is no bound."""
    if high == 0 or node == EMPTY:
        return EMPTY
    if matches_empty(node):
        low = 0
    if isinstance(node, Repeat) and node.low <= 1:
        # The counts that add up leave no gap: (a+){2,3} is a{2,}, but (aa){2,3} is not a{4,6}.
        low, high, node = low * node.low, _times(high, node.high), node.node
    if high == 1 and (low == 1 or matches_empty(node)):
        return node
    return Repeat(node, low, high)


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


def matches_empty(node: Node) -> bool:
    """Whether the empty text matches."""
    match node:
        case Chars():
            return False
        case Sequence(parts):
            return all(map(matches_empty, parts))
        case Choice(options):
            return any(map(matches_empty, options))
        case Repeat(inner, low, _):
            return low == 0 or matches_empty(inner)


def positions(node: Node) -> int:
    """The characters of a pattern with its repeats written out; an unbounded one counts once."""
    match node:
        case Chars():
            return 1
        case Sequence(inner) | Choice(inner):
            return sum(map(positions, inner))
        case Repeat(inner, low, high):
            return positions(inner) * (max(low, 1) if high is None else high)


def children(node: Node) -> "tuple[Node, ...]":
    """The nodes directly inside a node."""
    match node:
        case Chars():
            return ()
        case Sequence(inner) | Choice(inner):
            return inner
        case Repeat(inner, _, _):
            return (inner,)


def classes(node: Node) -> Iterator[Chars]:
    """All classes of characters in a tree."""
    pending = [node]
    while pending:
        inner = pending.pop()
        if isinstance(inner, Chars):
            yield inner
        pending += children(inner)
