"""Beam search keeps to the rules of transformers' generate(num_beams=...)."""

from collections.abc import Sequence
from typing import Any

import pytest

from adapter.engine.beam_search import BeamSearch, Continuation, Continuations
from adapter.guided.program import Part, Program
from adapter.guided.vocabulary import Vocabulary
from adapter.planning.calls import EngineCall, TokenizedPrompt, Work
from adapter.planning.modes import Beams, BeamSettings
from tests.asgi_client import run
from tests.engine.scoring_engine import ScoringEngine

END = 2
VOCABULARY = 24
NEW_TOKENS = 8


def following(scores: dict[int, float]) -> Continuations:
    """What may come next, with the model's own scores."""
    return Continuations(
        [Continuation(each, score, score) for each, score in scores.items()], TABLE
    )


TABLE: Any = None


def letters(token_ids: Sequence[int]) -> str:
    """Token 0 is "a", 1 is "b", and so on."""
    return "".join(chr(ord("a") + token_id) for token_id in token_ids)


def searched(settings: BeamSettings, scores: Any) -> list[tuple[tuple[int, ...], str, Any]]:
    """Run a search whose scores depend on nothing: ids, finish and stop reason of each answer."""
    search = BeamSearch(settings, letters)
    while not search.done:
        search.advance([following(scores) for _ in search.running])
    return [(f.beam.token_ids, f.finish_reason, f.stop_reason) for f in search.finished()]


def settings(**fields: Any) -> BeamSettings:
    """Settings of a plain search over three letters, 3 tokens long."""
    plain: dict[str, Any] = {"width": 2, "max_tokens": 3, "length_penalty": 1.0}
    plain |= {"early_stopping": False, "eos_token_ids": frozenset({END})}
    return BeamSettings(**(plain | fields))


A_THEN_B = {0: -0.5, 1: -1.5, END: -5.0}


def test_runs_to_max_tokens() -> None:
    """Where nothing ends, the answers have max_tokens tokens and finish by length."""
    answers = searched(settings(eos_token_ids=frozenset()), A_THEN_B)
    assert answers[0] == ((0, 0, 0), "length", None)
    assert [reason for _, reason, _ in answers] == ["length", "length"]


def test_end_token_finishes_a_beam() -> None:
    """An end token among the best continuations finishes its beam, and is counted in its score."""
    answers = searched(settings(width=1, early_stopping=True), {0: -3.0, END: -0.1})
    assert answers == [((END,), "stop", None)]


def test_min_tokens_holds_back_every_end() -> None:
    """No end token, stop token or stop string finishes a beam before min_tokens."""
    likely_end = {0: -2.0, 1: -2.5, END: -0.1}
    for held, scores in (
        (settings(max_tokens=5, min_tokens=2), likely_end),
        (settings(max_tokens=5, min_tokens=2, stop_token_ids=frozenset({0})), A_THEN_B),
        (settings(max_tokens=5, min_tokens=2, stop=("a",)), A_THEN_B),
    ):
        answers = searched(held, scores)
        assert {reason for _, reason, _ in answers} == {"stop"}
        assert min(len(token_ids) for token_ids, _, _ in answers) == 3


def test_stop_token_and_stop_string() -> None:
    """A stop token or a stop string finishes a beam and says so."""
    by_token = searched(settings(stop_token_ids=frozenset({1})), A_THEN_B)
    assert by_token == [((0, 0, 0), "length", None), ((0, 0, 1), "stop", 1)]
    by_text = searched(settings(stop=("aa",)), A_THEN_B)
    assert by_text[0] == ((0, 0), "stop", "aa")


def test_stop_string_across_tokens() -> None:
    """A stop string counts once, where it ends."""
    answers = searched(settings(stop=("ab",), max_tokens=4, eos_token_ids=frozenset()), A_THEN_B)
    assert any(reason == "ab" and ids[-2:] == (0, 1) for ids, _, reason in answers)


def test_entries_needed() -> None:
    """A step knows enough tokens for `width` beams to live on, whatever ends."""
    assert settings(width=4).entries_needed == 5
    assert settings(width=4, stop=("x",)).entries_needed == 9
    assert settings(width=1, logprobs=5).entries_needed == 5


@pytest.mark.parametrize("penalty", [1e308, -1e308])
def test_absurd_length_penalty(penalty: float) -> None:
    """A length penalty beyond all measure ends without an error."""
    assert len(searched(settings(length_penalty=penalty), A_THEN_B)) == 2


def test_scores_above_zero() -> None:
    """logit_bias can raise them: then what is divided by nothing is the best, not the worst."""
    answers = searched(settings(length_penalty=-1e308), {0: 0.5, 1: 0.1, END: 0.9})
    assert [len(token_ids) > 1 for token_ids, _, _ in answers] == [True, True]


# --- against transformers


