"""From a request to engine calls: each field forwarded, mapped or refused.

Pure: no vLLM, no I/O. FIELDS is the one table of what happens to each field; the README shows it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from adapter.contract import CompletionV2Request
from adapter.engine_io import EngineCall, Prompt, SamplingFields
from adapter.errors import InvalidRequest, NotSupported

# vLLM raises a temperature below this to it ("may cause numerical errors"), and takes one below
# GREEDY_TEMPERATURE as 0 (vllm/sampling_params.py, _MAX_TEMP and _SAMPLING_EPS).
LOWEST_TEMPERATURE = 0.01
GREEDY_TEMPERATURE = 1e-5

_TOKEN_ID = re.compile("-?[0-9]{1,18}")

# Seeds are folded below this: room for the engine's seed + index without leaving 63 bits.
SEED_RANGE = 2**62


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the checks need to know of the server."""

    max_model_len: int
    """Tokens of prompt and completion together."""
    vocab_size: int
    """Rows of the model's output layer: the ids that can be generated or biased."""
    max_prompt_token_id: int
    """The highest id that a prompt may hold."""
    document_separator: int
    """The token that stands for the start of a new document."""
    max_choices: int
    """Choices that one request may ask for: prompts times n."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request whose values were checked, all but the length of its prompts."""

    prompts: tuple[str | list[int], ...]
    """Texts to be tokenised, or token ids."""
    sampling: SamplingFields
    copies: int
    generates: bool
    runs: bool
    adjusted: tuple[str, ...] = field(default=())
    """Fields whose value vLLM cannot take exactly; the caller is told."""


def plan(request: CompletionV2Request, facts: ServerFacts) -> Plan:
    """Check every field's value and lay out the work.

    Raises:
        InvalidRequest: a value that the contract or the model does not allow.
        NotSupported: a field that this server cannot honour.
    """
    refuse_unsupported(request)
    prompts = _prompts(request, facts)
    _refuse_nul(request, prompts)
    _check_values(request, facts)
    sampling = _sampling_fields(request, facts)
    scores_prompt = "prompt_logprobs" in sampling
    generates = request.max_tokens > 0
    # Greedy answers to one prompt are the same text n times: the engine makes it once (and refuses
    # to make it n times, vllm/sampling_params.py, _verify_greedy_sampling).
    copies = request.n if sampling["temperature"] == 0 or not generates else 1
    sampling["n"] = request.n // copies
    adjusted = 0 < sampling["temperature"] != request.temperature
    return Plan(
        prompts=prompts,
        sampling=sampling,
        copies=copies,
        generates=generates,
        runs=generates or scores_prompt,
        adjusted=("temperature",) if adjusted else (),
    )


def engine_calls(
    plan: Plan, prompts: Sequence[Prompt], max_tokens: int, facts: ServerFacts
) -> tuple[EngineCall, ...]:
    """One call a prompt.

    Raises:
        InvalidRequest: a prompt that leaves no room for max_tokens, with the counts and the limit.
    """
    many = len(prompts) > 1
    for index, prompt in enumerate(prompts):
        name = f"prompt[{index}]" if many else "prompt"
        check_length(len(prompt.token_ids), max_tokens, plan.runs, name, facts.max_model_len)
    return tuple(
        EngineCall(prompt, plan.sampling, plan.copies, plan.generates, plan.runs)
        for prompt in prompts
    )


def check_length(
    prompt_tokens: int, max_tokens: int, runs: bool, name: str, max_model_len: int
) -> None:
    """Refuse a prompt and max_tokens that do not fit the model's context together.

    The engine always has room for one token more than it is given, also to score a prompt.
    """
    needed = prompt_tokens + max(max_tokens, 1 if runs else 0)
    if needed <= max_model_len:
        return
    counts = (
        f"The model's context length is {max_model_len} tokens; {name} has {prompt_tokens} tokens "
        f"and max_tokens asks for {max_tokens}"
    )
    if prompt_tokens >= max_model_len:
        raise InvalidRequest(
            f"{counts}. Shorten the prompt.", param=name, code="context_length_exceeded"
        )
    raise InvalidRequest(
        f"{counts}, {needed} together. Lower max_tokens or shorten the prompt.",
        param="max_tokens",
        code="context_length_exceeded",
    )


# --- what cannot be done ------------------------------------------------------------------------


