"""adapter/planning/translate.py: each field is forwarded, mapped or refused by its name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapter.contract.parsing import parse_request
from adapter.contract.request import CompletionV2Request
from adapter.errors import InvalidRequest, NotSupported
from adapter.planning.calls import TokenIds
from adapter.planning.checks import MAX_HELD_BACK, MAX_LOGIT_BIAS
from adapter.planning.facts import ServerFacts
from adapter.planning.fields import FIELDS
from adapter.planning.infill import Infill
from adapter.planning.modes import (
    Beams,
    BeamSettings,
    BestOf,
    Greedy,
    Mode,
    Nothing,
    OneBeam,
    Sample,
    Score,
)
from adapter.planning.plan import Plan, check_length, engine_calls, plan
from adapter.planning.values import SEED_RANGE
from tests.planning.plans import FACTS

INFILL_FACTS = replace(
    FACTS, infill=Infill("<p>{prefix}<s>{suffix}<m>"), infill_end_ids=frozenset({50, 51})
)
SCHEMA = json.loads(
    (Path(__file__).parents[1] / "data" / "completion-v2-request.schema.json").read_text("utf-8")
)


def parse(**fields: Any) -> CompletionV2Request:
    return parse_request(json.dumps({"model": "m", "prompt": "x"} | fields).encode())


def planned(facts: ServerFacts = FACTS, **fields: Any) -> Plan:
    return plan(parse(**fields), facts)


def sampling(**fields: Any) -> dict[str, Any]:
    """What goes to SamplingParams."""
    made = planned(**fields)
    return {**made.sampling, "n": made.mode.sequences}


def refusal(facts: ServerFacts = FACTS, **fields: Any) -> InvalidRequest:
    """The error that the fields are refused with, by the schema or by the plan."""
    with pytest.raises(InvalidRequest) as caught:
        planned(facts, **fields)
    return caught.value


PLAIN = sampling()


# --- the table ----------------------------------------------------------------------------------


def test_every_field_is_in_the_table() -> None:
    """The table of what happens to each field has all fields of the contract, and no other."""
    assert set(FIELDS) == set(SCHEMA["properties"]) == set(CompletionV2Request.model_fields)


def test_every_field_has_words() -> None:
    """The table says something of each field."""
    assert [name for name, field in FIELDS.items() if not field.words.strip()] == []


def test_absent_fields_are_the_contracts_defaults() -> None:
    """What is not asked for is neutral, whatever the model's own defaults are."""
    assert PLAIN == {
        "n": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "temperature": 1,
        "top_p": 1,
        "max_tokens": 16,
        "min_tokens": 0,
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
    }


# --- forwarded and mapped -----------------------------------------------------------------------

