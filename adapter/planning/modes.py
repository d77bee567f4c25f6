"""The ways in which the answers to a prompt are made; a request has one of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar


class Candidate(Protocol):
    """What the order of the answers depends on; the engine's CompletionOutput has more."""

    @property
    def index(self) -> int:
        """Its place among the texts that the engine makes for a prompt."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The generated tokens, an end token counted."""

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum over all tokens; there where log-probabilities were asked for."""


C = TypeVar("C", bound=Candidate)


@dataclass(frozen=True, slots=True)
class Mode:
    """How the answers to a prompt are made."""

    answers: int
    """Choices that the caller gets for each prompt: n."""

    generates: ClassVar[bool] = True
    """False where no token is shown: one that the engine makes all the same is not counted."""
    streams: ClassVar[bool] = True
    """False where the answers are known only when all texts are finished."""
    draws_again: ClassVar[bool] = True
    """False where no other text may stand for one that fails its check at the end."""

    @property
    def sequences(self) -> int:
        """Texts that the engine makes at once for a prompt: its n, but for a beam search."""
        return self.answers

    @property
    def copies(self) -> int:
        """Answers that one text of the engine's stands for."""
        return 1

    @property
    def counted(self) -> int:
        """How many times a text's tokens are counted in usage."""
        return 1

    def ordered(self, texts: Sequence[C]) -> Iterable[tuple[int, C]]:
        """The texts of an update, each with the place of its answer."""
        return [(text.index, text) for text in texts]


@dataclass(frozen=True, slots=True)
class Sample(Mode):
    """n texts, sampled apart."""


@dataclass(frozen=True, slots=True)
class OneText(Mode):
    """All n answers are the same text."""

    @property
    def sequences(self) -> int:
        return 1

    @property
    def copies(self) -> int:
        return self.answers


@dataclass(frozen=True, slots=True)
class Greedy(OneText):
    """One text, which is all n answers: greedy texts after one prompt are the same.

    vLLM refuses to make it n times (vllm/sampling_params.py, _verify_greedy_sampling).
    """

    asked: int
    """Texts that the caller asked for and that are counted: best_of, or n."""

    @property
    def counted(self) -> int:
        return self.asked


@dataclass(frozen=True, slots=True)
class OneBeam(Greedy):
    """A beam search one beam wide, as the engine makes a greedy text."""

    draws_again: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class BestOf(Mode):
    """The best n of best_of sampled texts by mean log-probability, best first."""

    best_of: int

    streams: ClassVar[bool] = False

    @property
    def sequences(self) -> int:
        return self.best_of

    def ordered(self, texts: Sequence[C]) -> Iterable[tuple[int, C]]:
        return enumerate(sorted(texts, key=mean_logprob, reverse=True))


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """What a beam search keeps to."""

    width: int
    max_tokens: int
    eos_token_ids: frozenset[int]
    """The model's ends of text; none where they are ignored."""
    length_penalty: float = 1.0
    early_stopping: bool = False
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """How many of the best tokens the caller wants to see at each position."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None

    @property
    def entries_needed(self) -> int:
        """How many of the best tokens of a beam a step must know; see entries_needed()."""
        ends = len(self.eos_token_ids | self.stop_token_ids)
        return entries_needed(self.width, ends, self.logprobs or 0, has_stop=bool(self.stop))


def entries_needed(width: int, ends: int, shown: int, *, has_stop: bool) -> int:
    """How many of the best tokens of a beam a step must know.

    Enough that `width` of them do not end: each of `ends` end tokens may be among them, and with
    stop strings as many again that complete one. At least those that the caller wants to see.
    """
    return max(width * (2 if has_stop else 1) + ends, shown)


@dataclass(frozen=True, slots=True)
class Beams(Mode):
    """The best n texts of a beam search, best first."""

    search: BeamSettings

    streams: ClassVar[bool] = False
    draws_again: ClassVar[bool] = False

    @property
    def sequences(self) -> int:
        return self.search.width


@dataclass(frozen=True, slots=True)
class Score(OneText):
    """Nothing is generated; the engine scores the prompt, and makes a token that is not shown."""

    generates: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Nothing(OneText):
    """Nothing is asked of the engine."""

    generates: ClassVar[bool] = False

    @property
    def sequences(self) -> int:
        return 0


def mean_logprob(text: Candidate) -> float:
    """Mean log-probability of the generated tokens, an end token counted."""
    return (text.cumulative_logprob or 0.0) / max(len(text.token_ids), 1)
