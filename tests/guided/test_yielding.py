"""adapter/guided/yielding.py: a library beside a guard narrows, and never ends its text."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.guided import yielding
from adapter.guided.matcher import Guide
from adapter.guided.token_trie import TokenRuns
from adapter.guided.yielding import YieldingMatcher
from tests.guided.test_matcher import Listed
from tests.guided.texts import ENDS, VOCABULARY, allowed, ids, language, text_of, written

END = ENDS[0]
RUNS = TokenRuns(VOCABULARY)
TEXTS = st.lists(st.text("ab ", max_size=5), min_size=1, max_size=6)


def beside(guard: Listed, library: Listed) -> Guide:
    return Guide([guard, YieldingMatcher(library, [guard], RUNS)], ENDS)


@given(held=TEXTS, narrower=TEXTS, seed=st.integers(0, 99))
@settings(deadline=None)
def test_no_two_languages_make_a_dead_end(held: list[str], narrower: list[str], seed: int) -> None:
    """Whatever they have in common, a text comes to its end and is one that the guard holds."""
    text = written(beside(Listed(*held), Listed(*narrower)), Random(seed))
    assert text is not None
    assert text.decode() in held


@pytest.mark.parametrize(
    ("held", "narrower", "made"),
    [
        (["ab", "ac", "b"], ["ab", "cd"], {"ab"}),
        # They part behind what both begin with, at an end that only one allows, and at once.
        (["abc", "ba"], ["abd"], {"abc"}),
        (["a", "ab"], ["ab"], {"ab"}),
        (["ab"], ["a"], {"ab"}),
        (["a"], ["b"], {"a"}),
        # Both may end here, which is a way on.
        (["a", "ab"], ["a"], {"a"}),
        # Blanks alone are none.
        (["a b", "ac"], ["a d"], {"a b", "ac"}),
        # Where the guard may end, and has nothing else but blanks, a library that may not is stuck.
        (["a", "a "], ["a b"], {"a", "a "}),
    ],
)
def test_a_library_narrows_until_it_is_stuck(
    held: list[str], narrower: list[str], made: set[str]
) -> None:
    """What is made is the library's where the guard holds it too, and else the guard's."""
    assert language(beside(Listed(*held), Listed(*narrower))) == {text.encode() for text in made}


@pytest.mark.parametrize("place", ["", "a", "ab"])
def test_a_library_that_fails_is_set_aside(place: str) -> None:
    """Wherever it does; the guard goes on, also after a rollback."""
    guide = beside(Listed("abcd"), Listed("abcd", fails_at=place))
    for token in ids("abc"):
        assert allowed(guide) == {token}
        assert guide.accept([token])
    guide.rollback(3)
    assert guide.accept([*ids("abcd"), END])
    assert guide.failure is None


def test_a_library_that_is_slow_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Well before the engine would end the text."""
    monkeypatch.setattr(yielding, "_SECONDS", 0.0)
    monkeypatch.setattr(yielding, "_SECONDS_A_TOKEN", 0.0)
    guide = beside(Listed("ab", "b"), Listed("ab"))
    assert allowed(guide) == set(ids("ab"))


@given(held=TEXTS, narrower=TEXTS, seed=st.integers(0, 99), back=st.integers(0, 5))
@settings(deadline=None)
def test_going_back_is_as_never_gone(
    held: list[str], narrower: list[str], seed: int, back: int
) -> None:
    """The masks after a rollback are those of a fresh state at the same place."""
    guide, choose, taken = beside(Listed(*held), Listed(*narrower)), Random(seed), list[int]()
    while not guide.ended and len(taken) < 5:
        taken.append(choose.choice(sorted(allowed(guide))))
        assert guide.accept(taken[-1:])
    back = min(back, len(taken))
    guide.rollback(back)
    again = beside(Listed(*held), Listed(*narrower))
    for token in taken[: len(taken) - back]:
        allowed(again)
        assert again.accept([token])
    if not again.ended:
        assert allowed(guide) == allowed(again), text_of(taken)


@given(held=TEXTS, narrower=TEXTS, seed=st.integers(0, 99))
@settings(deadline=None)
def test_what_masks_allowed_is_taken_without_them(
    held: list[str], narrower: list[str], seed: int
) -> None:
    """Drafted tokens are taken back once their masks are made, and then come at once."""
    guide, choose, taken = beside(Listed(*held), Listed(*narrower)), Random(seed), list[int]()
    while not guide.ended:
        taken.append(choose.choice(sorted(allowed(guide))))
        assert guide.accept(taken[-1:])
    guide.rollback(len(taken))
    assert guide.accept(taken)
    assert guide.ended
