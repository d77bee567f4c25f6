"""adapter/engine/finished.py: which texts are finished, and what they are."""

import pytest

from adapter.engine.finished import FinishedTexts
from tests.fake_engine import Candidate, Output

TOKENS = (b"a", b"b", "é".encode()[:1], "é".encode()[1:], b"", b"")
END, OTHER_END = 4, 5
ENDS = frozenset({END, OTHER_END})


def texts(*batches: list[tuple[int, Candidate]]) -> list[list[str]]:
    """The texts that each batch of updates finishes."""
    finished = FinishedTexts(TOKENS, ENDS)
    updates = ([(prompt, Output([candidate])) for prompt, candidate in batch] for batch in batches)
    return [list(finished.of(batch)) for batch in updates]


def made(*token_ids: int, finish: str | None = None, index: int = 0) -> Candidate:
    # What the caller sees may differ from the tokens.
    return Candidate("shown", token_ids, finish, index=index)


@pytest.mark.parametrize("end", ENDS)
def test_text_is_its_tokens_bytes(end: int) -> None:
    """A finished text is what its tokens spell, without the end of text."""
    assert texts([(0, made(0, 2, 3, 1, end, finish="stop"))]) == [["aéb"]]
    assert texts([(0, made(end, finish="stop"))]) == [[""]]


@pytest.mark.parametrize(
    "cut",
    [
        made(0, 1, finish="length"),
        made(0, END, finish="length"),
        made(0, 1, finish="stop"),
        made(finish="stop"),
        made(0, finish="abort"),
        made(0, END),
    ],
    ids=["length", "end at the length", "stop string", "nothing", "abort", "going on"],
)
def test_text_that_was_cut_is_not_finished(cut: Candidate) -> None:
    """A text that does not end by an end of text is not finished."""
    assert texts([(0, cut)]) == [[]]


def test_pieces_are_put_together() -> None:
    """The pieces of a stream become one text, a character across two of them too."""
    pieces = [made(0, 2), made(3), made(), made(1, END, finish="stop")]
    assert texts(*([(0, piece)] for piece in pieces)) == [[], [], [], ["aéb"]]


def test_candidates_are_apart() -> None:
    """Each candidate of each prompt has a text of its own, whatever the order."""
    assert texts(
        [(0, made(0)), (1, made(1)), (0, made(1, index=1))],
        [(1, made(END, finish="stop"))],
        [(0, made(0, END, index=1, finish="stop")), (0, made(0, OTHER_END, finish="stop"))],
    ) == [[], ["b"], ["ba", "aa"]]


def test_bytes_that_are_no_text() -> None:
    """Half a character does not fail; whoever checks the text will not find it right."""
    assert texts([(0, made(2, END, finish="stop"))]) == [["\ufffd"]]