FORWARDED = [
    pytest.param({"max_tokens": 5}, {"max_tokens": 5}, id="max_tokens"),
    pytest.param({"min_tokens": 5}, {"min_tokens": 5}, id="min_tokens"),
    pytest.param({"n": 3}, {"n": 3}, id="n"),
    pytest.param({"n": 128}, {"n": 128}, id="n 128"),
    pytest.param({"temperature": 0.5}, {"temperature": 0.5}, id="temperature"),
    pytest.param({"temperature": 2}, {"temperature": 2}, id="temperature 2"),
    pytest.param({"temperature": 0}, {"temperature": 0}, id="temperature 0"),
    pytest.param({"temperature": 0.001}, {"temperature": 0.01}, id="temperature tiny"),
    pytest.param({"top_p": 0.5}, {"top_p": 0.5}, id="top_p"),
    pytest.param({"top_p": 0}, {"temperature": 0}, id="top_p 0"),
    pytest.param({"top_k": 5}, {"top_k": 5}, id="top_k"),
    pytest.param({"top_k": 0}, {}, id="top_k 0"),
    pytest.param({"top_k": -1}, {}, id="top_k -1"),
    pytest.param({"top_k": 10**30}, {}, id="top_k beyond the vocabulary"),
    pytest.param({"min_p": 0.25}, {"min_p": 0.25}, id="min_p"),
    pytest.param({"min_p": 1}, {"min_p": 1}, id="min_p 1"),
    pytest.param({"min_p": 0}, {"min_p": 0}, id="min_p 0"),
    pytest.param({"frequency_penalty": -2}, {"frequency_penalty": -2}, id="frequency_penalty"),
    pytest.param({"presence_penalty": 2}, {"presence_penalty": 2}, id="presence_penalty"),
    pytest.param({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}, id="repetition_penalty"),
    pytest.param({"logit_bias": {"5": -100}}, {"logit_bias": {5: -100.0}}, id="logit_bias"),
    pytest.param({"logit_bias": {"99": 100}}, {"logit_bias": {99: 100.0}}, id="logit_bias last"),
    pytest.param({"logit_bias": {}}, {}, id="logit_bias empty"),
    pytest.param({"logprobs": 5}, {"logprobs": 5}, id="logprobs"),
    pytest.param({"logprobs": 0}, {"logprobs": 0}, id="logprobs 0"),
    pytest.param({"echo": True}, {}, id="echo"),
    pytest.param(
        {"logprobs": 0, "echo": True}, {"logprobs": 0, "prompt_logprobs": 0}, id="echo logprobs"
    ),
    pytest.param({"stop": "a"}, {"stop": ["a"]}, id="stop"),
    pytest.param({"stop": list("abcd")}, {"stop": list("abcd")}, id="4 stops"),
    pytest.param({"stop": ["a", ""]}, {"stop": ["a"]}, id="empty among stops"),
    pytest.param({"stop": ""}, {}, id="stop empty"),
    pytest.param({"stop": []}, {}, id="no stops"),
    pytest.param({"stop_token_ids": [7, 3, 7]}, {"stop_token_ids": [7, 3]}, id="stop_token_ids"),
    pytest.param({"stop_token_ids": [99]}, {"stop_token_ids": [99]}, id="stop_token_ids last"),
    pytest.param({"stop_token_ids": []}, {}, id="no stop_token_ids"),
    pytest.param(
        {"include_stop_str_in_output": True}, {"include_stop_str_in_output": True}, id="include"
    ),
    pytest.param({"include_stop_str_in_output": False}, {}, id="include false"),
    pytest.param({"ignore_eos": True}, {"ignore_eos": True}, id="ignore_eos"),
    pytest.param({"skip_special_tokens": False}, {"skip_special_tokens": False}, id="skip"),
    pytest.param(
        {"spaces_between_special_tokens": False},
        {"spaces_between_special_tokens": False},
        id="spaces",
    ),
    pytest.param({"seed": 42}, {"seed": 42}, id="seed"),
    pytest.param({"seed": 0}, {"seed": 0}, id="seed 0"),
    pytest.param({"stream": True, "stream_options": {"include_usage": True}}, {}, id="stream"),
    pytest.param({"user": "u"}, {}, id="user"),
    pytest.param({"response_format": {"type": "text"}}, {}, id="format text"),
    pytest.param({"use_beam_search": False}, {}, id="no beam search"),
    pytest.param({"early_stopping": False}, {}, id="no early_stopping"),
    pytest.param({"length_penalty": 1}, {}, id="length_penalty 1"),
    pytest.param({"best_of": 0}, {}, id="best_of 0"),
    pytest.param({"best_of": 1, "n": 3}, {"n": 3}, id="best_of 1"),
]


@pytest.mark.parametrize(("fields", "changes"), FORWARDED)
def test_field_reaches_the_engine(fields: dict[str, Any], changes: dict[str, Any]) -> None:
    """A field changes exactly what it should of what the engine is asked."""
    assert sampling(**fields) == PLAIN | changes


@pytest.mark.parametrize(
    "seed", [-1, 0, 2**62, 2**63, -(2**63), 10**40, -(10**40)], ids=lambda seed: f"{seed:.3g}"
)
def test_every_integer_is_a_seed(seed: int) -> None:
    """Every integer is folded into the engine's range, always the same way."""
    folded = sampling(seed=seed)["seed"]
    # The engine counts up from it, once for each of n choices.
    assert 0 <= folded <= 2**63 - 1 - 128
    assert folded == sampling(seed=seed)["seed"]
    assert (folded - seed) % SEED_RANGE == 0


def test_neighbouring_seeds_stay_different() -> None:
    """Seeds close to one another are folded to different ones."""
    seeds = [-2, -1, 0, 1, 2**31, 2**61]
    assert len({sampling(seed=seed)["seed"] for seed in seeds}) == len(seeds)


@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"top_p": 0}, {"temperature": 0, "top_p": 0}], ids=str
)
@pytest.mark.parametrize(("best_of", "candidates"), [(None, 3), (5, 5)])
def test_greedy_answers_are_copies(
    fields: dict[str, Any], best_of: int | None, candidates: int
) -> None:
    """n greedy answers are made once, shown n times, and counted as often as asked for."""
    made = planned(n=3, best_of=best_of, **fields)
    assert made.mode == Greedy(3, candidates)
    assert (made.mode.sequences, made.mode.copies, made.mode.counted) == (1, 3, candidates)
    assert made.sampling["temperature"] == 0


