"""What a pattern has to know of the text before a place: a small automaton, and ways through it."""

from adapter.languages.budget import Budget
from adapter.languages.characters import TEXT, Ranges, intersection
from adapter.languages.regex import tree
from adapter.languages.regex.derivatives import NOTHING, Terms
from adapter.languages.regex.equations import solved
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence,
    choice,
    counted,
    every,
    matches_empty,
    repeat,
    sequence,
)


class Contexts:
    """The states of some languages of the text before a place; 0 is the start of the text."""

    def __init__(self, befores: list[Node], budget: Budget) -> None:
        """befores: the languages, all different; budget: of terms and moves.

        Raises:
            BudgetExceededError: there are more than are left.
        """
        self._numbers = {before: number for number, before in enumerate(befores)}
        self._terms = Terms(befores, budget)
        self._text = self._terms.alphabet.bits(Chars(TEXT))
        states = [tuple(map(self._terms.read, befores))]
        known = {states[0]: 0}
        self.moves: list[dict[int, Ranges]] = []
        """From each state, to which others, by which characters."""
        for state in states:
            budget.spend(len(states))
            onward: dict[int, int] = {}
            for bits, target in self._steps(state):
                number = known.setdefault(target, len(states))
                states += [target] if number == len(states) else []
                onward[number] = onward.get(number, 0) | bits
            ranges = self._terms.alphabet.ranges
            self.moves.append({number: ranges(bits) for number, bits in onward.items()})
        self._holds = [tuple(map(self._terms.accepts, state)) for state in states]
        self._last = self._last_characters()
        self._known: dict[tuple[int, int], tuple[Node, dict[int, Node]]] = {}

    def __len__(self) -> int:
        return len(self.moves)

    def holds(self, state: int, before: Node) -> bool:
        """Whether the text before is in one of the languages."""
        return self._holds[state][self._numbers[before]]

    def after(self, state: int, node: Node) -> dict[int, Node]:
        """The texts of a tree that lead from a state, by the states that they lead to."""
        if len(self) == 1:
            return {0: node}
        # By identity: the rounds of a repeat ask for the same tree.
        known = self._known.get((state, id(node)))
        if known is None:
            known = self._known[state, id(node)] = node, self._after(state, node)
        return known[1]

    def _after(self, state: int, node: Node) -> dict[int, Node]:
        if self._last is None:
            ways = {to: every([node, self._way(state, to)]) for to in range(len(self))}
        else:
            ways = {to: ending(node, ranges) for to, ranges in self._last.items()}
            if matches_empty(node):
                ways[state] = choice([ways.get(state, tree.NOTHING), EMPTY])
        return {to: way for to, way in ways.items() if way != tree.NOTHING}

    def _steps(self, state: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        steps: list[tuple[int, tuple[int, ...]]] = [(self._text, ())]
        for term in state:
            moves = list(self._terms.moves(term))
            rest = self._text
            for bits, _ in moves:
                rest &= ~bits
            moves.append((rest, NOTHING))
            steps = [
                (both, (*known, target))
                for held, known in steps
                for bits, target in moves
                if (both := held & bits)
            ]
        return steps

    def _last_characters(self) -> dict[int, Ranges] | None:
        """The characters that lead to each state, where that depends on nothing else."""
        first = self.moves[0]
        return first if all(onward == first for onward in self.moves) else None

    def _way(self, start: int, end: int) -> Node:
        matrix = {
            (at, to): Chars(ranges)
            for at, onward in enumerate(self.moves)
            for to, ranges in onward.items()
        }
        rest: list[Node] = [EMPTY if state == end else tree.NOTHING for state in range(len(self))]
        return solved(matrix, rest, start)


def ending(node: Node, ranges: Ranges) -> Node:
    """The texts of a tree whose last character is in a set."""
    match node:
        case Chars(held):
            return counted(intersection(held, ranges), 1, 1)
        case Choice(options):
            return choice([ending(option, ranges) for option in options])
        case Repeat(inner, low, high):
            before = repeat(inner, max(low - 1, 0), None if high is None else high - 1)
            return sequence([before, ending(inner, ranges)])
        case Sequence(parts):
            return choice(_ending_parts(parts, ranges))
    return every([node, sequence([ANY_TEXT, Chars(ranges)])])


def _ending_parts(parts: tuple[Node, ...], ranges: Ranges) -> list[Node]:
    """The texts of a sequence whose last character stands in its last part, the one before, ..."""
    found = []
    for index in range(len(parts) - 1, -1, -1):
        found.append(sequence([*parts[:index], ending(parts[index], ranges)]))
        if not matches_empty(parts[index]):
            break
    return found
