"""What each field is refused for, by name. A check raises, or says nothing.

Raised are InvalidRequest, where no server could do it, and NotSupported, where this one cannot.
"""

import re
from collections.abc import Callable, Sequence

from adapter.contract.request import CompletionV2Request
from adapter.errors import InvalidRequest, NotSupported
from adapter.guided.constraint import (
    BACKENDS,
    LM_FORMAT_ENFORCER,
    MAX_TEXT,
    OUTLINES,
    Kind,
    holds_nul,
)
from adapter.planning import limits, values
from adapter.planning.facts import ServerFacts
from adapter.planning.modes import entries_needed

Check = Callable[[CompletionV2Request, ServerFacts], None]

_TOKEN_ID = re.compile("-?[0-9]{1,18}")
# What model runner V2 holds of one request. vLLM looks no earlier than in the worker, where one
# more ends the engine for everybody (vllm/v1/worker/gpu/sample/logit_bias.py, add_request).
MAX_LOGIT_BIAS = 1024
MAX_HELD_BACK = 128

_NUL = "must not hold a NUL character"


# --- prompt and suffix --------------------------------------------------------------------------


def prompt_is_given(request: CompletionV2Request, facts: ServerFacts) -> None:
    """A list has at least one prompt."""
    if request.prompt == []:
        raise InvalidRequest("prompt must not be an empty list.", param="prompt")