def test_sampled_answers_are_no_copies() -> None:
    """n sampled answers are made n times."""
    mode = planned(n=3).mode
    assert mode == Sample(3)
    assert (mode.sequences, mode.copies, mode.counted, mode.streams) == (3, 1, 1, True)


def test_best_of_makes_more_and_ranks() -> None:
    """best_of candidates are made, and the n best of them are the answers."""
    made = planned(n=2, best_of=5)
    assert made.mode == BestOf(2, 5)
    assert (made.mode.sequences, made.mode.copies, made.mode.counted) == (5, 1, 1)
    # The engine sums log-probabilities only where it is asked for some.
    assert made.sampling["logprobs"] == 0
    assert planned(n=2, best_of=5, logprobs=3).sampling["logprobs"] == 3


@pytest.mark.parametrize("stream", [False, True])
def test_best_of_equal_to_n(stream: bool) -> None:
    """best_of = n shows every candidate, best first, streamed or not."""
    mode = planned(n=3, best_of=3, stream=stream).mode
    assert mode == BestOf(3, 3)
    assert (mode.sequences, mode.streams) == (3, False)


def test_operators_cap_of_max_tokens() -> None:
    """More than the operator lets one answer have is refused by name; the cap itself is not."""
    capped = replace(FACTS, max_tokens_cap=8)
    assert planned(capped, max_tokens=8).sampling["max_tokens"] == 8
    assert refusal(capped, max_tokens=9).param == "max_tokens"


@pytest.mark.parametrize(("name", "value"), [("min_p", 0.1), ("logit_bias", {"5": 1})])
def test_speculative_decoding_refusals(name: str, value: Any) -> None:
    """What speculative decoding cannot do is refused by name; neutral values are not."""
    speculative = replace(FACTS, speculative=True)
    assert refusal(speculative, **{name: value}).param == name
    planned(speculative, min_p=0, logit_bias={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5),
        ("top_p", 0),
        ("min_p", 0.1),
        ("seed", 0),
        ("min_tokens", 1),
        ("logit_bias", {"5": 1}),
        ("frequency_penalty", 0.5),
        ("presence_penalty", 0.5),
        ("repetition_penalty", 2),
        ("use_beam_search", True),
    ],
)
def test_diffusion_refusals(name: str, value: Any) -> None:
    """What a diffusion model leaves out or cannot do is refused by name; neutral values are not."""
    diffusion = replace(FACTS, diffusion=True)
    assert refusal(diffusion, **{name: value}).param == name
    neutral = {"min_p": 0, "logit_bias": {}, "repetition_penalty": 1, "min_tokens": 0}
    planned(diffusion, temperature=1, top_p=0.5, presence_penalty=0, seed=None, **neutral)


@pytest.mark.parametrize("logprobs", [0, 5])
def test_no_scores_of_prompts_with_fast_prefill(logprobs: int) -> None:
    """Where a prompt's scores would be wrong they are refused by name; others are not."""
    fast = replace(FACTS, fast_prefill=True)
    assert refusal(fast, echo=True, logprobs=logprobs).param == "echo"
    planned(fast, logprobs=logprobs)
    planned(fast, echo=True)


def test_logit_bias_beyond_the_table_of_runner_v2() -> None:
    """More entries than vLLM's workers hold are refused by name where they hold a number."""
    runner_v2 = replace(FACTS, vocab_size=MAX_LOGIT_BIAS + 1, runner_v2=True)
    full = {str(token_id): 1 for token_id in range(MAX_LOGIT_BIAS)}
    assert len(planned(runner_v2, logit_bias=full).sampling["logit_bias"]) == MAX_LOGIT_BIAS
    over = full | {str(MAX_LOGIT_BIAS): 1}
    assert refusal(runner_v2, logit_bias=over).param == "logit_bias"
    planned(replace(runner_v2, runner_v2=False), logit_bias=over)


