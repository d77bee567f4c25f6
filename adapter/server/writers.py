"""The ways in which an answer is written: whole, or as a stream of events.

A stream's events are made by the request's own task, or together with those of all other streams
by a StreamWriter, which costs less.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Protocol, TypeVar

from adapter.answer.choice import Delta
from adapter.answer.deltas import Answer, fold
from adapter.answer.sse import DONE, Envelope
from adapter.answer.stream_writer import StreamWriter
from adapter.engine.updates import Updates
from adapter.server.completion import Completion
from adapter.server.response import Response
from adapter.vllm_api import with_sse_keep_alive

T = TypeVar("T")

# Tokens whose scores are put together in some milliseconds; see Answer.size().
_MUCH = 1000


class AnswerWriter(Protocol):
    """Runs a completion and writes its answer."""

    async def write(self, completion: Completion, envelope: Envelope, response: Response) -> None:
        """Write the whole answer.

        Raises:
            ApiError: it cannot be given, or not to its end.
        """


class WholeAnswer:
    """One JSON object."""

    async def write(self, completion: Completion, envelope: Envelope, response: Response) -> None:
        """See AnswerWriter."""
        answer = completion.answer
        deltas: list[Delta] = []
        size = 0
        async with aclosing(completion.updates()) as updates:
            async for batch in updates:
                size += (made := answer.size(batch))
                deltas += await _beside(partial(answer.deltas, batch), made)
        body = await _beside(lambda: envelope.response(fold(deltas), answer.usage()), size)
        await response.send_whole(200, *body)


class OwnStream:
    """Events written in the request's own task, with keep-alives where they are set."""

    def __init__(self, keep_alive_seconds: float) -> None:
        """keep_alive_seconds: 0 for none."""
        self._interval = keep_alive_seconds

    async def write(self, completion: Completion, envelope: Envelope, response: Response) -> None:
        """See AnswerWriter."""
        async with aclosing(completion.updates()) as updates:
            first = asyncio.ensure_future(anext(updates))
            try:
                await self._write(completion.answer, envelope, response, updates, first)
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    async def _write(
        self,
        answer: Answer,
        envelope: Envelope,
        response: Response,
        updates: AsyncIterator[Updates],
        first: "asyncio.Future[Updates]",
    ) -> None:
        # The status waits for the engine's first word: until then an error is an HTTP error.
        # A keep-alive interval bounds that wait, since a proxy would not wait longer.
        await asyncio.wait({first}, timeout=self._interval or None)
        start = await _chunks(answer, envelope, first.result()) if first.done() else b""
        await _start(response, start)
        pieces: AsyncGenerator[bytes | str, None] = _events(
            answer, envelope, updates, None if first.done() else first
        )
        if self._interval:
            pieces = with_sse_keep_alive(pieces, self._interval)
        async with aclosing(pieces):
            async for piece in pieces:
                if piece:
                    await response.write(piece if isinstance(piece, bytes) else piece.encode())
        await _end(response, answer, envelope)


class SharedStream:
    """Events written together with those of other streams."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer

    async def write(self, completion: Completion, envelope: Envelope, response: Response) -> None:
        """See AnswerWriter."""
        answer = completion.answer
        async with completion.opened() as reader:
            await _start(response, await _chunks(answer, envelope, await reader.news()))
            await self._writer.write(
                reader, lambda: envelope.chunks(answer.deltas(reader.take())), response.write
            )
            await _end(response, answer, envelope)


async def _events(
    answer: Answer,
    envelope: Envelope,
    updates: AsyncIterator[Updates],
    first: "asyncio.Future[Updates] | None",
) -> AsyncGenerator[bytes | str, None]:
    """The events of all updates; `first` is one that is still waited for."""
    if first is not None:
        yield await _chunks(answer, envelope, await first)
    async for batch in updates:
        if events := await _chunks(answer, envelope, batch):
            yield events


async def _chunks(answer: Answer, envelope: Envelope, batch: Updates) -> bytes:
    """The events of a batch."""
    size = answer.size(batch)
    if size < _MUCH:
        return envelope.chunks(answer.deltas(batch))
    return await asyncio.to_thread(_one_by_one, answer, envelope, batch)


def _one_by_one(answer: Answer, envelope: Envelope, batch: Updates) -> bytes:
    """The same, letting go of each delta when it is written; see fold()."""
    deltas = deque(answer.deltas(batch))
    return b"".join(envelope.chunks([deltas.popleft()]) for _ in range(len(deltas)))


async def _beside(make: Callable[[], T], size: int) -> T:
    """What `make` returns: made in a thread where it would hold up the event loop."""
    return make() if size < _MUCH else await asyncio.to_thread(make)


async def _start(response: Response, events: bytes) -> None:
    no_cache = [(b"cache-control", b"no-cache")]
    await response.start(200, b"text/event-stream; charset=utf-8", no_cache)
    if events:
        await response.write(events)


async def _end(response: Response, answer: Answer, envelope: Envelope) -> None:
    usage = envelope.usage_chunk(answer.usage()) if envelope.include_usage else b""
    await response.write(usage + DONE, last=True)
