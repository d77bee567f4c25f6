"""Compiles constraints before their requests reach the engine, off the event loop.

Nobody waits for somebody else's grammar: each backend has workers of its own, each piece of work a
time limit that ends it, and what was once compiled is kept.
"""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter import metrics
from adapter.errors import ApiError, GenerationFailed, InvalidRequest, NotSupported, Unavailable
from adapter.guided.compile.messages import (
    HEADER,
    LOADED,
    READY,
    WALL_FACTOR,
    Job,
    check_job,
    plan_job,
)
from adapter.guided.constraint import (
    AUTO,
    GUIDANCE,
    LM_FORMAT_ENFORCER,
    OUTLINES,
    XGRAMMAR,
    Constraint,
)
from adapter.guided.program import Part, Program
from adapter.guided.vocabulary import Vocabulary

_CHECK = "check"

# Workers at once for each kind of work, and how far each stands back for the engine's threads. The
# libraries that can take seconds have more of them, so that a quick constraint finds one free.
_WORKERS = {
    AUTO: (4, 2),
    GUIDANCE: (4, 2),
    LM_FORMAT_ENFORCER: (4, 5),
    XGRAMMAR: (8, 10),
    OUTLINES: (16, 10),
    _CHECK: (2, 2),
}

# A worker that worked longer than this, in CPU seconds, is not used again: its memory has grown.
_LONG_JOB = 0.5

# Workers of a kind that wait for the next job: a burst leaves no more behind.
_MOST_IDLE = 2

# Of its limit, what a job must have taken to have been ended there: clocks differ a little.
_NEARLY = 0.95

# Seconds beyond its limit before an answer is given up; the kernel ends the worker before.
_GRACE = 2.0

# Seconds that a new worker may take to start: as long as it takes to load all libraries.
_START_SECONDS = 60.0

# Seconds for which a constraint that took too long is refused without another try.
_KEEP_TIME_OUT = 60.0


