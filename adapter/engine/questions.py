"""What is asked of the engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from adapter.engine.output_reader import OutputReader
from adapter.engine.updates import PromptUpdate


class Question(NamedTuple):
    """What one call asks of the engine."""

    request_id: str
    token_ids: list[int]
    params: Any
    """vLLM's SamplingParams."""


Ask = Callable[[Sequence[Question]], AbstractAsyncContextManager[OutputReader]]
"""Gives questions to the engine; leaving the context aborts what is not finished."""


async def last_updates(ask: Ask, questions: Sequence[Question]) -> list[PromptUpdate]:
    """The last update of each question, which for a final output is the only one."""
    updates: dict[int, PromptUpdate] = {}
    async with ask(questions) as reader:
        while not reader.finished:
            updates.update(await reader.news())
    return [updates[index] for index in range(len(questions))]
