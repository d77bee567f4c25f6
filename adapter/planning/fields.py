"""The table: what happens to each field of the contract.

A row has the words that README shows, the checks that refuse the field by its name, and where its
value goes. A plan is made from these rows and from nothing else of the request.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from adapter.contract.request import CompletionV2Request
from adapter.planning import checks, values
from adapter.planning.checks import Check
from adapter.planning.facts import ServerFacts

Value = Callable[[CompletionV2Request, ServerFacts], Any]


class Place(StrEnum):
    """What is made of the fields; see plan.py."""

    SAMPLING = "SamplingFields"
    """The engine's sampling parameters."""
    SEARCH = "the mode: n, best_of, beams"
    BEAMS = "BeamSettings"
    ANSWER = "AnswerShape"
    """What the answer looks like."""
    CONSTRAINT = "Constraint"
    PLAN = "Plan"
    """The rest."""


class Target(NamedTuple):
    """Where a field's value goes."""

    place: Place
    key: str
    value: Value
    """None leaves the place at its default."""


@dataclass(frozen=True, slots=True)
class Field:
    """One row."""

    words: str
    """What README says."""
    targets: tuple[Target, ...]
    checks: tuple[Check, ...] = ()


def _row(words: str, *parts: Target | Check) -> Field:
    return Field(
        words,
        tuple(part for part in parts if isinstance(part, Target)),
        tuple(part for part in parts if not isinstance(part, Target)),
    )


def _sampling(key: str, value: Value) -> Target:
    return Target(Place.SAMPLING, key, value)


def _search(key: str, value: Value) -> Target:
    return Target(Place.SEARCH, key, value)


def _beams(key: str, value: Value) -> Target:
    return Target(Place.BEAMS, key, value)


def _answer(key: str, value: Value) -> Target:
    return Target(Place.ANSWER, key, value)


def _plan(key: str, value: Value) -> Target:
    return Target(Place.PLAN, key, value)


def _constraint(field: str) -> Target:
    return Target(Place.CONSTRAINT, field, lambda request, _: values.CONSTRAINTS[field](request))


