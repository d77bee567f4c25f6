"""What compiling a regular expression costs the libraries that make an automaton of it, roughly.

outlines_core walks, for each state, the tokens that may come: most of them where a character may be
many. lm-format-enforcer makes its automaton in Python.
"""

from collections.abc import Sequence

from adapter.guided.constraint import LM_FORMAT_ENFORCER, OUTLINES
from adapter.languages.regex.choices import beginnings
from adapter.languages.regex.tree import Chars, Node, Repeat, children

_SECONDS = {OUTLINES: (0.0005, 0.008), LM_FORMAT_ENFORCER: (0.0003, 0.0003)}
"""For a place in a text with few characters to come, and with many; measured."""

_MANY = 16


def expected_seconds(backend: str, node: Node) -> float:
    """How long a library takes, or less: 0 for those that are fast, and where it cannot be told."""
    if backend not in _SECONDS:
        return 0.0
    few, many = _SECONDS[backend]

    def of(node: Node) -> float:
        match node:
            case Chars(ranges):
                return many if sum(high - low + 1 for low, high in ranges) > _MANY else few
            case Repeat(inner, low, high):
                return of(inner) * max(low, high or 1)
        return sum(map(of, children(node)))

    return of(node)


_LONGEST_BEGINNING = 64


def affordable_beginnings(backend: str, texts: Sequence[str], seconds: float) -> Node:
    """As much of the beginnings of some texts as a library can be told in so long."""
    length = _LONGEST_BEGINNING
    while length and expected_seconds(backend, beginnings(texts, length)) > seconds:
        length //= 2
    return beginnings(texts, length)
