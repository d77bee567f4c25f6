"""Prompts to token ids, in vLLM's renderer and off the event loop."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adapter.engine.errors import api_errors
from adapter.errors import InvalidRequest
from adapter.planning.values import prompt_name

_DOCUMENT_SEPARATOR = "<|endoftext|>"

Check = Callable[[int, int], None]
"""Called with a prompt's index and its number of tokens, as soon as that is known. What it raises
ends the work, so that a request that cannot be served costs little."""


class PromptTokenizer:
    """Tokenises the prompts of requests."""

    def __init__(self, renderer: Any, max_model_len: int) -> None:
        """renderer: vLLM's BaseRenderer. max_model_len: in tokens."""
        tokenizer = renderer.get_tokenizer()
        self._renderer = renderer
        self._max_model_len = max_model_len
        self._max_chars = max_model_len * tokenizer.max_chars_per_token
        self.document_separator = _document_separator(tokenizer)
        """The token that starts a new document, by the contract's default where it exists."""

    async def token_ids(
        self, prompts: Sequence[str | list[int]], *, add_special_tokens: bool, check: Check
    ) -> list[list[int]]:
        """The ids of each prompt, at least one; what came as ids stays as it is.

        Raises:
            InvalidRequest: a text that is longer than the context could ever hold, or that vLLM's
                renderer refuses.
        """
        params = dataclasses.replace(
            self._renderer.default_cmpl_tok_params,
            max_total_tokens=None,  # lengths are checked here, with the counts in the message
            add_special_tokens=add_special_tokens,
        )
        token_ids = [[] if isinstance(prompt, str) else prompt for prompt in prompts]
        for portion in self._portions(prompts):
            texts = [{"prompt": prompts[index]} for index in portion]
            with api_errors():
                rendered = await self._renderer.render_cmpl_async(texts, params)
            for index, engine_input in zip(portion, rendered, strict=True):
                token_ids[index] = engine_input["prompt_token_ids"]
                check(index, len(token_ids[index]))
        whole = [ids or [self.document_separator] for ids in token_ids]
        for index, ids in enumerate(whole):
            check(index, len(ids))
        return whole

    def _portions(self, prompts: Sequence[str | list[int]]) -> Iterator[list[int]]:
        """The indices of the texts, in portions of about as much text as the context could hold."""
        portion: list[int] = []
        chars = 0
        for index, prompt in enumerate(prompts):
            if not isinstance(prompt, str) or not prompt:
                continue
            self._check_size(prompt, prompt_name(index, len(prompts)))
            portion.append(index)
            chars += len(prompt)
            if chars >= self._max_chars:
                yield portion
                portion, chars = [], 0
        if portion:
            yield portion

    def _check_size(self, prompt: str, name: str) -> None:
        if len(prompt) > self._max_chars:
            raise InvalidRequest(
                f"The model's context length is {self._max_model_len} tokens; {name} has "
                f"{len(prompt)} characters, and no {self._max_chars} characters fit.",
                param=name,
                code="context_length_exceeded",
            )


def _document_separator(tokenizer: Any) -> int:
    candidates = (
        tokenizer.get_vocab().get(_DOCUMENT_SEPARATOR),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )
    return next((token_id for token_id in candidates if token_id is not None), 0)
