"""A whitespace pattern is narrowed to JSON's whitespace, and its runs are an automaton."""

import re
import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import Node, PatternError
from adapter.languages.regex.whitespace import json_whitespace, whitespace_automaton
from tests.languages.regex.patterns import COUNTS

BLANK_PATTERNS = {
    r"\s*": r"[ \t\n\r]*",
    r"[ \xa0\f]": " ",
    "( |\n\t{0,2})?": "( |\n\t{0,2})?",
    r"[\u2000-\u2003\r]+": r"\r+",
    "": "",
}


@pytest.mark.parametrize(("pattern", "narrow"), BLANK_PATTERNS.items())
def test_blanks_are_json_s(pattern: str, narrow: str) -> None:
    """Of the blanks that Python knows, those of JSON are left."""
    assert json_whitespace(parse(pattern)) == parse(narrow)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (" a?", "it must match blanks only: it can match U+0061 ('a')"),
        (r"[\s\xe9]", r"it must match blanks only: it can match U+00E9 ('\xe9')"),
        (".", "it must match blanks only: it can match U+0001 ('\\x01')"),
        (r" |\n\f", r"it must match JSON's blanks (space, tab, \n, \r): U+000C ('\x0c') is none"),
    ],
)
def test_not_blank(pattern: str, message: str) -> None:
    """A whitespace pattern that matches something else is refused, and so is a blank of no use."""
    with pytest.raises(PatternError) as refusal:
        json_whitespace(parse(pattern))
    assert str(refusal.value) == message


def runs(node: Node, text: str) -> bool:
    """Whether the automaton of the blanks accepts a run."""
    table, accepts = whitespace_automaton(node)
    state = 0
    for char in text:
        state = table[state][" \t\n\r".index(char)]
        if state < 0:
            return False
    return accepts[state]


BLANK_RUNS = ["".join(run) for length in range(5) for run in product(" \t\n\r", repeat=length)]
BLANK_COUNTS = st.sampled_from([*COUNTS, "{3,5}"])
BLANK_LEAVES = st.sampled_from([" ", r"\t", r"\n", r"\s", "[ \n]", r"[^\S\r]", "", " {2}"])


@settings(deadline=None, max_examples=100)
@given(
    pattern=st.recursive(
        BLANK_LEAVES,
        lambda inner: st.one_of(
            st.builds("({}){}".format, inner, BLANK_COUNTS),
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map("|".join),
        ),
        max_leaves=6,
    )
)
def test_blank_runs(pattern: str) -> None:
    """The automaton accepts the runs that match, and only the empty run is its first state."""
    table, accepts = whitespace_automaton(parse(pattern))
    assert len(table) == len(accepts)
    assert not [row for row in table if 0 in row or len(row) != 4]
    compiled = re.compile(pattern)
    for run in BLANK_RUNS:
        state = 0
        for char in run:
            state = table[state][" \t\n\r".index(char)] if state >= 0 else -1
        assert (state >= 0 and accepts[state]) == bool(compiled.fullmatch(run)), run


def test_blank_runs_have_a_bound() -> None:
    """Large automatons are made soon or refused soon, however small the pattern is."""
    table, _ = whitespace_automaton(parse(" {0,4000}"))
    assert len(table) == 4001
    assert runs(parse("( {0,10}\n?){0,20}"), " " * 100 + "\n")
    start = time.process_time()
    for pattern in [r" {0,5000}", r"(\s{60}){60,90}", r"\s*\t[ \t]{20}", r"(?:\s?[ \t]?){2000}"]:
        with pytest.raises(PatternError):
            whitespace_automaton(parse(pattern), max_states=4000)
    with pytest.raises(PatternError, match="more than 5 states"):
        whitespace_automaton(parse(r"[ \t]*\t[ \t][ \t]"), max_states=5)
    assert time.process_time() - start < 5