def test_stop_tokens_beyond_the_table_of_runner_v2() -> None:
    """min_tokens beside more ends than vLLM's workers can hold back is refused by name."""
    runner_v2 = replace(FACTS, vocab_size=999, runner_v2=True)
    (end,) = FACTS.eos_token_ids
    full = [end, *range(100, 99 + MAX_HELD_BACK)]
    planned(runner_v2, stop_token_ids=full, min_tokens=1)
    over = {"stop_token_ids": [*full, 99], "min_tokens": 1}
    assert refusal(runner_v2, **over).param == "stop_token_ids"
    planned(runner_v2, **over | {"min_tokens": 0})
    planned(replace(runner_v2, runner_v2=False), **over)
    infill = replace(runner_v2, infill=INFILL_FACTS.infill, infill_end_ids=frozenset({50, 51}))
    asked = {"stop_token_ids": full, "min_tokens": 1, "suffix": "z"}
    assert refusal(infill, **asked).param == "stop_token_ids"
    planned(infill, **asked, ignore_eos=True)
    named = replace(runner_v2, special_token_ids={"<a>": 99})
    asked = {"stop_token_ids": full, "min_tokens": 1, "stop": "<a>"}
    assert refusal(named, **asked).param == "stop_token_ids"
    planned(named, **asked, skip_special_tokens=False)


def test_absurd_max_tokens() -> None:
    """A max_tokens of thousands of digits is refused like any that does not fit."""
    with pytest.raises(InvalidRequest) as caught:
        calls_for(1, max_tokens=int("9" * 4300))
    assert caught.value.param == "max_tokens"


@pytest.mark.parametrize(
    ("temperature", "adjusted"),
    [(0, ()), (0.001, ("temperature",)), (0.01, ()), (1, ()), (2, ())],
    ids=str,
)
def test_adjusted_temperature_is_reported(temperature: float, adjusted: tuple[str, ...]) -> None:
    """A temperature that the engine cannot take exactly is among the adjusted fields."""
    assert planned(temperature=temperature).adjusted == adjusted


@pytest.mark.parametrize(
    ("fields", "mode", "generates", "sequences"),
    [
        pytest.param({"max_tokens": 1}, Sample(2), True, 2, id="one token"),
        pytest.param({"max_tokens": 0}, Nothing(2), False, 0, id="nothing"),
        pytest.param({"max_tokens": 0, "echo": True}, Nothing(2), False, 0, id="echo"),
        pytest.param({"max_tokens": 0, "logprobs": 1}, Nothing(2), False, 0, id="logprobs"),
        pytest.param(
            {"max_tokens": 0, "logprobs": 1, "echo": True}, Score(2), False, 1, id="scores"
        ),
    ],
)
def test_max_tokens_0(fields: dict[str, Any], mode: Mode, generates: bool, sequences: int) -> None:
    """With max_tokens 0 nothing is generated, and the engine works only to score a prompt."""
    made = planned(n=2, **fields)
    assert made.mode == mode
    assert (made.mode.generates, made.mode.sequences) == (generates, sequences)
    assert made.mode.copies == (1 if generates else 2)
    assert made.sampling["max_tokens"] == 1


@pytest.mark.parametrize("fields", [{"best_of": 3}, {"use_beam_search": True}], ids=str)
def test_max_tokens_0_searches_nothing(fields: dict[str, Any]) -> None:
    """With max_tokens 0 there is nothing to rank or to search."""
    assert planned(max_tokens=0, **fields).mode == Nothing(1)


# --- prompts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        pytest.param(None, ("",), id="null"),
        pytest.param("", ("",), id="empty"),
        pytest.param("a", ("a",), id="string"),
        pytest.param([""], ("",), id="empty item"),
        pytest.param(["a", "", "b"], ("a", "", "b"), id="strings"),
        pytest.param([5, 6], ([5, 6],), id="ids"),
        pytest.param([[5, 6], [7]], ([5, 6], [7]), id="lists of ids"),
        pytest.param([102], ([102],), id="highest id"),
    ],
)
def test_prompt_forms(prompt: Any, prompts: tuple[Any, ...]) -> None:
    """Each form of a prompt becomes a list of texts or of ids, in order; texts can be echoed."""
    made = planned(prompt=prompt)
    assert made.prompts == prompts
    assert made.echoes == tuple(p if isinstance(p, str) else None for p in prompts)


# --- suffix -------------------------------------------------------------------------------------


def test_suffix_is_rendered_in_the_models_form() -> None:
    """With a suffix the model sees its own form of the gap, and echo stays the caller's text."""
    made = planned(INFILL_FACTS, prompt=["a", ""], suffix="z")
    assert made.prompts == ("<p>a<s>z<m>", "<p><s>z<m>")
    assert made.echoes == ("a", "")


@pytest.mark.parametrize(
    ("fields", "stop_token_ids"),
    [({}, [50, 51]), ({"stop_token_ids": [51, 7]}, [51, 7, 50]), ({"ignore_eos": True}, None)],
    ids=str,
)
def test_infill_ends(fields: dict[str, Any], stop_token_ids: list[int] | None) -> None:
    """The tokens that end a filled gap stop it, unless ends are ignored."""
    made = planned(INFILL_FACTS, suffix="z", **fields)
    assert made.sampling.get("stop_token_ids") == stop_token_ids
    assert "stop_token_ids" not in planned(INFILL_FACTS).sampling