@pytest.fixture(scope="module")
def oracle() -> Any:
    """A tiny random model of transformers', quick to reach its end token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    torch.set_num_threads(1)  # more of them only wait for one another on a model this small
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval().float()
    with torch.no_grad():
        model.lm_head.weight[END] *= 2
    return model


PROMPTS = [[5, 6, 7], [9, 10, 11, 12]]


def our_search(model: Any, prompt: list[int], settings: BeamSettings) -> list[Any]:
    """Our search over the model's scores, cut to as many entries as a step asks for."""
    import torch

    search = BeamSearch(settings, letters)
    while not search.done:
        rows = torch.tensor([[*prompt, *beam.token_ids] for beam in search.running])
        scores = torch.log_softmax(model(rows).logits[:, -1].float(), dim=-1)
        best = torch.topk(scores, settings.entries_needed)
        search.advance(
            [
                following(dict(zip(ids.tolist(), values.tolist(), strict=True)))
                for ids, values in zip(best.indices, best.values, strict=True)
            ]
        )
    return search.finished()


@pytest.mark.parametrize(
    ("width", "penalty", "early"),
    [(1, 1.0, False), (2, 1.0, False), (3, 0.0, True), (4, -1.0, True), (4, 2.0, False)],
)
def test_same_as_transformers(oracle: Any, width: int, penalty: float, early: bool) -> None:
    """The answers, their order and their scores are transformers'."""
    settings = BeamSettings(
        width=width,
        max_tokens=NEW_TOKENS,
        length_penalty=penalty,
        # transformers' one beam is greedy search: it ends at the first end token.
        early_stopping=early or width == 1,
        eos_token_ids=frozenset({END}),
    )
    ended_early = 0
    for prompt in PROMPTS:
        ours = our_search(oracle, prompt, settings)
        check_same(oracle, prompt, settings, ours, early_stopping=early)
        ended_early += sum(finished.finish_reason == "stop" for finished in ours)
    assert ended_early > 0 or width == 1


def check_same(
    model: Any, prompt: list[int], settings: BeamSettings, ours: list[Any], **options: Any
) -> None:
    """Texts, order and scores are those of transformers with some options."""
    import torch

    with torch.no_grad():
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NEW_TOKENS,
            num_beams=settings.width,
            num_return_sequences=settings.width,
            length_penalty=settings.length_penalty,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    texts = [sequence[len(prompt) :].tolist() for sequence in expected.sequences]
    trimmed = [text[: text.index(END) + 1] if END in text else text for text in texts]
    assert [list(finished.beam.token_ids) for finished in ours] == trimmed
    if settings.width > 1:
        scores = expected.sequences_scores.tolist()
        assert [finished.score for finished in ours] == pytest.approx(scores, abs=1e-4)


# "d" to "i", of which no text is the only one left.
WORDS = Program((Part("guidance", "regex", "[d-i]{1,6}"),), eos_token_ids=(END,))


def words(prompt: list[int]) -> Any:
    """The same for transformers."""

    def allowed(_: int, ids: Any) -> list[int]:
        made = len(ids) - len(prompt)
        if END in ids[len(prompt) :]:
            return [END]
        return [*(range(3, 9) if made < 6 else ()), *([END] if made else ())]

    return allowed


CHANGES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.5},
    "less than 1": {"repetition_penalty": 0.7},
    "bias": {"logit_bias": {3: 4.0, END: -3.0, 9: 2.0, 10: -50.0}},
    "repetition and bias": {"repetition_penalty": 1.3, "logit_bias": {3: 9.0, 7: 2.0}},
}


@pytest.mark.needs_vllm
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("change", [*CHANGES, "none"])
def test_changed_scores_same_as_transformers(oracle: Any, change: str, constrained: bool) -> None:
    """Penalties, logit_bias and constraints are transformers' logits processors."""
    fields = CHANGES.get(change, {})
    changed = settings(width=3, max_tokens=NEW_TOKENS, **fields)
    options: dict[str, Any] = {"repetition_penalty": fields.get("repetition_penalty", 1.0)}
    if bias := fields.get("logit_bias"):
        options["sequence_bias"] = {(token_id,): value for token_id, value in bias.items()}
    for prompt in PROMPTS:
        if constrained:
            options["prefix_allowed_tokens_fn"] = words(prompt)
        ours = our_changed_search(oracle, prompt, changed, WORDS if constrained else None)
        check_same(oracle, prompt, changed, ours, early_stopping=False, **options)


def our_changed_search(
    model: Any, prompt: list[int], settings: BeamSettings, program: Program | None
) -> list[Any]:
    """Our search with an engine that gives few of the model's scores."""
    import torch

    from adapter.engine.beam_scores import BeamScorer

    def logits(token_ids: Sequence[int]) -> Any:
        with torch.no_grad():
            return model(torch.tensor([token_ids])).logits[0, -1].double().numpy()

    texts = (letters([each]).encode() if each != END else b"" for each in range(VOCABULARY))
    engine = ScoringEngine(Vocabulary(tuple(texts), (END,), None), logits)
    call = EngineCall(TokenizedPrompt(None, prompt), Work(Beams(1, settings), {}, program))
    scorer = BeamScorer(call, "r", engine.ask, settings.entries_needed)
    search = BeamSearch(settings, letters)
    while not search.done:
        search.advance(run(scorer.following(search.running)))
    return search.finished()
