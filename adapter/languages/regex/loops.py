"""Repeats without a bound whose rounds look around, as regular expressions.

Of an alternating automaton: a state is a set of ways, each a place in the rounds together with what
the look-ahead on the way has promised of the text to come. It is made deterministic, and written
out again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from adapter.languages.budget import Budget
from adapter.languages.characters import Ranges
from adapter.languages.regex.contexts import Contexts
from adapter.languages.regex.derivatives import ANY, NOTHING, Terms
from adapter.languages.regex.equations import smallest, solved
from adapter.languages.regex.items import (
    PLAIN,
    Ahead,
    Atomic,
    Behind,
    Item,
    Options,
    Rounds,
    Series,
    inside,
)
from adapter.languages.regex.tree import EMPTY, Chars, Node, PatternError, choice

_MOST_STATES = 150


@dataclass(frozen=True, slots=True)
class _State:
    context: int
    ways: frozenset[tuple[int, int]]
    """The places in the rounds, each with the term that is promised."""
    free: bool
    """The rounds may end here, and nothing is promised."""
    out: int
    """What may follow where they ended with a promise."""


@dataclass(slots=True)
class _Place:
    """A place in the rounds: where it leads."""

    free: list[int] = field(default_factory=list)
    looks: list[tuple[Ahead | Behind, int]] = field(default_factory=list)
    moves: list[tuple[int, int]] = field(default_factory=list)


_Ahead: TypeAlias = tuple[list[tuple[int, int]], list[int]]
"""Where some characters lead: ways, and terms of what may follow."""


class Loop:
    """Any number of rounds of an item, followed by a rest."""

    def __init__(
        self,
        item: Item,
        rest: tuple[Node, ...],
        contexts: Contexts,
        seen: Callable[[Ahead], tuple[Node, ...]],
        budget: Budget,
    ) -> None:
        """rest: for each context in which the rounds end; seen: what may follow a look-ahead.

        Raises:
            BudgetExceededError: it needs too much work.
        """
        self._contexts, self._rest, self._budget = contexts, rest, budget
        items = list(inside(item))
        promised = {each: seen(each) for each in items if isinstance(each, Ahead)}
        plain = [each for each in items if isinstance(each, PLAIN)]
        steps = [Chars(ranges) for onward in contexts.moves for ranges in onward.values()]
        promises = [node for nodes in promised.values() for node in nodes]
        self._terms = Terms([*rest, *promises, *plain, *steps], budget)
        self._promised = {
            look: [self._terms.read(node) for node in nodes] for look, nodes in promised.items()
        }
        self._steps = [
            {to: self._terms.alphabet.bits(Chars(ranges)) for to, ranges in onward.items()}
            for onward in contexts.moves
        ]
        self._places = [_Place()]
        self._places[self._add(item, 0)].free.append(0)

    def texts(self, context: int, check: Callable[[Node], Node]) -> Node:
        """The texts of the rounds and the rest, where they begin in a context.

        Raises:
            PatternError: they need too many states.
            BudgetExceededError: they need too much work.
        """
        states = [self._closed(context, [(0, ANY)], NOTHING)]
        known = {states[0]: 0}
        moves: list[dict[int, int]] = []
        for state in states:
            moves.append({})
            for bits, target in self._onward(state):
                number = known.setdefault(target, len(states))
                states += [target] if number == len(states) else []
                moves[-1][number] = moves[-1].get(number, 0) | bits
            if len(states) > _MOST_STATES:
                raise PatternError("look-around inside this repeat needs too many states")
        return self._written(moves, states, check)

    def _written(
        self, moves: list[dict[int, int]], states: list[_State], check: Callable[[Node], Node]
    ) -> Node:
        ends = [self._end(state) for state in states]
        numbers = {end: number for number, end in enumerate(dict.fromkeys(ends))}
        classes = smallest(moves, [numbers[end] for end in ends])
        gathered: dict[tuple[int, int], int] = {}
        for state, onward in enumerate(moves):
            for target, bits in onward.items():
                pair = classes[state], classes[target]
                gathered[pair] = gathered.get(pair, 0) | bits
        matrix: dict[tuple[int, int], Node] = {
            pair: Chars(self._ranges(bits)) for pair, bits in gathered.items()
        }
        by_class = dict(zip(classes, ends, strict=True))
        rest = [by_class[number] for number in range(len(by_class))]
        return solved(matrix, rest, classes[0], check)

    def _ranges(self, bits: int) -> Ranges:
        return self._terms.alphabet.ranges(bits)

    def _end(self, state: _State) -> Node:
        """What may follow without a further round."""
        ends = [EMPTY] if self._terms.accepts(state.out) else []
        return choice([*ends, *([self._rest[state.context]] if state.free else [])])

    # --- states

    def _closed(self, context: int, ways: list[tuple[int, int]], out: int) -> _State:
        """With all that is led to without a character."""
        reached: set[tuple[int, int]] = set()
        pending = list(ways)
        while pending:
            way = pending.pop()
            if way in reached or way[1] == NOTHING:
                continue
            self._budget.spend()
            reached.add(way)
            pending += self._free(context, *way)
        sure = {place for place, promise in reached if promise == ANY}
        reached = {way for way in reached if way[1] == ANY or way[0] not in sure}
        ended = [promise for place, promise in reached if place == 0 and promise != ANY]
        rest = self._terms.read(self._rest[context]) if ended else NOTHING
        outs = [self._terms.every([promise, rest]) for promise in ended]
        kept = frozenset(way for way in reached if self._places[way[0]].moves)
        return _State(context, kept, 0 in sure, self._terms.choice([out, *outs]))

    def _free(self, context: int, place: int, promise: int) -> Iterator[tuple[int, int]]:
        for target in self._places[place].free:
            yield target, promise
        for look, target in self._places[place].looks:
            if isinstance(look, Ahead):
                yield target, self._terms.every([promise, self._promised[look][context]])
            elif self._contexts.holds(context, look.before):
                yield target, promise

    def _onward(self, state: _State) -> Iterator[tuple[int, _State]]:
        """Where characters lead; no character stands in two."""
        steps = self._steps[state.context]
        targets: dict[int, _Ahead] = {bits: ([], []) for bits in steps.values()}
        for bits, term in self._terms.moves(state.out):
            targets = _added(targets, bits, ([], [term]))
        for place, promise in sorted(state.ways):
            for held, target in self._places[place].moves:
                for bits, kept in self._terms.moves(promise):
                    if held & bits:
                        self._budget.spend(len(targets))
                        targets = _added(targets, held & bits, ([(target, kept)], []))
        for bits, (ways, outs) in targets.items():
            if ways or outs:
                context = next(to for to, step in steps.items() if step & bits)
                yield bits, self._closed(context, ways, self._terms.choice(outs))

    # --- places

    def _new(self) -> int:
        self._budget.spend()
        self._places.append(_Place())
        return len(self._places) - 1

    def _add(self, item: Item, at: int) -> int:
        """The place behind an item that stands at a place."""
        match item:
            case Ahead() | Behind():
                end = self._new()
                self._places[at].looks.append((item, end))
                return end
            case Series(parts):
                for part in parts:
                    at = self._add(part, at)
                return at
            case Options(inner):
                return self._joined([self._add(option, self._joined([at])) for option in inner])
            case Rounds(one, low, high):
                return self._repeated(one, at, low, high)
            case Atomic(one):
                return self._add(one, at)
        return self._tree(item, at)

    def _tree(self, node: Node, at: int) -> int:
        """A place for each term that a tree comes to."""
        start, end = self._terms.read(node), self._new()
        known = {start: self._joined([at])}
        pending = [start]
        while pending:
            term = pending.pop()
            place = self._places[known[term]]
            place.free += [end] if self._terms.accepts(term) else []
            for bits, target in self._terms.moves(term):
                if target not in known:
                    known[target] = self._new()
                    pending.append(target)
                place.moves.append((bits, known[target]))
        return end

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


def _added(targets: dict[int, _Ahead], bits: int, ahead: _Ahead) -> dict[int, _Ahead]:
    """The targets of characters, some more for some."""
    found: dict[int, _Ahead] = {}
    for held, (ways, outs) in targets.items():
        if held & ~bits:
            found[held & ~bits] = ways, outs
        if held & bits:
            found[held & bits] = [*ways, *ahead[0]], [*outs, *ahead[1]]
    return found
