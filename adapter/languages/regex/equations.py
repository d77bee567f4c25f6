"""Systems of equations between languages, solved by Arden's rule: X = AX | B is A*B."""

from collections.abc import Callable, Mapping

from adapter.languages.regex.tree import NOTHING, Node, choice, repeat, sequence

Matrix = Mapping[tuple[int, int], Node]


def solved(
    matrix: Matrix, rest: list[Node], start: int, check: Callable[[Node], Node] = lambda node: node
) -> Node:
    """The language of `start`, of X[i] = matrix[i, 0] X[0] | ... | rest[i].

    check: is given every language on the way, and may raise.
    """
    edges, ends = dict(matrix), list(rest)
    left = set(range(len(rest))) - {start}
    while left:
        gone = min(left, key=lambda state: _cost(edges, state))
        left.discard(gone)
        loop = repeat(edges.pop((gone, gone), NOTHING), 0, None)
        onward = {to: node for (at, to), node in edges.items() if at == gone}
        before = {at: node for (at, to), node in edges.items() if to == gone}
        edges = {pair: node for pair, node in edges.items() if gone not in pair}
        for at, node in before.items():
            way = sequence([node, loop])
            ends[at] = check(choice([ends[at], sequence([way, ends[gone]])]))
            for to, next_node in onward.items():
                known = edges.get((at, to), NOTHING)
                edges[at, to] = check(choice([known, sequence([way, next_node])]))
    return check(sequence([repeat(edges.get((start, start), NOTHING), 0, None), ends[start]]))


def _cost(edges: Matrix, state: int) -> int:
    return sum(at == state for at, _ in edges) * sum(to == state for _, to in edges)


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
