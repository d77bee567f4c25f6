"""Texts to choose from are a pattern that matches them alone."""

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.regex.choices import beginnings, choices
from adapter.languages.regex.tree import PatternError
from adapter.languages.regex.write import to_ebnf, to_rust
from tests.languages.regex.patterns import matches


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


@settings(deadline=None)
@given(
    texts=st.lists(st.text("ab\n", max_size=5), min_size=1),
    length=st.integers(0, 4),
    other=st.text("abc", max_size=6),
)
def test_beginnings(texts: list[str], length: int, other: str) -> None:
    """All the texts match, and beside them what begins as a longer one does."""
    node = beginnings(texts, length)
    known = other in texts or any(
        len(text) > length and other.startswith(text[:length]) for text in texts
    )
    assert all(matches(node, text) for text in texts)
    assert matches(node, other) == known


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


@pytest.mark.parametrize("texts", [[], ["\ud800"]])
def test_choices_that_cannot_be(texts: list[str]) -> None:
    """No texts, and characters that no generated text has, are refused."""
    with pytest.raises(PatternError):
        choices(texts)
