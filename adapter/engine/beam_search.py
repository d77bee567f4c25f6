"""Beam search: which continuations live on, which are finished, and when no better one can come.

The rules are those of transformers' generate(num_beams=...), the oracle of the tests: in each step
the best continuations of all beams are ranked together; those among the first `width` that end are
finished, and the best `width` that do not end live on. A finished text's score is the sum of its
tokens' scores / (its number of tokens, a final end token counted) ** length_penalty. The score of a
token is its log-probability, as penalties and logit_bias change it.

Pure: what a step costs and who computes it is the caller's.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.engine.updates import LogprobTable
from adapter.planning.modes import BeamSettings

# More tokens than a character has bytes: those before its last one print nothing.
_SILENT_TOKENS = 8


class Continuation(NamedTuple):
    """A token that may come next."""

    token_id: int
    logprob: float
    """The model's own."""
    score: float
    """What it is ranked by."""


class Continuations(NamedTuple):
    """What may come next in a beam."""

    best: Sequence[Continuation]
    """The best ones, in no order; as many as BeamSettings.entries_needed, if there are."""
    table: LogprobTable
    """The model's own best tokens."""


class Step(NamedTuple):
    """One token of a beam, and where it came from; the beam is the chain of its steps."""

    before: "Step | None"
    token_id: int
    logprob: float
    table: LogprobTable | None
    """The scores at this position, kept where the caller wants to see them."""


@dataclass(frozen=True, slots=True)
class Beam:
    """A text that is not finished."""

    last: Step | None = None
    token_ids: tuple[int, ...] = ()
    score: float = 0.0
    """Sum over token_ids."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A text that ended, or that ran out of room."""

    beam: Beam
    score: float
    finish_reason: str
    stop_reason: int | str | None

    def steps(self) -> list[Step]:
        """The tokens from first to last."""
        chain: list[Step] = []
        step = self.beam.last
        while step is not None:
            chain.append(step)
            step = step.before
        return chain[::-1]


class BeamSearch:
    """One prompt's search. Alternate `running` and `advance` until `done`."""

    def __init__(self, settings: BeamSettings, text_of: Callable[[Sequence[int]], str]) -> None:
        """text_of: the text of the last tokens, asked for where there are stop strings."""
        self._settings = settings
        self._text_of = text_of
        self.running: list[Beam] = [Beam()]
        self._finished: list[Finished] = []
        self._ends = settings.eos_token_ids | settings.stop_token_ids
        # A stop string of n characters ends in the last token and begins at most n tokens before,
        # not counting tokens that print nothing.
        self._window = max(map(len, settings.stop), default=0) + _SILENT_TOKENS

    @property
    def done(self) -> bool:
        """True once no running beam can become one of the answers."""
        if not self.running or len(self._finished) < self._settings.width:
            return not self.running
        if self._settings.early_stopping:
            return True
        best = self._score(self.running[0])
        return best <= self._finished[-1].score

    def finished(self) -> list[Finished]:
        """The answers, best first; at most `width`."""
        return self._finished

    def advance(self, following: Sequence[Continuations]) -> None:
        """Take one step: what may follow each running beam, in their order."""
        settings = self._settings
        ranked = self._ranked(following)
        full = settings.early_stopping and len(self._finished) == settings.width
        running: list[Beam] = []
        for rank, beam in enumerate(ranked):
            ending = self._ending(beam)
            if ending is None:
                running.append(beam)
                if len(running) == settings.width:
                    break
            elif rank < settings.width and not full:
                self._finished.append(Finished(beam, self._score(beam), *ending))
        # Sorting is stable: of equal scores the one that finished first stays first.
        self._finished.sort(key=lambda text: text.score, reverse=True)
        del self._finished[settings.width :]
        self.running = running

    def _ranked(self, following: Sequence[Continuations]) -> Iterator[Beam]:
        """All continuations of all beams, the most probable first."""
        forbids = len(self.running[0].token_ids) < self._settings.min_tokens
        candidates = [
            (beam.score + each.score, index, each)
            for index, (beam, after) in enumerate(zip(self.running, following, strict=True))
            for each in after.best
            if not (forbids and each.token_id in self._ends)
        ]
        most = self._settings.width * (2 + len(self._ends))
        for score, index, (token_id, logprob, _) in heapq.nlargest(most, candidates, _score_of):
            beam = self.running[index]
            table = None if self._settings.logprobs is None else following[index].table
            yield Beam(
                Step(beam.last, token_id, logprob, table),
                (*beam.token_ids, token_id),
                score,
            )

    def _ending(self, beam: Beam) -> tuple[str, int | str | None] | None:
        """Finish reason and stop reason of a beam that has just ended."""
        assert beam.last is not None
        token_id = beam.last.token_id
        if token_id in self._settings.eos_token_ids:
            return "stop", None
        if token_id in self._settings.stop_token_ids:
            return "stop", token_id
        count = len(beam.token_ids)
        if self._settings.stop and count > self._settings.min_tokens:
            window = beam.token_ids[-self._window :]
            before, text = self._text_of(window[:-1]), self._text_of(window)
            for stop in self._settings.stop:
                if text.find(stop, max(len(before) - len(stop) + 1, 0)) >= 0:
                    return "stop", stop
        return ("length", None) if count == self._settings.max_tokens else None

    def _score(self, beam: Beam) -> float:
        try:
            return beam.score / math.pow(len(beam.token_ids), self._settings.length_penalty)
        except OverflowError:  # a penalty beyond all measure: every text scores alike
            return 0.0
        except ZeroDivisionError:
            return math.inf if beam.score > 0 else -math.inf


def _score_of(candidate: tuple[float, int, Continuation]) -> float:
    return candidate[0]


def best_tokens(table: LogprobTable) -> Iterable[tuple[int, float]]:
    """The most probable tokens of a one-position table, best first.

    The first entry is the token that stands there, which is listed again by its rank.
    """
    start, end = table.start_indices[0] + 1, table.end_indices[0]
    return zip(table.token_ids[start:end], table.logprobs[start:end], strict=True)
