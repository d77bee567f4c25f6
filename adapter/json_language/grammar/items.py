"""An alternative of arrays as an automaton over its items, where items have to be counted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from adapter.json_language.normal_form.forms import Array, Conditions, Count
from adapter.languages.budget import BudgetExceededError

_MOST_STATES = 600

State: TypeAlias = tuple[int, tuple[int, ...]]
"""How many items there are, and how many of them each count has; both up to where it matters."""


@dataclass(slots=True)
class Counted:
    """Which item may come in which state, and where the array may end."""

    start: State
    moves: dict[State, list[tuple[Conditions, State]]] = field(default_factory=dict)
    ends: set[State] = field(default_factory=set)

    def within(self, is_possible: Callable[[Conditions], bool]) -> "Counted":
        """Only what leads to an end, through items that some value can be."""
        moves = {
            state: [move for move in found if is_possible(move[0])]
            for state, found in self.moves.items()
        }
        return _pruned(Counted(self.start, moves, self.ends))


def item_at(array: Array, index: int) -> Conditions | None:
    """What the item at a place has to meet; None where there is none."""
    if array.high is not None and index >= array.high:
        return None
    return array.prefix[index] if index < len(array.prefix) else array.rest


def counted(array: Array, unmet: Callable[[Conditions], Conditions | None]) -> Counted:
    """The automaton of an array.

    unmet: what meets not all of some conditions.

    Raises:
        BudgetExceededError: it has too many states.
    """
    counts = sorted(array.counts, key=lambda each: (each.start, each.low, sorted(each.conditions)))
    steps = _Steps(array, counts, unmet)
    made = Counted((0, (0,) * len(counts)))
    waiting = [made.start]
    while waiting:
        state = waiting.pop()
        if state in made.moves:
            continue
        if len(made.moves) == _MOST_STATES:
            raise BudgetExceededError
        made.moves[state] = list(steps.behind(state))
        if steps.may_end(state):
            made.ends.add(state)
        waiting += [target for _, target in made.moves[state]]
    return made


class _Steps:
    def __init__(
        self,
        array: Array,
        counts: list[Count],
        unmet: Callable[[Conditions], Conditions | None],
    ) -> None:
        self._array, self._counts, self._unmet = array, counts, unmet
        starts = [count.start for count in counts]
        self._far = max([len(array.prefix), array.low, array.high or 0, *starts])

    def may_end(self, state: State) -> bool:
        index, seen = state
        enough = (have >= count.low for have, count in zip(seen, self._counts, strict=True))
        return index >= self._array.low and all(enough)

    def behind(self, state: State) -> Iterator[tuple[Conditions, State]]:
        index, seen = state
        base = item_at(self._array, index)
        if base is None:
            return
        following = min(index + 1, self._far)
        options = (
            list(self._options(count, index, have))
            for count, have in zip(self._counts, seen, strict=True)
        )
        for choice in product(*options):
            conditions = base.union(*(part for part, _ in choice))
            yield conditions, (following, tuple(have for _, have in choice))

    def _options(self, count: Count, index: int, have: int) -> Iterator[tuple[Conditions, int]]:
        """What an item has to meet for one count, and how many there are then."""
        if index < count.start or (count.high is None and have >= count.low):
            yield frozenset(), have
            return
        if count.high is None or have < count.high:
            yield count.conditions, have + 1
        if count.high is None:  # one that is met and not counted does no harm
            yield frozenset(), have
        elif (unmet := self._unmet(count.conditions)) is not None:
            yield unmet, have


def _pruned(made: Counted) -> Counted:
    """Without the states from which no end is reached."""
    before: dict[State, list[State]] = {}
    for state, moves in made.moves.items():
        for _, target in moves:
            before.setdefault(target, []).append(state)
    live = set(made.ends)
    waiting = list(live)
    while waiting:
        for state in before.get(waiting.pop(), ()):
            if state not in live:
                live.add(state)
                waiting.append(state)
    kept = {state: [move for move in made.moves[state] if move[1] in live] for state in live}
    return Counted(made.start, kept, made.ends)
