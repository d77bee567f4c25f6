"""An engine that scores with a function, and masks and reports as vLLM's sampler does."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from adapter.guided.backends.registry import Libraries
from adapter.guided.program import Program, read_request
from adapter.guided.vocabulary import Vocabulary
from tests.fake_engine import Table

Scores = Callable[[Sequence[int]], npt.NDArray[np.float64]]
"""The logits after some tokens."""


class ScoringEngine:
    """Answers the questions of a beam search."""

    def __init__(self, vocabulary: Vocabulary, logits: Scores) -> None:
        self.vocabulary = vocabulary
        self.asked: list[Any] = []
        """The sampling parameters of all questions."""
        self.rounds = 0
        self._logits = logits

    @cached_property
    def _libraries(self) -> Libraries:
        return Libraries(self.vocabulary)

    @asynccontextmanager
    async def ask(self, questions: Sequence[Any]) -> AsyncIterator[Any]:
        """As Engine gives questions to vLLM: a reader of what it answers."""
        self.rounds += 1
        self.asked += [question.params for question in questions]
        updates = [(index, self._answer(question)) for index, question in enumerate(questions)]
        reader = SimpleNamespace(finished=False)

        async def news() -> Any:
            reader.finished = True
            return updates

        reader.news = news
        yield reader

    def _answer(self, question: Any) -> Any:
        params = question.params
        logits = self._logits(question.token_ids)
        if params.structured_outputs is not None:
            logits = np.where(self._mask(params.structured_outputs.grammar), logits, -math.inf)
        logprobs = logits - np.logaddexp.reduce(logits)
        best = np.argsort(-logprobs, kind="stable")[: params.logprobs].tolist()
        (chosen,) = params.allowed_token_ids or [int(logits.argmax())]
        table = Table().add(*((each, float(logprobs[each]), None) for each in [chosen, *best]))
        candidate = SimpleNamespace(logprobs=table, finish_reason="length", token_ids=[chosen])
        return SimpleNamespace(outputs=[candidate], prompt_logprobs=None)

    def _mask(self, request: str) -> npt.NDArray[np.bool_]:
        focus, text = read_request(request)
        program = Program.loads(text)
        makers = [self._libraries.compile(part) for part in program.parts]
        mask = np.zeros(self.vocabulary.words, np.int32)
        self._libraries.guide(program, makers, focus).fill(mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return bits[: len(self.vocabulary.tokens)].astype(bool)
