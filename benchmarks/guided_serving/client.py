"""The client, in a process of its own: one plain stream, and requests that arrive beside it.

`python -m benchmarks.guided_serving.client` takes Arrivals as JSON on stdin and prints what was
Seen as JSON.
"""

import asyncio
import json
import math
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from benchmarks.server import HOST, REPOSITORY, BenchmarkError

_EVENT = b"data: {"
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


async def drive(arrivals: Arrivals) -> Seen:
    """Put the requests on the server.

    Raises:
        BenchmarkError: the plain stream did not start.
    """
    bodies = [_request(arrivals, body) for body in arrivals.others]
    times: list[float] = []
    pulse = _Pulse()
    started = asyncio.Event()
    stream = asyncio.create_task(_follow(arrivals, times, started, pulse))
    beats = asyncio.create_task(pulse.run())
    await asyncio.wait(
        [stream, asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED
    )
    if not times:
        await stream
        raise BenchmarkError("The plain stream had no event.")
    if arrivals.others:
        asks = [
            _ask(arrivals, body, number * arrivals.spacing, times[0])
            for number, body in enumerate(bodies)
        ]
        answers = list(await asyncio.gather(*asks))
        if stream.done():
            raise BenchmarkError("The plain stream ended before the last answer.")
        stream.cancel()
    else:
        answers = []
        await stream
    _note(times, pulse)
    beats.cancel()
    return Seen([moment - times[0] for moment in times], answers, pulse.late)


class _Pulse:
    """Notices when this process does not get to run: that is no stall of the server's."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._worst = 0.0
        self._due = math.inf

    async def run(self) -> None:
        """Be late again and again."""
        while True:
            self._due = time.perf_counter() + _PULSE
            await asyncio.sleep(_PULSE)
            self._worst = max(self._worst, time.perf_counter() - self._due)

    def note(self, now: float) -> None:
        """Close a gap. What came while the process did not run is seen before the pulse is."""
        self.late.append(max(self._worst, now - self._due, 0.0))
        self._worst = 0.0


def _note(times: list[float], pulse: _Pulse) -> None:
    now = time.perf_counter()
    times.append(now)
    pulse.note(now)


async def _follow(
    arrivals: Arrivals, times: list[float], started: asyncio.Event, pulse: _Pulse
) -> None:
    """Read the plain stream to its end, noting when something came."""
    reader, writer = await asyncio.open_connection(HOST, arrivals.port)
    writer.write(_request(arrivals, arrivals.plain))
    try:
        while data := await reader.read(2**16):
            if _EVENT in data:
                _note(times, pulse)
                started.set()
            elif not times and not data.startswith(b"HTTP/1.1 200"):
                raise BenchmarkError(f"The plain stream was refused: {data!r}")
    finally:
        writer.close()


async def _ask(arrivals: Arrivals, body: bytes, wait: float, zero: float) -> Answer:
    """Wait for its turn, send one of the others, and read its answer."""
    await asyncio.sleep(wait)
    asked = time.perf_counter()
    try:
        async with asyncio.timeout(arrivals.patience):
            reader, writer = await asyncio.open_connection(HOST, arrivals.port)
            writer.write(body)
            answer = await reader.read(-1)
            writer.close()
    except (TimeoutError, OSError):
        answer = b""
    status, code = status_and_code(answer)
    return Answer(asked - zero, time.perf_counter() - asked, status, code)


def _request(arrivals: Arrivals, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    head = (
        f"POST {arrivals.path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def status_and_code(answer: bytes) -> tuple[int, str]:
    """The status of a whole HTTP answer (0 where it is none), and its error's code."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        return 0, ""
    status = int(words[1])
    if status == 200:
        return status, ""
    try:
        return status, str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return status, ""


def run_client(arrivals: Arrivals, labels: list[str]) -> Seen:
    """Drive the arrivals from another process: this one's work makes no gaps there.

    Raises:
        BenchmarkError: with what that process said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.guided_serving.client"],
        cwd=REPOSITORY,
        input=json.dumps(asdict(arrivals)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"The client failed:\n{done.stderr.strip()}")
    seen = json.loads(done.stdout)
    answers = [Answer(**answer) for answer in seen["answers"]]
    return Seen(seen["times"], answers, seen["late"], labels)


def main() -> None:
    """Read Arrivals from stdin, drive them, print what was Seen."""
    try:
        seen = uvloop.run(drive(Arrivals(**json.load(sys.stdin))))
    except BenchmarkError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(seen)))


if __name__ == "__main__":
    main()
