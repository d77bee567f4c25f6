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

from benchmarks import joint_report, program
from benchmarks.joint_report import DONE, FAILED, INDEX, SKIPPED, Benchmark, Run
from benchmarks.page import Section
from benchmarks.server import REPOSITORY, BenchmarkError, stop

DATA = REPOSITORY.parent / "shared" / "guided-data"
_NO_DATA = "bench.jsonl and suite.jsonl are not there: --data DIR says where they are"

# A benchmark may take 60 s to stop its server.
_STOP_SECONDS = 90.0
_LAST_LINES = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run all and report; 1 where one failed."""
    options = _parse(argv)
    if options.report_only is not None:
        folder = options.report_only
        print(f"report: {joint_report.write(folder, benchmarks(folder, options.data))}")
        return 0
    options.json = options.out / INDEX
    return program.run(_run_all, options)


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
        default=DATA,
        help="the folder of the guided benchmarks' data (../shared/guided-data)",
    )
    parser.add_argument(
        "--report-only",
        type=Path,
        metavar="FOLDER",
        help="write the report of results that are there; run nothing",
    )
    return parser.parse_args(argv)


def benchmarks(folder: Path, data: Path) -> list[Benchmark]:
    """All of them, with their results in a folder, and test data in another."""
    from benchmarks import front_end, search, search_agreement
    from benchmarks.guided_conformance.results import sections as conformance_sections
    from benchmarks.guided_serving.results import sections as serving_sections

    there = all((data / name).is_file() for name in ("bench.jsonl", "suite.jsonl"))
    with_data = ("--data", str(data)) if there else ()

    def small(name: str, *more: str) -> tuple[str, ...]:
        result = folder.resolve() / f"{name}.json"
        return ("-m", f"benchmarks.{name}", "--quick", "--json", str(result), *more)

    endpoint = folder.resolve() / "endpoint"
    return [
        Benchmark("endpoint", small("endpoint", "--out", str(endpoint)), 300, _endpoint_sections),
        Benchmark(
            "front_end",
            small("front_end", "--runs", "2"),
            180,
            joint_report.of_json("front_end", front_end.sections),
        ),
        Benchmark("search", small("search"), 180, joint_report.of_json("search", search.sections)),
        Benchmark(
            "search_agreement",
            small("search_agreement"),
            180,
            joint_report.of_json("search_agreement", search_agreement.sections),
        ),
        Benchmark(
            "guided_conformance",
            small("guided_conformance", *with_data),
            180,
            joint_report.of_json("guided_conformance", conformance_sections),
            skip="" if there else _NO_DATA,
        ),
        Benchmark(
            "guided_serving",
            small("guided_serving", *with_data),
            180,
            joint_report.of_json("guided_serving", serving_sections),
        ),
    ]


def _endpoint_sections(folder: Path) -> list[Section]:
    from benchmarks.endpoint.results import sections

    return sections(folder / "endpoint")


def _run_all(options: argparse.Namespace) -> program.Outcome:
    return run_all(options, benchmarks(options.out, options.data))


def run_all(options: argparse.Namespace, chosen: Sequence[Benchmark]) -> program.Outcome:
    """Run the benchmarks in turn, and write the report of them into the folder options.out.

    Raises:
        BenchmarkError: the folder holds something else than the results of such a run.
    """
    folder: Path = options.out
    _clear(folder, chosen)
    runs: list[Run] = []
    program.save(options, _outcome(folder, chosen, runs))
    with program.progress_bar(len(chosen), "benchmarks") as bar:
        for benchmark in chosen:
            bar.set_description(benchmark.name)
            runs.append(run_one(benchmark, folder))
            program.save(options, _outcome(folder, chosen, runs))
            bar.update()
    return _outcome(folder, chosen, runs, f"report: {joint_report.write(folder, chosen)}")


def _outcome(
    folder: Path, chosen: Sequence[Benchmark], runs: Sequence[Run], text: str = ""
) -> program.Outcome:
    values = joint_report.values(folder, chosen)
    failed = [run.name for run in runs if run.state == FAILED]
    failure = f"failed: {', '.join(failed)}" if failed else ""
    record = {"runs": [asdict(run) for run in runs]}
    return program.Outcome(text, values, record, failure=failure)


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
    if benchmark.skip:
        return Run(benchmark.name, SKIPPED, 0, benchmark.skip)
    log = folder / f"{benchmark.name}.log"
    started = time.monotonic()
    reason = ""
    with (folder / f"{benchmark.name}.txt").open("wb") as out, log.open("wb") as err:
        # A session of its own: Ctrl-C reaches this program alone, which then ends the other.
        process = subprocess.Popen(
            [sys.executable, *benchmark.command],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            status = process.wait(benchmark.seconds)
            reason = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            reason = f"not done after {benchmark.seconds:g} s"
        finally:
            stop(process, _STOP_SECONDS)
    seconds = time.monotonic() - started
    if not reason:
        return Run(benchmark.name, DONE, seconds)
    return Run(benchmark.name, FAILED, seconds, f"{reason}\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    """The last lines; each state of a progress bar, which overwrites the one before, is one."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-_LAST_LINES:])


if __name__ == "__main__":
    sys.exit(main())
