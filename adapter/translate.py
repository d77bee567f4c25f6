"""From a request to engine calls: each field forwarded, mapped or refused.

Pure: no vLLM, no I/O. FIELDS is the one table of what happens to each field; the README shows it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from adapter.beam_search import entries_needed
from adapter.contract import CompletionV2Request
from adapter.engine_io import BeamSettings, EngineCall, Prompt, SamplingFields, Work
from adapter.errors import InvalidRequest, NotSupported
from adapter.guided.constraint import AUTO, Constraint, constraint_of
from adapter.guided.program import Program
from adapter.infill import Infill

# vLLM raises a temperature below this, but above 0, to it: it "may cause numerical errors"
# (vllm/sampling_params.py, _MAX_TEMP).
LOWEST_TEMPERATURE = 0.01

_TOKEN_ID = re.compile("-?[0-9]{1,18}")

# Seeds are folded below this: room for the engine's seed + index without leaving the 63 bits of the
# signed numbers that model runner V2 keeps them in (vllm/v1/worker/gpu/sample/states.py).
SEED_RANGE = 2**62

# What model runner V2 holds of one request. vLLM looks no earlier than in the worker, where one
# more ends the engine for everybody (vllm/v1/worker/gpu/sample/logit_bias.py, add_request).
MAX_LOGIT_BIAS = 1024
MAX_HELD_BACK = 128


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
    """Texts that one request may ask for: prompts times n, best_of or the beam's width."""
    max_logprobs: int
    """Scores that the engine gives at one position; -1 for all."""
    end_token_ids: frozenset[int]
    """The model's ends of text."""
    max_tokens_cap: int | None = None
    """The most tokens that the operator lets one answer have (--override-generation-config)."""
    speculative: bool = False
    """True with speculative decoding, which cannot do everything."""
    diffusion: bool = False
    """True for a model that makes its tokens many at a time, which can do less still."""
    runner_v2: bool = False
    """True where the workers keep logit_bias and stop tokens in tables of a fixed size."""
    fast_prefill: bool = False
    """True with --kv-sharing-fast-prefill, under which prompts have no right scores."""
    guided_backend: str = AUTO
    """The guided decoding backend of requests that name none."""
    guided_fault: str | None = None
    """Why nothing can be guided here, None where it can."""
    infill: Infill | None = None
    """How the model fills a gap; None where it cannot."""
    infill_end_ids: frozenset[int] = frozenset()
    """Tokens that end what is filled in, beside the ends of text."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request whose values were checked, all but the length of its prompts."""

    prompts: tuple[str | list[int], ...]
    """Texts to be tokenised, or token ids; "" is the start of a new document."""
    echoes: tuple[str | None, ...]
    """What echo gives for each: the caller's text, None for token ids."""
    work: Work
    constraint: Constraint | None = None
    """What the text has to satisfy, yet to be admitted."""
    end_last: bool = False
    """A constrained text ends only where it cannot go on (ignore_eos)."""
    adjusted: tuple[str, ...] = ()
    """Fields whose value vLLM cannot take exactly; the caller is told."""


