"""What crosses to the engine and back.

Towards it: one frozen EngineCall a prompt. Back: the engine's own output objects, read through the
protocols below and never copied, since one arrives for every token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from adapter.guided.program import Program


class SamplingFields(TypedDict, total=False):
    """Keyword arguments of vLLM's SamplingParams; a test with vLLM checks that each exists."""

    n: int
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as the caller gave it and as the model sees it."""

    text: str | None
    """What the caller wrote; None where the prompt came as token ids."""
    token_ids: list[int]
    """What the model sees, at least one id. Never changed."""


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """What a beam search keeps to."""

    width: int
    max_tokens: int
    length_penalty: float
    early_stopping: bool
    end_token_ids: frozenset[int]
    """The model's ends of text; none where they are ignored."""
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """How many of the best tokens the caller wants to see at each position."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done with each prompt of a request."""

    sampling: SamplingFields
    answers: int
    """Choices that the caller gets: n."""
    candidates: int
    """Texts that are generated and counted: best_of, the beam's width, or n."""
    distinct: int
    """Candidates that the engine makes: n greedy ones are the same text, made once."""
    ranked: bool
    """The answers are the best candidates by their mean log-probability, best first."""
    generates: bool
    """False where max_tokens is 0: a token the engine makes all the same is not shown."""
    runs: bool
    """False where nothing is asked of the engine at all."""
    beam: BeamSettings | None = None
    program: Program | None = None
    """What the text has to satisfy; None where anything goes."""

    @property
    def direct(self) -> bool:
        """True where the engine's own updates make the answer: no beam search is between."""
        return self.runs and self.beam is None


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One prompt's work for the engine."""

    prompt: Prompt
    work: Work


class LogprobTable(Protocol):
    """vLLM's FlatLogprobs: of position i the entries start_indices[i] to end_indices[i].

    The first entry of a position is the token that stands there. The first position of a prompt
    has no entries.
    """

    @property
    def start_indices(self) -> Sequence[int]: ...
    @property
    def end_indices(self) -> Sequence[int]: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> Sequence[float]: ...
    @property
    def decoded_tokens(self) -> Sequence[str | None]: ...


class CandidateUpdate(Protocol):
    """vLLM's CompletionOutput: what is new of one candidate, or all of it in one piece."""

    @property
    def index(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> LogprobTable | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def stop_reason(self) -> int | str | None: ...
    @property
    def cumulative_logprob(self) -> float | None:
        """Sum over all tokens so far; there where log-probabilities were asked for."""


class PromptUpdate(Protocol):
    """vLLM's RequestOutput: what is new of one prompt's candidates."""

    @property
    def prompt_logprobs(self) -> LogprobTable | None: ...
    @property
    def outputs(self) -> Sequence[CandidateUpdate]: ...
    @property
    def finished(self) -> bool:
        """True in the last update of all candidates."""
