"""adapter/guided/whitespace.py: each run of it between JSON tokens is held to the pattern."""

import json
import re
from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.guided.matcher import Guide
from adapter.guided.program import Whitespace
from adapter.guided.token_trie import TokenRuns
from adapter.guided.whitespace import DEFAULT, LONGEST_RUN, WhitespaceRuns
from adapter.languages.regex.parse import parse
from adapter.languages.regex.whitespace import whitespace_automaton
from tests.guided.texts import ENDS, VOCABULARY, allowed, ids, takes, tokenized

PATTERNS = ["", "[ ]?", r"[\n ]{0,3}", r"\s*", "[ ]{2}", r"\n( {2})*|", r"(\r\n|\t)?"]
RUNS = ["", "", " ", "  ", "   ", "\n", "\n ", "\n  ", "\n    ", "\t", "\r\n", "\n\n\n\n"]
TOKENS = TokenRuns(VOCABULARY)

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-99, 999),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.sampled_from(' \n\t"\\:,{}[]aé😀')),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(st.sampled_from(' "\\:,}a'), max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@cache
def runs_of(pattern: str | None) -> WhitespaceRuns:
    """A whitespace pattern over the vocabulary; None: the default."""
    return WhitespaceRuns(DEFAULT if pattern is None else whitespace_of(pattern), TOKENS)


def whitespace_of(pattern: str) -> Whitespace:
    moves, accepts = whitespace_automaton(parse(pattern))
    return Whitespace(tuple((a, b, c, d) for a, b, c, d in moves), tuple(accepts))


def guide(pattern: str | None) -> Guide:
    """A text of which the whitespace alone is held."""
    return Guide([runs_of(pattern).matcher()], ENDS)


def tokens_of(value: Any) -> list[str]:
    """The tokens of a value's JSON text, between which whitespace may stand."""
    if isinstance(value, dict):
        members = [[json.dumps(key), ":", *tokens_of(inner)] for key, inner in value.items()]
        return ["{", *_listed(members), "}"]
    if isinstance(value, list):
        return ["[", *_listed([tokens_of(inner) for inner in value]), "]"]
    return [json.dumps(value, ensure_ascii=False)]


def _listed(members: list[list[str]]) -> list[str]:
    return [token for member in members for token in (",", *member)][1:]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_runs_match_the_pattern(pattern: str) -> None:
    """A JSON text may be made where, and only where, each of its runs of blanks matches."""
    fitting = [run for run in RUNS if re.fullmatch(pattern, run)]
    outcomes: Counter[bool] = Counter()

    @settings(deadline=None, max_examples=80, derandomize=True, database=None)
    @given(value=JSON, data=st.data())
    def check(value: Any, data: st.DataObject) -> None:
        tokens = tokens_of(value)
        # Mostly runs that fit, so that texts come to their end.
        run = st.sampled_from(fitting) if data.draw(st.integers(0, 2)) else st.sampled_from(RUNS)
        runs = [data.draw(run) for _ in tokens[1:]]
        text = tokens[0] + "".join(map("".join, zip(runs, tokens[1:], strict=True)))
        assert json.loads(text) == value
        expected = all(re.fullmatch(pattern, blanks) for blanks in runs)
        cut = tokenized(text, Random(len(text)))
        assert takes(guide(pattern), cut) == takes(guide(pattern), ids(text)) == expected
        if runs:
            outcomes[expected] += 1

    check()
    assert outcomes[True] >= 10
    assert outcomes[False] >= 5 or fitting == RUNS


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\r"])
@pytest.mark.parametrize("pattern", [r"\s*", None], ids=str)
def test_no_whitespace_around_the_text(pattern: str | None, blank: str) -> None:
    """A text neither starts nor ends with whitespace, whatever the pattern."""
    assert not guide(pattern).accept(ids(blank))
    for text in ("{}", "1", '"a"'):
        assert takes(guide(pattern), ids(text))
        assert not takes(guide(pattern), ids(text + blank))
        assert not takes(guide(pattern), ids(blank + text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'["  \"  ,  "]', True),
        (r'["\\"  ]', False),
        (r'["\\\"  "]', True),
        (r'["\\\\","  "]', True),
        (r'{"  :  ":"  "}', True),
        (r'["\u0001 \u0000\u001f"]', True),
        (r'["\u001F"]', False),
        (r'["\u0008"]', False),
        (r'["\u0020"]', False),
        (r'["\u0022"]', False),  # one spelling for each character
        (r'["\u0061"]', False),
        (r'["\u000a"]', False),
        (r'["\/"]', False),
        ('["é  😀  "]', True),
    ],
)
def test_whitespace_inside_strings_is_free(text: str, expected: bool) -> None:
    """Inside a string, which an escaped quote does not end, whitespace is the caller's own text."""
    assert isinstance(json.loads(text), list | dict)
    assert takes(guide(""), ids(text)) == expected


