"""A regular expression means to each library what it means to re.fullmatch."""

import re
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.regex.choices import choices
from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import (
    EMPTY,
    Chars,
    Choice,
    Node,
    PatternError,
    Repeat,
    Sequence,
    matches_empty,
    positions,
)
from adapter.languages.regex.whitespace import json_whitespace, whitespace_automaton
from adapter.languages.regex.write import to_ebnf, to_python, to_rust

# Where classes and cases change most: the alphabets, and edges of what lies between them.
TEXT = "".join(
    chr(point)
    for part in [(1, 0x3100), (0xA640, 0xAC00), (0xFF00, 0x10600), (0x1E900, 0x1E960)]
    for point in (*range(*part), 0xD7FF, 0xE000, 0x10FFFF)
)

# What readings and cases may differ in: an Arabic digit, a no-break space, the signs of Kelvin and
# Angstrom, a long s, Python's blank \x1c.
ODD = "éÉ٣\xa0KÅſk\x1c\U0001f600"

FRAGMENTS = [
    *("a", "b", "k", "A", "0", " ", r"\.", r"\n", r"\t", "-", "é", r"\x61", r"\u00e9", r'"'),
    *("[ab]", "[^a]", "[a-c0]", "[^a-k]", "[-a]", r"[\]\\^-]", "[k-é]", r"[\n ]", "."),
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[\W_]", r"[^\d]", r"[^\W\d]", r"[\s\S]"),
    *("", "()", "(?:)", "(?#note)", "^", "$", r"\A", r"\Z"),
]
COUNTS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{2,}", "{0}"]
GROUPS = ["({})", "(?:{})", "(?i:{})", "(?s:{})", "(?P<name>{})", "(?a:{})", "(?-i:{})", "(?m:{})"]


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds(str.format, st.sampled_from(GROUPS), inner)
    return st.one_of(
        st.builds("{}{}".format, group, st.sampled_from(COUNTS)),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
    )


def _is_python(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


FRAGMENT = st.builds("{}{}".format, st.sampled_from(FRAGMENTS), st.sampled_from(COUNTS))
PATTERNS = st.recursive(FRAGMENT, _larger, max_leaves=8).filter(_is_python)
ASCII_TEXTS = st.text(st.sampled_from('abkA0 .\n\t-_"]'), max_size=5)
TEXTS = st.text(st.sampled_from("aabbk0 .\n" + ODD), max_size=5)


def meaning(pattern: str) -> Node | None:
    """The pattern's node, unless it is refused."""
    try:
        return parse(pattern)
    except PatternError:
        return None


def points(node: Node) -> set[str]:
    """The characters of a class, of those in TEXT."""
    assert isinstance(node, Chars)
    return set(re.findall(to_python(node), TEXT))


def holds(node: Chars, char: str) -> bool:
    at = bisect_right(node.ranges, (ord(char), 0x110000)) - 1
    return at >= 0 and ord(char) <= node.ranges[at][1]


def matches(node: Node, text: str) -> bool:
    return re.fullmatch(to_python(node), text) is not None


def sampled(node: Node, random: Random) -> str:
    """A text that matches, of characters that other classes have too if there are such."""
    match node:
        case Chars():
            liked = [char for char in 'abkA0 .\n"é' if holds(node, char)]
            return random.choice(liked or [chr(node.ranges[0][0])])
        case Sequence(parts):
            return "".join(sampled(part, random) for part in parts)
        case Choice(options):
            return sampled(random.choice(options), random)
        case Repeat(inner, low, high):
            most = low + 2 if high is None else min(high, low + 2)
            return "".join(sampled(inner, random) for _ in range(random.randint(low, most)))


def near(node: Node, seed: int) -> list[str]:
    """Texts that match, and each with a character changed."""
    random = Random(seed)
    texts = [sampled(node, random) for _ in range(4)]
    places = [random.randint(0, len(text)) for text in texts]
    return texts + [
        text[:place] + random.choice(["", "a", " ", "\n"]) + text[place + random.randint(0, 1) :]
        for text, place in zip(texts, places, strict=True)
    ]


# Python itself as the oracle.


@settings(deadline=None, max_examples=150)
@given(pattern=PATTERNS, texts=st.lists(ASCII_TEXTS, max_size=6), seed=st.integers())
def test_ascii_texts_match_as_in_python(pattern: str, texts: list[str], seed: int) -> None:
    """A pattern that is not refused matches exactly what re.fullmatch matches."""
    node = meaning(pattern)
    if node is not None:
        for text in filter(str.isascii, texts + near(node, seed)):
            assert matches(node, text) == bool(re.fullmatch(pattern, text)), text
        assert matches_empty(node) == bool(re.fullmatch(pattern, ""))


@settings(deadline=None, max_examples=80)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, max_size=6), seed=st.integers())
def test_what_matches_conforms_under_both_readings(
    pattern: str, texts: list[str], seed: int
) -> None:
    """Whatever matches, matches in Python too, with re.ASCII and without it."""
    node = meaning(pattern)
    if node is not None:
        for text in filter(partial(matches, node), texts + near(node, seed)):
            assert re.fullmatch(pattern, text)
            # re.ASCII has no cases of letters beyond ASCII.
            assert "(?i" in pattern or re.fullmatch(pattern, text, re.ASCII)