def plan(request: CompletionV2Request, facts: ServerFacts) -> Plan:
    """Check every field's value and lay out the work.

    Raises:
        InvalidRequest: a value that the contract or the model does not allow.
        NotSupported: a field that this server cannot honour.
    """
    refuse_unsupported(request, facts)
    candidates = _candidates(request)
    prompts = _prompts(request, candidates, facts)
    _refuse_nul(request, prompts)
    _check_values(request, facts)
    constraint = _constraint(request, facts)
    sampling = _sampling_fields(request, facts)
    if constraint is not None:
        # A constrained text ends where the constraint does; see Guide.
        sampling.pop("ignore_eos", None)
    generates = request.max_tokens > 0
    beam = _beam(request, candidates, facts) if request.use_beam_search and generates else None
    ranked = beam is None and generates and request.best_of > 1
    if ranked:
        sampling.setdefault("logprobs", 0)  # for the engine's sum of log-probabilities
    # Greedy answers to one prompt are the same text: the engine makes it once (and refuses to make
    # it n times, vllm/sampling_params.py, _verify_greedy_sampling).
    same = beam is None and (sampling["temperature"] == 0 or not generates)
    sampling["n"] = 1 if same or beam else candidates
    work = Work(
        sampling=sampling,
        answers=request.n,
        candidates=candidates,
        distinct=1 if same else candidates,
        ranked=ranked,
        generates=generates,
        runs=generates or "prompt_logprobs" in sampling,
        beam=beam,
    )
    adjusted = beam is None and 0 < sampling["temperature"] != request.temperature
    return Plan(
        prompts=prompts if request.suffix is None else _infill(request, prompts, facts),
        echoes=tuple(prompt if isinstance(prompt, str) else None for prompt in prompts),
        work=work,
        constraint=constraint,
        end_last=bool(request.ignore_eos),
        adjusted=("temperature",) if adjusted else (),
    )


def _candidates(request: CompletionV2Request) -> int:
    """How many texts are generated for each prompt."""
    if request.best_of > 1 and request.best_of < request.n:
        raise InvalidRequest(
            f"best_of must be at least n: best_of is {request.best_of} and n is {request.n}.",
            param="best_of",
        )
    candidates = request.best_of if request.best_of > 1 else request.n
    if request.stream and request.use_beam_search:
        raise InvalidRequest(
            "use_beam_search cannot be streamed: the best text is known only at the end. Leave out "
            "stream or use_beam_search.",
            param="use_beam_search",
        )
    if request.stream and candidates > request.n:
        raise InvalidRequest(
            "best_of above n cannot be streamed: the best texts are known only at the end. Leave "
            "out stream or best_of.",
            param="best_of",
        )
    return candidates


def engine_calls(
    plan: Plan, token_ids: Sequence[list[int]], program: Program | None = None
) -> tuple[EngineCall, ...]:
    """One call a prompt, given the token ids of each, and what the constraint became."""
    work = plan.work
    if program is not None and work.generates:
        work = replace(work, program=replace(program, end_last=plan.end_last))
    return tuple(
        EngineCall(Prompt(echo, ids), work)
        for echo, ids in zip(plan.echoes, token_ids, strict=True)
    )


def check_length(
    plan: Plan, index: int, prompt_tokens: int, max_tokens: int, max_model_len: int
) -> None:
    """Refuse a prompt and max_tokens that do not fit the model's context together.

    The engine always has room for one token more than it is given, also to score a prompt.

    Raises:
        InvalidRequest: with the counts and the limit.
    """
    needed = prompt_tokens + max(max_tokens, 1 if plan.work.runs else 0)
    if needed <= max_model_len:
        return
    name = prompt_name(index, len(plan.prompts))
    counts = (
        f"The model's context length is {max_model_len} tokens; {name} has {prompt_tokens} tokens "
        f"and max_tokens asks for {max_tokens}"
    )
    if prompt_tokens >= max_model_len:
        raise InvalidRequest(
            f"{counts}. Shorten the prompt.", param=name, code="context_length_exceeded"
        )
    raise InvalidRequest(
        f"{counts}. Lower max_tokens or shorten the prompt.",
        param="max_tokens",
        code="context_length_exceeded",
    )


def prompt_name(index: int, count: int) -> str:
    """What a message calls a prompt: `prompt`, or `prompt[3]` where there are several."""
    return f"prompt[{index}]" if count > 1 else "prompt"


# --- what cannot be done ------------------------------------------------------------------------