@pytest.mark.parametrize("place", ["[{}1]", "[1{}]", "[1,{}2]", "[1{},2]", '{{"a"{}:1}}'])
@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\r", "\r\n"])
def test_default_bounds_a_run(place: str, blank: str) -> None:
    """Without a pattern a run holds any whitespace, and 20 characters of it at most."""
    longest = blank * (LONGEST_RUN // len(blank))
    assert LONGEST_RUN == 20
    assert takes(guide(None), ids(place.format(longest)))
    assert not takes(guide(None), ids(place.format(longest + " ")))


def test_run_that_does_not_yet_match_goes_on() -> None:
    """Within a run that is still too short only whitespace may come, and the text may not end."""
    one = guide("[ ]{2}")
    assert one.accept(ids('[  "a" '))
    texts = {VOCABULARY.tokens[token] for token in allowed(one)}
    assert texts == {b" ", b' "', b" 1"}  # that no number may come here is for others to say


@pytest.mark.parametrize("pattern", ["", "[ ]?", None], ids=str)
def test_masks_are_what_is_taken(pattern: str | None) -> None:
    """Behind any start of a text the mask holds exactly the tokens that are then taken."""
    for start in ("", "[", '["a', '["a\\', '["a"', "[1", "[1 ", "[1,", '{"a":'):
        one = guide(pattern)
        fits = pattern != "" or not start.endswith(" ")
        assert one.accept(ids(start)) == fits
        if fits:
            texts = [i for i, text in enumerate(VOCABULARY.tokens) if text]
            taken = {i for i in texts if one.valid_prefix([i])}
            assert allowed(one) - set(ENDS) == taken


def test_rollback() -> None:
    """Tokens that are taken back leave no trace."""
    happened: Counter[str] = Counter()

    step = st.one_of(st.sampled_from(b'[]{}:,"  a1\\'), st.integers(-3, -1))

    @settings(deadline=None, max_examples=80, derandomize=True, database=None)
    @given(steps=st.lists(step, min_size=4))
    def check(steps: list[int]) -> None:
        changed = guide("[ ]?")
        kept: list[int] = []
        for step in steps:
            if step >= 0:
                took = changed.accept([step])
                kept += [step] * took
                happened["taken" if took else "refused"] += 1
            else:
                count = min(-step, len(kept))
                changed.rollback(count)
                del kept[len(kept) - count :]
                happened["taken back"] += count
        fresh = guide("[ ]?")
        assert fresh.accept(kept)
        assert allowed(fresh) == allowed(changed)

    check()
    assert min(happened["taken"], happened["refused"], happened["taken back"]) >= 10, happened


@pytest.mark.parametrize("pattern", PATTERNS)
def test_warming_makes_all_masks(pattern: str) -> None:
    """Once a pattern is warm no text of it waits for a mask."""
    runs = WhitespaceRuns(whitespace_of(pattern), TOKENS)
    runs.warm()
    made = set(runs._masks)
    one = Guide([runs.matcher()], ENDS)
    for token in ids('{"a": [1, "\\"  ", {}], "b":null}'):
        allowed(one)
        one.accept([token])
    assert set(runs._masks) == made
