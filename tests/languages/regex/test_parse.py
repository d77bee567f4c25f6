"""A regular expression means what it means to re.fullmatch, or is refused."""

import re
import time
import warnings
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.regex.parse import parse, parse_part
from adapter.languages.regex.tree import PatternError, matches_empty
from adapter.languages.regex.write import to_ebnf, to_rust
from tests.languages.conftest import COUNTED, Share
from tests.languages.regex.patterns import (
    ASCII_TEXTS,
    PATTERNS,
    TEXTS,
    matches,
    meaning,
    near,
    points,
)


@settings(deadline=None, max_examples=150, suppress_health_check=COUNTED)
@given(pattern=PATTERNS, texts=st.lists(ASCII_TEXTS, max_size=6), seed=st.integers())
def test_ascii_texts_match_as_in_python(
    share: Share, pattern: str, texts: list[str], seed: int
) -> None:
    """A pattern that is not refused matches exactly what re.fullmatch matches."""
    node = meaning(pattern)
    share.count(node)
    if node is not None:
        for text in filter(str.isascii, texts + near(node, seed)):
            assert matches(node, text) == bool(re.fullmatch(pattern, text)), text
        assert matches_empty(node) == bool(re.fullmatch(pattern, ""))


@settings(deadline=None, max_examples=80, suppress_health_check=COUNTED)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, max_size=6), seed=st.integers())
def test_what_matches_conforms_under_both_readings(
    share: Share, pattern: str, texts: list[str], seed: int
) -> None:
    """Whatever matches, matches in Python too, with re.ASCII and without it."""
    node = meaning(pattern)
    share.count(node)
    if node is not None:
        for text in filter(partial(matches, node), texts + near(node, seed)):
            assert re.fullmatch(pattern, text)
            # re.ASCII has no cases of letters beyond ASCII.
            assert "(?i" in pattern or re.fullmatch(pattern, text, re.ASCII)


ANCHORED = {
    "^a$": "a",
    r"\Aa\Z": "a",
    "^(|[ab])$": "[ab]?",
    "^a$|^b$|c": "[abc]",
    "(^a|b)$": "[ab]",
    "(?:^)*a": "a",
    "(?m)^a$": "a",
    "()^(?:$|a$)": "a?",
    "c{0}^a": "a",
    "^^a$$": "a",
    "(^a$){1}": "a",
}


@pytest.mark.parametrize(("pattern", "plain"), ANCHORED.items())
def test_anchors_at_the_ends_are_dropped(pattern: str, plain: str) -> None:
    """An anchor before or behind everything says nothing that fullmatch does not say."""
    assert parse(pattern) == parse_part(pattern) == parse(plain)


FAULTY = {
    "ab**": "multiple repeat at position 3",
    "[a-": "unterminated character set at position 0",
    "(a": "missing ), unterminated subpattern at position 0",
    "a{2,1}": "min repeat greater than max repeat at position 2",
    "\\": "bad escape (end of pattern) at position 0",
    r"\p{L}": r"bad escape \p at position 0",
    r"(a)\1": "back-references are not supported",
    "(?P<x>a)(?P=x)": "back-references are not supported",
    "(a)?(?(1)b|c)": "conditional groups are not supported",
    "(?<=a(?=b))b": "look-ahead inside a look-behind is not supported",
    "(?>a*b?)c": "an atomic group is not supported where what comes before its last part can match "
    "in several ways",
    "(?:a?)++c": "a possessive quantifier is not supported on what can be empty",
    "(?:a|ab){2,}+c": "a possessive quantifier of two rounds or more is not supported where a "
    "round can match in several ways",
    "a(?i)b": "global flags not at the start of the expression at position 1",
    "(?L)a": "bad inline flags: cannot use 'L' flag with a str pattern at position 3",
    "(?a)(?u)a": "ASCII and UNICODE flags are incompatible",
    "a\0": "NUL characters are not supported",
    r"a\x00": "NUL characters are not supported",
    r"[^\s\S]": "a character class matches no character, or none but NUL and surrogates",
    r"\ud800": "a character class matches no character, or none but NUL and surrogates",
}
REFUSED_IN_PARTS = {
    "(?=a)a": "look-around assertions are not supported",
    "(?!a)b": "look-around assertions are not supported",
    "(?<=a)b": "look-around assertions are not supported",
    "(?<!a)b": "look-around assertions are not supported",
    r"\bfoo": r"word boundaries (\b) are not supported",
    r"fo\Bo": r"word boundaries (\B) are not supported",
    "(?>a)": "atomic groups are not supported",
    "a*+": "possessive quantifiers are not supported",
    **dict.fromkeys(
        ["a^b", r"a+\Ab", r"(a\Z)(?:b)"],
        "anchors are supported at the start and the end of the pattern only",
    ),
}
PARTS = {"parse": parse, "parse_part": parse_part}


@pytest.mark.parametrize(
    ("read", "pattern", "message"),
    [
        *(("parse", *refusal) for refusal in FAULTY.items()),
        *(("parse_part", *refusal) for refusal in REFUSED_IN_PARTS.items()),
    ],
)
def test_refused(read: str, pattern: str, message: str) -> None:
    """What cannot be enforced is refused, and the message says what it is."""
    with pytest.raises(PatternError) as refusal:
        PARTS[read](pattern)
    assert str(refusal.value) == message


def test_python_s_warnings_stay_silent() -> None:
    """What may one day mean something else means what it means today, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert points(parse("[[a-b&&]")) == set("[ab&")


HOSTILE = {
    "5,000 groups": "(" * 5000 + "a" + ")" * 5000,
    "400 groups": "(?:x|" * 400 + "a" + "b)*" * 400,
    "a count of 5,000 digits": "a{" + "9" * 5000 + "}",
    "a count beyond Python's": "a{9999999999}",
    "a million million": "(?:(?:a{0,10000}b){0,10000}c){0,10000}",
    "many large classes": "".join(rf"[\W{chr(0x4E00 + i)}]" for i in range(5000)),
    "many equal classes": r"\W" * 20000,
    "look-ahead that doubles": "(?:(?=.*a)b|c)" * 40,
    "look-ahead in many rounds": "(?:a(?=.{3}b.)|bb(?!a)){1,200}",
    "look-ahead with many states": "(?:a(?=.{12}b)|b)*",
    "word boundaries in many rounds": r"(?:a\b|\Bb.){50,90}",
    "a look-behind with many states": "(?:(?s:.)*(?<=a.{11})b)*",
    "look-behind many times over": "".join(f"(?<!{i:03}).*" for i in range(300)),
    "atomic groups in one another": "(?>" * 90 + "a|ab" + ")" * 90,
    "many atomic groups": "(?>a|ab|abc|b)" * 1000,
    "possessive quantifiers of one another": "(?:" * 40 + "a" + ")++b" * 40,
}


@pytest.mark.parametrize("pattern", HOSTILE.values(), ids=HOSTILE)
def test_hostile_patterns_are_refused_soon(pattern: str) -> None:
    """What would exhaust a stack, the memory, or a library is refused at once."""
    start = time.process_time()
    with pytest.raises(PatternError) as refusal:
        parse(pattern)
    assert time.process_time() - start < 5
    assert len(str(refusal.value)) < 200


def test_the_deepest_pattern_is_written() -> None:
    """A pattern as deep as can be is written in each dialect."""
    deep = next(
        node
        for depth in range(100, 1, -1)
        if (node := meaning("(?:x|a" * depth + "b)*" * depth)) is not None
    )
    assert matches(deep, "xab")
    assert len(to_rust(deep)) > 250
    assert len(to_ebnf(deep)) > 250