def refuse_unsupported(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Refuse, by name, each field that asks for what this server cannot do.

    Raises:
        NotSupported: naming the field.
    """
    for name in ("min_p", "logit_bias") if facts.speculative else ():
        if getattr(request, name):
            raise NotSupported(
                f"{name} is not supported with this server's speculative decoding.", param=name
            )
    if facts.diffusion:
        _refuse_in_diffusion(request)
    if facts.runner_v2:
        _refuse_too_many(request, facts)
    if facts.fast_prefill and request.echo and request.logprobs is not None:
        # vLLM refuses it too, but for 0 logprobs (vllm/v1/engine/async_llm.py, add_request).
        raise NotSupported(
            "echo and logprobs cannot be combined on this server: the scores of a prompt are wrong "
            "with --kv-sharing-fast-prefill.",
            param="echo",
        )
    if request.suffix is not None and request.include_stop_str_in_output and request.stop:
        raise NotSupported(
            "include_stop_str_in_output and suffix cannot be combined where there are stop "
            "strings: the tokens that end what is filled in would show too.",
            param="include_stop_str_in_output",
        )
    if not request.use_beam_search:
        for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
            if getattr(request, name) not in (None, neutral):
                raise NotSupported(
                    f"{name} has a meaning in beam search only, and use_beam_search is not true.",
                    param=name,
                )
        return
    for name in ("repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias"):
        if getattr(request, name) not in (None, {}, _NEUTRAL.get(name)):
            raise NotSupported(
                f"{name} and use_beam_search cannot be combined: beams are ranked by the model's "
                f"own log-probabilities, which {name} does not change in the engine.",
                param=name,
            )


_NEUTRAL = {"repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0}


def _refuse_in_diffusion(request: CompletionV2Request) -> None:
    """vLLM leaves the penalties out in silence there, and refuses the others by no one name."""
    for name, neutral in _NEUTRAL_IN_DIFFUSION.items():
        if getattr(request, name) not in (None, neutral):
            raise NotSupported(f"{name} is not supported by a diffusion model.", param=name)
    if request.seed is not None:
        raise NotSupported("seed is not supported by a diffusion model.", param="seed")
    if request.top_p == 0:
        raise NotSupported("top_p 0 is greedy, which a diffusion model is not.", param="top_p")


_NEUTRAL_IN_DIFFUSION: dict[str, object] = _NEUTRAL | {
    "temperature": 1,
    "min_p": 0,
    "min_tokens": 0,
    "logit_bias": {},
    "use_beam_search": False,
}


def _refuse_too_many(request: CompletionV2Request, facts: ServerFacts) -> None:
    """Refuse what the tables of vLLM's model runner V2 cannot hold."""
    if len(request.logit_bias or ()) > MAX_LOGIT_BIAS:
        raise NotSupported(
            f"logit_bias has {len(request.logit_bias or ())} entries, and this server's engine "
            f"takes {MAX_LOGIT_BIAS}.",
            param="logit_bias",
        )
    held_back = facts.end_token_ids.union(request.stop_token_ids or ())
    if request.suffix is not None:
        held_back |= facts.infill_end_ids
    if request.min_tokens and not request.use_beam_search and len(held_back) > MAX_HELD_BACK:
        raise NotSupported(
            f"min_tokens has to hold back {len(held_back)} tokens that end the text "
            f"(stop_token_ids and the model's own), and this server's engine can hold back "
            f"{MAX_HELD_BACK}. Shorten stop_token_ids or leave out min_tokens.",
            param="stop_token_ids",
        )


# --- the prompt ---------------------------------------------------------------------------------


def _prompts(
    request: CompletionV2Request, candidates: int, facts: ServerFacts
) -> tuple[str | list[int], ...]:
    given = request.prompt
    if given is None or isinstance(given, str):
        prompts: tuple[str | list[int], ...] = (given or "",)
    elif not given:
        raise InvalidRequest("prompt must not be an empty list.", param="prompt")
    elif isinstance(given[0], int):
        prompts = (given,)  # a list of ids, by the contract
    else:
        prompts = tuple(given)  # strings or lists of ids
    choices = len(prompts) * candidates
    if choices > facts.max_choices:
        raise InvalidRequest(
            f"prompt: {len(prompts)} prompts times {candidates} (n or best_of) are {choices} "
            f"texts, and one request may ask for {facts.max_choices}. Send several requests.",
            param="prompt",
        )
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            name = prompt_name(index, len(prompts))
            _check_ids(prompt, facts.max_prompt_token_id + 1, name)
    return prompts


def _constraint(request: CompletionV2Request, facts: ServerFacts) -> Constraint | None:
    constraint = constraint_of(request, facts.guided_backend)
    if constraint is not None and facts.guided_fault is not None:
        raise NotSupported(
            f"{constraint.field} is not supported by this server: {facts.guided_fault}.",
            param=constraint.field,
        )
    return constraint


def _check_ids(ids: Sequence[int], vocab_size: int, name: str) -> None:
    """Refuse token ids outside the vocabulary."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        index, wrong = next((i, t) for i, t in enumerate(ids) if not 0 <= t < vocab_size)
        raise InvalidRequest(
            f"{name}[{index}]: {wrong} is outside the vocabulary of {vocab_size} tokens.",
            param=name,
        )


def _infill(
    request: CompletionV2Request, prompts: Sequence[str | list[int]], facts: ServerFacts
) -> tuple[str, ...]:
    """Each prompt and the suffix in the model's own form."""
    if facts.infill is None:
        raise NotSupported(
            "suffix is not supported by this model: its tokenizer has no fill-in-the-middle tokens "
            "that are known here. If it has others, start the server with --infill-template.",
            param="suffix",
        )
    if request.echo and request.logprobs is not None:
        raise NotSupported(
            "suffix cannot be combined with echo and logprobs together: the model sees tokens that "
            "are not in the prompt.",
            param="suffix",
        )
    rendered = []
    for prompt in prompts:
        if not isinstance(prompt, str):
            raise NotSupported("suffix needs a prompt of text, not token ids.", param="suffix")
        rendered.append(facts.infill.prompt(prompt, request.suffix or ""))
    return tuple(rendered)


def _refuse_nul(request: CompletionV2Request, prompts: Sequence[str | list[int]]) -> None:
    """NUL ends strings in the C libraries behind tokenizers and grammars: never pass it on."""
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, str) and "\0" in prompt:
            name = prompt_name(index, len(prompts))
            raise InvalidRequest(f"{name} must not hold a NUL character.", param=name)
    for name, texts in (("stop", _stop(request)), ("suffix", [request.suffix or ""])):
        if any("\0" in text for text in texts):
            raise InvalidRequest(f"{name} must not hold a NUL character.", param=name)


