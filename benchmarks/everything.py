"""A small version of every benchmark, one after the other, and one report of all: `make bench`.

Run: python -m benchmarks.everything [--out FOLDER] [--data DIR]
     python -m benchmarks.everything --report-only FOLDER

Each benchmark leaves NAME.json, and what it said in NAME.txt and NAME.log.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import search, search_agreement
from benchmarks.endpoint import results as endpoint
from benchmarks.front_end import tables as front_end
from benchmarks.guided_conformance import results as guided_conformance
from benchmarks.guided_serving import results as guided_serving
from benchmarks.ordinary_models import results as ordinary_models
from benchmarks.reporting import joint
from benchmarks.reporting.joint import DONE, FAILED, INDEX, Benchmark, Run
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.process import REPOSITORY, BenchmarkError, last_lines, running

# A benchmark may take 60 s to stop its server.
_STOP_SECONDS = 90.0
_LAST_LINES = 20

# The seconds that each one's small version may take, and its report.
_PROGRAMS = {
    "endpoint": (300, endpoint.sections),
    "front_end": (180, front_end.sections),
    "search": (180, search.sections),
    "search_agreement": (180, search_agreement.sections),
    "guided_conformance": (180, guided_conformance.sections),
    "guided_serving": (180, guided_serving.sections),
    "ordinary_models": (120, ordinary_models.sections),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run all and report; 1 where one failed."""
    options = _parse(argv)
    if options.report_only is not None:
        folder = options.report_only
        print(f"report: {joint.write(folder, benchmarks(folder, options.data))}")
        return 0
    options.json = options.out / INDEX
    return program.run(_run_all, options, lambda _: [])


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.everything",
        description="A small version of every benchmark, and one report of all.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=REPOSITORY / "build" / "bench",
        help="where the results go (build/bench)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="other schemas for the guided benchmarks: see their --data",
    )
    parser.add_argument(
        "--report-only",
        type=Path,
        metavar="FOLDER",
        help="write the report of results that are there; run nothing",
    )
    return parser.parse_args(argv)


def benchmarks(folder: Path, data: Path | None = None) -> list[Benchmark]:
    """All of them, with their results in a folder; data: for --data of those that take it."""
    own = folder.resolve()
    with_data = () if data is None else ("--data", str(data.resolve()))
    more: dict[str, tuple[str, ...]] = {
        "endpoint": ("--out", str(own / "endpoint")),
        "front_end": ("--runs", "2"),
        "guided_conformance": with_data,
        "guided_serving": with_data,
        "ordinary_models": ("--walk",),
    }
    found = []
    for name, (seconds, report) in _PROGRAMS.items():
        flags = ("--quick", "--json", str(own / f"{name}.json"), *more.get(name, ()))
        found.append(Benchmark(name, ("-m", f"benchmarks.{name}", *flags), seconds, report))
    return found


def _run_all(options: argparse.Namespace) -> Result:
    return run_all(options, benchmarks(options.out, options.data))


def run_all(options: argparse.Namespace, chosen: Sequence[Benchmark]) -> Result:
    """Run the benchmarks in turn, and write the report of them into the folder options.out.

    Raises:
        BenchmarkError: the folder holds something else than the results of such a run.
    """
    folder: Path = options.out
    _clear(folder, chosen)
    runs: list[Run] = []
    program.save(options, _result(folder, chosen, runs))
    with program.progress_bar(len(chosen), "benchmarks") as bar:
        for benchmark in chosen:
            bar.set_description(benchmark.name)
            runs.append(run_one(benchmark, folder))
            program.save(options, _result(folder, chosen, runs))
            bar.update()
    return _result(folder, chosen, runs, f"report: {joint.write(folder, chosen)}")


def _result(
    folder: Path, chosen: Sequence[Benchmark], runs: Sequence[Run], text: str = ""
) -> Result:
    failed = [run.name for run in runs if run.state == FAILED]
    return Result(
        joint.values(folder, chosen),
        {"runs": [asdict(run) for run in runs]},
        text=text,
        failure=f"failed: {', '.join(failed)}" if failed else "",
    )


def _clear(folder: Path, chosen: Sequence[Benchmark]) -> None:
    """Make the folder, or remove the results of an earlier run from it."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise BenchmarkError(f"{folder} holds other things: name a new folder, or an empty one")
    for benchmark in chosen:
        for ending in ("json", "txt", "log"):
            (folder / f"{benchmark.name}.{ending}").unlink(missing_ok=True)
        shutil.rmtree(folder / benchmark.name, ignore_errors=True)


def run_one(benchmark: Benchmark, folder: Path) -> Run:
    """Run a benchmark in a process of its own, as long as it may take."""
    log = folder / f"{benchmark.name}.log"
    started = time.monotonic()
    with (
        (folder / f"{benchmark.name}.txt").open("wb") as out,
        running(benchmark.command, log, stdout=out, stop_seconds=_STOP_SECONDS) as process,
    ):
        try:
            status = process.wait(benchmark.seconds)
            reason = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            reason = f"not done after {benchmark.seconds:g} s"
    seconds = time.monotonic() - started
    if not reason:
        return Run(benchmark.name, DONE, seconds)
    return Run(benchmark.name, FAILED, seconds, f"{reason}\n{last_lines(log, _LAST_LINES)}")


if __name__ == "__main__":
    sys.exit(main())
