"""Reads bodies without holding up the event loop, the server's side."""

import asyncio
import contextlib
import pickle
import subprocess
import sys
import time
from typing import IO

from adapter.errors import BodyTooLarge, InvalidRequest, Unavailable
from adapter.planning.facts import ServerFacts
from adapter.reading.messages import CPU_SECONDS, HEADER, Answer, unpacked
from adapter.reading.read import Reading, read

SMALL = 2**16
"""Bytes of a body that is read at once, whatever is in it: it takes some tens of milliseconds at
most, in the order of one step of an engine."""
SMALL_TEXT = 2**20
SMALL_COUNT = 2**13
"""A larger one is too, up to so many bytes, where it can hold no more than so many values."""

MAX_WORKERS = 2
MAX_WAITING = 256 * 2**20
"""Bytes of bodies that wait for a process, before one more is refused."""

_MODULE = "adapter.reading.worker"
_NEARLY = 0.9
"""Of its limit, what a body must have taken to have been ended there."""


def is_small(body: bytes) -> bool:
    """Whether reading it takes no time that anybody notices."""
    if len(body) <= SMALL:
        return True
    return len(body) <= SMALL_TEXT and sum(map(body.count, (b",", b"[", b"{"))) <= SMALL_COUNT


class BodyReader:
    """Reads the bodies of one server. Its processes are started when one is large."""

    def __init__(self, facts: ServerFacts) -> None:
        self._facts = facts
        self._free = asyncio.Semaphore(MAX_WORKERS)
        self._idle: list[_Worker] = []
        self._waiting = 0

    async def read(self, body: bytes) -> Reading:
        """What a body asks for.

        Raises:
            InvalidRequest: it breaks the contract's form, or takes too much to be read.
            Unavailable: too many large ones are being read.
        """
        if is_small(body):
            return read(body, self._facts)
        if self._waiting + len(body) > MAX_WAITING:
            raise Unavailable(
                "The server is busy reading other large bodies.", code="engine_overloaded"
            )
        self._waiting += len(body)
        try:
            async with self._free:
                answer = await self._asked(body)
        finally:
            self._waiting -= len(body)
        if isinstance(answer, InvalidRequest):
            raise answer
        return answer

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().close()

    async def _asked(self, body: bytes) -> Answer:
        """The answer of a process, which is ended where the caller leaves."""
        worker = self._worker()
        started = time.monotonic()
        try:
            answer = await asyncio.to_thread(worker.ask, body)
        except (EOFError, OSError):
            _close(worker)
            late = time.monotonic() - started > CPU_SECONDS * _NEARLY
            why = f"it takes more than {CPU_SECONDS:g} s" if late else "it takes too much memory"
            raise BodyTooLarge(f"The body is too large to be read: {why}.") from None
        except BaseException:
            _close(worker)
            raise
        self._idle.append(worker)
        return answer

    def _worker(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive():
                return worker
            worker.close()
        return _Worker(self._facts)


def _close(worker: "_Worker") -> None:
    """End a process, whose memory takes the kernel some time to clear away."""
    asyncio.get_running_loop().run_in_executor(None, worker.close)


class _Worker:
    """A process that reads one body after another."""

    def __init__(self, facts: ServerFacts) -> None:
        self._facts: ServerFacts | None = facts
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is the server's; it ends when the pipe to it is closed
        )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, body: bytes) -> Answer:
        """The answer to a body; blocks.

        Raises:
            EOFError, OSError: the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._facts is not None:
            _send(self._process.stdin, pickle.dumps(self._facts))
            self._facts = None
        _send(self._process.stdin, body)
        (length,) = HEADER.unpack(_received(self._process.stdout, HEADER.size))
        return unpacked(_received(self._process.stdout, length))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(HEADER.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _received(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content