def _needed(kind: str) -> int:
    """The place in LOADED of what a kind of work needs."""
    return LOADED.index(kind) if kind in LOADED else LOADED.index(AUTO)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A constraint that the libraries can hold."""

    program: Program
    backend: str
    schema: str | None = None
    """The schema that a finished text has to be checked against, where the libraries hold less."""


class Admission:
    """Admits constraints for one server process."""

    def __init__(
        self, vocabulary: Vocabulary, *, seconds: float, cache_bytes: int, relaxed: bool
    ) -> None:
        """seconds: what compiling one constraint may take; relaxed: see Planner.plan()."""
        self.vocabulary = vocabulary
        self._workshop = _Workshop(vocabulary)
        self._seconds = seconds
        self._relaxed = relaxed
        self._pools = {
            kind: _Pool(self._workshop, count, bytes([niceness, _needed(kind)]))
            for kind, (count, niceness) in _WORKERS.items()
        }
        self._kept = _Kept(cache_bytes)
        self._running: dict[Constraint, asyncio.Task[Admitted]] = {}

    def start(self) -> None:
        """Start loading the libraries, in a process of their own."""
        self._workshop.start()

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.close()
        self._workshop.close()

    async def admit(self, constraint: Constraint) -> Admitted:
        """Compile a constraint, or find it compiled.

        Raises:
            InvalidRequest: it cannot be served, or not within the time limit; names the field.
            Unavailable: all workers are busy with other constraints.
        """
        kept = self._kept.get(constraint)
        metrics.count_lookup(hit=kept is not None)
        if kept is not None:
            if isinstance(kept, ApiError):
                raise kept.with_traceback(None)
            return kept
        task = self._running.get(constraint)
        if task is None:
            task = asyncio.create_task(self._compile(constraint))
            self._running[constraint] = task
            task.add_done_callback(lambda done: self._forget(constraint, done))
        # Others may wait for it too: who leaves does not end it.
        return await asyncio.shield(task)

    def _forget(self, constraint: Constraint, task: "asyncio.Task[Admitted]") -> None:
        del self._running[constraint]
        if not task.cancelled():
            task.exception()  # all who waited may have left

    async def _compile(self, constraint: Constraint) -> Admitted:
        started = time.monotonic()
        try:
            return await self._compile_cold(constraint)
        finally:
            metrics.observe_compile(constraint.backend, time.monotonic() - started)

    async def _compile_cold(self, constraint: Constraint) -> Admitted:
        pool = self._pools[constraint.backend]
        job = plan_job(constraint, relaxed=self._relaxed, seconds=self._seconds)
        try:
            answer = await pool.run(job)
        except TookTooLong as fault:
            error: ApiError = _took_too_long(constraint, self._seconds)
            if fault.of_itself:
                self._kept.put(constraint, error, 0, seconds=_KEEP_TIME_OUT)
            raise error from None
        except WorkerLost:
            raise InvalidRequest(
                f"{constraint.field}: {constraint.backend} failed on it while it was compiled.",
                param=constraint.field,
            ) from None
        if "refused" in answer:
            error = NotSupported(answer["refused"], param=answer["field"] or constraint.field)
            self._kept.put(constraint, error, len(answer["refused"]))
            raise error
        program = Program.loads(answer["program"])
        schema = constraint.text if answer["checked"] else None
        admitted = Admitted(program, answer["backend"], schema)
        self._kept.put(constraint, admitted, len(answer["program"]))
        return admitted

    async def check(self, schema: str, text: str) -> None:
        """Validate a finished text.

        Raises:
            GenerationFailed: the text is not what the schema asks for, or that cannot be told.
        """
        try:
            answer = await self._pools[_CHECK].run(check_job(schema, text, seconds=self._seconds))
        except (TookTooLong, WorkerLost, Unavailable):
            raise GenerationFailed(
                "The finished text could not be checked against the schema."
            ) from None
        if answer["fault"] is not None:
            raise GenerationFailed(
                "The generated text does not satisfy the schema, which no backend can hold as a "
                f"whole: {answer['fault']}. Ask again, or make the schema simpler.",
                code="constraint_not_satisfied",
            )


def _took_too_long(constraint: Constraint, seconds: float) -> InvalidRequest:
    others = "" if constraint.backend == AUTO else " Another backend may be quicker: auto is."
    return InvalidRequest(
        f"{constraint.field}: {constraint.backend} could not compile it within {seconds:g} s."
        f"{others}",
        param=constraint.field,
        code="constraint_timeout",
    )


class _Kept:
    """What became of constraints, the least used left out where there are too many bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._named: Counter[str | None] = Counter()
        """How many entries have a file."""
        self._entries: OrderedDict[Constraint, tuple[Admitted | ApiError, int, float]] = (
            OrderedDict()
        )

    def get(self, constraint: Constraint) -> Admitted | ApiError | None:
        entry = self._entries.get(constraint)
        if entry is None:
            return None
        outcome, _, until = entry
        if until < time.monotonic():
            self._drop(constraint)
            return None
        self._entries.move_to_end(constraint)
        return outcome

    def put(
        self,
        constraint: Constraint,
        outcome: Admitted | ApiError,
        size: int,
        *,
        seconds: float = float("inf"),
    ) -> None:
        size += (
            len(constraint.text) + 500 + sum(part.artifact_bytes for part in _artifacts(outcome))
        )
        self._entries[constraint] = (outcome, size, time.monotonic() + seconds)
        self._named.update(part.artifact for part in _artifacts(outcome))
        self._bytes += size
        while self._bytes > self._limit and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _drop(self, constraint: Constraint) -> None:
        outcome, size, _ = self._entries.pop(constraint)
        self._bytes -= size
        for part in _artifacts(outcome):
            self._named[part.artifact] -= 1
            if not self._named[part.artifact]:
                del self._named[part.artifact]
                Path(str(part.artifact)).unlink(missing_ok=True)


def _artifacts(outcome: Admitted | ApiError) -> list[Part]:
    if isinstance(outcome, ApiError):
        return []
    return [part for part in outcome.program.parts if part.artifact is not None]