def refuse_unsupported(request: CompletionV2Request) -> None:
    """Refuse, by name, each field that asks for what this server cannot do.

    Raises:
        NotSupported: naming the field.
        InvalidRequest: where the field's value would be wrong anyway.
    """
    if 2 <= request.best_of < request.n:
        raise InvalidRequest(
            f"best_of must be at least n: best_of is {request.best_of} and n is {request.n}.",
            param="best_of",
        )
    for name, asks in _UNSUPPORTED.items():
        if asks(request):
            raise NotSupported(f"{name} is not supported by this server.", param=name)
    if request.response_format is not None and request.response_format.type != "text":
        raise NotSupported(
            f'response_format "{request.response_format.type}" is not supported by this server.',
            param="response_format",
        )
    for name in ("length_penalty", "early_stopping"):
        if getattr(request, name) not in (None, False, 1.0):
            raise NotSupported(
                f"{name} has a meaning in beam search only, and use_beam_search is not true.",
                param=name,
            )


_UNSUPPORTED: dict[str, Callable[[CompletionV2Request], bool]] = {
    "use_beam_search": lambda request: bool(request.use_beam_search),
    "best_of": lambda request: request.best_of > 1,
    "suffix": lambda request: request.suffix is not None,
    "guided_json": lambda request: request.guided_json is not None,
    "guided_regex": lambda request: request.guided_regex is not None,
    "guided_choice": lambda request: request.guided_choice is not None,
    "guided_grammar": lambda request: request.guided_grammar is not None,
    "guided_decoding_backend": lambda request: request.guided_decoding_backend is not None,
    "guided_whitespace_pattern": lambda request: request.guided_whitespace_pattern is not None,
}


# --- the prompt ---------------------------------------------------------------------------------


def _prompts(request: CompletionV2Request, facts: ServerFacts) -> tuple[str | list[int], ...]:
    given = request.prompt
    if given is None or isinstance(given, str):
        prompts: tuple[str | list[int], ...] = (given or "",)
    elif not given:
        raise InvalidRequest("prompt must not be an empty list.", param="prompt")
    elif isinstance(given[0], int):
        prompts = (given,)  # a list of ids, by the contract
    else:
        prompts = tuple(given)  # strings or lists of ids
    choices = len(prompts) * request.n
    if choices > facts.max_choices:
        raise InvalidRequest(
            f"prompt: {len(prompts)} prompts times n = {request.n} are {choices} choices, and one "
            f"request may ask for {facts.max_choices}. Send several requests.",
            param="prompt",
        )
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            name = f"prompt[{index}]" if len(prompts) > 1 else "prompt"
            _check_ids(prompt, facts.max_prompt_token_id + 1, name)
    return prompts


