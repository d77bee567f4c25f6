"""What is asked of the engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from adapter.engine.output_reader import OutputReader


class Question(NamedTuple):
    """What one call asks of the engine."""

    request_id: str
    token_ids: list[int]
    params: Any
    """vLLM's SamplingParams."""


Ask = Callable[[Sequence[Question]], AbstractAsyncContextManager[OutputReader]]
"""Gives questions to the engine; leaving the context aborts what is not finished."""
