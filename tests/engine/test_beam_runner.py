"""The answers of a beam search: how many there are, and which are left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from adapter.engine.updates import CandidateUpdate
from adapter.errors import InvalidRequest, NotSatisfied
from adapter.guided.program import Part, Program
from adapter.guided.vocabulary import read_vocabulary
from adapter.planning.calls import EngineCall, SamplingFields, TokenizedPrompt, Work
from adapter.planning.modes import Beams, BeamSettings
from tests.asgi_client import run
from tests.engine.scoring_engine import ScoringEngine
from tests.tiny_tokenizer import tiny_tokenizer

pytestmark = pytest.mark.needs_vllm

END = 2
WIDTH = 8


def searched(answers: int, *, regex: str, unwanted: str | None = None, **fields: Any) -> list[str]:
    """The texts of the answers; see all_searched()."""
    found = all_searched(answers, regex=regex, unwanted=unwanted, **fields)
    return [text.text for text in found[:answers]]


def all_searched(
    answers: int, *, regex: str, unwanted: str | None = None, **fields: Any
) -> Sequence[CandidateUpdate]:
    """What a search 8 beams wide found; unwanted: what texts that fail their check begin with."""
    from adapter.engine.beam_runner import run_beam_search
    from adapter.engine.checked import CheckedTexts, Checks
    from adapter.engine.detokenizer import Tokens

    tokenizer = tiny_tokenizer()
    vocabulary = read_vocabulary(tokenizer, tokenizer.vocab_size, [END])

    def logits(token_ids: Any) -> Any:
        return np.random.default_rng(list(token_ids)).normal(0, 1, tokenizer.vocab_size)

    async def check(text: str) -> None:
        if text.startswith(str(unwanted)):
            raise NotSatisfied(f"{text} fails")

    engine = ScoringEngine(vocabulary, logits)
    program = Program((Part("guidance", "regex", regex),), eos_token_ids=(END,))
    settings = BeamSettings(
        width=WIDTH, max_tokens=3, eos_token_ids=frozenset({END}), length_penalty=0.0, **fields
    )
    call = EngineCall(
        TokenizedPrompt(None, [5]), Work(Beams(answers, settings), SamplingFields(), program)
    )
    checked = CheckedTexts(
        engine.ask,
        lambda *_: pytest.fail("a beam is not made again"),
        vocabulary.tokens,
        {END},
        Checks(check, 2, lambda _: pytest.fail("a beam is not thrown away")),
    )
    update = run(
        run_beam_search(
            call,
            "r",
            engine.ask,
            Tokens(tokenizer, [END]),
            most_scores=20,
            checked=checked if unwanted is not None else None,
        )
    )
    assert len(update.outputs) <= WIDTH
    return update.outputs


def test_texts_that_fail_their_check_are_no_answers() -> None:
    """The answers are the best of those that do not fail."""
    every = searched(WIDTH, regex="[a-c]{1,2}")
    assert len(set(every)) == WIDTH
    good = [text for text in every if not text.startswith("a")]
    assert len(good) < WIDTH
    assert searched(len(good), regex="[a-c]{1,2}", unwanted="a") == good
    checked = all_searched(len(good), regex="[a-c]{1,2}", unwanted="a")
    found = all_searched(WIDTH, regex="[a-c]{1,2}")
    assert [text.index for text in checked] == list(range(WIDTH))
    # All are there to be counted.
    assert {tuple(text.token_ids) for text in checked} == {tuple(text.token_ids) for text in found}
    with pytest.raises(NotSatisfied, match=r"a.* fails"):
        searched(len(good) + 1, regex="[a-c]{1,2}", unwanted="a")


def test_fewer_texts_than_asked_for() -> None:
    """Where the constraint leaves too few texts, n is refused; where none is long enough,
    min_tokens."""
    assert len(searched(3, regex="[a-c]")) == 3
    with pytest.raises(InvalidRequest, match="found 3") as caught:
        searched(4, regex="[a-c]")
    assert caught.value.param == "n"
    with pytest.raises(InvalidRequest) as caught:
        searched(1, regex="[a-c]", min_tokens=2)
    assert caught.value.param == "min_tokens"


def test_pieces_of_characters_have_no_name() -> None:
    """Among the best tokens of a position: they would print like one another."""
    tokenizer = tiny_tokenizer()
    found = all_searched(1, regex="[a-c]{1,2}", logprobs=5)[0].logprobs
    assert found is not None
    shown = dict(zip(found.token_ids, found.decoded_tokens, strict=True))
    printed = {each: tokenizer.decode([each]) for each in shown}
    assert shown == {k: None if "\ufffd" in text else text for k, text in printed.items()}
    assert None in shown.values()
