"""Beam search: which continuations live on, which are finished, and when no better one can come.

The rules are those of transformers' generate(num_beams=...), the oracle of the tests: in each step
the best continuations of all beams are ranked together; those among the first `width` that end are
finished, and the best `width` that do not end live on. A finished text's score is the sum of its
log-probabilities / (its number of tokens, a final end token counted) ** length_penalty.

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

    last: Step | None
    token_ids: tuple[int, ...]
    log_probability: float
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
        self.running: list[Beam] = [Beam(None, (), 0.0)]
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
        best = self._score(self.running[0].log_probability, len(self.running[0].token_ids))
        return best <= self._finished[-1].score

    def finished(self) -> list[Finished]:
        """The answers, best first; at most `width`."""
        return self._finished

    def advance(self, tables: Sequence[LogprobTable]) -> None:
        """Take one step: a table of scores for each running beam, in their order."""
        settings = self._settings
        ranked = self._ranked(tables)
        full = settings.early_stopping and len(self._finished) == settings.width
        running: list[Beam] = []
        for rank, beam in enumerate(ranked):
            ending = self._ending(beam)
            if ending is None:
                running.append(beam)
                if len(running) == settings.width:
                    break
            elif rank < settings.width and not full:
                score = self._score(beam.log_probability, len(beam.token_ids))
                self._finished.append(Finished(beam, score, *ending))
        # Sorting is stable: of equal scores the one that finished first stays first.
        self._finished.sort(key=lambda text: text.score, reverse=True)
        del self._finished[settings.width :]
        self.running = running

    def _ranked(self, tables: Sequence[LogprobTable]) -> Iterator[Beam]:
        """All continuations of all beams, the most probable first."""
        forbids = len(self.running[0].token_ids) < self._settings.min_tokens
        candidates = [
            (beam.log_probability + logprob, index, token_id, logprob)
            for index, (beam, table) in enumerate(zip(self.running, tables, strict=True))
            for token_id, logprob in best_tokens(table)
            if not (forbids and token_id in self._ends)
        ]
        most = self._settings.width * (2 + len(self._ends))
        for total, index, token_id, logprob in heapq.nlargest(most, candidates, _probability):
            beam = self.running[index]
            token_ids = (*beam.token_ids, token_id)
            table = None if self._settings.logprobs is None else tables[index]
            yield Beam(Step(beam.last, token_id, logprob, table), token_ids, total)

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

    def _score(self, log_probability: float, token_count: int) -> float:
        try:
            return log_probability / math.pow(token_count, self._settings.length_penalty)
        except OverflowError:  # a penalty beyond all measure: every text scores alike
            return 0.0
        except ZeroDivisionError:
            return -math.inf


def _probability(candidate: tuple[float, int, int, float]) -> float:
    return candidate[0]


def best_tokens(table: LogprobTable) -> Iterable[tuple[int, float]]:
    """The most probable tokens of a one-position table, best first.

    The first entry is the token that stands there, which is listed again by its rank.
    """
    start, end = table.start_indices[0] + 1, table.end_indices[0]
    return zip(table.token_ids[start:end], table.logprobs[start:end], strict=True)