def test_suffix_that_cannot_be_done_is_refused() -> None:
    """A suffix that this model cannot have is refused by name."""
    error = refusal(suffix="z")
    assert (error.param, error.code) == ("suffix", "unsupported_value")
    assert "suffix" in error.message


def test_no_suffix_is_no_infill() -> None:
    """suffix null is no suffix; an empty one is one."""
    assert planned(INFILL_FACTS, suffix=None).prompts == ("x",)
    assert planned(INFILL_FACTS, suffix="").prompts == ("<p>x<s><m>",)


# --- beam search --------------------------------------------------------------------------------


def beam(facts: ServerFacts = FACTS, **fields: Any) -> BeamSettings:
    """The settings of a beam search."""
    mode = planned(facts, use_beam_search=True, **fields).mode
    assert isinstance(mode, Beams)
    return mode.search


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        pytest.param({}, {"early_stopping": True}, id="one beam is greedy"),
        pytest.param({"n": 3}, {"width": 3}, id="n"),
        pytest.param({"best_of": 4, "n": 2}, {"width": 4}, id="best_of"),
        pytest.param(
            {"n": 2, "early_stopping": True}, {"width": 2, "early_stopping": True}, id="e"
        ),
        pytest.param({"n": 2, "length_penalty": 0}, {"width": 2, "length_penalty": 0}, id="lp 0"),
        pytest.param({"n": 2, "length_penalty": -1}, {"width": 2, "length_penalty": -1}, id="lp"),
        pytest.param({"n": 2, "max_tokens": 5}, {"width": 2, "max_tokens": 5}, id="max_tokens"),
        pytest.param({"n": 2, "min_tokens": 5}, {"width": 2, "min_tokens": 5}, id="min_tokens"),
        pytest.param(
            {"n": 2, "ignore_eos": True}, {"width": 2, "eos_token_ids": frozenset()}, id="eos"
        ),
        pytest.param({"n": 2, "stop": ["a", ""]}, {"width": 2, "stop": ("a",)}, id="stop"),
        pytest.param(
            {"n": 2, "stop_token_ids": [7]},
            {"width": 2, "stop_token_ids": frozenset({7})},
            id="stop_token_ids",
        ),
        pytest.param({"n": 2, "logprobs": 5}, {"width": 2, "logprobs": 5}, id="logprobs"),
    ],
)
def test_beam_settings(fields: dict[str, Any], changes: dict[str, Any]) -> None:
    """A beam search gets the fields that have a meaning in it."""
    plain = BeamSettings(
        width=1,
        max_tokens=16,
        length_penalty=1.0,
        early_stopping=False,
        eos_token_ids=frozenset({2}),
    )
    assert beam(**fields) == replace(plain, **changes)


@pytest.mark.parametrize(
    "fields",
    [{"temperature": 0}, {"temperature": 2}, {"top_p": 0}, {"top_k": 3}, {"min_p": 1}, {"seed": 1}],
    ids=str,
)
def test_sampling_does_not_change_a_beam_search(fields: dict[str, Any]) -> None:
    """What belongs to sampling is accepted in a beam search, and changes nothing."""
    mode = planned(use_beam_search=True, n=2, **fields).mode
    assert mode == Beams(2, beam(n=2))
    assert (mode.sequences, mode.copies, mode.counted, mode.streams) == (2, 1, 1, False)
    assert planned(use_beam_search=True, temperature=0.001).adjusted == ()


@pytest.mark.parametrize(
    ("fields", "param", "also"),
    [
        pytest.param({"stream": True}, "use_beam_search", "stream", id="stream"),
        pytest.param({"n": 20}, "use_beam_search", "--max-logprobs", id="width"),
        pytest.param({"best_of": 2, "n": 3}, "best_of", "n", id="best_of"),
    ],
)
def test_beam_search_that_cannot_be_done_is_refused(
    fields: dict[str, Any], param: str, also: str
) -> None:
    """What a beam search cannot honour is refused, with both fields named."""
    error = refusal(use_beam_search=True, **fields)
    assert error.param == param
    assert param in error.message
    assert also in error.message


CHANGES: dict[str, Any] = {
    "frequency_penalty": 1.0,
    "presence_penalty": -1.0,
    "repetition_penalty": 2.0,
    "logit_bias": {"5": 1},
}


