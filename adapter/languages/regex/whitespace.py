"""Whitespace patterns: what of them JSON allows, and the runs of whitespace that match.

The automaton is made here and not by interegular, which knows no bound: `\\s*\\t[ \\t]{20}` keeps
it busy for more than 20 seconds, and a pattern with 4,000 states for one.
"""

from typing import TypeAlias

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import (
    Ranges,
    complement,
    intersection,
    only,
    unicode_classes,
)
from adapter.languages.regex.automaton import Alphabet, Automaton, States
from adapter.languages.regex.tree import (
    All,
    Chars,
    Choice,
    Node,
    Not,
    PatternError,
    Repeat,
    Sequence,
    choice,
    classes,
    positions,
    repeat,
    sequence,
)

JSON_WHITESPACE = " \t\n\r"

# A second of work, about.
_MAX_STEPS = 1_000_000


def json_whitespace(node: Node) -> Node:
    """A whitespace pattern, with each class narrowed to JSON's whitespace: space, tab, \\n, \\r.

    Raises:
        PatternError: a class has what is no whitespace, or none of JSON's.
    """
    match node:
        case Chars(ranges):
            return Chars(_narrowed(ranges))
        case Sequence(parts):
            return sequence(map(json_whitespace, parts))
        case Choice(options):
            return choice(map(json_whitespace, options))
        case Repeat(inner, low, high):
            return repeat(json_whitespace(inner), low, high)
        case All() | Not():
            raise TypeError("a pattern of blanks has no intersection and no complement")


def _narrowed(ranges: Ranges) -> Ranges:
    other = intersection(ranges, complement(unicode_classes()["s"]))
    if other:
        raise PatternError(f"it must match blanks only: it can match {_named(other[0][0])}")
    kept = intersection(ranges, only(JSON_WHITESPACE))
    if not kept:
        raise PatternError(
            f"it must match JSON's blanks (space, tab, \\n, \\r): {_named(ranges[0][0])} is none"
        )
    return kept


def _named(point: int) -> str:
    return f"U+{point:04X} ({chr(point)!a})"


_State: TypeAlias = tuple[States, bool]
"""The states with moves that a run can be in, and whether it may end there."""

_DEAD: _State = (frozenset(), False)


def whitespace_automaton(node: Node, max_states: int = 4096) -> tuple[list[list[int]], list[bool]]:
    """The runs of whitespace that match: a complete automaton, and which of its states accept.

    A row has the next state for a space, a tab, \\n and \\r; -1 is the dead state. State 0 is the
    empty run: nothing leads back to it.

    Raises:
        PatternError: as `json_whitespace` does, or there are more states than max_states.
    """
    node = json_whitespace(node)
    if positions(node) > max_states:
        raise PatternError(f"its repeats add up to more than {max_states} characters")
    try:
        return _Runs(node).determined(Budget(max_states))
    except BudgetExceededError:
        raise PatternError(f"its automaton has more than {max_states} states") from None


class _Runs:
    """The subset construction over the automaton of one pattern."""

    def __init__(self, node: Node) -> None:
        chars = [Chars(only(char)) for char in JSON_WHITESPACE]
        alphabet = Alphabet([*classes(node), *chars])
        self._chars = [alphabet.bits(each) for each in chars]
        self._automaton = Automaton(alphabet, Budget(_MAX_STEPS))
        self._start, self._end = self._automaton.add(node)

    def determined(self, budget: Budget) -> tuple[list[list[int]], list[bool]]:
        """A row for each state, and whether it accepts; budget: of states."""
        states = [self._state(self._automaton.closure([self._start]))]
        # Without the first one, which stands for the empty run alone.
        known: dict[_State, int] = {_DEAD: -1}
        table: list[list[int]] = []
        for moving, _ in states:
            budget.spend()
            table.append([])
            for char in self._chars:
                state = self._state(self._automaton.after(moving, char))
                table[-1].append(known.setdefault(state, len(states)))
                states += [state] if table[-1][-1] == len(states) else []
        return table, [accepts for _, accepts in states]

    def _state(self, states: States) -> _State:
        moving = frozenset(state for state in states if self._automaton.moves[state])
        return moving, self._end in states
