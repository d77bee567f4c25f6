"""What may follow a beam, against scores of the whole vocabulary."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from adapter.guided.program import Part, Program
from adapter.planning.calls import EngineCall, TokenizedPrompt, Work
from adapter.planning.modes import Beams, BeamSettings
from tests.asgi_client import run
from tests.engine.scoring_engine import ScoringEngine
from tests.guided.texts import ENDS, VOCABULARY

pytestmark = pytest.mark.needs_vllm

SIZE = len(VOCABULARY.tokens)
PROMPT = [7, 8, 9, 97, 98, 99, 99]
WIDTH = 3


def logits(token_ids: Sequence[int]) -> npt.NDArray[np.float64]:
    """Others after each text, some tokens far ahead of the rest."""
    random = np.random.default_rng([*token_ids, SIZE])
    return random.normal(0, 3, SIZE)


def changed(settings: BeamSettings, made: Sequence[int]) -> npt.NDArray[np.float64]:
    """All scores behind generated tokens, one token after another."""
    after = logits([*PROMPT, *made])
    scores: npt.NDArray[np.float64] = after - np.logaddexp.reduce(after)
    counts = Counter(made)
    for token_id in range(SIZE):
        score = scores[token_id] + (settings.logit_bias or {}).get(token_id, 0)
        if token_id in counts or token_id in PROMPT:
            penalty = settings.repetition_penalty
            score = score * penalty if score < 0 else score / penalty
        score -= settings.frequency_penalty * counts[token_id]
        score -= settings.presence_penalty * (token_id in counts)
        scores[token_id] = score
    return scores


def best(scores: npt.NDArray[np.float64], count: int) -> list[tuple[int, float]]:
    ranked = np.argsort(-scores)[:count].tolist()
    return [(each, float(scores[each])) for each in ranked if scores[each] > -math.inf]


def assert_alike(tokens: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    assert [token for token, _ in tokens] == [token for token, _ in expected]
    assert [score for _, score in tokens] == pytest.approx([score for _, score in expected])


def call(settings: BeamSettings, program: Program | None = None) -> EngineCall:
    return EngineCall(TokenizedPrompt(None, PROMPT), Work(Beams(1, settings), {}, program))


def settings(**fields: Any) -> BeamSettings:
    return BeamSettings(width=WIDTH, max_tokens=8, eos_token_ids=frozenset(ENDS), **fields)


def followed(
    engine: ScoringEngine, made: EngineCall, beams: Sequence[Sequence[int]], most: int = 20
) -> list[list[tuple[int, float]]]:
    """The best tokens after each beam, with their scores; what the model says is checked."""
    from adapter.engine.beam_scores import BeamScorer
    from adapter.engine.beam_search import Beam

    assert isinstance(made.work.mode, Beams)
    scorer = BeamScorer(made, "r", engine.ask, most)
    running = [Beam(token_ids=tuple(beam)) for beam in beams]
    found = run(scorer.following(running))
    for beam, after in zip(beams, found, strict=True):
        whole = logits([*PROMPT, *beam])
        own = whole - np.logaddexp.reduce(whole)
        assert [each.logprob for each in after.best] == pytest.approx(
            [own[each.token_id] for each in after.best]
        )
        assert after.table.token_ids[0] == int(whole.argmax())
        shown = min(made.work.mode.search.entries_needed, most)
        assert after.table.token_ids[1 : shown + 1] == np.argsort(-whole)[:shown].tolist()
    return [[(each.token_id, each.score) for each in after.best] for after in found]


BEAMS = [[65, 66, 65, 65], [66, 67, 97, 98], list(range(40, 70)), [3] * 9]

# All tokens that the prompt does not hold get ahead; and tokens that are nowhere near the best.
FAR = [int(each) for each in np.argsort(logits([*PROMPT, *BEAMS[0]]))[:40]]
# Of the prompt's tokens the least likely one, which no rule beside the prompt's is about.
LAST = min(PROMPT, key=lambda each: float(logits([*PROMPT, *BEAMS[0]])[each]))
CHANGES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 9.0},
    {"repetition_penalty": 0.5},
    {"repetition_penalty": 0.01},
    {"frequency_penalty": 2.0},
    {"frequency_penalty": -2.0},
    {"presence_penalty": 1.5},
    {"presence_penalty": -2.0},
    {"logit_bias": {65: 3.0, 7: -2.0}},
    {"logit_bias": dict.fromkeys(FAR, 8.0)},
    {"logit_bias": {each: 100.0 - each / 10 for each in FAR}},
    {"logit_bias": dict.fromkeys(range(0, SIZE, 2), -100.0)},
    {"logit_bias": dict.fromkeys(range(SIZE), 1.0)},
    {"repetition_penalty": 1.5, "frequency_penalty": -0.5, "logit_bias": {65: 2.0, 8: -3.0}},
    {"repetition_penalty": 0.01, "logit_bias": dict.fromkeys({*PROMPT} - {LAST}, -50.0)},
]


def all_changes(change: dict[str, Any]) -> str:
    return ", ".join(f"{name} {str(value)[:20]}" for name, value in change.items()) or "none"


@pytest.mark.parametrize("most", [WIDTH + len(ENDS), 20, SIZE])
@pytest.mark.parametrize("change", CHANGES, ids=all_changes)
def test_changed_scores(change: dict[str, Any], most: int) -> None:
    """However few scores the engine gives, the best are those of the whole vocabulary."""
    asked = settings(**change)
    found = followed(ScoringEngine(VOCABULARY, logits), call(asked), BEAMS, most)
    for beam, tokens in zip(BEAMS, found, strict=True):
        assert_alike(tokens, best(changed(asked, beam), asked.entries_needed))


LETTERS = Program((Part("guidance", "regex", "[A-C]{1,5}"),), eos_token_ids=ENDS)


@pytest.mark.parametrize("change", CHANGES, ids=all_changes)
def test_constrained_scores(change: dict[str, Any]) -> None:
    """Only what the constraint allows may follow, an end where the text may end; with its own
    score, though all of it is far from the model's best."""
    asked = settings(**change)
    beams = [[], [65], [65, 66, 67, 65], [65, 66, 67, 65, 66]]
    found = followed(ScoringEngine(VOCABULARY, logits), call(asked, LETTERS), beams)
    for beam, tokens in zip(beams, found, strict=True):
        allowed = set(range(65, 68) if len(beam) < 5 else ()) | set(ENDS if beam else ())
        scores = changed(asked, beam)
        scores[[each for each in range(SIZE) if each not in allowed]] = -math.inf
        assert_alike(tokens, best(scores, asked.entries_needed))


