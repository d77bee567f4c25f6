"""FIRST and FOLLOW sets are those of the textbook."""

import pytest

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.grammar.first_follow import FirstFollow
from adapter.languages.grammar.read import read

# The grammar of sums and products without left recursion, its terminals as classes.
SUM = """
root ::= product more
more ::= [+] product more |
product ::= factor times
times ::= [*] factor times |
factor ::= "(" root ")" | [x]
"""
TERMINALS = ["[\\u002b]", "[\\u002a]", '"\\u0028"', '"\\u0029"', "[x]"]


def sets(steps: int) -> FirstFollow:
    numbers = {name: number for number, name in enumerate(TERMINALS)}
    return FirstFollow(list(read(SUM).values()), numbers, set(), Budget(steps))


def shown(bits: int) -> str:
    """A set of terminals."""
    return "".join(mark for number, mark in enumerate("+*()x") if bits >> number & 1)


@pytest.mark.parametrize(
    ("name", "first", "follow"),
    [
        ("root", "(x", ")"),
        ("more", "+", ")"),
        ("product", "(x", "+)"),
        ("times", "*", "+)"),
        ("factor", "(x", "+*)"),
        ("[x]", "x", "+*)"),
    ],
)
def test_first_and_follow(name: str, first: str, follow: str) -> None:
    """What may come first, and what next; that the text may end is no terminal."""
    found = sets(1000)
    assert shown(found.first[name]) == first
    assert shown(found.follow[name]) == follow


def test_the_rounds_are_bounded() -> None:
    """A grammar that needs more steps than there are is given up."""
    with pytest.raises(BudgetExceededError):
        sets(10)
