"""What the engine brings for one request, taken without a task that sleeps on every token.

vLLM puts a request's outputs into a RequestOutputCollector, and its generate() has a task sleep on
the collector's event: each token then costs a future, a turn of that task, and the coroutines
between. An OutputReader gives the collectors an event that notifies it at once; its user takes what
is there when it likes, and what comes meanwhile is joined by the collector, as in generate().
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from adapter.engine.updates import PromptUpdate, Updates


class Collector(Protocol):
    """vLLM's RequestOutputCollector: it sets `ready` when it holds an output or an error."""

    request_id: str
    ready: asyncio.Event

    def get_nowait(self) -> PromptUpdate | None:
        """What it holds, which it then forgets; an error that it holds is raised."""

    def close(self) -> None:
        """Nothing will be read any more."""


class _Notifier(asyncio.Event):
    """The event of one collector; set, it tells the reader."""

    def __init__(self, index: int, collector: Collector, reader: "OutputReader") -> None:
        super().__init__()
        self.index = index
        self.collector = collector
        self._reader = reader

    def set(self) -> None:
        super().set()
        self._reader._notify(self)


class OutputReader:
    """The updates of all prompts of one request."""

    def __init__(self, as_error: Callable[[Exception], Exception]) -> None:
        """as_error: what is raised for an error that the engine left in a collector."""
        self._as_error = as_error
        self.on_news: Callable[[], object] = _nobody
        """Called when there is something to take, once until it was taken."""
        self._collectors: dict[int, Collector] = {}
        self._notified: list[_Notifier] = []
        self._unfinished: set[int] = set()
        self._end: Exception | None = None

    def add(self, index: int, collector: Collector) -> None:
        """Take the updates of a prompt from its collector, which may hold some already."""
        self._collectors[index] = collector
        self._unfinished.add(index)
        has_news = collector.ready.is_set()
        collector.ready = _Notifier(index, collector, self)
        if has_news:
            collector.ready.set()

    @property
    def finished(self) -> bool:
        """True when the last update of every prompt was taken."""
        return not self._unfinished

    def take(self) -> Updates:
        """All that is there; empty where nothing is.

        Raises:
            Exception: as_error's of the engine's own, which ends the request.
        """
        notified, self._notified = self._notified, []
        updates: list[tuple[int, PromptUpdate]] = []
        for notifier in notified:
            try:
                update = notifier.collector.get_nowait()
            except Exception as error:
                raise self._as_error(error) from error
            if update is None:  # it was set, and holds nothing
                continue
            if update.finished:
                self._unfinished.discard(notifier.index)
            updates.append((notifier.index, update))
        if self._end is not None and self._unfinished and not updates:
            raise self._as_error(self._end) from self._end
        return updates

    async def news(self) -> Updates:
        """Wait until something is there, and take it.

        Raises:
            Exception: as take().
        """
        while not (updates := self.take()):
            wake = asyncio.get_running_loop().create_future()
            self.on_news = partial(_wake, wake)
            try:
                await wake
            finally:
                self.on_news = _nobody
        return updates

    def end(self, error: Exception) -> None:
        """Nothing more will come: what is not finished ends in this error."""
        self._end = error
        if not self._notified:
            self.on_news()

    def close(self) -> list[str]:
        """Read nothing any more; the engine's ids of the requests that are not finished."""
        self.on_news = _nobody
        unfinished = [self._collectors[index].request_id for index in sorted(self._unfinished)]
        for collector in self._collectors.values():
            collector.ready = asyncio.Event()  # no circle of references is left behind
            collector.close()
        self._collectors.clear()
        self._notified.clear()
        return unfinished

    def _notify(self, notifier: _Notifier) -> None:
        """A collector has something."""
        self._notified.append(notifier)
        if len(self._notified) == 1:
            self.on_news()


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _nobody() -> None:
    """Nobody listens."""
