"""The prompt as an echo shows it."""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.answer.logprobs import Logprobs, append
from adapter.answer.token_text import TokenTexts
from adapter.engine.updates import LogprobTable
from adapter.planning.calls import TokenizedPrompt
from adapter.planning.plan import AnswerShape


class EchoedPrompt(NamedTuple):
    text: str
    logprobs: Logprobs | None


def echoed_prompt(
    shape: AnswerShape, texts: TokenTexts, prompt: TokenizedPrompt, table: LogprobTable | None
) -> EchoedPrompt:
    if prompt.text is not None and not shape.logprobs:
        return EchoedPrompt(prompt.text, None)
    first, end = prompt.own or (0, len(prompt.token_ids))
    if prompt.text == "" and prompt.own is None:
        # The separator that stands for no prompt is no text of the caller's.
        shown, widths = [texts.prompt().name(prompt.token_ids[0])], [0]
    else:
        shown, widths = _prompt_tokens(shape, texts, prompt, prompt.token_ids[first:end])
    text = prompt.text
    if text is None:
        text = "".join(token for token, width in zip(shown, widths, strict=True) if width)
    if not shape.logprobs:
        return EchoedPrompt(text, None)
    logprobs = Logprobs()
    offset = 0
    for position, (token, width) in enumerate(zip(shown, widths, strict=True)):
        append(logprobs, table, first + position, token, min(offset, len(text)))
        offset += width
    return EchoedPrompt(text, logprobs)


def _prompt_tokens(
    shape: AnswerShape, texts: TokenTexts, prompt: TokenizedPrompt, token_ids: Sequence[int]
) -> tuple[list[str], list[int]]:
    """Each prompt token as it prints, and how many characters of the echoed text it takes."""
    token_text = texts.prompt()
    shown: list[str] = []
    widths: list[int] = []
    offset = 0
    for token_id in token_ids:
        if token_text.is_special(token_id):
            token = token_text.name(token_id)
            if prompt.text is None:
                visible = not shape.skip_special_tokens
            else:  # one that the tokenizer added is not in the caller's text
                visible = prompt.text.startswith(token, offset)
        else:
            token = token_text.next(token_id)
            visible = True
        width = len(token) if visible else 0
        shown.append(token)
        widths.append(width)
        offset += width
    return shown, widths
