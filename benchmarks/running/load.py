"""The client: HTTP requests and streams, reading no more than counting and timing needs.

`connect` opens a connection on which one request is asked after the other. `run_load` puts many
such connections on a server from a process of its own, so that this one's work costs them nothing.
"""

import asyncio
import json
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import uvloop

from benchmarks.running.process import BenchmarkError, answer, ask
from benchmarks.running.server import HOST

# A JSON text holds no line end, so no completion can hold this.
_EVENT_START = b"\ndata: {"
_END_OF_HEADERS = b"\r\n\r\n"
_END_OF_CHUNKS = b"\r\n0\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
# How much of a reply's end is kept: the usage object stands there, on either route.
_TAIL_BYTES = 4096

_CONTENT_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding: *chunked", re.IGNORECASE | re.MULTILINE)
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens": *(\d+)')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens": *(\d+)')
_ERROR_CODE = re.compile(rb'"code": *"?([^",}]*)')


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, as far as the client read it."""

    status: int
    streamed: bool
    events: int
    """Server-sent events with JSON."""
    first_at: float
    """When the first event came, or the body's first byte; on the clock of who read, in seconds."""
    end: bytes
    """Of the body, or all of it where it is short."""

    def tokens(self) -> tuple[int, int]:
        """Of the prompt, and of the completion.

        Raises:
            BenchmarkError: it is no success, has no usage, or is a stream without [DONE].
        """
        if self.status != 200:
            text = self.end.decode(errors="replace")
            raise BenchmarkError(f"The server answered {self.status}: {text}")
        if self.streamed and _DONE not in self.end:
            raise BenchmarkError(f"A stream without [DONE] ended in {self.end[-300:]!r}")
        prompt = _PROMPT_TOKENS.findall(self.end)
        completion = _COMPLETION_TOKENS.findall(self.end)
        if not prompt or not completion:
            raise BenchmarkError(f"An answer without usage ended in {self.end[-300:]!r}")
        return int(prompt[-1]), int(completion[-1])

    @property
    def error_code(self) -> str:
        """The code of the error that it tells; empty where it tells none."""
        code = None if self.status == 200 else _ERROR_CODE.search(self.end)
        return code[1].decode() if code else ""


class ReplyReader:
    """Reads one HTTP reply as its bytes come: by length, in chunks, or until the hang-up."""

    def __init__(self) -> None:
        self._head = b""
        self._in_body = False
        self._status = 0
        self._body_bytes = 0
        self._length: int | None = None
        self._chunked = False
        self._streams = False
        self._tail = b""
        self._first_at: float | None = None
        self.events = 0

    def feed(self, data: bytes, now: float) -> bool:
        """Take some bytes that came at `now` (seconds); True when the reply is complete."""
        if not self._in_body:
            self._head += data
            head, end, data = self._head.partition(_END_OF_HEADERS)
            if not end:
                return False
            self._begin_body(head)
        if data:
            self._take(data, now)
        if self._length is not None:
            return self._body_bytes >= self._length
        return self._chunked and self._tail.endswith(_END_OF_CHUNKS)

    def hang_up(self) -> bool:
        """The server closed the connection: whether the reply is complete by that."""
        return self._in_body and self._length is None and not self._chunked

    def reply(self) -> Reply:
        """What was read of a complete reply."""
        first_at = 0.0 if self._first_at is None else self._first_at
        return Reply(self._status, self._streams, self.events, first_at, self._tail[2:])

    def _begin_body(self, head: bytes) -> None:
        self._in_body = True
        # So that the first event is preceded by a line end too, wherever the body begins.
        self._tail = b"\r\n"
        self._status = int(head.split(b" ", 2)[1])
        length = _CONTENT_LENGTH.search(head)
        self._length = int(length[1]) if length else None
        self._chunked = _CHUNKED.search(head) is not None
        self._streams = b"text/event-stream" in head.lower()

    def _take(self, data: bytes, now: float) -> None:
        self._body_bytes += len(data)
        # An event's start may be cut in two by the network.
        overlap = self._tail[-len(_EVENT_START) + 1 :]
        self.events += (overlap + data).count(_EVENT_START)
        if self._first_at is None and (self.events or not self._streams):
            self._first_at = now
        self._tail = (self._tail + data)[-_TAIL_BYTES:]


