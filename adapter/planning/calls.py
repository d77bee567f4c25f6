"""What crosses to the engine: one frozen EngineCall a prompt."""

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from adapter.guided.program import Program
from adapter.planning.modes import Mode


class SamplingFields(TypedDict, total=False):
    """Keyword arguments of vLLM's SamplingParams; a test with vLLM checks that each exists.

    n is not among them: it is the mode's.
    """

    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: list[str]
    stop_token_ids: list[int]
    include_stop_str_in_output: bool
    ignore_eos: bool
    max_tokens: int
    min_tokens: int
    logprobs: int
    prompt_logprobs: int
    logit_bias: dict[int, float]
    skip_special_tokens: bool
    spaces_between_special_tokens: bool


class TokenIds(NamedTuple):
    """A prompt's tokens."""

    ids: list[int]
    """What the model sees, at least one id."""
    own: tuple[int, int] | None = None
    """Where the caller's begin and end among those of a suffix's template; None for all of them."""


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """One prompt as the caller gave it and as the model sees it."""

    text: str | None
    """What the caller wrote; None where the prompt came as token ids."""
    token_ids: list[int]
    """What the model sees, at least one id. Never changed."""
    own: tuple[int, int] | None = None
    """See TokenIds."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done with each prompt of a request."""

    mode: Mode
    sampling: SamplingFields
    program: Program | None = None
    """What the text has to satisfy; None where anything goes."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One prompt's work for the engine."""

    prompt: TokenizedPrompt
    work: Work
