"""A request's fields as the engine and the answer take them: none of these refuses anything."""

import json
from typing import Literal

from adapter.contract.request import CompletionV2Request
from adapter.guided.constraint import Kind
from adapter.languages import exact_json
from adapter.planning.facts import ServerFacts

# vLLM raises a temperature below this, but above 0, to it: it "may cause numerical errors"
# (vllm/sampling_params.py, _MAX_TEMP).
LOWEST_TEMPERATURE = 0.01

# Seeds are folded below this: room for the engine's seed + index without leaving the 63 bits of the
# signed numbers that model runner V2 keeps them in (vllm/v1/worker/gpu/sample/states.py).
SEED_RANGE = 2**62

OnlyTrue = Literal[True] | None


def prompts(request: CompletionV2Request) -> tuple[str | list[int], ...]:
    """Texts or token ids, one a prompt; "" is the start of a new document."""
    given = request.prompt
    if given is None or isinstance(given, str):
        return (given or "",)
    if given and isinstance(given[0], int):
        return (given,)  # a list of ids, by the contract
    return tuple(given)  # type: ignore[arg-type]  # strings or lists of ids


def prompt_name(index: int, count: int) -> str:
    """What a message calls a prompt: `prompt`, or `prompt[3]` where there are several."""
    return f"prompt[{index}]" if count > 1 else "prompt"


def texts_asked(request: CompletionV2Request) -> int:
    """Texts that are generated and counted for each prompt: best_of where it is asked for, or n."""
    return request.best_of if request.best_of > 1 else request.n


def temperature(request: CompletionV2Request) -> float:
    """0 is greedy, and so is a top_p of 0."""
    if request.top_p == 0 or request.temperature == 0:
        return 0.0
    return max(request.temperature, LOWEST_TEMPERATURE)


def top_k(request: CompletionV2Request, facts: ServerFacts) -> int | None:
    """None for all tokens."""
    asked = request.top_k
    return asked if asked is not None and 0 < asked < facts.vocab_size else None


def stop(request: CompletionV2Request) -> list[str]:
    """The stop strings; an empty one is none."""
    given = request.stop or []
    return [text for text in ([given] if isinstance(given, str) else given) if text]


def stop_token_ids(request: CompletionV2Request, facts: ServerFacts) -> list[int]:
    """The caller's, those it named, and behind a suffix those that end what is filled in."""
    ids = list(dict.fromkeys([*(request.stop_token_ids or ()), *named_stops(request, facts)]))
    if request.suffix is not None and not request.ignore_eos:
        ids += sorted(facts.infill_end_ids.difference(ids))
    return ids


def named_stops(request: CompletionV2Request, facts: ServerFacts) -> list[int]:
    """The special tokens that stop strings name: hidden, they would show no such text."""
    if not request.skip_special_tokens or not request.stop:
        return []
    ends = frozenset() if request.ignore_eos else facts.eos_token_ids
    ids = (facts.special_token_ids.get(text) for text in stop(request))
    return [token_id for token_id in ids if token_id is not None and token_id not in ends]


def all_stop_token_ids(request: CompletionV2Request, facts: ServerFacts) -> frozenset[int]:
    """The caller's stop tokens, and those that its stop strings name."""
    return frozenset(request.stop_token_ids or ()).union(named_stops(request, facts))


def includes_stop(request: CompletionV2Request) -> OnlyTrue:
    """Whether the engine leaves stops in the text: not where they end what is filled in."""
    return True if request.include_stop_str_in_output and request.suffix is None else None


def ignores_eos(request: CompletionV2Request) -> OnlyTrue:
    """Whether the model's ends of text are taken as text."""
    return True if request.ignore_eos else None


def logit_bias(request: CompletionV2Request) -> dict[int, float] | None:
    """By token id; None where there is none."""
    given = request.logit_bias or {}
    return {int(key): float(bias) for key, bias in given.items()} or None


def eos_token_ids(request: CompletionV2Request, facts: ServerFacts) -> frozenset[int]:
    """The tokens that end a beam beside the caller's stop tokens.

    Under a constraint they end it also with ignore_eos: there they are the last thing allowed.
    """
    if request.ignore_eos and not constraints_given(request):
        return frozenset()
    return facts.eos_token_ids | (facts.infill_end_ids if request.suffix is not None else set())


def ends_early(request: CompletionV2Request) -> bool:
    """Whether a beam search ends with its first finished texts; one beam is greedy search."""
    return bool(request.early_stopping) or texts_asked(request) == 1


def guided_json(request: CompletionV2Request) -> tuple[Kind, str] | None:
    """The schema as text."""
    schema = request.guided_json
    return None if schema is None else (Kind.JSON, exact_json.dumps(schema))


def guided_choice(request: CompletionV2Request) -> tuple[Kind, str] | None:
    """The choices as a JSON list."""
    given = request.guided_choice
    return None if given is None else (Kind.CHOICE, json.dumps(given))


def guided_regex(request: CompletionV2Request) -> tuple[Kind, str] | None:
    """The expression."""
    return None if request.guided_regex is None else (Kind.REGEX, request.guided_regex)


def guided_grammar(request: CompletionV2Request) -> tuple[Kind, str] | None:
    """The grammar."""
    return None if request.guided_grammar is None else (Kind.GRAMMAR, request.guided_grammar)


def response_format(request: CompletionV2Request) -> tuple[Kind, str] | None:
    """The schema as text; that of any object where none is given."""
    asked = request.response_format
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object" or asked.json_schema.schema_ is None:
        return Kind.JSON_OBJECT, '{"type": "object"}'
    return Kind.JSON, exact_json.dumps(asked.json_schema.schema_.model_extra or {})


CONSTRAINTS = {
    "guided_json": guided_json,
    "guided_regex": guided_regex,
    "guided_choice": guided_choice,
    "guided_grammar": guided_grammar,
    "response_format": response_format,
}
"""The fields that constrain the text, in the order in which two of them are named."""


def constraints_given(request: CompletionV2Request) -> list[str]:
    """Those of these fields that ask for something."""
    return [
        name
        for name in CONSTRAINTS
        if (value := getattr(request, name)) is not None
        and not (name == "response_format" and value.type == "text")
    ]