# --- the values ---------------------------------------------------------------------------------


def _check_values(request: CompletionV2Request, facts: ServerFacts) -> None:
    """The rules that the schema leaves to prose."""
    for name, wrong, rule in _value_rules(request):
        if wrong:
            raise InvalidRequest(f"{name} {rule}.", param=name)
    if facts.max_tokens_cap is not None and request.max_tokens > facts.max_tokens_cap:
        raise InvalidRequest(
            f"max_tokens must not be greater than {facts.max_tokens_cap} on this server.",
            param="max_tokens",
        )
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
    if request.top_p == 0 or request.temperature == 0:
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
    stop_token_ids = list(dict.fromkeys(request.stop_token_ids or ()))
    if request.suffix is not None and not request.ignore_eos:
        stop_token_ids += sorted(facts.infill_end_ids.difference(stop_token_ids))
    if stop_token_ids:
        fields["stop_token_ids"] = stop_token_ids
    if request.include_stop_str_in_output and request.suffix is None:
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


# --- beam search --------------------------------------------------------------------------------


def _beam(request: CompletionV2Request, width: int, facts: ServerFacts) -> BeamSettings:
    ends = facts.end_token_ids
    if request.suffix is not None:
        ends |= facts.infill_end_ids
    settings = BeamSettings(
        width=width,
        max_tokens=request.max_tokens,
        length_penalty=1.0 if request.length_penalty is None else request.length_penalty,
        # One beam is greedy search, which ends at the first end token.
        early_stopping=bool(request.early_stopping) or width == 1,
        end_token_ids=frozenset() if request.ignore_eos else ends,
        min_tokens=request.min_tokens or 0,
        stop_token_ids=frozenset(request.stop_token_ids or ()),
        stop=tuple(_stop(request)),
        logprobs=request.logprobs,
    )
    needed = entries_needed(settings)
    if 0 <= facts.max_logprobs < needed:
        raise NotSupported(
            f"use_beam_search with a width of {width} needs the scores of {needed} tokens at each "
            f"step (stop doubles the width, and each of stop_token_ids adds one), and the server "
            f"gives {facts.max_logprobs}: start it with --max-logprobs {needed} or more.",
            param="use_beam_search",
        )
    return settings