# --- processes ----------------------------------------------------------------------------------


class TookTooLong(Exception):
    """A job was ended at its limit."""

    def __init__(self, *, of_itself: bool) -> None:
        """of_itself: it used up its CPU time; else the machine was too busy."""
        super().__init__()
        self.of_itself = of_itself


class WorkerLost(Exception):
    """A worker ended in the middle of a job: a library crashed, or took too much memory."""


class _Workshop:
    """The process that loads the libraries, and is forked for each worker."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._folder: Path | None = None
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.close()
        self._folder = Path(tempfile.mkdtemp(prefix="completion-v2-"))  # for this user alone
        path = self._folder / "vocabulary"
        self._vocabulary.save(path)
        self._control, theirs = socket.socketpair()
        module = "adapter.guided.compile.worker"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(path), str(self._folder)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Ctrl-C is the server's; they end with its sockets. A session of their own would
                # also be a scheduling group of its own, and their niceness count for nothing.
                process_group=0,
            )

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._folder is not None:  # the process removes it, unless it was lost
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def worker(self, request: bytes) -> "_Worker":
        """A new worker; request: see jobs.LOADED.

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
        worker = _Worker(*await asyncio.open_connection(sock=ours, limit=2**26))
        # While the libraries are loaded this takes seconds, which are no constraint's own.
        try:
            async with asyncio.timeout(_START_SECONDS):
                await worker.started()
        except BaseException:
            worker.close()
            raise
        return worker


class _Worker:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def started(self) -> None:
        """Wait until it takes jobs.

        Raises:
            EOFError, OSError: it never will.
        """
        await self._reader.readexactly(len(READY))

    async def ask(self, job: Job) -> dict[str, Any]:
        """The answer to a job.

        Raises:
            EOFError, OSError: the worker ended.
        """
        content = json.dumps(job).encode()
        self._writer.write(HEADER.pack(len(content)) + content)
        await self._writer.drain()
        (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        answer: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        return answer

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.close()


class _Pool:
    """The workers of one kind of work."""

    def __init__(self, workshop: _Workshop, count: int, request: bytes) -> None:
        self._workshop = workshop
        self._request = request
        self._free = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def run(self, job: Job) -> dict[str, Any]:
        """The answer to a job.

        Raises:
            TookTooLong: it took longer than it may.
            WorkerLost: the worker ended.
            Unavailable: no worker became free.
        """
        try:
            await asyncio.wait_for(self._free.acquire(), job["seconds"] * WALL_FACTOR)
        except TimeoutError:
            raise Unavailable(
                "The server is busy compiling other constraints.", code="engine_overloaded"
            ) from None
        try:
            return await self._run(job)
        finally:
            self._free.release()

    async def _run(self, job: Job) -> dict[str, Any]:
        if self._idle:
            started = time.monotonic()
            try:
                return await self._ask(self._idle.pop(), job)
            except WorkerLost:
                if time.monotonic() - started > 0.1:
                    raise
                # It may have ended while it was idle.
        try:
            worker = await self._workshop.worker(self._request)
        except (EOFError, OSError):  # TimeoutError is one
            raise Unavailable("The processes that compile constraints do not start.") from None
        return await self._ask(worker, job)

    async def _ask(self, worker: _Worker, job: Job) -> dict[str, Any]:
        started = time.monotonic()
        keep = False
        try:
            async with asyncio.timeout(job["seconds"] * WALL_FACTOR + _GRACE):
                answer = await worker.ask(job)
            keep = answer.pop("seconds") < _LONG_JOB
            return answer
        except (EOFError, OSError):  # asyncio's TimeoutError is one
            spent = (time.monotonic() - started) / job["seconds"]
            if spent < _NEARLY:
                raise WorkerLost from None
            raise TookTooLong(of_itself=spent < WALL_FACTOR * _NEARLY) from None
        finally:
            if keep and len(self._idle) < _MOST_IDLE:
                self._idle.append(worker)
            else:
                worker.close()
