"""Patterns with look-ahead and anchors: as Python finds them."""

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from adapter.languages.regex.language import Language, is_empty
from adapter.languages.regex.parse import parse, search_tree
from adapter.languages.regex.tree import Node, PatternError

PATTERNS = [
    "",
    "a",
    "cat|dog",
    "^ab",
    "ab$",
    "^$",
    "^a|b$",
    "a|^b",
    "(^a|b$)",
    "^a$|^b",
    "^a+b*$|c",
    r"[ab]\$",
    "^[^a]",
    "x{2}",
    "a^b",
    "a$b",
    "^(?=.*a)(?=.*b).{2,3}$",
    "(?!ab)a",
    "a(?=b)",
    "a(?!$)",
    "^(?!a)",
    "^(?!^[ab]*$)c?a*b?$",
    "^(?!.*bb)[ab]+c$",
    "^(?:a|(?=b)b*c)",
    "(?=a|b$)b",
    "(?i)^A(?=B).*$",
    "(?=(?!a)[abc])c|a",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("tree", "python"), [(search_tree, re.search), (parse, re.fullmatch)])
def test_a_tree_is_what_python_finds(
    pattern: str, tree: Callable[[str], Node], python: Callable[[str, str], Any]
) -> None:
    """Of all texts of up to five of a, b and c."""
    language = Language(tree(pattern))
    for length in range(6):
        for text in map("".join, product("abc", repeat=length)):
            assert language.matches(text) == bool(python(pattern, text)), text


EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@"
    r"([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)
PASSWORD = r"^(?=.*[A-Z])(?=.*\d)(?=.*[^\w\s]).{8,64}$"
DECIMAL = r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,5}|(?=[\d.]{1,18}0*$)\d{0,5}\.\d{0,12}0*$)"


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (EMAIL, ["a.b@c.de", ".a@c.de", "a..b@c.de", "a@c", "a@c.d", "", "A+'b@c-d.e.fg"]),
        (PASSWORD, ["Abcdef1!", "abcdef1!", "Abcdefg!", "Abcdefg1", "A1!", "A1!" * 21, "A1!" * 22]),
        (DECIMAL, ["12.50", "-", "", "+.", "0", "123456", "1e5", "00012.3400", "1." + "1" * 12]),
    ],
)
def test_patterns_that_libraries_write(pattern: str, texts: list[str]) -> None:
    """Those of zod and pydantic."""
    language = Language(search_tree(pattern))
    for text in texts:
        assert language.matches(text) == bool(re.search(pattern, text)), text
    assert not is_empty(search_tree(pattern))


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?>a*b?)c", r"(?<!\ba)c", r"\p{Greek}", "("])
def test_what_is_not_read_is_refused(pattern: str) -> None:
    """In words."""
    with pytest.raises(PatternError):
        search_tree(pattern)


@pytest.mark.parametrize("pattern", ["a$", "^a$|b", "a(?!$)", "(?!^a$)a", "(a$)*b?", "^$"])
def test_the_end_of_a_text_is_its_end(pattern: str) -> None:
    """$ is not before a newline, as ECMA 262 has it, and what is found is found by Python too."""
    language = Language(search_tree(pattern))
    for length in range(5):
        for text in map("".join, product("ab\n", repeat=length)):
            ecma = re.search(pattern.replace("$", r"\Z"), text)
            assert language.matches(text) == bool(ecma and re.search(pattern, text)), text


READ = [r"\d", r"[^\w]", "(?i)k", r"\Bk", r"k\b", "(?!\\w)(?s:.)", "(?i:[^k])", "a$"]
NAMES = ["".join(text) for length in range(3) for text in product("akK\n1 é٣\u212a", repeat=length)]


@pytest.mark.parametrize("pattern", READ)
def test_what_is_not_found_is_found_by_no_reader(pattern: str) -> None:
    """Widest, it is all that is found with re.ASCII or without, and also before a newline."""
    narrow, wide = Language(search_tree(pattern)), Language(search_tree(pattern, widest=True))
    for text in NAMES:
        found = bool(re.search(pattern, text)), bool(re.search(pattern, text, re.ASCII))
        assert narrow.matches(text) <= min(found), text
        assert wide.matches(text) >= max(found), text
