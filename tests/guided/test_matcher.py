"""adapter/guided/matcher.py: all matchers have to allow a token, and what becomes of the end."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.guided import matcher
from adapter.guided.backends.guidance import GuidanceBackend
from adapter.guided.backends.registry import Libraries, Maker
from adapter.guided.matcher import Guide, Mask, Matcher
from adapter.guided.program import Library, Part
from tests.guided.texts import ENDS, VOCABULARY, allowed, ids

A, B, C, D = b"abcd"
AB = 256
END, OTHER_END = ENDS
SPECIAL = END + 1


class Listed:
    """A matcher of listed texts; it fails, or is stuck, behind a text where it is told to."""

    def __init__(
        self, *texts: str, fails_at: str | None = None, stuck_at: str | None = None
    ) -> None:
        self._texts = [ids(text) for text in texts]
        self._fails_at = None if fails_at is None else ids(fails_at)
        self._stuck_at = None if stuck_at is None else ids(stuck_at)
        self.taken: list[int] = []

    def _following(self) -> set[int]:
        size = len(self.taken)
        begun = [text for text in self._texts if len(text) > size and text[:size] == self.taken]
        return set() if self.taken == self._stuck_at else {text[size] for text in begun}

    def narrow(self, mask: Mask) -> None:
        if self.taken == self._fails_at:
            raise RuntimeError("too much work")
        # What becomes of ends does not matter: they stay as they are.
        keep = self._following() | set(ENDS)
        bits = np.array([token in keep for token in range(len(mask) * 32)])
        np.bitwise_and(mask, np.packbits(bits, bitorder="little").view(np.int32), out=mask)

    def advance(self, token: int) -> bool:
        if token not in self._following():
            return False
        self.taken.append(token)
        return True

    def rollback(self, count: int) -> None:
        assert 0 < count <= len(self.taken)
        del self.taken[len(self.taken) - count :]

    def can_end(self) -> bool:
        return self.taken in self._texts


if TYPE_CHECKING:
    _listed: type[Matcher] = Listed


def guide(*matchers: Listed, eos_last: bool = False) -> Guide:
    return Guide(matchers, ENDS, eos_last=eos_last)


# --- which tokens -------------------------------------------------------------------------------


def test_all_matchers_have_to_allow_a_token() -> None:
    """A token comes next where every matcher allows it; a refused one changes no matcher."""
    one, two = Listed("ab", "ac"), Listed("ac", "ad")
    both = guide(one, two)
    assert both.accept([A])
    assert allowed(both) == {C}
    assert not both.accept([B])  # the first would take it
    assert not both.accept([D])
    assert one.taken == two.taken == [A]
    assert both.accept([C])


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (["a", "ab"], ["a", "ab"], {B, *ENDS}),
        (["a", "ab"], ["ab"], {B}),
        (["a"], ["a", "ab"], set(ENDS)),
    ],
)
def test_text_ends_where_all_can_end(one: list[str], two: list[str], expected: set[int]) -> None:
    """Each end of text is allowed where every matcher can end, and nowhere else."""
    both = guide(Listed(*one), Listed(*two))
    assert both.accept([A])
    assert allowed(both) == expected
    for end in ENDS:
        assert both.accept([end]) == (end in expected) == both.ended
        both.rollback(int(both.ended))


@pytest.mark.parametrize(
    ("texts", "expected"), [(["a", "ab"], {B}), (["a"], set(ENDS))], ids=["goes on", "at its end"]
)
def test_eos_last(texts: list[str], expected: set[int]) -> None:
    """With eos_last an end is masked as long as the text can go on."""
    last = guide(Listed(*texts), eos_last=True)
    assert last.accept([A])
    assert allowed(last) == expected
    assert last.failure is None


def test_tokens_after_the_end_are_nobodys() -> None:
    """What comes after an end of text is taken and changes nothing."""
    listed = Listed("a")
    ended = guide(listed)
    assert ended.accept([A, END, B, END, SPECIAL])
    assert ended.ended
    assert listed.taken == [A]


# --- all or nothing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "prefix"),
    [
        ([], 0),
        ([A, B], 2),
        ([A, C], 1),
        ([A, B, C], 2),  # one of the two would take it
        ([A, END], 1),
        ([A, B, END], 3),
        ([SPECIAL], 0),
    ],
)
def test_accept_is_atomic(tokens: list[int], prefix: int) -> None:
    """Of tokens that are not all allowed none is taken; valid_prefix changes nothing at all."""
    one, two = Listed("ab", "abc"), Listed("ab")
    both = guide(one, two)
    assert both.valid_prefix(tokens) == prefix
    assert (one.taken, two.taken, both.ended) == ([], [], False)
    assert both.accept(tokens) == (prefix == len(tokens))
    expected = [token for token in tokens if token != END] if prefix == len(tokens) else []
    assert one.taken == two.taken == expected
    assert both.ended == (prefix == len(tokens) and END in tokens)


def test_drafts_behind_the_end_are_left_out() -> None:
    """Of draft tokens those behind an end of text are no use, though they would be taken."""
    one = guide(Listed("a"))
    assert one.valid_prefix([A, END, B]) == 2
    assert one.accept([A, END, B])
    assert one.valid_prefix([B]) == 0


@pytest.mark.parametrize(
    ("count", "ended", "left"),
    [(0, True, "ab"), (1, True, "ab"), (2, True, "ab"), (3, False, "ab"), (4, False, "a")],
)
def test_rollback_through_the_end(count: int, ended: bool, left: str) -> None:
    """Tokens are taken back in their order: those after the end, the end, and then text."""
    listed = Listed("ab", "ac")
    one = guide(listed)
    assert one.accept([A, B, OTHER_END, C, C])
    one.rollback(count)
    assert (one.ended, listed.taken) == (ended, ids(left))
    if not ended:
        assert one.accept([*ids("ab"[len(left) :]), END])


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (Listed("ab", fails_at="a"), "RuntimeError: too much work"),
        (Listed("ab", stuck_at="a"), "no token can come next"),
    ],
    ids=["raises", "stuck"],
)
def test_failure_ends_with_an_error(listed: Listed, why: str) -> None:
    """Where a library fails the mask holds ends alone, and none of them is taken."""
    failing = guide(listed)
    assert failing.accept([A])
    assert failing.failure is None
    assert allowed(failing) == set(ENDS)
    assert failing.failure == why
    for token in (B, END, OTHER_END):
        assert not failing.accept([token])
        assert failing.valid_prefix([token]) == 0
    assert not failing.ended
    assert failing.accept([])
    failing.rollback(1)
    assert failing.failure is None
    assert allowed(failing) == {A}


def test_masks_of_a_failure_allow_no_other_text() -> None:
    """What the matchers before the failing one allowed is not in its mask."""
    failing = guide(Listed("ab"), Listed("ab", fails_at=""))
    assert allowed(failing) == set(ENDS)


# --- real matchers ------------------------------------------------------------------------------

EXPRESSION: dict[Library, tuple[str, str]] = {
    "guidance": ("regex", "(ab|a|bc){0,3}c?"),
    "outlines": ("regex", "(ab|a|bc){0,3}c?"),
    "xgrammar": ("ebnf", 'root ::= ("ab" | "a" | "bc"){0,3} "c"?'),
    "lm-format-enforcer": ("regex", "(ab|a|bc){0,3}c?"),
}


@pytest.fixture(scope="module", params=EXPRESSION)
def maker(request: pytest.FixtureRequest, libraries: Libraries) -> Maker:
    """The matchers of one library for a regular expression."""
    form, text = EXPRESSION[request.param]
    return libraries.compile(Part(request.param, form, text))


STEPS = st.lists(st.one_of(st.sampled_from([A, B, C, AB, END]), st.integers(-4, -1)), max_size=25)


def test_rollback_is_as_if_never_taken(maker: Maker) -> None:
    """After any tokens taken and taken back, a text is where it would be without the latter."""
    happened: Counter[str] = Counter()

    @settings(deadline=None, max_examples=100, derandomize=True, database=None)
    @given(steps=STEPS)
    def check(steps: list[int]) -> None:
        changed = Guide([maker()], ENDS)
        kept: list[int] = []
        for step in steps:
            if step < 0:
                count = min(-step, len(kept))
                changed.rollback(count)
                del kept[len(kept) - count :]
                happened["taken back"] += count
            else:
                prefix = changed.valid_prefix([step])
                took = changed.accept([step])
                # After an end anything is taken, and a draft of it is of no use.
                assert took == (prefix == 1 or changed.ended)
                kept += [step] * took
                happened["taken" if took else "refused"] += 1
        fresh = Guide([maker()], ENDS)
        assert fresh.accept(kept)
        assert fresh.ended == changed.ended
        if not fresh.ended:
            assert allowed(fresh) == allowed(changed)
            assert fresh.failure is None is changed.failure
            happened["compared"] += 1

    check()
    assert min(happened["taken"], happened["taken back"]) >= 50, happened
    assert min(happened["refused"], happened["compared"]) >= 10, happened


def test_deep_copies_are_apart(maker: Maker) -> None:
    """Texts of one constraint do not share their states."""
    taken = {Guide([maker()], ENDS): ids(text) for text in ("ab", "bc", "a", "")}
    for one, tokens in taken.items():
        assert one.accept(tokens)
    for one, tokens in taken.items():
        alone = Guide([maker()], ENDS)
        assert alone.accept(tokens)
        assert allowed(one) == allowed(alone)


def test_work_for_each_token_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text whose libraries need ever more time ends with an error: all others wait for it."""
    monkeypatch.setattr(matcher, "_SECONDS", 0.01)
    monkeypatch.setattr(matcher, "_SECONDS_A_TOKEN", 0)
    root = 's: "a" | s s | s s s'
    part = Part("guidance", "lark", f"start: s\n{root}")
    guide = Guide([GuidanceBackend(VOCABULARY).compile(part)()], ENDS)
    mask = np.zeros(VOCABULARY.words, np.int32)
    for _ in range(2000):
        guide.fill(mask)
        if not guide.accept(ids("a")):
            break
    assert "work" in str(guide.failure)
