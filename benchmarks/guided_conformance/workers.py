"""Judging in several processes; one that works too long on a schema, or dies of it, is replaced."""

import multiprocessing
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from adapter.guided.vocabulary import Vocabulary
from benchmarks.guided_conformance.cases import Task
from benchmarks.guided_conformance.judge import Judge
from benchmarks.guided_conformance.outcomes import Outcome, failed
from benchmarks.running.process import BenchmarkError

SCHEMA_LIMITS = 12
"""How many times the limit of a plan all work on a schema may take."""
START_SECONDS = 600.0


class Setting(NamedTuple):
    """What a worker process needs to know."""

    vocabulary: Path
    backends: Sequence[str]
    seconds: float


def work(connection: Connection, setting: Setting) -> None:
    """Take tasks until there are no more; runs in a process of its own."""
    judge = Judge(Vocabulary.load(setting.vocabulary), setting.seconds)
    connection.send(judge.load(setting.backends))
    while (task := connection.recv()) is not None:
        try:
            connection.send(judge.judge(task))
        except Exception as error:
            connection.send(failed(task, f"{type(error).__name__}: {error}"))
    judge.close()


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, setting: Setting) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, setting), daemon=True)
        self._process.start()
        theirs.close()
        self.task: Task | None = None
        self.ready = False
        self.until = time.monotonic() + START_SECONDS

    def give(self, task: Task, seconds: float) -> None:
        """Let it work on a task for so long."""
        self.task = task
        self.until = time.monotonic() + seconds
        self.connection.send(task)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def finish(self) -> None:
        """Let it end by itself."""
        self.connection.send(None)
        self._process.join(10)
        self.kill()


class Workers:
    """Worker processes; one that works too long on a schema, or dies of it, is replaced."""

    def __init__(self, count: int, setting: Setting) -> None:
        self._setting = setting
        self._seconds = SCHEMA_LIMITS * setting.seconds
        self._workers = [_Worker(setting) for _ in range(count)]
        self.broken: dict[str, str] = {}
        """The backends that could not be loaded, and why."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """The outcomes, as they come; tasks of broken backends are left out."""
        waiting = deque(tasks)
        while True:
            for worker in self._workers:
                self._feed(worker, waiting)
            if not waiting and all(worker.task is None for worker in self._workers):
                break
            connections: list[Any] = [worker.connection for worker in self._workers]
            wait(connections, timeout=1.0)
            for worker in list(self._workers):
                outcome = self._look(worker)
                if outcome is not None:
                    yield outcome
        for worker in self._workers:
            worker.finish() if worker.ready else worker.kill()

    def _feed(self, worker: _Worker, waiting: deque[Task]) -> None:
        while waiting and worker.ready and worker.task is None:
            task = waiting.popleft()
            if task.backend not in self.broken:
                worker.give(task, self._seconds)

    def _look(self, worker: _Worker) -> Outcome | None:
        """What a worker says."""
        try:
            if worker.connection.poll():
                return self._hear(worker)
        except (EOFError, OSError):
            return self._replace(worker, "the worker process ended")
        if worker.until < time.monotonic() and (worker.task or not worker.ready):
            return self._replace(worker, f"no answer within {self._seconds:g} s")
        return None

    def _hear(self, worker: _Worker) -> Outcome | None:
        said = worker.connection.recv()
        if not worker.ready:
            self.broken.update(said)
            worker.ready = True
            return None
        worker.task = None
        outcome: Outcome = said
        return outcome

    def _replace(self, worker: _Worker, reason: str) -> Outcome | None:
        worker.kill()
        if not worker.ready:
            raise BenchmarkError(f"a worker process could not start: {reason}")
        self._workers[self._workers.index(worker)] = _Worker(self._setting)
        return None if worker.task is None else failed(worker.task, reason)
