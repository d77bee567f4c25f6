"""A repair of vLLM's detokenizer: prompts that end inside a character."""

from typing import Any

from adapter.engine.detokenizer import CONTEXT, REPLACEMENT, begun_character
from adapter.vllm_api import FastIncrementalDetokenizer


class _AfterPrompt:
    """A DecodeStream primed with a prompt's last tokens, whose first text loses what they show."""

    def __init__(self, stream: Any, shown: str) -> None:
        self._stream = stream
        self._shown = shown

    def step(self, tokenizer: Any, token_id: int) -> str | None:
        """The text that a token adds, as DecodeStream gives it."""
        text: str | None = self._stream.step(tokenizer, token_id)
        if text and self._shown:
            text, self._shown = text.removeprefix(self._shown), ""
        return text


def repair_detokenizer() -> None:
    """Make completions of prompts that end inside a character start where the prompt ends.

    vLLM primes the tokenizers library's DecodeStream with the whole prompt. Where that ends inside
    a character, the stream has no prefix to take away, and its first text is the whole prompt's:
    the completion repeats the prompt, and a stop string that stands in the prompt ends it. Here
    such a stream is primed with the begun character alone.

    Unnecessary once vllm/v1/engine/detokenizer.py (FastIncrementalDetokenizer.__init__) or
    DecodeStream itself handles such prompts (vllm-project/vllm issue 48853; its pull request 48854
    gives them to SlowIncrementalDetokenizer); seen in vLLM 0.32, 0.33 and 0.34. Idempotent.
    """
    original = FastIncrementalDetokenizer.__init__
    if getattr(original, "repaired", False):
        return

    def __init__(self: Any, tokenizer: Any, request: Any) -> None:
        original(self, tokenizer, request)
        tail = list((request.prompt_token_ids or ())[-CONTEXT:])
        if not tail or not tokenizer.decode(tail).endswith(REPLACEMENT):
            return
        begun = begun_character(tokenizer, tail)
        # A prompt may also end with U+FFFD itself, which the stream takes for unfinished as well.
        ids = begun or tokenizer.encode(REPLACEMENT, add_special_tokens=False)
        shown = tokenizer.decode(ids)
        shown = shown.removesuffix(REPLACEMENT) if begun else shown
        stream = type(self.stream)(ids=ids, skip_special_tokens=self.skip_special_tokens)
        self.stream = _AfterPrompt(stream, shown) if shown else stream

    __init__.repaired = True  # type: ignore[attr-defined]
    FastIncrementalDetokenizer.__init__ = __init__