@pytest.mark.parametrize("name", CHANGES)
def test_scores_of_beams_are_changed(name: str) -> None:
    """A field that changes scores goes to the search, unless the engine cannot tell enough."""
    asked = {name: CHANGES[name]}
    expected: Any = {name: {5: 1.0} if name == "logit_bias" else CHANGES[name]}
    assert beam(n=2, **asked) == replace(beam(n=2), **expected)
    for facts in (
        replace(FACTS, scores_chosen_tokens=False),
        replace(FACTS, guided_fault="no tokens"),
    ):
        error = refusal(facts, use_beam_search=True, n=2, **asked)
        assert isinstance(error, NotSupported)
        assert error.param == name
        assert "use_beam_search" in error.message


def test_one_beam_with_a_repetition_penalty_is_greedy() -> None:
    """transformers' one beam is greedy search, whose repetition_penalty changes logits."""
    made = planned(use_beam_search=True, repetition_penalty=2)
    assert made.mode == OneBeam(1, 1)
    assert made.sampling["temperature"] == 0
    assert made.adjusted == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency_penalty": 0},
        {"presence_penalty": 0},
        {"repetition_penalty": 1},
        {"logit_bias": {}},
        {"stream": False},
        {"length_penalty": 1},
    ],
    ids=str,
)
def test_neutral_fields_do_not_hinder_a_beam_search(fields: dict[str, Any]) -> None:
    """A field whose value changes nothing does not hinder a beam search."""
    assert beam(n=2, **fields) == beam(n=2)


def test_wide_beam_where_the_server_gives_all_scores() -> None:
    """Where the engine gives any number of scores, a beam may be as wide as the contract allows."""
    assert beam(replace(FACTS, max_logprobs=-1), best_of=20).width == 20


def test_a_stop_token_that_is_named_needs_a_score() -> None:
    """As one that is given by its id does."""
    named = replace(FACTS, max_logprobs=7, special_token_ids={"<a>": 7})
    assert beam(named, best_of=3, stop="a").entries_needed == 7
    refused = refusal(named, use_beam_search=True, best_of=3, stop="<a>")
    assert (refused.param, "the scores of 8 tokens" in refused.message) == ("use_beam_search", True)


# --- refused ------------------------------------------------------------------------------------

