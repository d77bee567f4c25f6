"""What is written of a regular expression means the same to each library that reads it."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.regex.choices import choices
from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import Node
from adapter.languages.regex.write import to_ebnf, to_python, to_rust
from tests.languages.byte_tokenizer import END, EVERY_BYTE, ByteTokenizer
from tests.languages.conftest import COUNTED, Share
from tests.languages.regex.patterns import PATTERNS, TEXTS, matches, meaning, near

Accepts = Callable[[Node, list[str]], list[bool]]


@pytest.fixture(scope="module")
def in_llguidance() -> Accepts:
    """Which texts llguidance accepts."""
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteTokenizer()))

    def accepts(node: Node, texts: list[str]) -> list[bool]:
        grammar = llguidance.LLMatcher.grammar_from_regex(to_rust(node))
        start = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        assert not start.is_error(), start.get_error()
        return [walk(start.deep_copy(), list(text.encode())) for text in texts]

    def walk(matcher: Any, tokens: list[int]) -> bool:
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

    return accepts


@pytest.fixture(scope="module")
def in_xgrammar() -> Accepts:
    """Which texts xgrammar accepts."""
    xgrammar = pytest.importorskip("xgrammar")
    vocabulary = xgrammar.TokenizerInfo(
        [*EVERY_BYTE, b"</s>"], xgrammar.VocabType.RAW, stop_token_ids=[END]
    )
    compiler = xgrammar.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)

    def accepts(node: Node, texts: list[str]) -> list[bool]:
        compiled = compiler.compile_grammar(to_ebnf(node))
        return [walk(xgrammar.GrammarMatcher(compiled), text) for text in texts]

    def walk(matcher: Any, text: str) -> bool:
        return bool(matcher.accept_string(text) and matcher.accept_token(END))

    return accepts


@pytest.fixture(scope="module")
def in_outlines() -> Accepts:
    """Which texts outlines_core accepts, in the exact form: behind a NUL, up to the end."""
    outlines_core = pytest.importorskip("outlines_core")
    vocabulary = outlines_core.Vocabulary(END, {token: [i] for i, token in enumerate(EVERY_BYTE)})

    def accepts(node: Node, texts: list[str]) -> list[bool]:
        index = outlines_core.Index(rf"\x00(?:{to_rust(node)})$", vocabulary)
        return [walk(outlines_core.Guide(index), b"\0" + text.encode()) for text in texts]

    def walk(guide: Any, text: bytes) -> bool:
        for byte in text:
            if byte not in guide.get_tokens():
                return False
            guide.advance(byte)
        return END in guide.get_tokens() or guide.is_finished()

    return accepts


@pytest.fixture(scope="module")
def in_interegular() -> Accepts:
    """Which texts interegular accepts, lm-format-enforcer's reader."""
    interegular = pytest.importorskip("interegular")

    def accepts(node: Node, texts: list[str]) -> list[bool]:
        automaton = interegular.parse_pattern(to_python(node)).to_fsm()
        return [automaton.accepts(text) for text in texts]

    return accepts


LIBRARIES = ["in_llguidance", "in_xgrammar", "in_outlines", "in_interegular"]

# Without the classes that interegular takes a second for.
SMALL_PATTERNS = PATTERNS.filter(lambda pattern: r"\W" not in pattern)


@pytest.fixture(scope="module", params=LIBRARIES)
def accepts(request: pytest.FixtureRequest) -> Accepts:
    """One library after the other."""
    library: Accepts = request.getfixturevalue(request.param)
    return library


@settings(deadline=None, max_examples=40, suppress_health_check=COUNTED)
@given(pattern=SMALL_PATTERNS, texts=st.lists(TEXTS, max_size=6), seed=st.integers())
def test_libraries_read_what_python_reads(
    share: Share, accepts: Accepts, pattern: str, texts: list[str], seed: int
) -> None:
    """What is written for a library matches there what it matches in Python."""
    node = meaning(pattern)
    share.count(node)
    if node is not None:
        texts = ["", *texts, *near(node, seed)]
        assert accepts(node, texts) == [matches(node, text) for text in texts]


# What a dialect may see more in, alone, before a hexadecimal digit, in a class, and in a range.
MARKS = "".join(map(chr, range(1, 0x80))) + "\x80éÿĀ\ud7ff\ue000\uffff\U00010000\U0010ffff"


def test_libraries_read_every_mark(accepts: Accepts) -> None:
    """No character means anything but itself, wherever it stands."""
    texts = [first + "f" for first in MARKS]
    assert accepts(choices(texts), [*texts, "f"]) == [True] * len(texts) + [False]
    every = parse("[" + "".join(map(re.escape, MARKS[::2])) + "]")
    assert accepts(every, list(MARKS)) == [True, False] * (len(MARKS) // 2) + [True] * (
        len(MARKS) % 2
    )
    for low in "!+,]^-":
        texts = [chr(ord(low) + offset) for offset in (-1, 0, 1, 2, 3)]
        between = parse(f"[{re.escape(texts[1])}-{re.escape(texts[3])}]")
        assert accepts(between, texts) == [False, True, True, True, False]


LARGE = {
    "((a|b){0,60}c){0,60}": ("abc" * 60, "abc" * 61, "c", "a"),
    "[\u0001-⹿]{1,5}": ("⹿" * 5, "⹿" * 6, "\u2e80", "a"),
    "(((((a*)*)*)*)*)*": ("", "a" * 50, "b", "ab"),
    r"\D{2}": (" é", " \u2028", "-٣", "1-"),
    "(?:ab){2,300}": ("ab", "abab", "ab" * 300, "ab" * 301),
    ".{0,200}": ("é" * 200, "é" * 201, "\n", ""),
}


@pytest.mark.parametrize("pattern", LARGE)
def test_libraries_take_large_patterns(accepts: Accepts, pattern: str) -> None:
    """Large repeats, large classes and nested stars are read by all libraries."""
    texts = list(LARGE[pattern])
    node = parse(pattern)
    assert accepts(node, texts) == [matches(node, text) for text in texts]


def test_libraries_take_deep_patterns(accepts: Accepts) -> None:
    """The deepest pattern that is not refused is read by all libraries."""
    deep = "(?:x|a" * 33 + "b)*" * 33
    node = parse(deep)
    texts = ["", "xab", "aab", "xaxaxabb"]
    assert accepts(node, texts) == [matches(node, text) for text in texts]


def test_libraries_take_choices(accepts: Accepts) -> None:
    """Choices with prefixes of one another, chains of them and long texts are read by all."""
    texts = ["", "a", "ab", "abc", "é", "\U0001f600", '"\\', "yes", "yes!", "x" * 300]
    others = ["b", "abcd", "ye", "ä", "x" * 299]
    assert accepts(choices(texts), texts + others) == [True] * 10 + [False] * 5
    chain = ["a" * length for length in range(0, 100)]
    assert accepts(choices(chain[1:]), chain) == [False] + [True] * 99