CLASSES = [
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "(?s).", "[^a]", "[^\n\\d]", r"[^\W_]"),
    *(r"[\s\S]", r"[\d\D]", r"[\Wa]", r"[^\D]", r"[^\Wa-f]", r"[\x00-\x1f]", r"[\ud000-\uffff]"),
    *("(?x) [a b] # c", r"[^\x00]"),
    *("(?i)[a-f]", "(?i)Z", "(?i)[^k]", "(?i)[^s]", "(?i)[^i]", "(?i)[^\u0345]", "(?i)[^ß]"),
    *(r"(?i)\W", r"(?i)[^\w]", r"(?i)[^\u0390]", "(?i)[^σ-ω]", "(?ai)[a-é]", "(?i:[^µ])"),
]


@pytest.mark.parametrize("pattern", CLASSES)
def test_class(pattern: str) -> None:
    """A class holds what it holds in Python both with re.ASCII and without it."""
    both = set(re.findall(pattern, TEXT)) & set(re.findall(pattern, TEXT, re.ASCII))
    assert points(parse(pattern)) == both


def test_class_flags_change_no_reading() -> None:
    """Whoever asks for one reading gets what conforms under both, like everyone else."""
    for name in "dDsSwW":
        plain = parse(rf"\{name}")
        assert parse(rf"(?a)\{name}") == parse(rf"(?u:\{name})") == plain


@pytest.mark.parametrize(
    ("pattern", "chars"),
    [
        ("(?i)k", "kK"),
        ("(?i)[s]", "sS"),
        ("(?i)é", "éÉ"),
        ("(?i:[à-ä])", "àáâãäÀÁÂÃÄ"),
        ("(?i)Σ", "Σσ"),
        ("(?i)ß", "ß"),
        ("(?i)ς", "ς"),
        ("(?ai)é", "é"),
        ("(?i)(?-i:é)", "é"),
        ("(?i)1", "1"),
    ],
)
def test_ignore_case(pattern: str, chars: str) -> None:
    """A letter stands for its other case too, not for what only some readers take for it."""
    assert points(parse(pattern)) == set(chars)


def test_every_letter_in_any_case() -> None:
    """For each letter: no more than Python matches, and left out of a set all that Python does."""
    letters = map(chr, range(0x20000))
    cased = [char for char in letters if char.lower() != char or char.upper() != char]
    every = "".join(cased)
    for char in cased:
        alike = set(re.findall(char, every, re.IGNORECASE))
        re.purge()
        inside, outside = parse(f"(?i){char}"), parse(f"(?i)[^{char}]")
        assert isinstance(inside, Chars)
        assert isinstance(outside, Chars)
        taken = {chr(point) for low, high in inside.ranges for point in range(low, high + 1)}
        assert char in taken <= alike
        assert not [other for other in alike if holds(outside, other)]


ANCHORED = {
    "^a$": "a",
    r"\Aa\Z": "a",
    "^(|[ab])$": "[ab]?",
    "^a$|^b$|c": "[abc]",
    "(^a|b)$": "[ab]",
    "(?:^)*a": "a",
    "((^a)?b$)?": "(a?b)?",
    "(?m)^a$": "a",
    "()^(?:$|a$)": "a?",
    "c{0}^a": "a",
    "^^a$$": "a",
    "(^a$){1}": "a",
}


@pytest.mark.parametrize(("pattern", "plain"), ANCHORED.items())
def test_anchors_at_the_ends_are_dropped(pattern: str, plain: str) -> None:
    """An anchor before or behind everything says nothing that fullmatch does not say."""
    assert parse(pattern) == parse(plain)


