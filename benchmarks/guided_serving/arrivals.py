"""One plain stream, and requests that arrive beside it, from a process of its own."""

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks.running.load import connect, http_request
from benchmarks.running.process import BenchmarkError, answer, ask

_PULSE = 0.005  # seconds


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One plain stream, and requests that arrive beside it, evenly spaced."""

    port: int
    path: str
    plain: dict[str, Any]
    others: list[dict[str, Any]]
    spacing: float
    """Seconds."""
    patience: float
    """Seconds that each of the others may take."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one of the others was answered."""

    asked: float
    """Seconds after the stream's first event."""
    seconds: float
    status: int
    """The HTTP status; 0 where there was no answer in time."""
    code: str = ""
    """The error's code, where there is one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw of one run."""

    times: list[float]
    """When events of the stream came: seconds after the first one, one number for what came at
    once. The last one is when the stream ended, or the client hung up."""
    answers: list[Answer]
    late: list[float] = field(default_factory=list)
    """Seconds for which the machine kept the client itself waiting, at most, before each time."""
    labels: list[str] = field(default_factory=list)
    """The backends of the others, in their order."""

    @classmethod
    def from_json(cls, seen: Mapping[str, Any]) -> "Seen":
        """What asdict made of one."""
        return cls(**{**seen, "answers": [Answer(**answer) for answer in seen["answers"]]})


class _Timeline:
    """When something of the stream came, and how late this process was to notice."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.late: list[float] = []
        self.started = asyncio.Event()
        self._worst = 0.0
        self._due = math.inf

    async def pulse(self) -> None:
        """Notice when this process does not get to run: that is no stall of the server's."""
        while True:
            self._due = time.perf_counter() + _PULSE
            await asyncio.sleep(_PULSE)
            self._worst = max(self._worst, time.perf_counter() - self._due)

    def note(self) -> None:
        """Close a gap. What came while the process did not run is seen before the pulse is."""
        now = time.perf_counter()
        self.times.append(now)
        self.late.append(max(self._worst, now - self._due, 0.0))
        self._worst = 0.0
        self.started.set()


async def drive(arrivals: Arrivals) -> Seen:
    """Put the requests on the server.

    Raises:
        BenchmarkError: the plain stream did not start, or ended before the others had answers.
    """
    timeline = _Timeline()
    pulse = asyncio.create_task(timeline.pulse())
    stream = asyncio.create_task(_follow(arrivals, timeline))
    first = asyncio.create_task(timeline.started.wait())
    await asyncio.wait([stream, first], return_when=asyncio.FIRST_COMPLETED)
    if not timeline.times:
        await stream
        raise BenchmarkError("The plain stream had no event.")
    asks = [
        _ask(arrivals, body, number * arrivals.spacing, timeline.times[0])
        for number, body in enumerate(arrivals.others)
    ]
    answers = list(await asyncio.gather(*asks))
    if not asks:
        await stream
    elif stream.done():
        raise BenchmarkError("The plain stream ended before the last answer.")
    stream.cancel()
    timeline.note()
    pulse.cancel()
    return Seen([moment - timeline.times[0] for moment in timeline.times], answers, timeline.late)


async def _follow(arrivals: Arrivals, timeline: _Timeline) -> None:
    """Read the plain stream to its end, noting when something came."""
    connection = await connect(arrivals.port)
    request = http_request(arrivals.port, arrivals.path, arrivals.plain)
    try:
        reply = await connection.ask(request, timeline.note)
        if reply.status != 200:
            raise BenchmarkError(f"The plain stream was refused: {reply.status} {reply.end!r}")
    finally:
        connection.close()


async def _ask(arrivals: Arrivals, fields: dict[str, Any], wait: float, zero: float) -> Answer:
    """Wait for its turn, send one of the others, and read its answer."""
    request = http_request(arrivals.port, arrivals.path, fields)
    await asyncio.sleep(wait)
    asked = time.perf_counter()
    status, code = 0, ""
    try:
        async with asyncio.timeout(arrivals.patience):
            connection = await connect(arrivals.port)
            try:
                reply = await connection.ask(request)
            finally:
                connection.close()
        status, code = reply.status, reply.error_code
    except (TimeoutError, OSError, BenchmarkError):
        pass  # no answer in time
    return Answer(asked - zero, time.perf_counter() - asked, status, code)


def run_arrivals(arrivals: Arrivals, labels: list[str]) -> Seen:
    """Drive the arrivals from another process: this one's work makes no gaps there.

    Raises:
        BenchmarkError: with what that process said.
    """
    seen = ask("benchmarks.guided_serving.arrivals", arrivals)
    return Seen.from_json({**seen, "labels": labels})


if __name__ == "__main__":
    answer(lambda arrivals: uvloop.run(drive(Arrivals(**arrivals))))