class Connection(asyncio.Protocol):
    """A connection that is kept for one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._reader = ReplyReader()
        self._complete: asyncio.Future[Reply] | None = None
        self._on_event: Callable[[], object] | None = None

    async def ask(self, request: bytes, on_event: Callable[[], object] | None = None) -> Reply:
        """Send a request and wait for all of its answer.

        on_event: called when events came, once for what came together.

        Raises:
            BenchmarkError: the server hung up.
        """
        assert self._transport is not None
        self._reader = ReplyReader()
        self._on_event = on_event
        self._complete = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._complete

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._complete = None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio's do, but are no subclasses of them.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if self._complete is None or self._complete.done():
            return
        events = self._reader.events
        complete = self._reader.feed(data, time.perf_counter())
        if self._on_event is not None and self._reader.events > events:
            self._on_event()
        if complete:
            self._complete.set_result(self._reader.reply())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._complete is None or self._complete.done():
            return
        if self._reader.hang_up():
            self._complete.set_result(self._reader.reply())
        else:
            self._complete.set_exception(BenchmarkError(f"The server hung up: {exc}"))


async def connect(port: int) -> Connection:
    """A connection to a server on the loopback."""
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(Connection, HOST, port))[1]


def http_request(port: int, path: str, fields: dict[str, Any]) -> bytes:
    """A request with these fields as JSON, as it goes over the wire."""
    body = json.dumps(fields).encode()
    head = (
        f"POST {path} HTTP/1.1\r\n"
        f"host: {HOST}:{port}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Load:
    """What the client does: on each of its connections, one request after the other."""

    port: int
    path: str
    body: dict[str, Any]
    connections: int
    requests_per_connection: int


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the client saw. Times in seconds."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    events: int
    """Server-sent events with JSON; 0 where nothing was streamed."""
    seconds: float
    """From the first request's first byte to the last answer's last byte."""
    first: float
    """Median time from a request to its first event, or to the answer's first byte."""
    latency: float
    """Median time from a request to its last byte."""


async def drive(load: Load) -> LoadResult:
    """Put the load on the server; connections are opened before the clock starts.

    Raises:
        BenchmarkError: any request failed.
    """
    request = http_request(load.port, load.path, load.body)
    connections = [await connect(load.port) for _ in range(load.connections)]
    replies: list[Reply] = []
    tokens: list[tuple[int, int]] = []
    firsts: list[float] = []
    latencies: list[float] = []

    async def use(connection: Connection) -> None:
        for _ in range(load.requests_per_connection):
            asked = time.perf_counter()
            reply = await connection.ask(request)
            latencies.append(time.perf_counter() - asked)
            tokens.append(reply.tokens())
            firsts.append(reply.first_at - asked)
            replies.append(reply)

    started = time.perf_counter()
    await asyncio.gather(*map(use, connections))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return LoadResult(
        requests=len(replies),
        prompt_tokens=sum(prompt for prompt, _ in tokens),
        completion_tokens=sum(completion for _, completion in tokens),
        events=sum(reply.events for reply in replies),
        seconds=seconds,
        first=statistics.median(firsts),
        latency=statistics.median(latencies),
    )


def run_load(load: Load) -> LoadResult:
    """Put the load on the server from another process.

    Raises:
        BenchmarkError: with what that process said.
    """
    return LoadResult(**ask("benchmarks.running.load", load))


if __name__ == "__main__":
    answer(lambda load: uvloop.run(drive(Load(**load))))