FIELDS: dict[str, Field] = {
    "model": _row(
        "served names and LoRA adapters; another name is a 404",
        _plan("model", lambda r, _: r.model),
    ),
    "prompt": _row(
        'string, list of strings, token ids, lists of token ids; null and `""` are the '
        "start of a new document",
        checks.prompt_is_given,
        checks.prompts_are_few,
        checks.texts_are_few,
        checks.prompt_ids_exist,
        _plan("prompts", lambda r, _: values.prompts(r)),
    ),
    "suffix": _row(
        "honoured by models whose tokenizer has fill-in-the-middle tokens (or with "
        "`--infill-template`); refused by others",
        checks.model_can_infill,
        _plan("suffix", lambda r, _: r.suffix),
    ),
    "max_tokens": _row(
        "honoured; 0 generates nothing (with `echo` and `logprobs` it scores the prompt)",
        checks.max_tokens_is_within_cap,
        _plan("max_tokens", lambda r, _: r.max_tokens),
        # The engine makes at least one token; see Mode.generates.
        _sampling("max_tokens", lambda r, _: max(r.max_tokens, 1)),
        _beams("max_tokens", lambda r, _: r.max_tokens),
    ),
    "min_tokens": _row(
        "honoured; also holds back stop strings; refused above `max_tokens`, and on "
        "vLLM's model runner V2 beside more than 128 tokens that end a text",
        checks.min_tokens_is_a_count,
        checks.not_in_diffusion("min_tokens", 0),
        _sampling("min_tokens", lambda r, _: r.min_tokens or 0),
        _beams("min_tokens", lambda r, _: r.min_tokens),
    ),
    "n": _row(
        "honoured, also at temperature 0 (n identical answers)",
        _search("answers", lambda r, _: r.n),
    ),
    "best_of": _row(
        "honoured: the best `n` by mean log-probability, best first; null, 0 and 1 mean not "
        "asked for; above `n` with `stream` refused",
        checks.best_of_is_at_least_n,
        checks.best_of_is_known_at_the_end,
        _search("best_of", lambda r, _: r.best_of if r.best_of > 1 else None),
    ),
    "temperature": _row(
        "honoured; 0 is greedy; between 0 and 0.01 vLLM samples at 0.01, and the "
        "header `x-adjusted-fields` says so",
        checks.not_in_diffusion("temperature", 1),
        _sampling("temperature", lambda r, _: values.temperature(r)),
        _plan("temperature", lambda r, _: r.temperature),
    ),
    "top_p": _row(
        "honoured; 0 is greedy",
        checks.top_p_is_not_greedy_in_diffusion,
        _sampling("top_p", lambda r, _: r.top_p or 1.0),  # the temperature says that it is greedy
    ),
    "top_k": _row(
        "honoured; -1 and 0 mean all tokens",
        _sampling("top_k", values.top_k),
    ),
    "min_p": _row(
        "honoured; refused outside 0 to 1",
        checks.min_p_is_a_share,
        checks.not_with_drafts("min_p"),
        checks.not_in_diffusion("min_p", 0),
        _sampling("min_p", lambda r, _: r.min_p),
    ),
    "seed": _row(
        "honoured, any integer; n answers differ from one another, and repeat",
        checks.not_in_diffusion("seed"),
        _sampling("seed", lambda r, _: None if r.seed is None else r.seed % values.SEED_RANGE),
    ),
    "frequency_penalty": _row(
        "honoured",
        checks.changes_beams("frequency_penalty", 0),
        checks.not_in_diffusion("frequency_penalty", 0),
        _sampling("frequency_penalty", lambda r, _: r.frequency_penalty),
        _beams("frequency_penalty", lambda r, _: r.frequency_penalty),
    ),
    "presence_penalty": _row(
        "honoured",
        checks.changes_beams("presence_penalty", 0),
        checks.not_in_diffusion("presence_penalty", 0),
        _sampling("presence_penalty", lambda r, _: r.presence_penalty),
        _beams("presence_penalty", lambda r, _: r.presence_penalty),
    ),
    "repetition_penalty": _row(
        "honoured; refused at 0 and below",
        checks.repetition_penalty_is_positive,
        checks.changes_beams("repetition_penalty", 1),
        checks.not_in_diffusion("repetition_penalty", 1),
        _sampling("repetition_penalty", lambda r, _: r.repetition_penalty),
        _beams("repetition_penalty", lambda r, _: r.repetition_penalty),
    ),
    "logit_bias": _row(
        "honoured; ids outside the vocabulary and values outside -100 to 100 are "
        "refused, and on vLLM's model runner V2 more than 1024 entries",
        checks.logit_bias_is_of_tokens,
        checks.changes_beams("logit_bias"),
        checks.not_with_drafts("logit_bias"),
        checks.not_in_diffusion("logit_bias", {}),
        checks.logit_bias_fits,
        _sampling("logit_bias", lambda r, _: values.logit_bias(r)),
        _beams("logit_bias", lambda r, _: values.logit_bias(r)),
    ),
    "logprobs": _row(
        "honoured, 0 to 5; with `echo` also over the prompt",
        _sampling("logprobs", lambda r, _: r.logprobs),
        _beams("logprobs", lambda r, _: r.logprobs),
        _answer("logprobs", lambda r, _: r.logprobs is not None),
    ),
    "echo": _row(
        "honoured; with `logprobs` refused under `--kv-sharing-fast-prefill`",
        checks.echo_has_scores,
        _answer("echo", lambda r, _: r.echo),
        _sampling("prompt_logprobs", lambda r, _: r.logprobs if r.echo else None),
    ),
    "stop": _row(
        'honoured; `[]` and `""` mean none; one that is a special token\'s name stops at that '
        "token, shown or not",
        checks.stops_are_short,
        _sampling("stop", lambda r, _: values.stop(r) or None),
        _beams("stop", lambda r, _: tuple(values.stop(r))),
        _answer("stop", lambda r, _: tuple(values.stop(r))),
    ),
    "stop_token_ids": _row(
        "honoured; a stop token stays in the text unless it is special",
        checks.stop_token_ids_exist,
        checks.stop_token_ids_fit,
        _sampling("stop_token_ids", lambda r, f: values.stop_token_ids(r, f) or None),
        _beams("stop_token_ids", values.all_stop_token_ids),
        _answer("stop_token_ids", lambda r, _: frozenset(r.stop_token_ids or ())),
    ),
    "include_stop_str_in_output": _row(
        "honoured",
        checks.stops_are_told_from_infill_ends,
        _sampling("include_stop_str_in_output", lambda r, _: values.includes_stop(r)),
        _answer("includes_stop", lambda r, _: values.includes_stop(r)),
    ),
    "ignore_eos": _row(
        "honoured",
        _sampling("ignore_eos", lambda r, _: values.ignores_eos(r)),
        _beams("eos_token_ids", values.eos_token_ids),
        _plan("eos_last", lambda r, _: bool(r.ignore_eos)),
    ),
    "skip_special_tokens": _row(
        "honoured",
        _sampling("skip_special_tokens", lambda r, _: r.skip_special_tokens),
        _answer("skip_special_tokens", lambda r, _: r.skip_special_tokens),
    ),
    "spaces_between_special_tokens": _row(
        "honoured",
        _sampling("spaces_between_special_tokens", lambda r, _: r.spaces_between_special_tokens),
    ),
    "add_special_tokens": _row(
        "honoured for texts; token ids are never changed",
        _plan("add_special_tokens", lambda r, _: r.add_special_tokens),
    ),
    "stream": _row("honoured", _plan("stream", lambda r, _: r.stream)),
    "stream_options": _row(
        "`include_usage` honoured; without `stream` it has no effect, as the contract says",
        _plan("include_usage", lambda r, _: r.stream_options and r.stream_options.include_usage),
    ),
    "use_beam_search": _row(
        "honoured, `best_of` (or `n`) beams wide, also with the penalties, `logit_bias` and "
        "constraints; refused with `stream`",
        checks.beams_are_known_at_the_end,
        checks.beams_have_their_scores,
        checks.not_in_diffusion("use_beam_search", False),
        _search("beams", lambda r, _: r.use_beam_search),
        _beams("width", lambda r, _: values.texts_asked(r)),
    ),
    "length_penalty": _row(
        "honoured in beam search; refused without it, but for 1",
        checks.beams_only("length_penalty", 1),
        _beams("length_penalty", lambda r, _: r.length_penalty),
    ),
    "early_stopping": _row(
        "honoured in beam search; true without it is refused",
        checks.beams_only("early_stopping", False),
        _beams("early_stopping", lambda r, _: values.ends_early(r)),
    ),
    "response_format": _row(
        "honoured: `text`, `json_object`, `json_schema`; one constraint a request",
        checks.only_constraint("response_format"),
        *checks.constraint("response_format"),
        _constraint("response_format"),
    ),
    "guided_json": _row("honoured", *checks.constraint("guided_json"), _constraint("guided_json")),
    "guided_regex": _row(
        "honoured: the language of Python's `re.fullmatch`, look-around and word boundaries "
        "included; back-references are refused",
        checks.only_constraint("guided_regex"),
        *checks.constraint("guided_regex"),
        _constraint("guided_regex"),
    ),
    "guided_choice": _row(
        "honoured",
        checks.there_are_choices,
        checks.only_constraint("guided_choice"),
        *checks.constraint("guided_choice"),
        _constraint("guided_choice"),
    ),
    "guided_grammar": _row(
        "honoured, GBNF/EBNF and Lark; refused for lm-format-enforcer",
        checks.only_constraint("guided_grammar"),
        *checks.constraint("guided_grammar"),
        _constraint("guided_grammar"),
    ),
    "guided_decoding_backend": _row(
        "honoured: `outlines`, `lm-format-enforcer`, `xgrammar`, "
        "`guidance`, `auto`; what the named one cannot hold is refused; without a constraint "
        "there is nothing to choose",
        checks.backend_is_known,
        checks.backend_has_grammars,
        Target(
            Place.CONSTRAINT, "backend", lambda r, f: r.guided_decoding_backend or f.guided_backend
        ),
    ),
    "guided_whitespace_pattern": _row(
        "honoured exactly; refused without a JSON constraint",
        checks.whitespace_is_of_json,
        Target(Place.CONSTRAINT, "whitespace", lambda r, _: r.guided_whitespace_pattern),
    ),
    "user": _row(
        "to the log line and the trace; never changes the output",
        _plan("user", lambda r, _: r.user),
    ),
}
"""In the order that README lists them."""
