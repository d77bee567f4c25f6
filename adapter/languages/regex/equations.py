"""Systems of equations between languages, solved by Arden's rule: X = AX | B is A*B."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from adapter.languages.regex.tree import NOTHING, Node, choice, repeat, sequence

Matrix: TypeAlias = Mapping[tuple[int, int], Node]


def solved(
    matrix: Matrix, rest: list[Node], start: int, check: Callable[[Node], Node] = lambda node: node
) -> Node:
    """The language of `start`, of X[i] = matrix[i, 0] X[0] | ... | rest[i].

    check: is given every language on the way, and may raise.
    """
    ends = list(rest)
    onward: list[dict[int, Node]] = [{} for _ in rest]
    before: list[set[int]] = [set() for _ in rest]
    for (at, to), node in matrix.items():
        onward[at][to] = node
        before[to].add(at)
    left = set(range(len(rest))) - {start}
    while left:
        gone = min(left, key=lambda state: len(onward[state]) * len(before[state]))
        left.discard(gone)
        loop = repeat(onward[gone].pop(gone, NOTHING), 0, None)
        for to in onward[gone]:
            before[to].discard(gone)
        for at in before[gone] - {gone}:
            way = sequence([onward[at].pop(gone), loop])
            ends[at] = check(choice([ends[at], sequence([way, ends[gone]])]))
            for to, node in onward[gone].items():
                known = onward[at].get(to, NOTHING)
                onward[at][to] = check(choice([known, sequence([way, node])]))
                before[to].add(at)
    return check(sequence([repeat(onward[start].get(start, NOTHING), 0, None), ends[start]]))


def smallest(moves: list[dict[int, int]], ends: list[int]) -> list[int]:
    """Of a complete or partial automaton, the class of each state: equal for equal languages.

    moves: from each state to each state that it leads to, the characters, as bits.
    ends: for each state, a number of what a text may end with there.
    """
    classes = ends
    while True:
        keys = [
            (classes[state], frozenset(_by_class(onward, classes).items()))
            for state, onward in enumerate(moves)
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        refined = [numbers[key] for key in keys]
        if len(numbers) == len(set(classes)):
            return refined
        classes = refined


def _by_class(onward: dict[int, int], classes: list[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for target, bits in onward.items():
        found[classes[target]] = found.get(classes[target], 0) | bits
    return found
