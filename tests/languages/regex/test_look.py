r"""Look-around, \b, \B, atomic groups and possessive quantifiers mean what they mean to Python."""

import re
from itertools import product

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.regex.language import Language
from adapter.languages.regex.parse import parse, search_tree
from adapter.languages.regex.tree import Node, PatternError, is_plain, plain_superset
from tests.languages.conftest import COUNTED, Share
from tests.languages.regex.patterns import matches

TEXTS = ["".join(text) for length in range(6) for text in product("abc ", repeat=length)]
LINES = ["".join(text) for length in range(5) for text in product("ab\n", repeat=length)]

NO_EMPTY = r"\B"
"""What the empty text is matched by in some versions of Python only; it comes first in a list."""

PATTERNS = [
    # ahead
    "a(?=b)b",
    "a(?!b).*",
    "(?=.*a)(?=.*b).{2,4}",
    "a(?=b(?!c)).*",
    "(a(?=b)|b)*",
    "(?=a|$).*",
    "a*(?!a)b*",
    "(?i:A(?=B)).*",
    "(?=(?:a|b)+c).*",
    "(?=a)*b",
    "(?!a)?b",
    # ahead, in repeats
    "(?:(?!ab).)*",
    "(?:(?!ab).)*ab",
    "(?:(?!ab).)+b",
    "(?:(?!b).){0,3}b?",
    "(?:a(?=b)|b(?!b))*",
    "(?:(?=a)a|(?!a)b)*",
    "((?=a)[ab]*|b)*c",
    "(?:(?!aa)[ab])*c?",
    "(?:[ab](?!c))*.?",
    "(?:a?(?!b))*b?",
    "(?:a|(?=b))*b",
    "(?:a(?!b)c|b)*a?",
    "(?:(?!(?:a|b(?!c))c).)*c?",
    # behind
    ".*(?<=a)b.*",
    "(?<!a)b.*",
    ".*(?<!ab)b",
    ".*(?<=ab)b",
    ".*(?<=ab|ba)c",
    "a(?<!b)c?",
    "(?:.(?<=a|b))*",
    ".*(?<=a)(?=b).*",
    "(?!(?<=a)b).*",
    "a(?!(?<=a)b).*",
    "(?:[ab](?<!aa))*c",
    # word boundaries
    r"\ba\b.*",
    r".*\bab\b.*",
    r"\B.*",
    r".*\B",
    r"\B",
    r"\b",
    r"(a\b|\bb|c)*.*",
    r"(?:\ba)*",
    r"(?:a\b ?)*",
    r"[ab]*(?!\b).*",
    r"[ab]*(?!\B).*",
    r"(?:(?!a\b).)*",
    r"(?:\b\w+\b ?){1,2}",
    # once and for all
    "a*+b",
    "a*+a",
    "(?>a*)b",
    "(?>a|b)c",
    "(?>ab|b)*",
    "a{1,2}+a",
    "(?:ab)*+a",
    "(?>a{1,2})a?b",
    "(?>a?b)a",
    "(?>ba*)a",
    "(?>a?ab)c?",
    "a?+(?:ab)?+c*",
    "(?>b|c)+a",
    r"(?>[ab]+)\b.*",
    "(?>a|ab)c*",
    "(?>ab|a)b?c",
    "(?>(?=a)[ab]|b)c",
    "(?>a(?:b|bc))c*",
    "(?>a+?)b?",
    "(?>(?:a|ab)+)c",
    "(?:a|ab)*+c",
    "(?:a*+b)*",
    "(?:(?>a|ab)c?)*",
    "(?:a(?>[^ac]++|c.)*+a)?",
    # what is decided by what stands beside it
    "(?:(?!b)[abc]{1,3}(?<!b)c)+",
    "(?:a|b(?=a)){0,20}",
    "(?:a|b(?!b)){2,4}c",
    "(?:(?!ab).){0,30}",
    ".*(?<!ab|ba)",
]
ANCHORED = [
    r"a$\n?.*",
    "^a|.*b$",
    r"(?m)(^a$\n?)*",
    r"(?m)(?:^a|b|\n)*",
    r"(?s).*$.*",
    r".*(?=b$).",
    r".*$\n",
    r"(?:^a|b)*",
    r"(?:a$|b)*",
    r"a\Z\n?|b\n\Z",
    r"(?s)(?!.*a$).*",
    r"(?:a(?!$))*\n?",
    r"(?s)a^.|\Ab.*",
    "((^a)?b$)?",
    r"(?m)(?:^[ab]+(?:\n|\Z))*",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_look_around_is_python_s(pattern: str) -> None:
    """Of all texts of up to five of a, b, c and a blank: those matched whole, and found in."""
    whole, found = Language(parse(pattern)), Language(search_tree(pattern))
    for text in TEXTS[NO_EMPTY in pattern :]:
        assert whole.matches(text) == bool(re.fullmatch(pattern, text)), text
        assert found.matches(text) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize("pattern", [*ANCHORED, *PATTERNS])
def test_anchors_are_python_s(pattern: str) -> None:
    """Anchors anywhere, and the newline that may stand behind $, in texts with lines."""
    language = Language(parse(pattern))
    for text in LINES[NO_EMPTY in pattern :]:
        assert language.matches(text) == bool(re.fullmatch(pattern, text)), text


FRAGMENTS = ["a", "b", "[ab]", "[^a]", ".", " ", r"\w", r"\b", r"\B", "^", "$", "(?s:.)", "", "ab"]
COUNTS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*+", "?+", "*?"]
GROUPS = ["(?={})", "(?!{})", "(?<={})", "(?<!{})", "(?:{})", "({})", "(?>{})", "(?m:{})"]


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds(str.format, st.sampled_from(GROUPS), inner)
    return st.one_of(
        st.builds("{}{}".format, group, st.sampled_from(COUNTS)),
        group,
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
    )


def known(pattern: str) -> Node | None:
    """The pattern's tree, unless it is refused."""
    try:
        return parse(pattern)
    except PatternError:
        return None


def _is_python(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


_FRAGMENT = st.builds("{}{}".format, st.sampled_from(FRAGMENTS), st.sampled_from(COUNTS))
LOOKING = st.recursive(_FRAGMENT, _larger, max_leaves=10).filter(_is_python)
SHORT = ["".join(text) for length in range(5) for text in product("ab \n", repeat=length)]


@settings(deadline=None, max_examples=200, suppress_health_check=COUNTED)
@given(pattern=LOOKING)
def test_all_sorts_of_look_around_are_python_s(share: Share, pattern: str) -> None:
    """A pattern that is not refused matches exactly what re.fullmatch matches."""
    node = known(pattern)
    share.count(node)
    if node is not None:
        language = Language(node)
        for text in SHORT[NO_EMPTY in pattern :]:
            assert language.matches(text) == bool(re.fullmatch(pattern, text)), text


@settings(deadline=None, max_examples=100, suppress_health_check=COUNTED)
@given(pattern=LOOKING)
def test_what_is_found_is_found_by_python(share: Share, pattern: str) -> None:
    """A search is re.search's, but that $ is the very end; where it differs, it has less."""
    try:
        language = Language(search_tree(pattern))
    except PatternError:
        share.count(None)
        return
    share.count(language)
    for text in SHORT[NO_EMPTY in pattern :]:
        if language.matches(text):
            assert re.search(pattern, text), text
        elif "$" not in pattern:
            assert not re.search(pattern, text), text


@settings(deadline=None, max_examples=60, suppress_health_check=COUNTED)
@given(pattern=LOOKING)
def test_what_is_plain_of_a_tree_matches_more(share: Share, pattern: str) -> None:
    """What a library without intersections is given matches all that the tree matches."""
    node = known(pattern)
    share.count(node)
    if node is not None:
        language, plain = Language(node), plain_superset(node)
        assert is_plain(plain)
        assert not is_plain(node) or plain == node
        for text in filter(language.matches, SHORT):
            assert matches(plain, text), text


VARIABLE = [
    "(?<=a+b?)c.*",
    ".*(?<=^|b)a",
    "(?:(?<=^|c)[ab]+c?)*",
    ".*(?<!a+b)c*",
    "(?:[ab](?<!a+bb))*c?",
    ".*(?<=(?<!a)b)c*",
]


@pytest.mark.parametrize("pattern", VARIABLE)
def test_look_behind_of_several_lengths(pattern: str) -> None:
    """What Python cannot, the module regex can, and JSON Schema's readers."""
    language = Language(parse(pattern))
    for text in TEXTS:
        assert language.matches(text) == bool(regex.fullmatch(pattern, text)), text


READINGS = [
    *(r"(?!\d).", r"(?!\w).", r"(?<!\d)x|.", r".(?<!\d)", r".\b.", r".(?!\b).", r"(?!(?!\d).)."),
    *(r".\B.", r".(?!\B).", r"(?i)(?!k).", r"\w*+.", r"(?>\w|..).?"),
]
LETTERS = "ak1 éÉ٣K\xa0\u3000"


@pytest.mark.parametrize("pattern", READINGS)
def test_look_around_conforms_under_both_readings(pattern: str) -> None:
    """What matches, matches with re.ASCII and without it, also where something must not match."""
    language = Language(parse(pattern))
    for text in map("".join, [*LETTERS, *product(LETTERS, repeat=2)]):
        if language.matches(text):
            assert re.fullmatch(pattern, text), text
            assert "(?i" in pattern or re.fullmatch(pattern, text, re.ASCII), text
