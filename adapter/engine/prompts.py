"""Prompts to token ids, in vLLM's renderer and off the event loop."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from adapter.engine.errors import api_errors
from adapter.errors import InvalidRequest, NotSupported
from adapter.planning.calls import TokenIds
from adapter.planning.infill import InfillPrompt
from adapter.planning.plan import Prompt
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
        self, prompts: Sequence[Prompt], *, add_special_tokens: bool, check: Check
    ) -> list[TokenIds]:
        """The ids of each prompt, at least one; what came as ids stays as it is.

        Raises:
            InvalidRequest: a text that is longer than the context could ever hold, or that vLLM's
                renderer refuses.
            NotSupported: what is the prompt's own in its infill form cannot be told.
        """
        names = [prompt_name(index, len(prompts)) for index in range(len(prompts))]
        texts = {index: text for index, each in enumerate(prompts) if (text := _text(each))}
        rendered = await self._rendered(texts, names, check, add_special_tokens=add_special_tokens)
        infilled = {i: each for i, each in enumerate(prompts) if isinstance(each, InfillPrompt)}
        before = await self._rendered(
            {index: each.before for index, each in infilled.items() if each.before},
            names,
            check,
            add_special_tokens=add_special_tokens,
        )
        after = await self._rendered(
            {index: each.after for index, each in infilled.items() if each.after},
            names,
            check,
            add_special_tokens=False,
        )
        whole = [
            _joined(prompt, rendered.get(index, []), before.get(index, []), after.get(index, []))
            if isinstance(prompt, InfillPrompt)
            else TokenIds(prompt if isinstance(prompt, list) else rendered.get(index, []))
            for index, prompt in enumerate(prompts)
        ]
        whole = [each if each.ids else TokenIds([self.document_separator]) for each in whole]
        for index, each in enumerate(whole):
            check(index, len(each.ids))
        return whole

    async def _rendered(
        self,
        texts: Mapping[int, str],
        names: Sequence[str],
        check: Check,
        *,
        add_special_tokens: bool,
    ) -> dict[int, list[int]]:
        """The ids of texts that are each a prompt, or a part of it."""
        params = dataclasses.replace(
            self._renderer.default_cmpl_tok_params,
            max_total_tokens=None,  # lengths are checked here, with the counts in the message
            add_special_tokens=add_special_tokens,
        )
        token_ids: dict[int, list[int]] = {}
        for portion in self._portions(texts, names):
            with api_errors():
                rendered = await self._renderer.render_cmpl_async(
                    [{"prompt": texts[index]} for index in portion], params
                )
            for index, engine_input in zip(portion, rendered, strict=True):
                token_ids[index] = engine_input["prompt_token_ids"]
                check(index, len(token_ids[index]))
        return token_ids

    def _portions(self, texts: Mapping[int, str], names: Sequence[str]) -> Iterator[list[int]]:
        """The indices of the texts, in portions of about as much text as the context could hold."""
        portion: list[int] = []
        chars = 0
        for index, text in texts.items():
            self._check_size(text, names[index])
            portion.append(index)
            chars += len(text)
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


def _text(prompt: Prompt) -> str | None:
    """What is tokenised as a whole; None where nothing is."""
    if isinstance(prompt, InfillPrompt):
        return prompt.text
    return prompt if isinstance(prompt, str) else None


def _joined(
    prompt: InfillPrompt, rendered: list[int], before: list[int], after: list[int]
) -> TokenIds:
    """An infill prompt's tokens, given those of the whole text or of what stands around its own.

    Raises:
        NotSupported: the text's own tokens have joined with others.
    """
    if isinstance(prompt.prefix, list):
        whole = [*before, *prompt.prefix, *after]
        return TokenIds(whole, (len(before), len(before) + len(prompt.prefix)))
    end = len(rendered) - len(after)
    if end < len(before) or rendered[: len(before)] != before or rendered[end:] != after:
        raise NotSupported(
            "suffix cannot be combined with echo and logprobs here: the prompt's tokens join with "
            "those that the model's template puts around them.",
            param="suffix",
        )
    return TokenIds(rendered, (len(before), end))


def _document_separator(tokenizer: Any) -> int:
    candidates = (
        tokenizer.get_vocab().get(_DOCUMENT_SEPARATOR),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )
    return next((token_id for token_id in candidates if token_id is not None), 0)
