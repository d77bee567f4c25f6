"""Token ids to text one by one, through vLLM's own detokenizer."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from adapter.planning.calls import SamplingFields, TokenizedPrompt
from adapter.vllm_api import IncrementalDetokenizer, convert_ids_list_to_tokens

# Enough ids to show every tokenizer's rules about what a text begins with, and every character
# (4 bytes) that the prompt may have begun.
CONTEXT = 8
REPLACEMENT = "\ufffd"


class Tokens:
    """A model's tokens: their texts, and which of them are special."""

    def __init__(self, tokenizer: Any, end_token_ids: Sequence[int]) -> None:
        """end_token_ids: the model's ends of text, special whatever the tokenizer says."""
        self._tokenizer = tokenizer
        self._special = frozenset(end_token_ids).union(special_tokens(tokenizer).values())
        self._names: dict[int, str] = {}

    def prompt(self) -> "_TokenText":
        """For a prompt, from its first token on."""
        return _TokenText(self, ())

    def completion(self, prompt: TokenizedPrompt) -> "_TokenText":
        """For what comes after a prompt."""
        return _TokenText(self, prompt.token_ids[-CONTEXT:])

    def ends_inside_character(self, prompt: TokenizedPrompt) -> bool:
        """True if the prompt's last tokens are the first bytes of a character."""
        return bool(begun_character(self._tokenizer, prompt.token_ids))

    def is_special(self, token_id: int) -> bool:
        """True for control tokens and for the model's end tokens."""
        return token_id in self._special

    def name(self, token_id: int) -> str:
        """How a single token prints, special ones by their names."""
        name = self._names.get(token_id)
        if name is None:
            name = convert_ids_list_to_tokens(self._tokenizer, [token_id])[0]
            self._names[token_id] = name
        return name

    def text_after(
        self, prompt: TokenizedPrompt, token_ids: Sequence[int], *, skip_special_tokens: bool
    ) -> str:
        """The text of generated tokens, without a character that is not complete."""
        context = prompt.token_ids[-CONTEXT:]

        def decoded(ids: Sequence[int]) -> str:
            text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
            return text

        return decoded([*context, *token_ids])[len(decoded(context)) :].rstrip(REPLACEMENT)

    def detokenizer(self, context: Sequence[int], sampling: SamplingFields | None = None) -> Any:
        """vLLM's incremental detokenizer after a context, for a request's fields if given."""
        fields: SamplingFields = sampling or {}
        params = SimpleNamespace(
            stop=fields.get("stop"),
            min_tokens=fields.get("min_tokens", 0),
            include_stop_str_in_output=fields.get("include_stop_str_in_output", False),
            skip_special_tokens=fields.get("skip_special_tokens", True),
            spaces_between_special_tokens=fields.get("spaces_between_special_tokens", True),
        )
        request = SimpleNamespace(
            request_id="token-text",
            prompt_token_ids=list(context),
            prompt_embeds=None,
            sampling_params=params,
        )
        return IncrementalDetokenizer.from_new_request(self._tokenizer, request)


class _TokenText:
    """The text of one sequence, token by token. Special tokens are not to be passed to next()."""

    def __init__(self, tokens: Tokens, context: Sequence[int]) -> None:
        self._detokenizer = tokens.detokenizer(context)
        self.is_special = tokens.is_special
        self.name = tokens.name

    def next(self, token_id: int) -> str:
        """The text that this token adds; "" while a character is incomplete."""
        self._detokenizer.update([token_id], stop_terminated=False)
        text: str = self._detokenizer.get_next_output_text(finished=True, delta=True)
        return text


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """What skip_special_tokens leaves out of a text: ids by their names.

    The tokenizers library goes by a flag of each token, others by the tokenizer's list, which may
    have fewer.
    """
    named = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
    # vLLM's own tokenizers for some models have no such table.
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    if not tokenizer.is_fast:
        return named
    return named | {str(token): token_id for token_id, token in added.items() if token.special}


def begun_character(tokenizer: Any, token_ids: Sequence[int]) -> list[int]:
    """The last tokens of a prompt that are the first bytes of a character, or nothing."""
    tail = list(token_ids[-CONTEXT:])
    if not tail or not tokenizer.decode(tail).endswith(REPLACEMENT):
        return []
    literal = tokenizer.encode(REPLACEMENT, add_special_tokens=False)
    for count in range(min(len(tail), 4) + 1):
        before = tail[: len(tail) - count]
        whole = not tokenizer.decode(before).endswith(REPLACEMENT)
        if whole or before[-len(literal) :] == literal:  # the text may hold U+FFFD itself
            return tail[len(before) :]
    return tail[-4:]
