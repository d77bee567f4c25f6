"""adapter/engine/checked.py: which texts are validated, and what is made of those that fail."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.engine.checked import CheckedTexts, Checks, sampling_again
from adapter.engine.output_reader import OutputReader
from adapter.engine.questions import Question
from adapter.engine.updates import PromptUpdate
from adapter.errors import GenerationFailed, NotSatisfied
from adapter.planning.calls import EngineCall, SamplingFields, TokenizedPrompt, Work
from adapter.planning.modes import OneBeam, Sample
from tests.asgi_client import run
from tests.fake_engine import Candidate, FakeCollector, Output, Table

TOKENS = (b"a", b"b", "é".encode()[:1], "é".encode()[1:], b"</s>", b"")
END, OTHER_END = 4, 5
ENDS = frozenset({END, OTHER_END})


def made(*token_ids: int, finish: str | None = "stop", index: int = 0) -> Candidate:
    # What the caller sees may differ from the tokens.
    return Candidate("shown", token_ids, finish, index=index)


class Making:
    """Makes the texts of one call from answers that a test queued; only "a" is a good one."""

    def __init__(self, *answers: list[Candidate], retries: int = 3) -> None:
        self.answers = list(answers)
        self.prompt_logprobs: list[Table | None] = [None] * len(answers)
        self.asked: list[tuple[str, Any, int]] = []
        self.checked: list[str] = []
        self.thrown_away: list[tuple[int, ...]] = []
        self.texts = CheckedTexts(
            self._ask, self._as_question, TOKENS, ENDS, Checks(self._check, retries, self._note)
        )

    def make(self, sampling: SamplingFields | None = None, *, sequences: int = 1) -> PromptUpdate:
        work = Work(Sample(sequences), sampling or {})
        call = EngineCall(TokenizedPrompt("p", [7]), work)
        return run(self.texts.make(call, "r-0"))

    def _as_question(
        self, name: str, call: EngineCall, sampling: SamplingFields, sequences: int
    ) -> Question:
        self.asked.append((name, sampling, sequences))
        return Question(name, call.prompt.token_ids, None)

    @asynccontextmanager
    async def _ask(self, questions: Sequence[Question]) -> Any:
        reader = OutputReader(lambda error: error)
        for index, question in enumerate(questions):
            collector = FakeCollector(question.request_id)
            table = self.prompt_logprobs.pop(0)
            collector.put(Output(self.answers.pop(0), table, finished=True))
            reader.add(index, collector)
        yield reader
        reader.close()

    async def _check(self, text: str) -> None:
        self.checked.append(text)
        await asyncio.sleep(0)
        if text != "a":
            raise NotSatisfied(f"{text} is not a")

    def _note(self, text: Any) -> None:
        self.thrown_away.append(tuple(text.token_ids))


@pytest.mark.parametrize("end", ENDS)
def test_text_is_its_tokens_bytes(end: int) -> None:
    """A finished text is what its tokens spell, without the end of text."""
    making = Making([made(0, 2, 3, 1, end)], retries=0)
    with pytest.raises(NotSatisfied, match="aéb"):
        making.make()
    making = Making([made(end)], retries=0)
    with pytest.raises(NotSatisfied):
        making.make()
    assert making.checked == [""]


@pytest.mark.parametrize(
    "cut",
    [
        made(0, 1, finish="length"),
        made(0, END, finish="length"),
        made(0, 1, finish="stop"),
        made(finish="stop"),
        made(0, finish="abort"),
    ],
    ids=["length", "end at the length", "stop string", "nothing", "abort"],
)
def test_text_that_was_cut_is_not_checked(cut: Candidate) -> None:
    """A text that does not end by an end of text is no text of the constraint."""
    making = Making([cut])
    assert making.make().outputs == [cut]
    assert making.checked == []


def test_good_texts_are_left_as_they_are() -> None:
    """Nothing is asked again."""
    texts = [made(0, END), made(0, END, index=1)]
    making = Making(texts)
    update = making.make(sequences=2)
    assert (update.outputs, update.finished) == (texts, True)
    assert [(name, count) for name, _, count in making.asked] == [("r-0", 2)]
    assert making.thrown_away == []


def test_failing_texts_are_made_again() -> None:
    """Each by itself, in its own place, until it is good; what was made is told."""
    first = [made(0, END), made(1, END, index=1), made(1, 1, END, index=2)]
    making = Making(first, [made(1, 0, END)], [made(0, END)], [made(0, OTHER_END)])
    update = making.make({"temperature": 1.0}, sequences=3)
    assert [(each.index, each.token_ids) for each in update.outputs] == [
        (0, (0, END)),
        (1, (0, OTHER_END)),
        (2, (0, END)),
    ]
    assert making.thrown_away == [(1, END), (1, 1, END), (1, 0, END)]
    assert making.checked == ["a", "b", "bb", "ba", "a", "a"]
    assert [(name, count) for name, _, count in making.asked] == [
        ("r-0", 3),
        ("r-0-1-again-1", 1),
        ("r-0-2-again-1", 1),
        ("r-0-1-again-2", 1),
    ]


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_they_fail_in_the_end(retries: int) -> None:
    """With the last text's fault, after so many more."""
    making = Making(*([made(1, END)] for _ in range(retries + 1)), retries=retries)
    with pytest.raises(NotSatisfied, match="b is not a"):
        making.make()
    assert (len(making.thrown_away), len(making.asked)) == (retries, retries + 1)


