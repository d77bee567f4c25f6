"""Random patterns, and texts that are near to matching them."""

import re
from bisect import bisect_right
from random import Random

from hypothesis import strategies as st

from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import (
    All,
    Chars,
    Choice,
    Node,
    Not,
    PatternError,
    Repeat,
    Sequence,
    is_plain,
)
from adapter.languages.regex.write import to_python

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
    """The pattern's node, unless it is refused, or has intersections."""
    try:
        node = parse(pattern)
    except PatternError:
        return None
    return node if is_plain(node) else None


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
        case All() | Not():
            raise TypeError("draw the texts of a look-around from its language")


def near(node: Node, seed: int) -> list[str]:
    """Texts that match, and each with a character changed."""
    random = Random(seed)
    texts = [sampled(node, random) for _ in range(4)]
    places = [random.randint(0, len(text)) for text in texts]
    return texts + [
        text[:place] + random.choice(["", "a", " ", "\n"]) + text[place + random.randint(0, 1) :]
        for text, place in zip(texts, places, strict=True)
    ]
