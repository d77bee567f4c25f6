"""Repairs of vLLM's detokenizer: prompts that end inside a character, text that is held back."""

from collections.abc import Sequence
from typing import Any

from adapter.engine.detokenizer import CONTEXT, REPLACEMENT, begun_character
from adapter.vllm_api import BaseIncrementalDetokenizer, FastIncrementalDetokenizer


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


def hold_back_less() -> None:
    """Make streams hold back only what can still become a stop string.

    vLLM holds back as many characters as the longest stop string has but one, whatever they are.
    Unnecessary once BaseIncrementalDetokenizer.get_next_output_text (vllm/v1/engine/detokenizer.py)
    looks at the text; seen in vLLM 0.32, 0.33 and 0.34. Idempotent.
    """
    original = BaseIncrementalDetokenizer.get_next_output_text
    if getattr(original, "holds_less", False):
        return

    def get_next_output_text(self: Any, finished: bool, delta: bool) -> str:
        if 0 < self.stop_buffer_length < _LONGEST_LOOKED_FOR and not finished:
            held = begun_stop(self.output_text, self.stop)
            # 0 would switch the check off for good: the text is asked for as if it were finished.
            finished, self.stop_buffer_length = not held, held or 1
        text: str = original(self, finished, delta)
        return text

    get_next_output_text.holds_less = True  # type: ignore[attr-defined]
    BaseIncrementalDetokenizer.get_next_output_text = get_next_output_text


def begun_stop(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text that are the beginning of a stop string."""
    return max(_begun(text[1 - len(stop) :], stop) for stop in stops if len(stop) > 1)


def _begun(end: str, stop: str) -> int:
    start = end.find(stop[0])
    while start >= 0:
        if stop.startswith(end[start:]):
            return len(end) - start
        start = end.find(stop[0], start + 1)
    return 0


# Characters of a stop string: longer ones are held back as vLLM does it, since the end of the text
# is looked through for every token.
_LONGEST_LOOKED_FOR = 256
