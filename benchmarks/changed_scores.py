"""What a beam search may be asked beside its own fields, for the server and for transformers.

transformers' own processors where it has them. It has no frequency or presence penalty; theirs are
vLLM's: taken off for each token, or for each kind of token, that was generated.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Change(NamedTuple):
    """One change of the scores of beams."""

    fields: Mapping[str, Any]
    """What the server is asked with."""
    repetition_penalty: float = 1.0
    bias: Mapping[int, float] = {}
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    begins: Callable[[str], bool] | None = None
    """Whether a text is allowed, and so is the beginning of one; None where all are."""


# Of the built-in model: " the", " a", ",", " is", a line end, " and"; the first of many answers.
_BIAS = {"260": 3, "253": -4, "28": 2, "314": -100, "198": 1, "284": 5}


def _is_number(text: str) -> bool:
    return len(text) <= 4 and set(text) <= set("0123456789")


def _is_a_to_e(text: str) -> bool:
    return len(text) <= 6 and set(text) <= set("abcde")


def _change(**fields: Any) -> Change:
    known = {name: fields[name] for name in Change._fields if name in fields}
    bias = {int(token_id): float(value) for token_id, value in fields.get("logit_bias", {}).items()}
    return Change(fields, bias=bias, **known)


CHANGES: dict[str, Change] = {
    "repetition 1.3": _change(repetition_penalty=1.3),
    "repetition 3": _change(repetition_penalty=3.0),
    "repetition 0.8": _change(repetition_penalty=0.8),
    "frequency 1.5": _change(frequency_penalty=1.5),
    "frequency -1": _change(frequency_penalty=-1.0),
    "presence 1.5": _change(presence_penalty=1.5),
    "presence -2": _change(presence_penalty=-2.0),
    "bias": _change(logit_bias=_BIAS),
    "all penalties and bias": _change(
        repetition_penalty=1.2,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        logit_bias={"260": 2, "253": -3},
    ),
    # Nowhere is there but one way on: llguidance would allow only one token of several there.
    "digits": _change(guided_regex="[0-9]{1,4}")._replace(begins=_is_number),
    "letters": _change(guided_regex="[a-e]{1,6}")._replace(begins=_is_a_to_e),
    "letters and penalties": _change(
        guided_regex="[a-e]{1,6}",
        repetition_penalty=1.3,
        frequency_penalty=-0.5,
        logit_bias={"81": 3, "82": -2},
    )._replace(begins=_is_a_to_e),
}


def generate_options(change: Change, tokenizer: Any, prompt_length: int) -> dict[str, Any]:
    """The keyword arguments of transformers' generate() for a change."""
    from transformers import LogitsProcessorList

    options: dict[str, Any] = {
        "repetition_penalty": change.repetition_penalty,
        "logits_processor": LogitsProcessorList([_vllm_penalties(change, prompt_length)]),
    }
    if change.bias:
        options["sequence_bias"] = {(token_id,): bias for token_id, bias in change.bias.items()}
    if change.begins is not None:
        options["prefix_allowed_tokens_fn"] = _allowed(change, tokenizer, prompt_length)
    return options


def _vllm_penalties(change: Change, prompt_length: int) -> Any:
    import torch

    def processed(input_ids: Any, scores: Any) -> Any:
        counts = torch.zeros_like(scores)
        made = input_ids[:, prompt_length:]
        counts.scatter_add_(1, made, torch.ones_like(made, dtype=scores.dtype))
        penalties = change.frequency_penalty * counts + change.presence_penalty * (counts > 0)
        return scores - penalties

    return processed


def _allowed(change: Change, tokenizer: Any, prompt_length: int) -> Callable[[int, Any], list[int]]:
    """What may come next, by trying all tokens that are letters or digits."""
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    letters = {each: name for each, name in enumerate(names) if name.isascii() and name.isalnum()}
    begins = change.begins
    assert begins is not None

    def allowed(_: int, ids: Any) -> list[int]:
        made = ids[prompt_length:].tolist()
        if any(each not in letters for each in made):  # a text that ended, and its padding
            return [tokenizer.eos_token_id]
        text = "".join(letters[each] for each in made)
        after = [each for each, name in letters.items() if begins(text + name)]
        return [*after, tokenizer.eos_token_id] if text else after

    return allowed
