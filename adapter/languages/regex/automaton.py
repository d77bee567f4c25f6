"""Nondeterministic automata of regular expressions, by Thompson's construction.

States are numbers from 0. What a character does to a set of states is asked of sets of characters
that no class divides, each a bit of a number.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TypeAlias

from adapter.languages.budget import Budget
from adapter.languages.characters import Ranges
from adapter.languages.regex.tree import All, Chars, Choice, Node, Not, Repeat, Sequence

States: TypeAlias = frozenset[int]


class Alphabet:
    """Sets of characters as bits, one for each stretch that no class divides."""

    def __init__(self, classes: Iterable[Chars]) -> None:
        ranges = {pair for chars in classes for pair in chars.ranges}
        self._starts = sorted({end for low, high in ranges for end in (low, high + 1)})
        # By identity: a large class stands in many places, and its hash is that of all its ranges.
        self._known: dict[int, tuple[Chars, int]] = {}

    def bits(self, chars: Chars) -> int:
        """The bits of one of the classes."""
        if id(chars) not in self._known:
            ranges = ((self._at(low), self._at(high + 1)) for low, high in chars.ranges)
            self._known[id(chars)] = chars, sum((1 << end) - (1 << start) for start, end in ranges)
        return self._known[id(chars)][1]

    def bit(self, char: str) -> int:
        """The bit of the stretch that a character is in; 0 where no class has it."""
        at = bisect_right(self._starts, ord(char)) - 1
        return 1 << at if at >= 0 else 0

    def ranges(self, bits: int) -> Ranges:
        """The characters of bits of classes, in order."""
        runs = re.finditer("1+", f"{bits:b}"[::-1])
        return tuple((self._starts[run.start()], self._starts[run.end()] - 1) for run in runs)

    def _at(self, point: int) -> int:
        return bisect_left(self._starts, point)


class Automaton:
    """States and moves of any number of expressions, which share no state."""

    def __init__(self, alphabet: Alphabet, budget: Budget) -> None:
        """budget: of states, made or looked at."""
        self._alphabet, self._budget = alphabet, budget
        self._free: list[list[int]] = []
        """From each state: the states that it leads to without a character."""
        self.moves: list[list[tuple[int, int]]] = []
        """From each state: the characters, as bits, and the state that they lead to."""

    def __len__(self) -> int:
        return len(self.moves)

    def add(self, node: Node) -> tuple[int, int]:
        """The first and the last state of a new expression.

        Raises:
            BudgetExceededError: it has more states than are left.
            TypeError: it has intersections or complements, which `language` is for.
        """
        start = self._state()
        return start, self._once(node, start)

    def closure(self, states: Iterable[int]) -> States:
        """States with those that they lead to without a character.

        Raises:
            BudgetExceededError: they are more than are left.
        """
        reached: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state not in reached:
                reached.add(state)
                pending += self._free[state]
        self._budget.spend(len(reached))
        return frozenset(reached)

    def leads(self, states: States) -> set[States]:
        """The sets of states, without their closures, that characters lead to."""
        stretches: dict[int, States] = {-1: frozenset()}
        for chars, target in [move for state in states for move in self.moves[state]]:
            self._budget.spend(len(stretches))
            outside = {bits & ~chars: held for bits, held in stretches.items() if bits & ~chars}
            inside = {
                bits & chars: held | {target} for bits, held in stretches.items() if bits & chars
            }
            stretches = outside | inside
        return set(stretches.values()) - {frozenset()}

    def after(self, states: States, char: int) -> States:
        """Where one character, a bit of the alphabet, leads; with the closure."""
        moves = (move for state in states for move in self.moves[state])
        return self.closure(target for chars, target in moves if chars & char)

    def _state(self) -> int:
        self._budget.spend()
        self._free.append([])
        self.moves.append([])
        return len(self.moves) - 1

    def _once(self, node: Node, at: int) -> int:
        """The state behind a node that stands at a state; only loops of its own lead back."""
        match node:
            case Chars():
                end = self._state()
                self.moves[at].append((self._alphabet.bits(node), end))
                return end
            case Sequence(parts):
                for part in parts:
                    at = self._once(part, at)
                return at
            case Choice(options):
                return self._joined([self._once(option, at) for option in options])
            case Repeat(inner, low, high):
                return self._repeated(inner, at, low, high)
            case All() | Not():
                raise TypeError("an intersection or complement has no such automaton")

    def _repeated(self, node: Node, at: int, low: int, high: int | None) -> int:
        for _ in range(low - 1 if high is None else low):
            at = self._once(node, at)
        if high is None:
            return self._looped(node, at, low == 0)
        ends = [at]
        for _ in range(high - low):
            ends.append(self._once(node, ends[-1]))
        return self._joined(ends)

    def _looped(self, node: Node, at: int, may_skip: bool) -> int:
        loop = self._joined([at])
        end = self._once(node, loop)
        self._free[end].append(loop)
        return loop if may_skip else end

    def _joined(self, ends: Iterable[int]) -> int:
        joined = self._state()
        for end in ends:
            self._free[end].append(joined)
        return joined
