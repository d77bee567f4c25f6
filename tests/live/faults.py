"""Load of all kinds, what its clients see when a server fails, and what a server leaves behind."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from tests.live.server import Server, sse_events, strict_json

# Each runs for many seconds on the tiny model.
LONG = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True}
KINDS: dict[str, dict[str, Any]] = {
    "stream": {**LONG, "stream": True},
    "whole": {**LONG, "n": 2},
    "best_of": {**LONG, "best_of": 3, "logprobs": 2},
    "beams": {**LONG, "use_beam_search": True, "n": 2, "temperature": 0},
    "guided stream": {**LONG, "guided_regex": "[a-z]{1900}", "stream": True},
    "many prompts": {**LONG, "prompt": ["Once", "Twice"], "stream": True, "logprobs": 1},
}


@dataclass(frozen=True)
class Seen:
    """What a client saw of its request."""

    kind: str
    status: int
    body: str
    stream: bool
    cut: bool
    """Whether the connection was closed before the answer was whole."""
    ended: float
    """On the monotonic clock."""

    def error(self) -> dict[str, Any] | None:
        """The error that ended it, in a stream's last event or in place of an answer."""
        last = self.body
        if self.stream and self.status == 200:
            *events, done = sse_events(self.body.encode())
            assert done == "[DONE]"
            last = events[-1]
        error: dict[str, Any] | None = strict_json(last).get("error")
        return error


class Load:
    """Requests of all kinds that run at the same time."""

    def __init__(self, server: Server, copies: int = 2) -> None:
        """Start them, and wait until each stream has shown something."""
        self._server = server
        kinds = [kind for kind in KINDS for _ in range(copies)]
        streams = sum("stream" in KINDS[kind] for kind in kinds)
        self._begun = threading.Semaphore(0)
        self._pool = ThreadPoolExecutor(len(kinds))
        self._tasks: list[Future[Seen]] = [self._pool.submit(self._ask, kind) for kind in kinds]
        for _ in range(streams):
            assert self._begun.acquire(timeout=120), "a stream did not begin"

    def seen(self) -> list[Seen]:
        """What all clients saw, at the end."""
        with self._pool:
            return [task.result() for task in self._tasks]

    def _ask(self, kind: str) -> Seen:
        fields = KINDS[kind]
        raw = bytearray()
        status, cut = 0, False
        body = {"model": self._server.model, **fields}
        url = f"{self._server.url}/v2/completions"
        try:
            with httpx.stream("POST", url, json=body, timeout=120) as response:
                status = response.status_code
                for piece in response.iter_raw():
                    if fields.get("stream") and not raw:
                        self._begun.release()
                    raw.extend(piece)
        except httpx.RemoteProtocolError:
            cut = True
        return Seen(kind, status, raw.decode(), "stream" in fields, cut, time.monotonic())


@dataclass(frozen=True)
class Left:
    """What a server's processes hold."""

    processes: int
    threads: int
    descriptors: int

    def within(self, before: "Left", margin: int = 8) -> bool:
        """No more than before, but for the few that pools of threads and workers come to have."""
        return all(
            getattr(self, name) <= getattr(before, name) + margin
            for name in ("processes", "threads", "descriptors")
        )


def left(server: Server) -> Left:
    """Of the server, its engine, and what compiles beside it."""
    found = processes(server)
    return Left(
        len(found),
        sum(process.num_threads() for process in found),
        sum(process.num_fds() for process in found),
    )


def processes(server: Server) -> list[psutil.Process]:
    """The server's own, first, and all that it started."""
    own = psutil.Process(server.process.pid)
    return [own, *own.children(recursive=True)]


def engine_core(server: Server) -> psutil.Process:
    """The process that the model runs in."""
    (found,) = [p for p in processes(server) if "EngineCore" in " ".join(p.cmdline())]
    return found


def compilers(server: Server) -> list[psutil.Process]:
    """The processes that compile constraints, the one that starts the others first."""
    module = "adapter.guided.compile.worker"
    return [p for p in processes(server) if module in " ".join(p.cmdline())]


def soon(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.1)
    return False
