"""How long one request holds up all others: the event loop's largest gap beside each hostile body.

Run: python -m benchmarks.stalls [--only TEXT] [--quick] [--json FILE]

The route runs in this process, on an engine that answers at once. A task that wants to run every
millisecond measures for how long it did not. Where the process itself did not get to run, that is
the machine's own: a gap is no longer than the CPU time that the process used in it. The exit status
is 1 where a gap is over the bound.
"""

import argparse
import asyncio
import gc
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.reporting.report import Grid, Section
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.stalls.application import Application
from benchmarks.stalls.bodies import BODIES, MIB

BOUND_MS = 150.0
RUNS = 3
QUICK_RUNS = 1
_BEAT_SECONDS = 0.001
# Bodies that a first look does without: they take seconds each.
_LONG_SECONDS = 10.0


@dataclass(frozen=True)
class Stall:
    """What one body did."""

    name: str
    mib: float
    status: int
    code: str
    gaps_ms: list[float]
    """The event loop's largest gap in each run."""
    late_ms: list[float]
    """The same, the machine's own pauses counted."""
    seconds: list[float]
    """Until the answer was there."""

    @property
    def gap_ms(self) -> float:
        """The least of all runs: whatever else the machine does only adds."""
        return min(self.gaps_ms)


class Heart:
    """Beats as often as the event loop lets it."""

    def __init__(self) -> None:
        self.largest = 0.0
        """Seconds that a beat was late and the process busy, since the start or the last reset."""
        self.latest = 0.0
        """The same, the machine's own pauses counted."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Heart":
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(10 * _BEAT_SECONDS)
        self.largest = self.latest = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        await asyncio.sleep(2 * _BEAT_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _beat(self) -> None:
        last, last_busy = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            now, busy = time.perf_counter(), time.process_time()
            late = now - last - _BEAT_SECONDS
            self.largest = max(self.largest, min(late, busy - last_busy))
            self.latest = max(self.latest, late)
            last, last_busy = now, busy


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = program.parser("stalls", "The event loop's largest gap beside hostile bodies.")
    options.add_argument("--only", default="", metavar="TEXT", help="bodies whose names have it")
    return program.run(_benchmark, options.parse_args(argv), sections)


def _benchmark(options: argparse.Namespace) -> Result:
    logging.disable(logging.WARNING)
    chosen = [name for name in BODIES if options.only in name]
    stalls = asyncio.run(measure(chosen, QUICK_RUNS if options.quick else RUNS))
    over = [stall.name for stall in stalls if stall.gap_ms > BOUND_MS]
    values = {"largest_gap_ms": max(stall.gap_ms for stall in stalls), "over_bound": len(over)}
    return Result(
        values,
        {"bound_ms": BOUND_MS, "stalls": [asdict(stall) for stall in stalls]},
        {"gap_ms": "ms"},
        failure=f"over {BOUND_MS:g} ms: {'; '.join(over)}" if over else "",
    )


async def measure(names: Sequence[str], runs: int) -> list[Stall]:
    """Ask with each body, one after the other."""
    application = Application()
    await application.start()
    await application.ask(BODIES["nothing special"]())
    # As vLLM does when its server is up: what is there already is not looked through again.
    gc.collect()
    gc.freeze()
    stalls = []
    with program.progress_bar(len(names), "bodies") as bar:
        for name in names:
            stalls.append(await _stall(application, name, runs))
            bar.update()
    return stalls


async def _stall(application: Application, name: str, runs: int) -> Stall:
    body = BODIES[name]()
    gaps: list[float] = []
    late: list[float] = []
    seconds: list[float] = []
    for _ in range(runs):
        async with Heart() as heart:
            started = time.perf_counter()
            got = await application.ask(body)
            seconds.append(time.perf_counter() - started)
        gaps.append(heart.largest * 1000)
        late.append(heart.latest * 1000)
        if sum(seconds) > _LONG_SECONDS and min(gaps) <= BOUND_MS:
            break
    code = "" if got.status == 200 else str(got.error()["code"])
    return Stall(name, len(body) / MIB, got.status or 0, code, gaps, late, seconds)


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what the program wrote."""
    rows = [
        [
            each["name"],
            f"{each['mib']:.2f}",
            str(each["status"]),
            f"{min(each['gaps_ms']):.0f}",
            f"{min(each['late_ms']):.0f}",
            f"{min(each['seconds']):.2f}",
        ]
        for each in record["stalls"]
    ]
    header = ["body", "MiB", "status", "gap, ms", "with the machine's, ms", "answered after, s"]
    text = [
        f"The event loop's largest gap beside each body, the least of its runs. The bound is "
        f"{record['bound_ms']:g} ms."
    ]
    return [Section("Stalls", text, [Grid(header, rows)])]


if __name__ == "__main__":
    sys.exit(main())
