"""The server's side of the processes that compile: the fork server, its workers, their pools."""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adapter.errors import Unavailable
from adapter.guided.compile.messages import HEADER, READY, WALL_FACTOR, Message, encoded
from adapter.guided.vocabulary import Vocabulary

# A worker that worked longer than this, in CPU seconds, is not used again: its memory has grown.
_LONG_REQUEST = 0.5

# Workers of a pool that wait for the next request: a burst leaves no more behind.
_MAX_IDLE = 2

MAX_WAITING = 256
"""Requests that wait for a worker of a pool, before one more is refused: each may be a megabyte."""

# Of its limit, what a request must have taken to have been ended there: clocks differ a little.
_NEARLY = 0.95

# Seconds beyond its limit before an answer is given up; the kernel ends the worker before.
_GRACE_SECONDS = 2.0

# Seconds that a new worker may take to start: as long as it takes to load all libraries.
_START_SECONDS = 60.0

_MODULE = "adapter.guided.compile.worker"


class TimeLimitExceeded(Exception):
    """A request was ended at its limit."""

    def __init__(self, *, of_cpu: bool) -> None:
        """of_cpu: it used up its CPU time; else the machine was too busy."""
        super().__init__()
        self.of_cpu = of_cpu


class WorkerLost(Exception):
    """A worker ended over a request: a library crashed, or took too much memory."""


class ForkServer:
    """The process that loads the libraries, and is forked for each worker."""

    def __init__(self, vocabulary: Vocabulary, documents: Path | None = None) -> None:
        """documents: a folder of what schemas may refer to beside themselves."""
        self._vocabulary = vocabulary
        self._documents = documents
        self._folder: Path | None = None
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, once more where it runs."""
        self.close()
        self._folder = Path(tempfile.mkdtemp(prefix="completion-v2-"))  # for this user alone
        path = self._folder / "vocabulary"
        self._vocabulary.save(path)
        self._control, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), str(path), str(self._folder)]
        if self._documents is not None:
            arguments.append(str(self._documents))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Ctrl-C is the server's; they end with its sockets. A session of their own would
                # also be a scheduling group of its own, and their niceness count for nothing.
                process_group=0,
            )

    def close(self) -> None:
        """End it, and its workers when they are idle; its folder goes too."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._folder is not None:  # the process removes it, unless it was lost
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def fork(self, request: bytes) -> "Worker":
        """A new worker; request: a worker_request().

        Raises:
            EOFError, OSError: it does not start.
        """
        if self._process is None or self._process.poll() is not None:
            self.start()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [request], [theirs.fileno()])
        ours.setblocking(False)
        worker = Worker(*await asyncio.open_connection(sock=ours, limit=2**26))
        # While the libraries are loaded this takes seconds, which are no constraint's own.
        try:
            async with asyncio.timeout(_START_SECONDS):
                await worker.started()
        except BaseException:
            worker.close()
            raise
        return worker


class Worker:
    """A connection to one worker, which ends when it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def started(self) -> None:
        """Wait until it takes requests.

        Raises:
            EOFError, OSError: it never will.
        """
        await self._reader.readexactly(len(READY))

    async def ask(self, request: Message) -> Message:
        """The answer to a request.

        Raises:
            EOFError, OSError: the worker ended.
        """
        self._writer.write(encoded(request))
        await self._writer.drain()
        (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        answer: Message = json.loads(await self._reader.readexactly(length))
        return answer

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(Exception):
            self._writer.close()


class WorkerPool:
    """The workers for one kind of request."""

    def __init__(self, fork_server: ForkServer, count: int, request: bytes) -> None:
        """count: workers at once; request: the worker_request() that each is forked by."""
        self._fork_server = fork_server
        self._request = request
        self._free = asyncio.Semaphore(count)
        self._idle: list[Worker] = []
        self._waiting = 0

    def close(self) -> None:
        """End the idle workers."""
        while self._idle:
            self._idle.pop().close()

    async def run(self, request: Message) -> Message:
        """The answer to a request.

        Raises:
            TimeLimitExceeded: it took longer than it may.
            WorkerLost: the worker ended, and so did another one.
            Unavailable: no worker became free, too many others wait for one, or none starts.
        """
        busy = Unavailable(
            "The server is busy compiling other constraints.", code="engine_overloaded"
        )
        if self._waiting >= MAX_WAITING:
            raise busy
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), request["seconds"] * WALL_FACTOR)
        except TimeoutError:
            raise busy from None
        finally:
            self._waiting -= 1
        try:
            return await self._run(request)
        finally:
            self._free.release()

    async def _run(self, request: Message) -> Message:
        try:
            worker = self._idle.pop() if self._idle else await self._forked()
            return await self._ask(worker, request)
        except WorkerLost:
            # It may have been ended from outside, for its memory or while it was idle. A library
            # that crashes on this request does so again.
            return await self._ask(await self._forked(), request)

    async def _forked(self) -> Worker:
        try:
            return await self._fork_server.fork(self._request)
        except (EOFError, OSError):  # TimeoutError is one
            raise Unavailable("The processes that compile constraints do not start.") from None

    async def _ask(self, worker: Worker, request: Message) -> Message:
        started = time.monotonic()
        reusable = False
        try:
            async with asyncio.timeout(request["seconds"] * WALL_FACTOR + _GRACE_SECONDS):
                answer = await worker.ask(request)
            reusable = answer.pop("seconds") < _LONG_REQUEST
            return answer
        except (EOFError, OSError):  # asyncio's TimeoutError is one
            spent = (time.monotonic() - started) / request["seconds"]
            if spent < _NEARLY:
                raise WorkerLost from None
            raise TimeLimitExceeded(of_cpu=spent < WALL_FACTOR * _NEARLY) from None
        finally:
            if reusable and len(self._idle) < _MAX_IDLE:
                self._idle.append(worker)
            else:
                worker.close()