WRONG = [
    pytest.param({"prompt": []}, "prompt", "empty list", id="no prompts"),
    pytest.param({"prompt": [103]}, "prompt", "prompt[0]: 103", id="id too high"),
    pytest.param({"prompt": [[1], [2, -1]]}, "prompt[1]", "prompt[1][1]: -1", id="id negative"),
    pytest.param({"prompt": [10**30]}, "prompt", "vocabulary", id="id huge"),
    pytest.param({"prompt": ["a"] * 3, "n": 86}, "prompt", "258", id="too many choices"),
    pytest.param({"temperature": -0.1}, "temperature", "from 0 to 2", id="temperature -0.1"),
    pytest.param({"temperature": 2.1}, "temperature", "from 0 to 2", id="temperature 2.1"),
    pytest.param({"top_p": -0.1}, "top_p", "from 0 to 1", id="top_p -0.1"),
    pytest.param({"top_p": 1.1}, "top_p", "from 0 to 1", id="top_p 1.1"),
    pytest.param({"top_k": -2}, "top_k", "at least -1", id="top_k -2"),
    pytest.param({"top_k": 1.5}, "top_k", "integer", id="top_k 1.5"),
    pytest.param({"min_p": -0.1}, "min_p", "from 0 to 1", id="min_p -0.1"),
    pytest.param({"min_p": 1.1}, "min_p", "from 0 to 1", id="min_p 1.1"),
    pytest.param({"n": 0}, "n", "from 1 to 128", id="n 0"),
    pytest.param({"n": 129}, "n", "from 1 to 128", id="n 129"),
    pytest.param({"best_of": -1}, "best_of", "from 0 to 20", id="best_of -1"),
    pytest.param({"best_of": 21}, "best_of", "from 0 to 20", id="best_of 21"),
    pytest.param({"best_of": 2, "n": 3}, "best_of", "at least n", id="best_of below n"),
    pytest.param({"best_of": 3, "stream": True}, "best_of", "stream", id="best_of streamed"),
    pytest.param({"prompt": ["a"] * 13, "best_of": 20}, "prompt", "260", id="too many candidates"),
    pytest.param({"logprobs": -1}, "logprobs", "from 0 to 5", id="logprobs -1"),
    pytest.param({"logprobs": 6}, "logprobs", "from 0 to 5", id="logprobs 6"),
    pytest.param({"max_tokens": -1}, "max_tokens", "at least 0", id="max_tokens -1"),
    pytest.param({"min_tokens": -1}, "min_tokens", "at least 0", id="min_tokens -1"),
    pytest.param(
        {"min_tokens": 6, "max_tokens": 5}, "min_tokens", "max_tokens (5)", id="min_tokens 6"
    ),
    pytest.param({"min_tokens": 17}, "min_tokens", "max_tokens (16)", id="min_tokens 17"),
    pytest.param(
        {"min_tokens": 1, "max_tokens": 0}, "min_tokens", "max_tokens (0)", id="min_tokens 1"
    ),
    pytest.param({"frequency_penalty": 2.1}, "frequency_penalty", "-2 to 2", id="frequency 2.1"),
    pytest.param({"frequency_penalty": -2.1}, "frequency_penalty", "-2 to 2", id="frequency -2.1"),
    pytest.param({"presence_penalty": 2.1}, "presence_penalty", "-2 to 2", id="presence 2.1"),
    pytest.param({"presence_penalty": -2.1}, "presence_penalty", "-2 to 2", id="presence -2.1"),
    pytest.param({"repetition_penalty": 0}, "repetition_penalty", "greater", id="repetition 0"),
    pytest.param({"repetition_penalty": -1}, "repetition_penalty", "greater", id="repetition -1"),
    pytest.param({"stop": list("abcde")}, "stop", "at most 4", id="5 stops"),
    pytest.param({"guided_json": "{}"}, "guided_json", "object", id="guided_json string"),
    pytest.param({"stream": "x"}, "stream", "boolean", id="stream x"),
    pytest.param({"stop_token_ids": [1, 100]}, "stop_token_ids", "[1]: 100", id="stop token"),
    pytest.param({"stop_token_ids": [-1]}, "stop_token_ids", "[0]: -1", id="stop token -1"),
    pytest.param({"logit_bias": {"100": 1}}, "logit_bias", "100 is outside", id="bias of 100"),
    pytest.param({"logit_bias": {"-1": 5}}, "logit_bias", "-1 is outside", id="bias of -1"),
    pytest.param({"logit_bias": {"cat": 5}}, "logit_bias", "'cat' is not", id="bias of cat"),
    pytest.param({"logit_bias": {"": 5}}, "logit_bias", "not a token id", id="bias of nothing"),
    pytest.param({"logit_bias": {"05": 5}}, "logit_bias", "'05' is not", id="bias of 05"),
    pytest.param({"logit_bias": {"+5": 5}}, "logit_bias", "'+5' is not", id="bias of +5"),
    pytest.param({"logit_bias": {"-0": 5}}, "logit_bias", "'-0' is not", id="bias of -0"),
    pytest.param({"logit_bias": {"٣": 5}}, "logit_bias", "not a token id", id="bias of Arabic 3"),
    pytest.param({"logit_bias": {"9" * 5000: 5}}, "logit_bias", "not a token", id="bias of huge"),
    pytest.param({"logit_bias": {"5": 101}}, "logit_bias", "-100 to 100", id="bias 101"),
    pytest.param({"logit_bias": {"5": -101}}, "logit_bias", "-100 to 100", id="bias -101"),
    pytest.param({"logit_bias": {"5": 0.5}}, "logit_bias", "integers", id="bias 0.5"),
]


@pytest.mark.parametrize(("fields", "param", "words"), WRONG)
def test_wrong_value_is_refused(fields: dict[str, Any], param: str, words: str) -> None:
    """A wrong value is refused with the field's name and the rule it breaks."""
    error = refusal(**fields)
    assert (error.param, error.status, error.code) == (param, 400, "invalid_value")
    assert param.partition("[")[0] in error.message
    assert words in error.message
    assert len(error.message) < 400


UNSUPPORTED = [
    pytest.param(
        {"guided_decoding_backend": "nonsense"}, "guided_decoding_backend", id="unknown backend"
    ),
    pytest.param(
        {"guided_grammar": 'start: "a"', "guided_decoding_backend": "lm-format-enforcer"},
        "guided_decoding_backend",
        id="grammar of lm-format-enforcer",
    ),
    pytest.param(
        {"guided_whitespace_pattern": ""}, "guided_whitespace_pattern", id="blanks of nothing"
    ),
    pytest.param(
        {"guided_regex": "a", "guided_whitespace_pattern": ""},
        "guided_whitespace_pattern",
        id="blanks of a regex",
    ),
    pytest.param({"length_penalty": 2}, "length_penalty", id="length_penalty 2"),
    pytest.param({"length_penalty": 0}, "length_penalty", id="length_penalty 0"),
    pytest.param({"length_penalty": -1}, "length_penalty", id="length_penalty -1"),
    pytest.param({"early_stopping": True}, "early_stopping", id="early_stopping"),
]


