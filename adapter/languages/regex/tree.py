"""A regular expression as a tree of few kinds of nodes, and its normal form.

The functions that make nodes keep to the normal form, which spares the libraries what they are bad
at: nothing is nested that need not be. A node is `plain` where there is no intersection and no
complement in it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from typing import ClassVar, TypeAlias

from adapter.languages.characters import TEXT, Ranges, intersection, union


class PatternError(ValueError):
    """What is wrong with a pattern, in words for the caller."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set that is not empty."""

    ranges: Ranges
    plain: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; with no parts, the empty text."""

    parts: "tuple[Node, ...]"
    plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", all([part.plain for part in self.parts]))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two or more; none of them is the empty text, which is an optional Repeat."""

    options: "tuple[Node, ...]"
    plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", all([option.plain for option in self.options]))


@dataclass(frozen=True, slots=True)
class Repeat:
    """low to high times; high is None where there is no bound."""

    node: "Node"
    low: int
    high: int | None
    plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", self.node.plain)


@dataclass(frozen=True, slots=True)
class All:
    """What two or more nodes match, each of them."""

    parts: "tuple[Node, ...]"
    plain: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Not:
    """What a node does not match, of all texts of the characters of TEXT."""

    node: "Node"
    plain: ClassVar[bool] = False


Node: TypeAlias = Chars | Sequence | Choice | Repeat | All | Not

EMPTY = Sequence(())

ANY_TEXT = Repeat(Chars(TEXT), 0, None)
"""Every text."""

NOTHING = Not(ANY_TEXT)
"""No text, not even the empty one."""


def sequence(parts: Iterable[Node]) -> Node:
    """One after the other."""
    flat: list[Node] = []
    for part in parts:
        if isinstance(part, Sequence):
            flat += part.parts
        else:
            flat.append(part)
    if any([_is_nothing(part) for part in flat if not part.plain]):
        return NOTHING
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Not) and node == NOTHING


def flattened(parts: Iterable[Node]) -> Iterator[Node]:
    """The parts of a sequence, those inside it taken apart."""
    for part in parts:
        yield from part.parts if isinstance(part, Sequence) else (part,)


def choice(options: Iterable[Node]) -> Node:
    """One of them; nothing, where there are none."""
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Choice) else (option,))
    flat = [option for option in flat if option.plain or not _is_nothing(option)]
    if not flat or any([isinstance(each, Repeat) and each == ANY_TEXT for each in flat]):
        return ANY_TEXT if flat else NOTHING
    wide = [option for option in flat if not isinstance(option, Sequence) or option.parts]
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
    if node == NOTHING:
        return NOTHING if low else EMPTY
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


def every(parts: Iterable[Node]) -> Node:
    """What all of them match; every text, where there are none."""
    flat: list[Node] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, All) else (part,))
    flat = _with_one_run(list(dict.fromkeys(flat)))
    if NOTHING in flat or (EMPTY in flat and not all(map(matches_empty, flat))):
        return NOTHING
    if EMPTY in flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def _with_one_run(parts: list[Node]) -> list[Node]:
    """The parts, those that count characters of one set as one of them."""
    runs = [(part, run) for part in parts if (run := _run(part)) is not None]
    ranges = reduce(intersection, (run.ranges for _, run in runs), TEXT)
    low = max([run.low for _, run in runs], default=0)
    high = min([run.high for _, run in runs if run.high is not None], default=None)
    one = counted(ranges, low, high)
    others = [part for part in parts if _run(part) is None]
    return others if others and one == ANY_TEXT else [one, *others]


@dataclass(frozen=True, slots=True)
class _Run:
    ranges: Ranges
    low: int
    high: int | None


def _run(node: Node) -> _Run | None:
    """A node that only counts characters of one set."""
    match node:
        case Chars(ranges):
            return _Run(ranges, 1, 1)
        case Repeat(Chars(ranges), low, high):
            return _Run(ranges, low, high)
    return None


def counted(ranges: Ranges, low: int, high: int | None) -> Node:
    """low to high characters of a set, which may be empty."""
    if high is not None and low > high:
        return NOTHING
    if not ranges:
        return NOTHING if low else EMPTY
    return repeat(Chars(ranges), low, high)


def negation(node: Node) -> Node:
    """What a node does not match, of all texts."""
    match node:
        case Not(inner):
            return inner
        case Repeat(Chars(ranges), low, None) if ranges == TEXT and low:
            return repeat(Chars(TEXT), 0, low - 1)
        case Repeat(Chars(ranges), 0, int(high)) if ranges == TEXT:
            return repeat(Chars(TEXT), high + 1, None)
    return Not(node)


def is_plain(node: Node) -> bool:
    """Whether there is no intersection and no complement in a tree."""
    return node.plain


def plain_superset(node: Node) -> Node:
    """What has neither, and matches all that a tree matches, and as little else as is plain."""
    match node:
        case Chars():
            return node
        case Sequence(parts):
            return sequence(map(plain_superset, parts))
        case Choice(options):
            return choice(map(plain_superset, options))
        case Repeat(inner, low, high):
            return repeat(plain_superset(inner), low, high)
        case All(parts):
            return min(map(plain_superset, parts), key=_width)
        case Not():
            return ANY_TEXT


def _width(node: Node) -> tuple[int, int]:
    """How wide the classes of a tree are, and how few there are."""
    sets = [chars.ranges for chars in classes(node)]
    widths = [sum(high - low + 1 for low, high in ranges) for ranges in sets]
    return max(widths, default=0), -len(sets)


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
        case All(parts):
            return all(map(matches_empty, parts))
        case Not(inner):
            return not matches_empty(inner)


def lengths(node: Node) -> tuple[int, float]:
    """How many characters its texts have at least and at most; some may have none so few."""
    match node:
        case Chars():
            return 1, 1
        case Sequence(parts):
            pairs = [*map(lengths, parts)]
            return sum(low for low, _ in pairs), sum(high for _, high in pairs)
        case Choice(options):
            lows, highs = zip(*map(lengths, options), strict=True)
            return min(lows), max(highs)
        case Repeat(inner, low, high):
            least, most = lengths(inner)
            return least * low, inf if high is None else most * high
        case All(parts):
            lows, highs = zip(*map(lengths, parts), strict=True)
            return max(lows), min(highs)
        case Not(inner):
            return int(matches_empty(inner)), inf


def positions(node: Node) -> int:
    """The characters of a pattern with its repeats written out; an unbounded one counts once."""
    match node:
        case Chars():
            return 1
        case Sequence(inner) | Choice(inner) | All(inner):
            return sum(map(positions, inner))
        case Repeat(inner, low, high):
            return positions(inner) * (max(low, 1) if high is None else high)
        case Not(inner):
            return positions(inner)


def children(node: Node) -> "tuple[Node, ...]":
    """The nodes directly inside a node."""
    match node:
        case Chars():
            return ()
        case Sequence(inner) | Choice(inner) | All(inner):
            return inner
        case Repeat(inner, _, _) | Not(inner):
            return (inner,)


def classes(node: Node) -> Iterator[Chars]:
    """All classes of characters in a tree."""
    pending = [node]
    while pending:
        inner = pending.pop()
        if isinstance(inner, Chars):
            yield inner
        pending += children(inner)
