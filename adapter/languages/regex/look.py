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
from adapter.languages.regex.equations import solved
from adapter.languages.regex.items import (
    PLAIN,
    Ahead,
    Behind,
    Item,
    Options,
    Rounds,
    Series,
    inside,
)
from adapter.languages.regex.language import is_empty
from adapter.languages.regex.loops import LoopAhead
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Chars,
    Node,
    PatternError,
    children,
    choice,
    every,
    matches_empty,
    negation,
    repeat,
    sequence,
)

Rest: TypeAlias = tuple[Node, ...]
"""What may follow, for each state of what stands before."""

MAX_NODES = 5000
"""Nodes of a tree with look-around, those that stand in several places counted in each."""

_CONTEXT_WORK = 3000
_LOOP_WORK = 20_000
_PROOF_WORK = 5000
_TOO_LARGE = "its look-around makes it too large"


def meaning(item: Item) -> Node:
    """The texts that match as a whole.

    Raises:
        PatternError: there is look-around that is not supported, or it makes the tree too large.
    """
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
            case Behind(before):
                holds = (self._contexts.holds(state, before) for state in range(len(rest)))
                return tuple(
                    node if held else NOTHING for node, held in zip(rest, holds, strict=True)
                )
            case Ahead():
                return _both(self._seen(item), rest)
            case Rounds():
                return (self._possessive if item.possessive else self._rounds)(item, rest)
        return self._plain(item, rest)

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

    def _seen(self, ahead: Ahead) -> Rest:
        seen = self.behind(ahead.after, (EMPTY,) * len(self._contexts))
        return tuple(map(negation, seen)) if ahead.negative else seen

    # --- repeats

    def _possessive(self, rounds: Rounds, rest: Rest) -> Rest:
        item, low, high = rounds.item, rounds.low, rounds.high
        if not isinstance(item, PLAIN) or matches_empty(item) or not is_prefix_free(item):
            raise PatternError(
                "a possessive quantifier is supported only where no match of what it repeats "
                "is empty or begins another"
            )
        stop = negation(sequence([item, ANY_TEXT]))
        stopped = tuple(every([node, stop]) for node in rest)
        if high is None:
            return self._plain(repeat(item, low, None), stopped)
        full = self._plain(repeat(item, high, high), rest)
        if low == high:
            return full
        return _either([self._plain(repeat(item, low, high - 1), stopped), full])

    def _rounds(self, rounds: Rounds, rest: Rest) -> Rest:
        item, low, high = rounds.item, rounds.low, rounds.high
        if (apart := self._apart(rounds, rest)) is not None:
            return apart
        if high is None:
            after = self._looped(item, rest)
        else:
            after = rest
            for _ in range(high - low):
                after = _either([rest, self.behind(item, after)])
        for _ in range(low):
            after = self.behind(item, after)
        return after

    def _apart(self, rounds: Rounds, rest: Rest) -> Rest | None:
        """As a repeat, and a complement: where no round's look-ahead can fail behind the rounds.

        Of `(?:(?!B).)*` followed by C it is .*C and not .*B.*, if C never has B.
        """
        item = rounds.item
        *looks, last = item.parts if isinstance(item, Series) else (item,)
        if not isinstance(last, Chars) or not all(isinstance(look, Ahead) for look in looks):
            return None
        seen = [self._seen(look) for look in looks if isinstance(look, Ahead)]
        if any(node != states[0] for states in (rest, *seen) for node in states):
            return None
        failing = choice([negation(states[0]) for states in seen])
        somewhere = sequence([ANY_TEXT, failing])
        try:
            if not is_empty(every([rest[0], somewhere]), Budget(_PROOF_WORK)):
                return None
        except BudgetExceededError:
            return None
        whole = sequence([repeat(last, rounds.low, rounds.high), rest[0]])
        return (every([whole, negation(somewhere)]),) * len(rest)

    def _looped(self, item: Item, rest: Rest) -> Rest:
        """Any number of rounds."""
        if any(map(_looks_ahead, inside(item))):
            loop = LoopAhead(item, rest, self._contexts, self._seen, Budget(_LOOP_WORK))
            return tuple(loop.texts(state, self._checked) for state in range(len(rest)))
        states = range(len(rest))
        matrix: dict[tuple[int, int], Node] = {}
        for to in states:
            only = tuple(EMPTY if state == to else NOTHING for state in states)
            for state, node in enumerate(self.behind(item, only)):
                if node != NOTHING:
                    matrix[state, to] = node
        return tuple(solved(matrix, list(rest), state, self._checked) for state in states)

    # --- size

    def _checked(self, node: Node) -> Node:
        if self._size(node) > MAX_NODES:
            raise PatternError(_TOO_LARGE)
        return node

    def _size(self, node: Node) -> int:
        if id(node) not in self._sizes:
            size = 1 + sum(map(self._size, children(node)))
            self._sizes[id(node)] = node, size
        return self._sizes[id(node)][1]


def _either(rests: list[Rest]) -> Rest:
    return tuple(choice(nodes) for nodes in zip(*rests, strict=True))


def _both(one: Rest, other: Rest) -> Rest:
    return tuple(every(nodes) for nodes in zip(one, other, strict=True))


def _looks_ahead(item: Item) -> bool:
    return isinstance(item, Ahead) or (isinstance(item, Rounds) and item.possessive)


def is_prefix_free(node: Node) -> bool:
    """Whether no match begins another one, so that there is one way to match at a place."""
    longer = sequence([node, repeat(Chars(TEXT), 1, None)])
    try:
        return is_empty(every([node, longer]), Budget(_PROOF_WORK))
    except BudgetExceededError:
        return False
