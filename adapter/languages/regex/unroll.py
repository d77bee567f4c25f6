"""Counted groups written out as so many groups, for who counts badly."""

from collections.abc import Iterable

from adapter.languages.regex.tree import (
    EMPTY,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence,
    flattened,
    positions,
)

# Copies of a group that are written out, and characters of all together.
_MOST_COPIES = 128
_MOST_OPTIONAL = 16  # each is a group inside the one before it
_MOST_WRITTEN = 20_000


def unrolled(node: Node) -> Node:
    """The node without counted groups, as far as it stays small; counted characters remain.

    A mask costs xgrammar 7 ms with 80 counted groups, and a hundredth of one when they are written
    out.
    """
    return _unrolled(node) if positions(node) <= _MOST_WRITTEN else node


def _unrolled(node: Node) -> Node:
    match node:
        case Sequence(parts):
            return _joined(map(_unrolled, parts))
        case Choice(options):
            return Choice(tuple(map(_unrolled, options)))
        case Repeat(inner, low, high) if not isinstance(inner, Chars):
            return _copies(_unrolled(inner), low, high)
    return node


def _copies(inner: Node, low: int, high: int | None) -> Node:
    more = 0 if high is None else high - low
    few = low <= _MOST_COPIES and more <= _MOST_OPTIONAL
    if not few or (low <= 1 and (high is None or high <= 1)):
        return Repeat(inner, low, high)
    rest: Node = Repeat(inner, 0, None) if high is None else EMPTY
    for _ in range(more):
        rest = Repeat(_joined((inner, rest)), 0, 1)
    return _joined((*[inner] * low, rest))


def _joined(parts: Iterable[Node]) -> Sequence:
    """A sequence, also of one part."""
    return Sequence(tuple(flattened(parts)))