def _check_ids(ids: Sequence[int], vocab_size: int, name: str) -> None:
    """Refuse token ids outside the vocabulary."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        index, wrong = next((i, t) for i, t in enumerate(ids) if not 0 <= t < vocab_size)
        raise InvalidRequest(
            f"{name}[{index}]: {wrong} is outside the vocabulary of {vocab_size} tokens.",
            param=name,
        )


def _refuse_nul(request: CompletionV2Request, prompts: Sequence[str | list[int]]) -> None:
    """NUL ends strings in the C libraries behind tokenizers and grammars: never pass it on."""
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, str) and "\0" in prompt:
            name = f"prompt[{index}]" if len(prompts) > 1 else "prompt"
            raise InvalidRequest(f"{name} must not hold a NUL character.", param=name)
    if any("\0" in stop for stop in _stop(request)):
        raise InvalidRequest("stop must not hold a NUL character.", param="stop")


# --- the values ---------------------------------------------------------------------------------


def _check_values(request: CompletionV2Request, facts: ServerFacts) -> None:
    """The rules that the schema leaves to prose."""
    for name, wrong, rule in _value_rules(request):
        if wrong:
            raise InvalidRequest(f"{name} {rule}.", param=name)
    _check_ids(request.stop_token_ids or (), facts.vocab_size, "stop_token_ids")
    for key, bias in (request.logit_bias or {}).items():
        # Only the plain decimal form is a token id: "05" and "+5" would be two names for one.
        if not (_TOKEN_ID.fullmatch(key) and str(int(key)) == key):
            raise InvalidRequest(
                f"logit_bias: the key {key[:40]!r} is not a token id.", param="logit_bias"
            )
        if not 0 <= int(key) < facts.vocab_size:
            raise InvalidRequest(
                f"logit_bias: {key} is outside the vocabulary of {facts.vocab_size} tokens.",
                param="logit_bias",
            )
        if not -100 <= bias <= 100:
            raise InvalidRequest(
                f"logit_bias: the value of {key} must be from -100 to 100.", param="logit_bias"
            )


def _value_rules(request: CompletionV2Request) -> Iterator[tuple[str, bool, str]]:
    min_p = request.min_p or 0
    repetition_penalty = 1 if request.repetition_penalty is None else request.repetition_penalty
    min_tokens = request.min_tokens or 0
    yield "min_p", not 0 <= min_p <= 1, "must be from 0 to 1"
    yield "repetition_penalty", repetition_penalty <= 0, "must be greater than 0"
    yield "min_tokens", min_tokens < 0, "must be at least 0"
    yield (
        "min_tokens",
        min_tokens > request.max_tokens,
        f"must not be greater than max_tokens ({request.max_tokens})",
    )


def _stop(request: CompletionV2Request) -> list[str]:
    """The stop strings; an empty one is none."""
    given = request.stop or []
    return [stop for stop in ([given] if isinstance(given, str) else given) if stop]


def _temperature(request: CompletionV2Request) -> float:
    if request.top_p == 0 or request.temperature < GREEDY_TEMPERATURE:
        return 0.0
    return max(request.temperature, LOWEST_TEMPERATURE)


def _sampling_fields(request: CompletionV2Request, facts: ServerFacts) -> SamplingFields:
    temperature = _temperature(request)
    fields = SamplingFields(
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        temperature=temperature,
        top_p=request.top_p or 1.0,  # 0 is greedy, which the temperature says
        max_tokens=max(request.max_tokens, 1),  # the engine makes at least one; see Plan.generates
        min_tokens=request.min_tokens or 0,
        skip_special_tokens=request.skip_special_tokens,
        spaces_between_special_tokens=request.spaces_between_special_tokens,
    )
    if request.repetition_penalty is not None:
        fields["repetition_penalty"] = request.repetition_penalty
    if request.top_k is not None and 0 < request.top_k < facts.vocab_size:
        fields["top_k"] = request.top_k
    if request.min_p is not None:
        fields["min_p"] = request.min_p
    if request.seed is not None:
        fields["seed"] = request.seed % SEED_RANGE
    if stop := _stop(request):
        fields["stop"] = stop
    if request.stop_token_ids:
        fields["stop_token_ids"] = list(dict.fromkeys(request.stop_token_ids))
    if request.include_stop_str_in_output:
        fields["include_stop_str_in_output"] = True
    if request.ignore_eos:
        fields["ignore_eos"] = True
    if request.logit_bias:
        fields["logit_bias"] = {int(key): float(bias) for key, bias in request.logit_bias.items()}
    if request.logprobs is not None:
        fields["logprobs"] = request.logprobs
        if request.echo:
            fields["prompt_logprobs"] = request.logprobs
    return fields


# --- the table ----------------------------------------------------------------------------------

FIELDS: dict[str, str] = {
    "model": "served names and LoRA adapters; another name is a 404",
    "prompt": 'string, list of strings, token ids, lists of token ids; null and `""` are the '
    "start of a new document",
    "suffix": "refused",
    "max_tokens": "honoured; 0 generates nothing (with `echo` and `logprobs` it scores the prompt)",
    "min_tokens": "honoured; also holds back stop strings; refused above `max_tokens`",
    "n": "honoured, also at temperature 0 (n identical answers)",
    "best_of": "null, 0 and 1 mean not asked for; 2 and more refused",
    "temperature": "honoured; 0 is greedy; between 0 and 0.01 vLLM samples at 0.01, and the "
    "header `x-adjusted-fields` says so",
    "top_p": "honoured; 0 is greedy",
    "top_k": "honoured; -1 and 0 mean all tokens",
    "min_p": "honoured; refused outside 0 to 1",
    "seed": "honoured, any integer; n answers differ from one another, and repeat",
    "frequency_penalty": "honoured",
    "presence_penalty": "honoured",
    "repetition_penalty": "honoured; refused at 0 and below",
    "logit_bias": "honoured; ids outside the vocabulary and values outside -100 to 100 are refused",
    "logprobs": "honoured, 0 to 5; with `echo` also over the prompt",
    "echo": "honoured",
    "stop": 'honoured; `[]` and `""` mean none',
    "stop_token_ids": "honoured; a stop token stays in the text unless it is special",
    "include_stop_str_in_output": "honoured",
    "ignore_eos": "honoured",
    "skip_special_tokens": "honoured",
    "spaces_between_special_tokens": "honoured",
    "add_special_tokens": "honoured for texts; token ids are never changed",
    "stream": "honoured",
    "stream_options": "`include_usage` honoured; without `stream` it has no effect, as the "
    "contract says",
    "use_beam_search": "false only; true is refused",
    "length_penalty": "1 only; another value belongs to beam search and is refused",
    "early_stopping": "false only; true belongs to beam search and is refused",
    "response_format": "`text` only; `json_object` and `json_schema` are refused",
    "guided_json": "refused",
    "guided_regex": "refused",
    "guided_choice": "refused",
    "guided_grammar": "refused",
    "guided_decoding_backend": "refused",
    "guided_whitespace_pattern": "refused",
    "user": "to the log line and the trace; never changes the output",
}
"""What happens to each field of the contract, in the order that the README lists them."""
