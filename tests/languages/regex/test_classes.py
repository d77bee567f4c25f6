"""A class of characters holds what Python holds in it, under both readings."""

import re

import pytest

from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import Chars
from tests.languages.regex.patterns import TEXT, holds, points

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