# --- the table ----------------------------------------------------------------------------------

FIELDS: dict[str, str] = {
    "model": "served names and LoRA adapters; another name is a 404",
    "prompt": 'string, list of strings, token ids, lists of token ids; null and `""` are the '
    "start of a new document",
    "suffix": "honoured by models whose tokenizer has fill-in-the-middle tokens (or with "
    "`--infill-template`); refused by others, for token ids, and with `echo` plus `logprobs`",
    "max_tokens": "honoured; 0 generates nothing (with `echo` and `logprobs` it scores the prompt)",
    "min_tokens": "honoured; also holds back stop strings; refused above `max_tokens`, and on "
    "vLLM's model runner V2 beside more than 128 tokens that end a text",
    "n": "honoured, also at temperature 0 (n identical answers)",
    "best_of": "honoured: the best `n` by mean log-probability, best first; null, 0 and 1 mean not "
    "asked for; above `n` with `stream` refused",
    "temperature": "honoured; 0 is greedy; between 0 and 0.01 vLLM samples at 0.01, and the "
    "header `x-adjusted-fields` says so",
    "top_p": "honoured; 0 is greedy",
    "top_k": "honoured; -1 and 0 mean all tokens",
    "min_p": "honoured; refused outside 0 to 1",
    "seed": "honoured, any integer; n answers differ from one another, and repeat",
    "frequency_penalty": "honoured",
    "presence_penalty": "honoured",
    "repetition_penalty": "honoured; refused at 0 and below",
    "logit_bias": "honoured; ids outside the vocabulary and values outside -100 to 100 are "
    "refused, and on vLLM's model runner V2 more than 1024 entries",
    "logprobs": "honoured, 0 to 5; with `echo` also over the prompt",
    "echo": "honoured; with `logprobs` refused under `--kv-sharing-fast-prefill`",
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
    "use_beam_search": "honoured, `best_of` (or `n`) beams wide; refused with `stream`, the "
    "penalties or `logit_bias`",
    "length_penalty": "honoured in beam search; refused without it, but for 1",
    "early_stopping": "honoured in beam search; true without it is refused",
    "response_format": "honoured: `text`, `json_object`, `json_schema`; one constraint a request, "
    "and none with `use_beam_search`",
    "guided_json": "honoured",
    "guided_regex": "honoured: the language of Python's `re.fullmatch`; look-around, "
    "back-references and word boundaries are refused",
    "guided_choice": "honoured",
    "guided_grammar": "honoured, GBNF/EBNF and Lark; refused for lm-format-enforcer",
    "guided_decoding_backend": "honoured: `outlines`, `lm-format-enforcer`, `xgrammar`, "
    "`guidance`, `auto`; what the named one cannot hold is refused; without a constraint "
    "there is nothing to choose",
    "guided_whitespace_pattern": "honoured exactly; refused without a JSON constraint",
    "user": "to the log line and the trace; never changes the output",
}
"""What happens to each field of the contract, in the order that the README lists them."""