@pytest.mark.parametrize(("fields", "name"), UNSUPPORTED)
def test_unsupported_field_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    """What the server cannot do is refused by name, never served without it."""
    error = refusal(**fields)
    assert isinstance(error, NotSupported)
    assert (error.param, error.code) == (name, "unsupported_value")
    assert name in error.message


@pytest.mark.parametrize(("most", "given"), [(-1, 100), (20, 20), (100, 100), (101, 100)])
def test_scores_at_a_position(most: int, given: int) -> None:
    """As many as the server gives, and no more than there are tokens."""
    assert replace(FACTS, max_logprobs=most).scores_given == given


# --- lengths ------------------------------------------------------------------------------------


def calls_for(*lengths: int, facts: ServerFacts = FACTS, **fields: Any) -> tuple[Any, ...]:
    """The engine calls for prompts of some lengths, in a context of 32 tokens."""
    request = parse(prompt=[[1] for _ in lengths], **fields)
    token_ids = [[1] * length for length in lengths]
    made = plan(request, facts)
    for index, length in enumerate(lengths):
        check_length(made, index, length, facts)
    return engine_calls(made, [TokenIds(ids) for ids in token_ids])


@pytest.mark.parametrize(
    ("length", "fields"),
    [
        pytest.param(16, {}, id="default"),
        pytest.param(31, {"max_tokens": 1}, id="one token"),
        pytest.param(32, {"max_tokens": 0}, id="nothing"),
        pytest.param(32, {"max_tokens": 0, "echo": True}, id="echo"),
        pytest.param(32, {"max_tokens": 0, "echo": True, "logprobs": 1}, id="scores"),
    ],
)
def test_full_context_is_served(length: int, fields: dict[str, Any]) -> None:
    """A prompt and max_tokens may fill the context to the last token."""
    (call,) = calls_for(length, **fields)
    assert len(call.prompt.token_ids) == length


@pytest.mark.parametrize(
    ("length", "fields", "param"),
    [
        pytest.param(17, {}, "max_tokens", id="default"),
        pytest.param(1, {"max_tokens": 100_000}, "max_tokens", id="max_tokens"),
        pytest.param(32, {"max_tokens": 5}, "prompt", id="full prompt"),
        pytest.param(9000, {"max_tokens": 5}, "prompt", id="long prompt"),
        pytest.param(33, {"max_tokens": 0}, "prompt", id="long prompt, nothing"),
        pytest.param(33, {"max_tokens": 0, "echo": True, "logprobs": 1}, "prompt", id="scores"),
    ],
)
def test_too_long_is_refused_with_the_counts(
    length: int, fields: dict[str, Any], param: str
) -> None:
    """What does not fit is refused with the context length and the counts asked for."""
    with pytest.raises(InvalidRequest) as caught:
        calls_for(length, **fields)
    error = caught.value
    assert (error.param, error.code) == (param, "context_length_exceeded")
    assert "context length is 32 tokens" in error.message
    assert f"prompt has {length} tokens" in error.message
    assert f"max_tokens asks for {fields.get('max_tokens', 16)}" in error.message


def test_scores_need_room_where_no_token_can_be_chosen() -> None:
    """Where the engine cannot be held to a token, the one that it makes needs room."""
    facts = replace(FACTS, scores_chosen_tokens=False)
    fields: dict[str, Any] = {"max_tokens": 0, "echo": True, "logprobs": 1}
    calls_for(31, facts=facts, **fields)
    calls_for(32, facts=facts, max_tokens=0)
    with pytest.raises(InvalidRequest, match="32 tokens"):
        calls_for(32, facts=facts, **fields)


def test_too_long_prompt_of_several_is_named() -> None:
    """Of several prompts the one that is too long is named."""
    with pytest.raises(InvalidRequest, match=r"prompt\[1\] has 40 tokens") as caught:
        calls_for(4, 40, 4)
    assert caught.value.param == "prompt[1]"


def test_one_call_a_prompt() -> None:
    """Each prompt is one call, in order."""
    calls = calls_for(1, 2, 3, n=2)
    assert [len(call.prompt.token_ids) for call in calls] == [1, 2, 3]
    assert [call.work.mode for call in calls] == [Sample(2)] * 3
    assert [call.prompt.text for call in calls] == [None, None, None]
