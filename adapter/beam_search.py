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

from adapter.engine_io import BeamSettings, LogprobTable


class Step(NamedTuple):
    """One token of a beam, and where it came from; the beam is the chain of its steps."""

    before: "Step | None"
    token_id: int
    logprob: float
    table: LogprobTable
    """The scores at this position: one position, the best tokens first after the first entry."""


@dataclass(frozen=True, slots=True)
class Beam:
    """A text that is not finished."""

    last: Step | None
    token_ids: tuple[int, ...]
    log_probability: float
    """Sum over token_ids."""
    text: str = ""
    """Kept only where stop strings are looked for."""


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
        """text_of: the text of generated tokens, asked for only where there are stop strings."""
        self._settings = settings
        self._text_of = text_of
        self.running: list[Beam] = [Beam(None, (), 0.0)]
        self._finished: list[Finished] = []
        self._ends = settings.end_token_ids | settings.stop_token_ids

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
            text = self._text_of(token_ids) if self._settings.stop else ""
            step = Step(beam.last, token_id, logprob, tables[index])
            yield Beam(step, token_ids, total, text)

    def _ending(self, beam: Beam) -> tuple[str, int | str | None] | None:
        """Finish reason and stop reason of a beam that has just ended."""
        assert beam.last is not None
        token_id = beam.last.token_id
        if token_id in self._settings.end_token_ids:
            return "stop", None
        if token_id in self._settings.stop_token_ids:
            return "stop", token_id
        count = len(beam.token_ids)
        if self._settings.stop and count > self._settings.min_tokens:
            before = self._text_of(beam.token_ids[:-1])
            for stop in self._settings.stop:
                if beam.text.find(stop, max(len(before) - len(stop) + 1, 0)) >= 0:
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


def entries_needed(settings: BeamSettings) -> int:
    """How many of the best tokens of a beam a step must know.

    Enough that `width` of them do not end: every end token may be among them, and with stop strings
    as many again that complete one.
    """
    ends = len(settings.end_token_ids | settings.stop_token_ids)
    return max(settings.width * (2 if settings.stop else 1) + ends, settings.logprobs or 0)