def test_a_beam_is_not_made_again() -> None:
    """No text that is drawn stands for what a search finds."""
    making = Making([made(1, END)])
    call = EngineCall(TokenizedPrompt("p", [7]), Work(OneBeam(1, 1), {"temperature": 0.0}))
    with pytest.raises(NotSatisfied):
        run(making.texts.make(call, "r-0"))
    assert (len(making.asked), making.thrown_away) == (1, [])


def test_what_cannot_be_told_is_not_made_again() -> None:
    """Another text would not be told either."""

    class Untold(Making):
        async def _check(self, text: str) -> None:
            raise GenerationFailed("cannot be told")

    making = Untold([made(0, END)])
    with pytest.raises(GenerationFailed, match="told"):
        making.make()
    assert len(making.asked) == 1


def test_a_text_made_again_may_be_cut() -> None:
    """Then it is what the caller gets, as it would have been at first."""
    making = Making([made(1, END)], [made(0, 0, finish="length")])
    (text,) = making.make().outputs
    assert (text.token_ids, text.finish_reason) == ((0, 0), "length")


def test_scores_of_the_prompt_are_kept() -> None:
    """They come with the first text, and are not asked for again."""
    making = Making([made(1, END)], [made(0, END)])
    making.prompt_logprobs = [Table().add((7, -1.0, "p")), None]
    update = making.make({"prompt_logprobs": 2, "logprobs": 1})
    assert update.prompt_logprobs == Table().add((7, -1.0, "p"))
    assert [sampling for _, sampling, _ in making.asked] == [
        {"prompt_logprobs": 2, "logprobs": 1},
        {"logprobs": 1},
    ]


def test_seeds_are_derived() -> None:
    """From the request's, its text's place and the attempt: the same each time, none twice."""
    seeds = [
        sampling_again({"seed": seed}, place, attempt)["seed"]
        for seed in (0, 1, -1, 2**63 - 1)
        for place in range(3)
        for attempt in (1, 2)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sampling_again({"seed": 1}, 0, 1) == sampling_again({"seed": 1}, 0, 1)
    assert sampling_again({"top_k": 3}, 0, 1) == {"top_k": 3}


def test_greedy_texts_are_sampled() -> None:
    """The same text would come again."""
    assert sampling_again({"temperature": 0.0}, 0, 1)["temperature"] > 0
    assert sampling_again({"temperature": 0.3}, 0, 1) == {"temperature": 0.3}
