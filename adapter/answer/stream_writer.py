"""Writes what all streams of a process have to say, once for each turn of its event loop.

One engine step brings a token for every stream. The events of some are made one after another and
then written one after another, all in one callback: no stream's task is woken for it, and a reader
on the same machine that the first write wakes is still awake for the others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import Any

from adapter.engine.output_reader import OutputReader

# So many streams' events are made before they are written: none waits for the making of all.
_PORTION = 64

Write = Callable[[bytes], Coroutine[Any, Any, None]]


class StreamWriter:
    """The streams of one event loop that have news."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []

    async def write(self, reader: OutputReader, events: Callable[[], bytes], write: Write) -> None:
        """Write a reader's news as they come, until it is finished.

        events: takes what is there, and makes it the bytes that are to be written; "" where nothing
            is to be said. write: may wait for a slow reader; then only this stream waits, and its
            news are joined.

        Raises:
            Exception: what `events` or `write` raised.
        """
        stream = _Stream(self, reader, events, write)
        try:
            stream.listen()
            await stream.done
        finally:
            await stream.close()

    def add(self, stream: "_Stream") -> None:
        """Have a stream write in the next turn."""
        if not self._streams:
            asyncio.get_running_loop().call_soon(self._write)
        self._streams.append(stream)

    def _write(self) -> None:
        streams, self._streams = self._streams, []
        for start in range(0, len(streams), _PORTION):
            said = [(stream, stream.says()) for stream in streams[start : start + _PORTION]]
            for stream, events in said:
                stream.write(events)


class _Stream:
    """One streamed answer."""

    def __init__(
        self, writer: StreamWriter, reader: OutputReader, events: Callable[[], bytes], write: Write
    ) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer = writer
        self._reader = reader
        self._events = events
        self._write = write
        # The callback that writes is of all streams; what is written for this one sees its context.
        self._context = copy_context()
        self._waiting: asyncio.Task[None] | None = None
        """A write that waits for its reader."""

    def listen(self) -> None:
        """Be called for what comes, and for what is there already."""
        self._reader.on_news = self._on_news
        self._writer.add(self)

    def says(self) -> bytes:
        """The events of what is there."""
        if self.done.done() or self._waiting is not None:
            return b""
        try:
            return self._events()
        except Exception as error:
            self._fail(error)
            return b""

    def write(self, events: bytes) -> None:
        """Write some events, and see whether they were the last."""
        if self.done.done() or self._waiting is not None:
            return
        if events:
            writing = self._write(events)
            try:
                # As a task's first step, but now: nearly every write ends in it.
                awaited = self._context.run(writing.send, None)
            except StopIteration:
                pass
            except asyncio.CancelledError:
                self.done.cancel()
            except Exception as error:
                self._fail(error)
            else:
                rest = _finish(writing, awaited)
                self._waiting = asyncio.create_task(rest, context=self._context)
                self._waiting.add_done_callback(self._written)
                return
        if self._reader.finished and not self.done.done():
            self.done.set_result(None)

    async def close(self) -> None:
        """Write nothing any more."""
        if not self.done.done():
            self.done.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)

    def _on_news(self) -> None:
        if self._waiting is None:
            self._writer.add(self)

    def _written(self, task: "asyncio.Task[None]") -> None:
        """A write that had to wait is over: go on with what came meanwhile."""
        self._waiting = None
        if task.cancelled():
            self.done.cancel()
        elif (error := task.exception()) is not None:
            self._fail(error)
        elif not self.done.done():
            self._writer.add(self)

    def _fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def _finish(started: Coroutine[Any, Any, None], awaited: Any) -> None:
    """Go on, in a task, with a coroutine that has begun and waits for `awaited`."""
    await _resumed(started, awaited)


@coroutine
def _resumed(started: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            yield awaited
        except BaseException as error:
            step = partial(started.throw, error)
        else:
            step = partial(started.send, None)
        try:
            awaited = step()
        except StopIteration:
            return
