"""What a pattern with look-around means: a tree, with intersections and complements.

An item is asked what may stand behind a place, given what may stand behind the item: look-ahead is
then an intersection, and `A(?=B)C` is A followed by B.* & C. What looks behind asks for the state
of `contexts` at its place, so there is one answer for each state: a tuple of trees, `Rest`.
"""

from functools import reduce
from typing import TypeAlias

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import TEXT
from adapter.languages.regex.contexts import Contexts
from adapter.languages.regex.items import (
    PLAIN,
    Ahead,
    Atomic,
    Behind,
    Item,
    Options,
    Rounds,
    Series,
    consumed,
    inside,
)
from adapter.languages.regex.language import is_empty
from adapter.languages.regex.loops import Loop
from adapter.languages.regex.settle import settled_at_start
from adapter.languages.regex.tree import (
    EMPTY,
    NOTHING,
    Chars,
    Node,
    PatternError,
    children,
    choice,
    every,
    lengths,
    negation,
    repeat,
    sequence,
)

Rest: TypeAlias = tuple[Node, ...]
"""What may follow, for each state of what stands before."""

MAX_NODES = 5000
"""Nodes of a tree with look-around, those that stand in several places counted in each."""

_FEW_ROUNDS = 4
"""Written out one by one; of more, characters are counted where that is the same."""

_CONTEXT_WORK = 3000
_WORK = 60_000
"""Terms, moves and nodes on the way: less than a second."""
_TOO_LARGE = "its look-around makes it too large"


def meaning(item: Item) -> Node:
    """The texts that match as a whole.

    Raises:
        PatternError: there is look-around that is not supported, or it makes the tree too large.
    """
    item = settled_at_start(item)
    if isinstance(item, PLAIN):
        return item
    befores = list(dict.fromkeys(each.before for each in inside(item) if isinstance(each, Behind)))
    try:
        contexts = Contexts(befores, Budget(_CONTEXT_WORK))
        return _Look(contexts).behind(item, (EMPTY,) * len(contexts))[0]
    except BudgetExceededError:
        raise PatternError(_TOO_LARGE) from None


class _Look:
    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self._work = Budget(_WORK)
        self._sizes: dict[int, tuple[Node, int]] = {}

    def behind(self, item: Item, rest: Rest) -> Rest:
        """What may follow before an item, given what may follow behind it."""
        return tuple(map(self._checked, self._behind(item, rest)))

    def _behind(self, item: Item, rest: Rest) -> Rest:
        match item:
            case Series(parts):
                return reduce(lambda after, part: self.behind(part, after), reversed(parts), rest)
            case Options(options):
                return _either([self.behind(option, rest) for option in options])
            case Behind() | Ahead():
                return self._looked(item, rest)
            case Rounds():
                return self._rounds(item, rest)
            case Atomic(inner):
                return self._behind(inner, rest)
            case tree:
                return self._plain(tree, rest)

    def _plain(self, node: Node, rest: Rest) -> Rest:
        if len(set(map(id, rest))) == 1 or all(each == rest[0] for each in rest):
            return (sequence([node, rest[0]]),) * len(rest)
        return tuple(
            choice(
                [
                    sequence([way, rest[to]])
                    for to, way in self._contexts.after(state, node).items()
                    if rest[to] != NOTHING
                ]
            )
            for state in range(len(rest))
        )

    def _looked(self, look: Behind | Ahead, rest: Rest) -> Rest:
        if isinstance(look, Ahead):
            return tuple(every(nodes) for nodes in zip(self._seen(look), rest, strict=True))
        return tuple(
            node if self._contexts.holds(state, look.before) else NOTHING
            for state, node in enumerate(rest)
        )

    def _seen(self, ahead: Ahead) -> Rest:
        seen = self.behind(ahead.after, (EMPTY,) * len(self._contexts))
        return tuple(map(negation, seen)) if ahead.negative else seen

    # --- repeats

    def _rounds(self, rounds: Rounds, rest: Rest) -> Rest:
        item, low, high = rounds.item, rounds.low, rounds.high
        if (counted := self._counted(rounds, rest)) is not None:
            return counted
        after = self._looped(item, rest) if high is None else rest
        for _ in range(0 if high is None else high - low):
            after = _either([rest, self.behind(item, after)])
        for _ in range(low):
            after = self.behind(item, after)
        return after

    def _counted(self, rounds: Rounds, rest: Rest) -> Rest | None:
        """Any number of rounds in so many characters, where all have one length, and the rests."""
        if max(rounds.low, rounds.high or 0) <= _FEW_ROUNDS:
            return None
        width, longest = lengths(consumed(rounds.item))
        behind, longest_behind = lengths(choice(rest))
        if width != longest or behind != longest_behind:
            return None
        low = width * rounds.low + behind
        high = None if rounds.high is None else width * rounds.high + behind
        length = repeat(Chars(TEXT), low, high)
        return tuple(every([length, node]) for node in self._looped(rounds.item, rest))

    def _looped(self, item: Item, rest: Rest) -> Rest:
        """Any number of rounds."""
        loop = Loop(item, rest, self._contexts, self._seen, self._work)
        return tuple(loop.texts(state, self._checked) for state in range(len(rest)))

    # --- size

    def _checked(self, node: Node) -> Node:
        size = self._size(node)
        if size > MAX_NODES:
            raise PatternError(_TOO_LARGE)
        self._work.spend(size)
        return node

    def _size(self, node: Node) -> int:
        if id(node) not in self._sizes:
            size = 1 + sum(map(self._size, children(node)))
            self._sizes[id(node)] = node, size
        return self._sizes[id(node)][1]


def _either(rests: list[Rest]) -> Rest:
    return tuple(choice(nodes) for nodes in zip(*rests, strict=True))


def is_once(item: Item, budget: Budget) -> bool:
    """Whether an item is known to match in one way at most at a place.

    Raises:
        BudgetExceededError: it takes more than the budget to find out.
    """
    if isinstance(item, Atomic | Ahead | Behind):
        return True
    if isinstance(item, Series) and all(is_once(part, budget) for part in item.parts):
        return True
    node = consumed(item)
    longer = sequence([node, repeat(Chars(TEXT), 1, None)])
    return is_empty(every([node, longer]), budget)