UPPER, LOWER = range(65, 91), range(97, 123)
PAIRS = Program((Part("guidance", "regex", "([A-Z][a-z]){1,9}"),), eos_token_ids=ENDS)
RAISED = {"logit_bias": {each: (each * 7 % 26) / 2 for each in (*UPPER, *LOWER)}}


@pytest.mark.parametrize("change", [*CHANGES, RAISED], ids=all_changes)
def test_constrained_scores_beyond_those_reported(change: dict[str, Any]) -> None:
    """What is asked for besides is what the constraint allows behind the beam."""
    asked = settings(**change)
    beams = [[], [65], [65, 97], [65, 97, 66]]
    found = followed(
        ScoringEngine(VOCABULARY, logits), call(asked, PAIRS), beams, asked.entries_needed
    )
    for beam, tokens in zip(beams, found, strict=True):
        allowed = {*LOWER} if len(beam) % 2 else {*UPPER, *(ENDS if beam else ())}
        scores = changed(asked, beam)
        scores[[each for each in range(SIZE) if each not in allowed]] = -math.inf
        assert_alike(tokens, best(scores, asked.entries_needed))


def test_fewer_scores_than_a_step_needs() -> None:
    """A vocabulary may be smaller than that: the engine is asked for as many as it gives."""
    engine, most = ScoringEngine(VOCABULARY, logits), WIDTH
    asked = settings(repetition_penalty=1.2)
    for beam, tokens in zip(BEAMS, followed(engine, call(asked), BEAMS, most), strict=True):
        assert_alike(tokens, best(changed(asked, beam), most))
    followed(engine, call(settings(), LETTERS), [[65]], most)
    assert max(params.logprobs for params in engine.asked) == most


def test_what_a_constraint_costs() -> None:
    """Where it leaves few tokens, all of them are known by their scores under its mask and, where
    none of them is among the model's best, by one token's own."""
    engine = ScoringEngine(VOCABULARY, logits)
    asked = settings(repetition_penalty=1.2, logit_bias={65: 1.0, 300: 1.0})
    followed(engine, call(asked, LETTERS), [[65], [65, 66]])
    assert (engine.rounds, len(engine.asked)) == (2, 6)


def test_prompt_is_scored_once() -> None:
    """By the first question, and under no mask."""
    work = Work(Beams(1, settings()), {"prompt_logprobs": 2}, LETTERS)
    engine = ScoringEngine(VOCABULARY, logits)
    followed(engine, EngineCall(TokenizedPrompt(None, PROMPT), work), [[], [65]])
    assert [params.prompt_logprobs for params in engine.asked] == [2, *[None] * 5]
    assert engine.asked[0].structured_outputs is None


def test_a_constraint_of_likely_tokens_costs_one_round() -> None:
    """Where one of the model's best is allowed, it tells what the mask adds to all scores."""
    program = Program((Part("guidance", "regex", r"(.|\n)*"),), eos_token_ids=ENDS)
    engine = ScoringEngine(VOCABULARY, logits)
    followed(engine, call(settings(), program), [[], [65]])
    assert (engine.rounds, len(engine.asked)) == (1, 4)


def test_what_a_plain_step_costs() -> None:
    """Without any change a beam is one question, and all beams are asked about at once."""
    engine = ScoringEngine(VOCABULARY, logits)
    followed(engine, call(settings()), BEAMS)
    assert (engine.rounds, len(engine.asked)) == (1, len(BEAMS))
    assert {params.logprobs for params in engine.asked} == {WIDTH + len(ENDS)}
    assert {params.structured_outputs for params in engine.asked} == {None}


def test_a_penalty_rarely_costs_another_question() -> None:
    """A few more scores are asked for instead."""
    engine = ScoringEngine(VOCABULARY, logits)
    followed(engine, call(settings(repetition_penalty=1.2)), BEAMS, most=100)
    assert (engine.rounds, len(engine.asked)) == (1, len(BEAMS))


def test_a_failed_constraint_ends_the_search() -> None:
    """Where the engine gives up on a beam, so does the search."""
    from adapter.errors import GenerationFailed

    class Failing(ScoringEngine):
        def _answer(self, question: Any) -> Any:
            answer = super()._answer(question)
            answer.outputs[0].finish_reason = "error"
            return answer

    with pytest.raises(GenerationFailed):
        followed(Failing(VOCABULARY, logits), call(settings(), LETTERS), [[65]])
