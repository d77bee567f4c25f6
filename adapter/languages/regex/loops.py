"""Repeats without a bound whose rounds look ahead, as regular expressions.

Of an alternating automaton: a state is a set of ways, each a place in the rounds together with what
the look-ahead on the way has promised of the text to come. It is made deterministic, and written
out again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from adapter.languages.budget import Budget
from adapter.languages.regex import tree
from adapter.languages.regex.contexts import Contexts
from adapter.languages.regex.derivatives import ANY, NOTHING, Terms
from adapter.languages.regex.equations import smallest, solved
from adapter.languages.regex.items import (
    Ahead,
    Behind,
    Item,
    Options,
    Rounds,
    Series,
)
from adapter.languages.regex.tree import EMPTY, Chars, Choice, Node, PatternError, Repeat, Sequence

_MOST_STATES = 150
_MOST_COPIES = 50

State = tuple[int, frozenset[tuple[int, int]], int]
"""The context, the places in the rounds with their promises, and what is promised behind them."""


@dataclass(slots=True)
class _Place:
    """A place in the rounds: where it leads."""

    free: list[int] = field(default_factory=list)
    looks: list[tuple[Ahead | Behind, int]] = field(default_factory=list)
    moves: list[tuple[Chars, int]] = field(default_factory=list)


class LoopAhead:
    """Any number of rounds of an item, followed by a rest."""

    def __init__(
        self,
        item: Item,
        rest: tuple[Node, ...],
        contexts: Contexts,
        seen: Callable[[Ahead], tuple[Node, ...]],
        budget: Budget,
    ) -> None:
        """seen: what may follow where an item looks ahead.

        Raises:
            PatternError: a round has what is matched once and never reconsidered.
        """
        self._contexts, self._budget = contexts, budget
        self._places = [_Place()]
        self._places[self._add(item, 0)].free.append(0)
        aheads = [
            look for place in self._places for look, _ in place.looks if isinstance(look, Ahead)
        ]
        promised = {look: seen(look) for look in aheads}
        chars = [chars for place in self._places for chars, _ in place.moves]
        steps = [Chars(ranges) for onward in contexts.moves for ranges in onward.values()]
        promises = [node for nodes in promised.values() for node in nodes]
        self._terms = Terms([*rest, *promises, *chars, *steps], budget)
        self._rest = [self._terms.read(node) for node in rest]
        self._promised = {
            look: [self._terms.read(node) for node in nodes] for look, nodes in promised.items()
        }
        self._steps = [
            {to: self._terms.alphabet.bits(Chars(ranges)) for to, ranges in onward.items()}
            for onward in contexts.moves
        ]

    def texts(self, context: int, check: Callable[[Node], Node]) -> Node:
        """The texts of the rounds and the rest, where they begin in a context.

        Raises:
            PatternError: they need too many states.
            BudgetExceededError: they need too much work.
        """
        states: list[State] = [self._closed(context, [(0, ANY)], NOTHING)]
        known = {states[0]: 0}
        moves: list[dict[int, int]] = []
        for state in states:
            moves.append({})
            for bits, target in self._onward(state):
                number = known.setdefault(target, len(states))
                states += [target] if number == len(states) else []
                moves[-1][number] = moves[-1].get(number, 0) | bits
            if len(states) > _MOST_STATES:
                raise PatternError("look-ahead inside this repeat needs too many states")
        return self._written(moves, [self._terms.accepts(out) for _, _, out in states], check)

    def _written(
        self, moves: list[dict[int, int]], accepts: list[bool], check: Callable[[Node], Node]
    ) -> Node:
        classes = smallest(moves, accepts)
        gathered: dict[tuple[int, int], int] = {}
        for state, onward in enumerate(moves):
            for target, bits in onward.items():
                pair = classes[state], classes[target]
                gathered[pair] = gathered.get(pair, 0) | bits
        matrix: dict[tuple[int, int], Node] = {
            pair: Chars(self._terms.alphabet.ranges(bits)) for pair, bits in gathered.items()
        }
        rest: list[Node] = [tree.NOTHING] * (max(classes) + 1)
        for state, accepting in enumerate(accepts):
            rest[classes[state]] = EMPTY if accepting else tree.NOTHING
        return solved(matrix, rest, classes[0], check)

    # --- states

    def _closed(self, context: int, ways: list[tuple[int, int]], out: int) -> State:
        """With all that is led to without a character."""
        reached: set[tuple[int, int]] = set()
        outs = [out]
        pending = list(ways)
        while pending:
            way = pending.pop()
            if way in reached or way[1] == NOTHING:
                continue
            self._budget.spend()
            reached.add(way)
            pending += self._free(context, *way)
            if way[0] == 0:
                outs.append(self._terms.every([way[1], self._rest[context]]))
        alone = {place for place, promise in reached if promise == ANY}
        kept = frozenset(
            way
            for way in reached
            if self._places[way[0]].moves and (way[1] == ANY or way[0] not in alone)
        )
        return context, kept, self._terms.choice(outs)

    def _free(self, context: int, place: int, promise: int) -> Iterator[tuple[int, int]]:
        for target in self._places[place].free:
            yield target, promise
        for look, target in self._places[place].looks:
            if isinstance(look, Ahead):
                yield target, self._terms.every([promise, self._promised[look][context]])
            elif self._contexts.holds(context, look.before):
                yield target, promise

    def _onward(self, state: State) -> Iterator[tuple[int, State]]:
        """Where characters lead; no character stands in two."""
        context, ways, out = state
        targets: dict[int, tuple[list[tuple[int, int]], list[int]]] = {
            bits: ([], []) for bits in self._steps[context].values()
        }
        for bits, term in self._terms.moves(out):
            targets = _added(targets, bits, None, term)
        for place, promise in ways:
            for chars, target in self._places[place].moves:
                held = self._terms.alphabet.bits(chars)
                for bits, kept in self._terms.moves(promise):
                    if held & bits:
                        self._budget.spend(len(targets))
                        targets = _added(targets, held & bits, (target, kept), None)
        for bits, (ahead, outs) in targets.items():
            if ahead or outs:
                after = next(to for to, step in self._steps[context].items() if step & bits)
                closed = self._closed(after, ahead, self._terms.choice(outs))
                if closed[1] or closed[2] != NOTHING:
                    yield bits, closed

    # --- places

    def _new(self) -> int:
        self._budget.spend()
        self._places.append(_Place())
        return len(self._places) - 1

    def _add(self, item: Item, at: int) -> int:
        """The place behind an item that stands at a place."""
        match item:
            case Chars():
                end = self._new()
                self._places[at].moves.append((item, end))
                return end
            case Ahead() | Behind():
                end = self._new()
                self._places[at].looks.append((item, end))
                return end
            case Series(parts) | Sequence(parts):
                for part in parts:
                    at = self._add(part, at)
                return at
            case Options(inner) | Choice(inner):
                return self._joined([self._add(option, self._joined([at])) for option in inner])
            case Rounds(one, low, high, False) | Repeat(one, low, high):
                return self._repeated(one, at, low, high)
        raise PatternError(
            "possessive quantifiers are not supported inside a repeat without a bound"
        )

    def _repeated(self, item: Item, at: int, low: int, high: int | None) -> int:
        for _ in range(low):
            at = self._add(item, at)
        if high is None:
            loop = self._joined([at])
            self._places[self._add(item, loop)].free.append(loop)
            return self._joined([loop])
        ends = [at]
        for _ in range(high - low):
            ends.append(self._add(item, self._joined([ends[-1]])))
        return self._joined(ends)

    def _joined(self, ends: list[int]) -> int:
        joined = self._new()
        for end in ends:
            self._places[end].free.append(joined)
        return joined


def _added(
    targets: dict[int, tuple[list[tuple[int, int]], list[int]]],
    bits: int,
    way: tuple[int, int] | None,
    out: int | None,
) -> dict[int, tuple[list[tuple[int, int]], list[int]]]:
    """The targets of characters, one more for some."""
    found: dict[int, tuple[list[tuple[int, int]], list[int]]] = {}
    for held, (ways, outs) in targets.items():
        if held & ~bits:
            found[held & ~bits] = ways, outs
        if held & bits:
            found[held & bits] = (
                [*ways, way] if way is not None else ways,
                [*outs, out] if out is not None else outs,
            )
    return found