REFUSED = {
    "ab**": "multiple repeat at position 3",
    "[a-": "unterminated character set at position 0",
    "(a": "missing ), unterminated subpattern at position 0",
    "a{2,1}": "min repeat greater than max repeat at position 2",
    "\\": "bad escape (end of pattern) at position 0",
    r"\p{L}": r"bad escape \p at position 0",
    "(?=a)a": "look-around assertions are not supported",
    "(?!a)b": "look-around assertions are not supported",
    "(?<=a)b": "look-around assertions are not supported",
    "(?<!a)b": "look-around assertions are not supported",
    r"(a)\1": "back-references are not supported",
    "(?P<x>a)(?P=x)": "back-references are not supported",
    "(a)?(?(1)b|c)": "conditional groups are not supported",
    r"\bfoo": r"word boundaries (\b) are not supported",
    r"fo\Bo": r"word boundaries (\B) are not supported",
    "(?>a)": "atomic groups are not supported",
    "a*+": "possessive quantifiers are not supported",
    "a(?i)b": "global flags not at the start of the expression at position 1",
    "(?L)a": "bad inline flags: cannot use 'L' flag with a str pattern at position 3",
    "(?a)(?u)a": "ASCII and UNICODE flags are incompatible",
    "a\0": "NUL characters are not supported",
    r"a\x00": "NUL characters are not supported",
    r"[^\s\S]": "a character class matches no character, or none but NUL and surrogates",
    r"\ud800": "a character class matches no character, or none but NUL and surrogates",
    "a^b": "the anchor ^ is supported at the start of the pattern only",
    r"a*\Ab": r"the anchor \A is supported at the start of the pattern only",
    "(^|a)*": "the anchor ^ is supported at the start of the pattern only",
    r"a$\n": "the anchor $ is supported at the end of the pattern only",
    r"(a\Z)+": r"the anchor \Z is supported at the end of the pattern only",
}


@pytest.mark.parametrize(("pattern", "message"), REFUSED.items())
def test_refused(pattern: str, message: str) -> None:
    """What cannot be enforced is refused, and the message says what it is."""
    with pytest.raises(PatternError) as refusal:
        parse(pattern)
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
}


@pytest.mark.parametrize("pattern", HOSTILE.values(), ids=HOSTILE)
def test_hostile_patterns_are_refused_soon(pattern: str) -> None:
    """What would exhaust a stack, the memory, or a library is refused at once."""
    start = time.process_time()
    with pytest.raises(PatternError) as refusal:
        parse(pattern)
    assert time.process_time() - start < 5
    assert len(str(refusal.value)) < 200


def test_nested_stars_are_one() -> None:
    """Repeats of repeats become one where no count is left out."""
    assert parse("(((((a*)*)*)*)*)*") == parse("a*")
    assert parse("(a?){3,5}") == parse("a{0,5}") == parse("((a|){0,5}){1}")
    assert parse("(a+){2,3}") == parse("a{2,}")
    assert parse("(?:aa){2,3}") != parse("(?:a){4,6}")
    assert parse("(a{2}){0,2}") != parse("a{0,4}")
    assert parse("(|)*") == parse("a{0}") == parse("") == EMPTY
    assert positions(parse("((a|b){0,60}c){0,60}")) == 61 * 60


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


# Choices.


@settings(deadline=None)
@given(texts=st.lists(st.text("ab é\n", max_size=4), min_size=1), seed=st.integers())
def test_choices(texts: list[str], seed: int) -> None:
    """Exactly the texts match, in whatever order they come."""
    node = choices(texts)
    for text in {*texts, *(text[:-1] for text in texts), *(text + "a" for text in texts)}:
        assert matches(node, text) == (text in texts)
    shuffled = texts * 2
    Random(seed).shuffle(shuffled)
    assert choices(shuffled) == node


def test_large_choices_stay_small() -> None:
    """Ten thousand texts share their prefixes; long ones and chains of prefixes do no harm."""
    random = Random(0)
    words = ["common prefix " + "".join(random.choices("abcdefgh", k=12)) for _ in range(10_000)]
    start = time.process_time()
    assert len(to_rust(choices(words))) < 0.6 * sum(map(len, words))
    assert time.process_time() - start < 5
    long = ["a" * 5000, "a" * 4999 + "b"]
    assert len(to_ebnf(choices(long))) < 5100
    chain = choices(["a" * length for length in range(500)])
    assert matches(chain, "a" * 499)
    assert not matches(chain, "a" * 500)


@pytest.mark.parametrize("texts", [[], ["a", "b\0"], ["\ud800"]])
def test_choices_that_cannot_be(texts: list[str]) -> None:
    """No texts, and characters that no generated text has, are refused."""
    with pytest.raises(PatternError):
        choices(texts)


# Blanks.

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


# The libraries.

Accepts = Callable[[Node, list[str]], list[bool]]

EVERY_BYTE = [bytes([byte]) for byte in range(256)]
END = 256


class ByteTokenizer:
    """A token for each byte, and one that ends the text, as llguidance reads them."""

    eos_token_id = END
    bos_token_id = None
    tokens = (*EVERY_BYTE, b"</s>")
    special_token_ids = (END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


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
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

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
        return matcher.accept_string(text) and matcher.accept_token(END)

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


@settings(deadline=None, max_examples=40)
@given(pattern=SMALL_PATTERNS, texts=st.lists(TEXTS, max_size=6), seed=st.integers())
def test_libraries_read_what_python_reads(
    accepts: Accepts, pattern: str, texts: list[str], seed: int
) -> None:
    """What is written for a library matches there what it matches in Python."""
    node = meaning(pattern)
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
