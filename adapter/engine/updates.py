"""What comes back from the engine: its own output objects, read through these protocols.

They are never copied, since one arrives for every token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapter.errors import GenerationFailed, Unavailable


class LogprobTable(Protocol):
    """vLLM's FlatLogprobs: of position i the entries start_indices[i] to end_indices[i].

    The first entry of a position is the token that stands there. The first position of a prompt
    has no entries.
    """

    start_indices: list[int]
    end_indices: list[int]
    token_ids: list[int]
    logprobs: list[float]
    decoded_tokens: list[str | None]


@dataclass(slots=True)
class Table:
    """A LogprobTable of our own."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    decoded_tokens: list[str | None] = field(default_factory=list)

    @classmethod
    def of(cls, table: LogprobTable) -> "Table":
        """A copy."""
        copied = cls()
        copied.extend(table)
        return copied

    def extend(self, table: LogprobTable) -> None:
        """Add the positions of another table behind the own ones."""
        before = len(self.token_ids)
        self.start_indices += [before + start for start in table.start_indices]
        self.end_indices += [before + end for end in table.end_indices]
        self.token_ids += table.token_ids
        self.logprobs += table.logprobs
        self.decoded_tokens += table.decoded_tokens


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


@dataclass(frozen=True, slots=True)
class WholeUpdate:
    """A PromptUpdate of our own: all of a prompt's candidates, each in one piece."""

    prompt_logprobs: LogprobTable | None
    outputs: Sequence[CandidateUpdate]
    finished: bool = True


Updates = Sequence[tuple[int, PromptUpdate]]
"""What came in one turn of the event loop, each with its prompt's index."""


def finish_reason_of(reason: str) -> str:
    """The contract's finish reason.

    Raises:
        Unavailable: the engine was stopped under the request.
        GenerationFailed: the engine gave up on it.
    """
    if reason in ("stop", "length"):
        return reason
    if reason == "abort":
        raise Unavailable("The engine stopped this request before it was finished.")
    raise GenerationFailed(f"The engine gave up on this request ({reason}).")
