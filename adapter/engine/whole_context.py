"""Scores of a prompt that fills the model's context.

vLLM wants room for one token more. So the last token of such a prompt is left for it to make: it is
the only one allowed, which does not change the log-probabilities that the engine reports.
"""

from typing import TypedDict

from adapter.engine.updates import PromptUpdate, Table, WholeUpdate
from adapter.planning.calls import EngineCall
from adapter.planning.modes import Score


class LastToken(TypedDict, total=False):
    """Keyword arguments of vLLM's SamplingParams that have it make one token."""

    allowed_token_ids: list[int]


def fills_context(call: EngineCall, max_model_len: int) -> bool:
    """Whether a prompt that is to be scored leaves no room for another token."""
    return isinstance(call.work.mode, Score) and len(call.prompt.token_ids) == max_model_len


def last_token(call: EngineCall) -> LastToken:
    """Has the engine make the prompt's last token after the others."""
    return {"allowed_token_ids": call.prompt.token_ids[-1:]}


def whole_prompt(update: PromptUpdate) -> PromptUpdate:
    """The update with the last token's scores behind those of the others."""
    (candidate,) = update.outputs
    if update.prompt_logprobs is None or candidate.logprobs is None:
        return update  # the engine gave up on it
    joined = Table.of(update.prompt_logprobs)
    joined.extend(candidate.logprobs)
    return WholeUpdate(joined, [candidate])
