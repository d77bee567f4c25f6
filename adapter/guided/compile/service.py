"""Compiles constraints before their requests reach the engine, off the event loop.

Nobody waits for somebody else's grammar: each backend has workers of its own, each request to them
a time limit that ends it, and what was once compiled is cached.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from adapter import metrics
from adapter.errors import (
    ApiError,
    GenerationFailed,
    InvalidRequest,
    NotSatisfied,
    NotSupported,
    Unavailable,
)
from adapter.guided.compile.cache import ConstraintCache
from adapter.guided.compile.messages import (
    Message,
    check_request,
    compile_request,
    worker_request,
)
from adapter.guided.compile.processes import (
    ForkServer,
    TimeLimitExceeded,
    WorkerLost,
    WorkerPool,
)
from adapter.guided.constraint import (
    AUTO,
    GUIDANCE,
    LM_FORMAT_ENFORCER,
    OUTLINES,
    XGRAMMAR,
    Constraint,
)
from adapter.guided.program import Program
from adapter.guided.vocabulary import Vocabulary

_CHECK = "check"


class _Workers(NamedTuple):
    most: int
    niceness: int


# Workers at once for each backend and for checks, and their niceness towards the engine's threads.
# The libraries that can take seconds have more of them, so that a quick constraint finds one free.
_WORKERS = {
    AUTO: _Workers(4, niceness=2),
    GUIDANCE: _Workers(4, niceness=2),
    LM_FORMAT_ENFORCER: _Workers(4, niceness=5),
    XGRAMMAR: _Workers(8, niceness=10),
    OUTLINES: _Workers(16, niceness=10),
    _CHECK: _Workers(2, niceness=2),
}

# Seconds for which a constraint that took too long is refused without another try.
_TIMEOUT_CACHED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A constraint that the libraries can hold."""

    program: Program
    backend: str
    schema: str | None = None
    """The schema that a finished text has to be checked against, where the libraries hold less."""


class CompileService:
    """Compiles the constraints of one server process."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        seconds: float,
        cache_bytes: int,
        relaxed: bool,
        documents: Path | None = None,
    ) -> None:
        """seconds: what compiling one constraint may take; relaxed: see ConstraintCompiler.

        documents: a folder of what schemas may refer to beside themselves.
        """
        self.vocabulary = vocabulary
        self._seconds = seconds
        self._relaxed = relaxed
        self._fork_server = ForkServer(vocabulary, documents)
        self._pools = {
            name: WorkerPool(
                self._fork_server, workers.most, worker_request(workers.niceness, name)
            )
            for name, workers in _WORKERS.items()
        }
        self._cache: ConstraintCache[CompiledConstraint | ApiError] = ConstraintCache(cache_bytes)
        self._running: dict[Constraint, asyncio.Task[CompiledConstraint]] = {}

    def start(self) -> None:
        """Start loading the libraries, in a process of their own."""
        self._fork_server.start()

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.close()
        self._fork_server.close()

    async def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile a constraint, or find it compiled.

        Raises:
            InvalidRequest: it cannot be served, or not within the time limit; names the field.
            Unavailable: all workers are busy with other constraints.
        """
        cached = self._cache.get(constraint)
        metrics.count_lookup(hit=cached is not None)
        if cached is None:
            # Others may wait for it too: who leaves does not end it.
            return await asyncio.shield(self._task(constraint))
        if isinstance(cached, ApiError):
            raise cached.with_traceback(None)
        return cached

    def _task(self, constraint: Constraint) -> "asyncio.Task[CompiledConstraint]":
        """The one task that compiles a constraint."""
        task = self._running.get(constraint)
        if task is None:
            task = asyncio.create_task(self._compile_timed(constraint))
            self._running[constraint] = task
            task.add_done_callback(lambda done: self._forget(constraint, done))
        return task

    def _forget(self, constraint: Constraint, task: "asyncio.Task[CompiledConstraint]") -> None:
        del self._running[constraint]
        if not task.cancelled():
            task.exception()  # all who waited may have left

    async def _compile_timed(self, constraint: Constraint) -> CompiledConstraint:
        started = time.monotonic()
        try:
            return await self._compile(constraint)
        finally:
            metrics.observe_compile(constraint.backend, time.monotonic() - started)

    async def _compile(self, constraint: Constraint) -> CompiledConstraint:
        answer = await self._answer(constraint)
        if "refused" in answer:
            error = NotSupported(answer["refused"], param=answer["field"] or constraint.field)
            self._cache.put(constraint, error, len(answer["refused"]))
            raise error
        program = Program.loads(answer["program"])
        schema = constraint.text if answer["checked"] else None
        compiled = CompiledConstraint(program, answer["backend"], schema)
        self._cache.put(constraint, compiled, len(answer["program"]), parts=program.parts)
        return compiled

    async def _answer(self, constraint: Constraint) -> Message:
        """What a worker answers to a constraint."""
        request = compile_request(constraint, relaxed=self._relaxed, seconds=self._seconds)
        try:
            return await self._pools[constraint.backend].run(request)
        except TimeLimitExceeded as exceeded:
            error = _timed_out(constraint, self._seconds)
            if exceeded.of_cpu:
                self._cache.put(constraint, error, 0, seconds=_TIMEOUT_CACHED_SECONDS)
            raise error from None
        except WorkerLost:
            raise InvalidRequest(
                f"{constraint.field}: {constraint.backend} failed on it while it was compiled.",
                param=constraint.field,
            ) from None

    async def check(self, schema: str, text: str) -> None:
        """Validate a finished text.

        Raises:
            NotSatisfied: the text is not what the schema asks for.
            GenerationFailed: that cannot be told.
        """
        request = check_request(schema, text, seconds=self._seconds)
        try:
            answer = await self._pools[_CHECK].run(request)
        except (TimeLimitExceeded, WorkerLost, Unavailable):
            raise GenerationFailed(
                "The finished text could not be checked against the schema."
            ) from None
        if answer["fault"] is not None:
            raise NotSatisfied(
                "The generated text does not satisfy the schema, which no backend can hold as a "
                f"whole: {answer['fault']}. Ask again, or make the schema simpler."
            )


def _timed_out(constraint: Constraint, seconds: float) -> InvalidRequest:
    others = "" if constraint.backend == AUTO else " Another backend may be quicker: auto is."
    return InvalidRequest(
        f"{constraint.field}: {constraint.backend} could not compile it within {seconds:g} s."
        f"{others}",
        param=constraint.field,
        code="constraint_timeout",
    )
