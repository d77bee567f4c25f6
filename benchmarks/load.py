"""The client: many HTTP streams from a process of its own, reading no more than counting needs.

`python -m benchmarks.load` takes a Load as JSON on stdin and prints a LoadResult as JSON.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import uvloop

from benchmarks.server import HOST, REPOSITORY, BenchmarkError

# A JSON text holds no line end, so no completion can hold this.
_EVENT_START = b"\ndata: {"
_END_OF_HEADERS = b"\r\n\r\n"
_END_OF_CHUNKS = b"\r\n0\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
# How much of a reply's end is kept: the usage object stands there, on either route.
_TAIL_BYTES = 4096

_CONTENT_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens": *(\d+)')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens": *(\d+)')


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


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, as far as the client read it."""

    prompt_tokens: int
    completion_tokens: int
    events: int
    first_at: float
    """On the clock that the reader was given, in seconds."""


class ReplyReader:
    """Reads one HTTP reply as its bytes come: an event stream, or a body with a length."""

    def __init__(self) -> None:
        self._head = b""
        self._in_body = False
        self._body_bytes = 0
        self._length: int | None = None
        self._streams = False
        self._tail = b""
        self._events = 0
        self._first_at: float | None = None

    def feed(self, data: bytes, now: float) -> bool:
        """Take some bytes that came at `now` (seconds); True when the reply is complete.

        Raises:
            BenchmarkError: the answer is not a success.
        """
        if not self._in_body:
            self._head += data
            head, end, data = self._head.partition(_END_OF_HEADERS)
            if not end:
                return False
            self._begin_body(head)
            # So that the first event is preceded by a line end too, wherever the body begins.
            self._tail = b"\r\n"
        if data:
            self._take(data, now)
        return self._is_complete()

    def reply(self) -> Reply:
        """What was read of a complete reply.

        Raises:
            BenchmarkError: there is no usage, or the stream ended without [DONE].
        """
        if self._streams and _DONE not in self._tail:
            raise BenchmarkError(f"A stream without [DONE] ended in {self._tail[-300:]!r}")
        prompt = _PROMPT_TOKENS.findall(self._tail)
        completion = _COMPLETION_TOKENS.findall(self._tail)
        if not prompt or not completion or self._first_at is None:
            raise BenchmarkError(f"An answer without usage ended in {self._tail[-300:]!r}")
        return Reply(int(prompt[-1]), int(completion[-1]), self._events, self._first_at)

    def _begin_body(self, head: bytes) -> None:
        self._in_body = True
        status = head.split(b" ", 2)[1]
        length = _CONTENT_LENGTH.search(head)
        self._length = int(length[1]) if length else None
        self._streams = b"text/event-stream" in head.lower()
        if status != b"200":
            raise BenchmarkError(f"The server answered {self._head.decode(errors='replace')}")

    def _take(self, data: bytes, now: float) -> None:
        self._body_bytes += len(data)
        if self._streams:
            # An event's start may be cut in two by the network.
            overlap = self._tail[-len(_EVENT_START) + 1 :]
            self._events += (overlap + data).count(_EVENT_START)
        if self._first_at is None and (self._events or not self._streams):
            self._first_at = now
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def _is_complete(self) -> bool:
        if self._length is not None:
            return self._body_bytes >= self._length
        return self._tail.endswith(_END_OF_CHUNKS)


class _Connection(asyncio.Protocol):
    """A connection that is kept for one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._reader = ReplyReader()
        self._complete: asyncio.Future[Reply] | None = None

    async def ask(self, request: bytes) -> Reply:
        """Send a request and wait for all of its answer."""
        assert self._transport is not None
        self._reader = ReplyReader()
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
        try:
            if self._reader.feed(data, time.perf_counter()):
                self._complete.set_result(self._reader.reply())
        except BenchmarkError as error:
            self._complete.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._complete is not None and not self._complete.done():
            self._complete.set_exception(BenchmarkError(f"The server hung up: {exc}"))


def http_request(load: Load) -> bytes:
    """A load's request, as it goes over the wire."""
    body = json.dumps(load.body).encode()
    head = (
        f"POST {load.path} HTTP/1.1\r\n"
        f"host: {HOST}:{load.port}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def drive(load: Load) -> LoadResult:
    """Put the load on the server; connections are opened before the clock starts.

    Raises:
        BenchmarkError: any request failed.
    """
    loop = asyncio.get_running_loop()
    request = http_request(load)
    connections = [
        (await loop.create_connection(_Connection, HOST, load.port))[1]
        for _ in range(load.connections)
    ]
    replies: list[Reply] = []
    firsts: list[float] = []
    latencies: list[float] = []

    async def use(connection: _Connection) -> None:
        for _ in range(load.requests_per_connection):
            asked = time.perf_counter()
            reply = await connection.ask(request)
            latencies.append(time.perf_counter() - asked)
            firsts.append(reply.first_at - asked)
            replies.append(reply)

    started = time.perf_counter()
    await asyncio.gather(*map(use, connections))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return LoadResult(
        requests=len(replies),
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        completion_tokens=sum(reply.completion_tokens for reply in replies),
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
    client = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        cwd=REPOSITORY,
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=False,
    )
    if client.returncode != 0:
        raise BenchmarkError(f"The client failed:\n{client.stderr.strip()}")
    return LoadResult(**json.loads(client.stdout))


def main() -> None:
    """Read a load from stdin, drive it, print its result."""
    load = Load(**json.load(sys.stdin))
    try:
        result = uvloop.run(drive(load))
    except BenchmarkError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
