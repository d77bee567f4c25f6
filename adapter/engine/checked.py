"""Constrained texts that are validated when they are finished, and made again where they fail.

A text that fails is thrown away as a whole and drawn anew: what is left is distributed as the
model's texts that satisfy the constraint are (rejection sampling). The prompt's part of that work
is in the engine's prefix cache.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

from adapter.engine.questions import Ask, Question, last_updates
from adapter.engine.updates import CandidateUpdate, PromptUpdate, WholeUpdate
from adapter.errors import NotSatisfied
from adapter.planning.calls import EngineCall, SamplingFields

TEMPERATURE_AGAIN = 0.7
"""Of a text that is made again after a greedy one: the same would come once more."""


class AsQuestion(Protocol):
    """Makes a call's question of its sampling fields and the number of its texts."""

    def __call__(
        self, name: str, call: EngineCall, sampling: SamplingFields, sequences: int
    ) -> Question: ...


@dataclass(frozen=True, slots=True)
class Checks:
    """How the texts of a request are validated."""

    check: Callable[[str], Awaitable[None]]
    """Validates a finished text; raises NotSatisfied, or another ApiError where that cannot be
    told."""
    retries: int
    """How many times a text is made again."""
    thrown_away: Callable[[CandidateUpdate], None]
    """Is told of each text that failed and is made again."""


class CheckedTexts:
    """Makes the texts of one prompt until each is what it has to be."""

    def __init__(
        self,
        ask: Ask,
        as_question: AsQuestion,
        tokens: Sequence[bytes],
        ends: Set[int],
        checks: Checks,
    ) -> None:
        """ask: gives questions to the engine. tokens: the bytes of each id. ends: ends of text."""
        self._ask = ask
        self._as_question = as_question
        self._tokens = tokens
        self._ends = ends
        self._checks = checks

    async def make(self, call: EngineCall, name: str) -> PromptUpdate:
        """The texts of a call, each in one piece. Cancelling aborts what still runs.

        name: what the engine's request is called; those for texts made again begin with it.

        Raises:
            NotSatisfied: a text failed, and those made in its place did too.
            ApiError: the engine failed, or a text could not be validated.
        """
        work = call.work
        question = self._as_question(name, call, work.sampling, work.mode.sequences)
        (first,) = await last_updates(self._ask, [question])
        texts: list[Any] = list(first.outputs)
        retries = self._checks.retries if work.mode.draws_again else 0
        attempt = 0
        faults = await self._faults(texts, range(len(texts)))
        while faults:
            attempt += 1
            if attempt > retries:
                raise next(iter(faults.values()))
            for place in faults:
                self._checks.thrown_away(texts[place])
            again = [self._again(call, name, place, attempt) for place in faults]
            answers = await last_updates(self._ask, again)
            for place, answer in zip(faults, answers, strict=True):
                (text,) = answer.outputs
                made: Any = text  # vLLM's own, a dataclass
                texts[place] = replace(made, index=texts[place].index)
            faults = await self._faults(texts, faults)
        return WholeUpdate(first.prompt_logprobs, texts)

    async def best(
        self, texts: Sequence[CandidateUpdate], count: int
    ) -> tuple[list[int], list[int]]:
        """The places of texts that are already made: those that do not fail, and those that do.

        Raises:
            NotSatisfied: fewer than `count` do not fail.
            ApiError: a text could not be validated.
        """
        faults = await self._faults(texts, range(len(texts)))
        if faults and len(texts) - len(faults) < count:
            raise next(iter(faults.values()))
        return [place for place in range(len(texts)) if place not in faults], list(faults)

    def _again(self, call: EngineCall, name: str, place: int, attempt: int) -> Question:
        """One more text in a failed one's place."""
        sampling = sampling_again(call.work.sampling, place, attempt)
        return self._as_question(f"{name}-{place}-again-{attempt}", call, sampling, 1)

    async def _faults(
        self, texts: Sequence[CandidateUpdate], places: Iterable[int]
    ) -> dict[int, NotSatisfied]:
        """What is wrong with those texts at these places that are finished."""

        async def fault(text: str) -> NotSatisfied | None:
            try:
                await self._checks.check(text)
            except NotSatisfied as error:
                return error
            return None

        finished = {
            place: text for place in places if (text := self._text(texts[place])) is not None
        }
        found = await asyncio.gather(*map(fault, finished.values()))
        return {place: error for place, error in zip(finished, found, strict=True) if error}

    def _text(self, text: CandidateUpdate) -> str | None:
        """A text by its tokens' own bytes; None where its length or a stop string cut it.

        What the caller sees may hold more (echo, special tokens) or less (a stop string).
        """
        ids = text.token_ids
        if text.finish_reason != "stop" or not ids or ids[-1] not in self._ends:
            return None
        return b"".join(self._tokens[token_id] for token_id in ids[:-1]).decode("utf-8", "replace")


def sampling_again(sampling: SamplingFields, place: int, attempt: int) -> SamplingFields:
    """What a text in a failed one's place is drawn with: a seed of its own, and not greedily."""
    again = sampling.copy()
    again.pop("prompt_logprobs", None)
    if "seed" in again:
        again["seed"] = _derived(again["seed"], place, attempt)
    if again.get("temperature") == 0:
        again["temperature"] = TEMPERATURE_AGAIN
    return again


def _derived(seed: int, place: int, attempt: int) -> int:
    """A seed of 63 bits that looks like no other."""
    digest = hashlib.sha256(f"{seed} {place} {attempt}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 1