def prompts_are_few(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Neither the prompts nor the token ids in them are more than the operator allows."""
    prompts = values.prompts(request)
    if len(prompts) > facts.max_prompts:
        raise InvalidRequest(
            f"prompt: there are {len(prompts)} prompts, and one request may have "
            f"{facts.max_prompts}. Send several requests.",
            param="prompt",
        )
    limits.refuse_tokens(sum(len(ids) for ids in prompts if isinstance(ids, list)), facts)


def texts_are_few(request: CompletionV2Request, facts: ServerFacts) -> None:
    """All prompts together do not ask for more texts than the operator allows."""
    prompts, each = len(values.prompts(request)), values.texts_asked(request)
    if prompts * each > facts.max_choices:
        raise InvalidRequest(
            f"prompt: {prompts} prompts times {each} (n or best_of) are {prompts * each} texts, "
            f"and one request may ask for {facts.max_choices}. Send several requests.",
            param="prompt",
        )


def prompt_ids_exist(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Token ids are in the vocabulary."""
    prompts = values.prompts(request)
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            name = values.prompt_name(index, len(prompts))
            _check_ids(prompt, facts.max_prompt_token_id + 1, name)


def model_can_infill(request: CompletionV2Request, facts: ServerFacts) -> None:
    """The model's form of a suffix is known."""
    if request.suffix is not None and facts.infill is None:
        raise NotSupported(
            "suffix is not supported by this model: its tokenizer has no fill-in-the-middle tokens "
            "that are known here. If it has others, start the server with --infill-template.",
            param="suffix",
        )


# --- lengths and numbers ------------------------------------------------------------------------


def max_tokens_is_within_cap(request: CompletionV2Request, facts: ServerFacts) -> None:
    """The operator's cap holds."""
    if facts.max_tokens_cap is not None and request.max_tokens > facts.max_tokens_cap:
        raise InvalidRequest(
            f"max_tokens must not be greater than {facts.max_tokens_cap} on this server.",
            param="max_tokens",
        )


def min_tokens_is_a_count(request: CompletionV2Request, facts: ServerFacts) -> None:
    """From 0 to max_tokens."""
    least = request.min_tokens or 0
    if least < 0:
        raise InvalidRequest("min_tokens must be at least 0.", param="min_tokens")
    if least > request.max_tokens:
        raise InvalidRequest(
            f"min_tokens must not be greater than max_tokens ({request.max_tokens}).",
            param="min_tokens",
        )


def min_p_is_a_share(request: CompletionV2Request, facts: ServerFacts) -> None:
    """From 0 to 1."""
    if not 0 <= (request.min_p or 0) <= 1:
        raise InvalidRequest("min_p must be from 0 to 1.", param="min_p")


def repetition_penalty_is_positive(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Scores are divided by it."""
    if request.repetition_penalty is not None and request.repetition_penalty <= 0:
        raise InvalidRequest(
            "repetition_penalty must be greater than 0.", param="repetition_penalty"
        )


def stop_token_ids_exist(request: CompletionV2Request, facts: ServerFacts) -> None:
    """They are in the vocabulary."""
    limits.refuse_more_than_tokens("stop_token_ids", len(request.stop_token_ids or ()), facts)
    _check_ids(request.stop_token_ids or (), facts.vocab_size, "stop_token_ids")


def stops_are_short(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Each is looked for in the text after every token. Their number is the contract's."""
    given = request.stop or []
    many = isinstance(given, list)
    for index, text in enumerate(given if many else [given]):
        name = f"stop[{index}]" if many else "stop"
        limits.refuse_long(name, len(text), facts.max_stop_chars)


def stops_are_told_from_infill_ends(request: CompletionV2Request, facts: ServerFacts) -> None:
    """vLLM includes all stops or none. Of stop tokens those that are no special ones are text
    anyway."""
    if request.suffix is None or not request.include_stop_str_in_output:
        return
    specials_show = request.stop_token_ids and not request.skip_special_tokens
    if request.stop or specials_show:
        what = "strings" if request.stop else "tokens and skip_special_tokens is false"
        raise NotSupported(
            "include_stop_str_in_output and suffix cannot be combined where there are stop "
            f"{what}: the tokens that end what is filled in would show too.",
            param="include_stop_str_in_output",
        )


def logit_bias_is_of_tokens(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Keys are token ids, values from -100 to 100."""
    limits.refuse_more_than_tokens("logit_bias", len(request.logit_bias or ()), facts)
    for key, bias in (request.logit_bias or {}).items():
        # Only the plain decimal form is a token id: "05" and "+5" would be two names for one.
        if not (_TOKEN_ID.fullmatch(key) and str(int(key)) == key):
            why = f"the key {key[:40]!r} is not a token id"
        elif not 0 <= int(key) < facts.vocab_size:
            why = f"{key} is outside the vocabulary of {facts.vocab_size} tokens"
        elif not -100 <= bias <= 100:
            why = f"the value of {key} must be from -100 to 100"
        else:
            continue
        raise InvalidRequest(f"logit_bias: {why}.", param="logit_bias")


def _check_ids(ids: Sequence[int], vocab_size: int, name: str) -> None:
    """Refuse token ids outside the vocabulary."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        index, wrong = next((i, t) for i, t in enumerate(ids) if not 0 <= t < vocab_size)
        raise InvalidRequest(
            f"{name}[{index}]: {wrong} is outside the vocabulary of {vocab_size} tokens.",
            param=name,
        )


# --- ways to search -----------------------------------------------------------------------------


def best_of_is_at_least_n(request: CompletionV2Request, facts: ServerFacts) -> None:
    """There are n texts to give."""
    if 1 < request.best_of < request.n:
        raise InvalidRequest(
            f"best_of must be at least n: best_of is {request.best_of} and n is {request.n}.",
            param="best_of",
        )


def best_of_is_known_at_the_end(request: CompletionV2Request, facts: ServerFacts) -> None:
    """A stream cannot show texts that may turn out not to be the best."""
    if request.stream and request.best_of > 1 and request.best_of > request.n:
        raise InvalidRequest(
            "best_of above n cannot be streamed: the best texts are known only at the end. Leave "
            "out stream or best_of.",
            param="best_of",
        )


def beams_are_known_at_the_end(request: CompletionV2Request, facts: ServerFacts) -> None:
    """As for best_of."""
    if request.stream and request.use_beam_search:
        raise InvalidRequest(
            "use_beam_search cannot be streamed: the best text is known only at the end. Leave out "
            "stream or use_beam_search.",
            param="use_beam_search",
        )


def beams_have_their_scores(request: CompletionV2Request, facts: ServerFacts) -> None:
    """The engine gives as many scores as a step of the search needs."""
    if not request.use_beam_search or request.max_tokens == 0 or facts.max_logprobs < 0:
        return
    width = values.texts_asked(request)
    stops = values.all_stop_token_ids(request, facts)
    ends = len(values.eos_token_ids(request, facts) | stops)
    stop = bool(values.stop(request))
    needed = entries_needed(width, ends, request.logprobs or 0, has_stop=stop)
    if facts.max_logprobs < needed:
        raise NotSupported(
            f"use_beam_search with a width of {width} needs the scores of {needed} tokens at each "
            f"step (stop doubles the width, and each of stop_token_ids adds one), and the server "
            f"gives {facts.max_logprobs}: start it with --max-logprobs {needed} or more.",
            param="use_beam_search",
        )


def beams_only(name: str, neutral: float | bool) -> Check:
    """A field without a meaning where there is no beam search."""

    def check(request: CompletionV2Request, facts: ServerFacts) -> None:
        if not request.use_beam_search and getattr(request, name) not in (None, neutral):
            raise NotSupported(
                f"{name} has a meaning in beam search only, and use_beam_search is not true.",
                param=name,
            )

    return check


def _beams_fault(facts: ServerFacts) -> str | None:
    """Why beams cannot be scored otherwise than by the model's own best tokens; see beam_scores."""
    if facts.guided_fault is not None:
        return facts.guided_fault
    if not facts.scores_chosen_tokens:
        return "it decodes speculatively, or its --logprobs-mode is not raw_logprobs"
    return None


def changes_beams(name: str, neutral: float | None = None) -> Check:
    """A field that changes the scores of beams, which not every engine tells enough for."""

    def check(request: CompletionV2Request, facts: ServerFacts) -> None:
        if not request.use_beam_search or getattr(request, name) in (None, {}, neutral):
            return
        if (fault := _beams_fault(facts)) is not None:
            raise NotSupported(
                f"{name} and use_beam_search cannot be combined on this server: {fault}.",
                param=name,
            )

    return check


def not_with_drafts(name: str) -> Check:
    """A field that vLLM leaves out of speculative decoding."""

    def check(request: CompletionV2Request, facts: ServerFacts) -> None:
        if facts.speculative and getattr(request, name):
            raise NotSupported(
                f"{name} is not supported with this server's speculative decoding.", param=name
            )

    return check


# --- what some servers lack ----------------------------------------------------------------------


def not_in_diffusion(name: str, *neutral: object) -> Check:
    """A field that vLLM leaves out in silence for a diffusion model, or refuses by no one name."""

    def check(request: CompletionV2Request, facts: ServerFacts) -> None:
        if facts.diffusion and getattr(request, name) not in (None, *neutral):
            raise NotSupported(f"{name} is not supported by a diffusion model.", param=name)

    return check


def top_p_is_not_greedy_in_diffusion(request: CompletionV2Request, facts: ServerFacts) -> None:
    """A diffusion model is never greedy."""
    if facts.diffusion and request.top_p == 0:
        raise NotSupported("top_p 0 is greedy, which a diffusion model is not.", param="top_p")


def logit_bias_fits(request: CompletionV2Request, facts: ServerFacts) -> None:
    """The workers' table holds it."""
    count = len(request.logit_bias or ())
    if facts.runner_v2 and count > MAX_LOGIT_BIAS:
        raise NotSupported(
            f"logit_bias has {count} entries, and this server's engine takes {MAX_LOGIT_BIAS}.",
            param="logit_bias",
        )


def stop_token_ids_fit(request: CompletionV2Request, facts: ServerFacts) -> None:
    """With min_tokens the workers' table holds all tokens that end a text."""
    if not facts.runner_v2 or not request.min_tokens or request.use_beam_search:
        return
    held_back = facts.eos_token_ids.union(values.stop_token_ids(request, facts))
    if len(held_back) > MAX_HELD_BACK:
        raise NotSupported(
            f"min_tokens has to hold back {len(held_back)} tokens that end the text "
            f"(stop_token_ids and the model's own), and this server's engine can hold back "
            f"{MAX_HELD_BACK}. Shorten stop_token_ids or leave out min_tokens.",
            param="stop_token_ids",
        )


def echo_has_scores(request: CompletionV2Request, facts: ServerFacts) -> None:
    """vLLM refuses it too, but for 0 logprobs (vllm/v1/engine/async_llm.py, add_request)."""
    if facts.fast_prefill and request.echo and request.logprobs is not None:
        raise NotSupported(
            "echo and logprobs cannot be combined on this server: the scores of a prompt are wrong "
            "with --kv-sharing-fast-prefill.",
            param="echo",
        )


# --- constraints --------------------------------------------------------------------------------


def constraint(field: str) -> tuple[Check, ...]:
    """What a constraint of this field is refused for."""

    def can_be_read(request: CompletionV2Request, facts: ServerFacts) -> None:
        if (given := values.CONSTRAINTS[field](request)) is None:
            return
        kind, text = given
        limits.refuse_long(field, len(text), MAX_TEXT)
        if holds_nul(kind, text):
            _refuse_nul(field, kind, request.guided_decoding_backend or facts.guided_backend)

    def can_be_over_beams(request: CompletionV2Request, facts: ServerFacts) -> None:
        if not request.use_beam_search or field not in values.constraints_given(request):
            return
        if (fault := _beams_fault(facts)) is not None:
            raise NotSupported(
                f"{field} and use_beam_search cannot be combined on this server: {fault}.",
                param=field,
            )

    def can_be_guided(request: CompletionV2Request, facts: ServerFacts) -> None:
        if facts.guided_fault is not None and field in values.constraints_given(request):
            raise NotSupported(
                f"{field} is not supported by this server: {facts.guided_fault}.", param=field
            )

    return (can_be_read, can_be_guided, can_be_over_beams)


def _refuse_nul(field: str, kind: Kind, backend: str) -> None:
    """Patterns and grammars spell a NUL. A value of a schema may hold one, and a text to choose
    from where the library takes it."""
    if kind is Kind.JSON:
        return
    if kind is not Kind.CHOICE:
        raise InvalidRequest(f"{field} {_NUL}.", param=field)
    if backend == OUTLINES:
        raise NotSupported(f"{field} {_NUL} under the backend {OUTLINES}.", param=field)


def only_constraint(field: str) -> Check:
    """A constraint beside another one: named is the second."""

    def check(request: CompletionV2Request, facts: ServerFacts) -> None:
        names = values.constraints_given(request) if getattr(request, field) is not None else []
        if len(names) > 1 and field == names[1]:
            raise InvalidRequest(
                f"{names[0]} and {names[1]} cannot be combined: a request has one constraint at "
                "most.",
                param=field,
            )

    return check


def there_are_choices(request: CompletionV2Request, facts: ServerFacts) -> None:
    """A list has at least one choice, and not too many."""
    if request.guided_choice == []:
        raise InvalidRequest("guided_choice must not be an empty list.", param="guided_choice")
    if (count := len(request.guided_choice or ())) > limits.MAX_GUIDED_CHOICES:
        raise InvalidRequest(
            f"guided_choice has {count} texts, and {limits.MAX_GUIDED_CHOICES} are allowed.",
            param="guided_choice",
        )


def backend_is_known(request: CompletionV2Request, facts: ServerFacts) -> None:
    """One of those that can be named."""
    name = request.guided_decoding_backend
    if name is not None and name not in BACKENDS:
        raise NotSupported(
            f"guided_decoding_backend must be one of {', '.join(BACKENDS)}, not {name[:100]!r}.",
            param="guided_decoding_backend",
        )


def backend_has_grammars(request: CompletionV2Request, facts: ServerFacts) -> None:
    """lm-format-enforcer has none."""
    backend = request.guided_decoding_backend or facts.guided_backend
    if request.guided_grammar is not None and backend == LM_FORMAT_ENFORCER:
        raise NotSupported(
            f"guided_decoding_backend {LM_FORMAT_ENFORCER} has no grammars, so it cannot do "
            "guided_grammar: leave it out, or name guidance, xgrammar or outlines.",
            param="guided_decoding_backend",
        )


def whitespace_is_of_json(request: CompletionV2Request, facts: ServerFacts) -> None:
    """There is JSON whose whitespace the pattern is about."""
    if request.guided_whitespace_pattern is None:
        return
    limits.refuse_long(
        "guided_whitespace_pattern",
        len(request.guided_whitespace_pattern),
        limits.MAX_WHITESPACE_CHARS,
    )
    given = values.constraints_given(request)
    if not given or given[0] not in ("guided_json", "response_format"):
        why = f"{given[0]} is none" if given else "there is none"
        raise NotSupported(
            "guided_whitespace_pattern has a meaning with a JSON constraint only (guided_json or a "
            f"JSON response_format), and {why}.",
            param="guided_whitespace_pattern",
        )
