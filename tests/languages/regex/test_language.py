"""What is said of the texts of a tree is so."""

import time

import pytest
from hypothesis import given, settings

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import TEXT, only
from adapter.languages.regex import language
from adapter.languages.regex.choices import choices
from adapter.languages.regex.language import Language
from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Chars,
    Node,
    every,
    negation,
    repeat,
    sequence,
)
from tests.languages.regex.trees import LETTERS, SHORT_TEXTS, SKETCHES, Sketch


@settings(deadline=None, max_examples=300)
@given(sketch=SKETCHES)
def test_a_tree_matches_what_its_parts_say(sketch: Sketch) -> None:
    """Intersections and complements, anywhere in a tree, mean what they mean for sets."""
    known = Language(sketch.node())
    for text in SHORT_TEXTS:
        assert known.matches(text) == sketch.matches(text), text
    found = [text for text in SHORT_TEXTS if sketch.matches(text)]
    if found:
        assert not known.is_empty()
        first = known.shortest()
        assert first is not None
        assert len(first) <= len(found[0])
        assert known.matches(first)
    assert known.is_empty() == (known.shortest() is None)


@settings(deadline=None, max_examples=300)
@given(sketch=SKETCHES)
def test_all_words_are_found_where_there_are_few(sketch: Sketch) -> None:
    """The words of a tree are those that match, in order; there are few only where it is finite."""
    node = every([sketch.node(), repeat(Chars(only(LETTERS)), 0, 4)])
    expected = sorted(filter(sketch.matches, SHORT_TEXTS), key=lambda text: (len(text), text))
    assert language.words(node, len(SHORT_TEXTS)) == expected
    assert language.is_finite(node)
    assert language.shortest(node) == (expected[0] if expected else None)
    if expected:
        assert language.words(node, len(expected) - 1) is None


@settings(deadline=None, max_examples=200)
@given(sketch=SKETCHES)
def test_a_text_and_its_beginnings(sketch: Sketch) -> None:
    """What begins a word does, and nothing that no word of some length begins with is said to."""
    node = every([sketch.node(), repeat(Chars(only(LETTERS)), 0, 4)])
    known = Language(node)
    found = list(filter(sketch.matches, SHORT_TEXTS))
    beginnings = {text[:length] for text in found for length in range(len(text) + 1)}
    assert {text for text in SHORT_TEXTS if known.begins(text)} == beginnings


FINITE = {"a{3}": True, "[a-z]{0,9}": True, "a*": False, "(a*|b){2}": False, "": True}


@pytest.mark.parametrize(("pattern", "finite"), FINITE.items())
def test_finite(pattern: str, finite: bool) -> None:
    """A language is finite where its words have a longest one; its complement then is not."""
    node = parse(pattern)
    assert language.is_finite(node) is finite
    assert not language.is_finite(negation(node)) or not finite


def test_finite_by_intersection() -> None:
    """What is unbounded in each part may be bounded in all of them."""
    ends = every([parse("a*b*"), negation(parse("(?s:.*)a{3}(?s:.*)")), parse("a*")])
    assert language.is_finite(ends)
    assert language.words(ends, 10) == ["", "a", "aa"]
    assert not language.is_finite(every([parse("a*b*"), negation(parse("a*"))]))
    assert language.is_finite(every([parse("a+"), parse("b+")]))


def test_the_ends_of_the_lattice() -> None:
    """Every text and no text are what they are called, and the complements of one another."""
    assert negation(ANY_TEXT) == NOTHING
    assert negation(NOTHING) == ANY_TEXT
    assert language.is_empty(NOTHING)
    assert language.words(NOTHING, 5) == []
    assert language.words(EMPTY, 5) == [""]
    assert language.words(ANY_TEXT, 5) is None
    assert language.shortest(negation(EMPTY)) == "\x01"
    assert every([]) == ANY_TEXT
    assert every([parse("a"), parse("b")]) == NOTHING
    assert sequence([parse("a"), NOTHING]) == NOTHING


def test_complements_stay_within_text() -> None:
    """No complement has NUL or a surrogate."""
    known = Language(negation(parse("a")))
    assert known.matches("b")
    assert not known.matches("\0")
    assert not known.matches("\ud800")


LARGE: dict[str, tuple[Node, bool]] = {
    "a length": (every([parse("[a-z0-9]{1,2000}"), negation(parse("admin|root"))]), False),
    "lengths that cross": (every([parse("(ab|c){0,500}"), parse(".{1200,}")]), True),
    "lengths that meet": (every([parse("(ab|c){0,700}"), parse(".{1200,}")]), False),
    "many words": (every([choices(f"w{i}" for i in range(2000)), parse("w[5-9]+")]), False),
    "password": (
        every([parse(r".*\d.*"), parse(".*[A-Z].*"), parse(".*[^0-9A-Za-z].*"), parse(".{8,64}")]),
        False,
    ),
    "a number of text": (every([repeat(Chars(TEXT), 0, 65536), parse("(?s:.)*x")]), False),
}


@pytest.mark.parametrize(("node", "empty"), LARGE.values(), ids=LARGE)
def test_large_counts_cost_little(node: Node, empty: bool) -> None:
    """Counts are not written out, and a word is soon found."""
    start = time.process_time()
    assert language.is_empty(node) is empty
    assert time.process_time() - start < 2


def test_words_are_bounded_before_they_are_made() -> None:
    """A million words are no list of a million words."""
    start = time.process_time()
    assert language.words(parse("(?s:.){3}"), 1000) is None
    assert language.words(parse("[ab]{40}"), 1000) is None
    assert language.words(parse("a{0,300}"), 1000) == ["a" * length for length in range(301)]
    assert time.process_time() - start < 2


def test_a_question_has_a_budget() -> None:
    """What would need more states than are allowed is not found out."""
    node = every([parse("[ab]*a[ab]{18}"), negation(parse("[ab]*a[ab]{18}a?"))])
    with pytest.raises(BudgetExceededError):
        language.is_empty(node, Budget(2000))
