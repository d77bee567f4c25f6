"""One page of the results of several benchmarks, made of the files that they left in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reporting.report import Grid, Section, page
from benchmarks.reporting.result import Result, significant
from benchmarks.running.program import Report

INDEX = "everything.json"
REPORT = "report.html"

DONE, FAILED, SKIPPED, RECORDED = "done", "failed", "skipped", "recorded"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A program, and how its part of the report is made."""

    name: str
    command: Sequence[str]
    """What follows `python`; it leaves NAME.json in the folder."""
    seconds: float
    """It is ended after so many."""
    report: Report
    """Of the record in its file."""

    def result(self, folder: Path) -> Result | None:
        """What it left in a folder, if anything."""
        file = folder / f"{self.name}.json"
        return Result.read(file) if file.is_file() else None


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a benchmark."""

    name: str
    state: str
    seconds: float
    reason: str = ""
    """Why it failed or was skipped."""


def write(folder: Path, benchmarks: Sequence[Benchmark]) -> Path:
    """Write the report of what lies in a folder; its path.

    Results that were put there without an index of runs are reported too.
    """
    found = {each.name: result for each in benchmarks if (result := each.result(folder))}
    index = Result.read(folder / INDEX) if (folder / INDEX).is_file() else None
    if index is not None:
        runs = [Run(**run) for run in index.record["runs"]]
    else:
        runs = [_unrun(each.name, found) for each in benchmarks]
    overview = Grid(
        ["benchmark", "result", "seconds"],
        [[run.name, run.state, f"{run.seconds:.0f}" if run.seconds else ""] for run in runs],
    )
    sections = [Section("What was run", grids=[overview])]
    known = {benchmark.name: benchmark for benchmark in benchmarks}
    for run in runs:
        sections += _sections(run, known[run.name], found.get(run.name))
    sections.append(Section("All figures", grids=[_figures(found)]))
    measured = [result for result in (index, *found.values()) if result is not None]
    facts = measured[0].environment.lines() if measured and measured[0].environment else []
    path = folder / REPORT
    path.write_text(page("Benchmarks of /v2/completions", facts, sections), encoding="utf-8")
    return path


def values(folder: Path, benchmarks: Sequence[Benchmark]) -> dict[str, float]:
    """The figures of all benchmarks that left a file, with the benchmark's name before each."""
    return {
        f"{benchmark.name}_{name}": value
        for benchmark in benchmarks
        if (result := benchmark.result(folder))
        for name, value in result.values.items()
    }


def _unrun(name: str, found: Mapping[str, Result]) -> Run:
    if name in found:
        return Run(name, RECORDED, 0)
    return Run(name, SKIPPED, 0, "no result in the folder")


def _sections(run: Run, benchmark: Benchmark, result: Result | None) -> list[Section]:
    """What went wrong, and what there is to show all the same."""
    found = []
    if run.state in (FAILED, SKIPPED):
        found.append(Section(f"{run.name}: {run.state}", [run.reason]))
    if result is not None:
        try:
            found += benchmark.report(result.record)
        except Exception as error:  # the others are shown all the same
            why = f"{type(error).__name__}: {error}"
            found.append(Section(f"{run.name}: its results cannot be shown", [why]))
    return found


def _figures(found: Mapping[str, Result]) -> Grid:
    rows = [
        [f"{benchmark} {name}", significant(value), result.unit(name)]
        for benchmark, result in found.items()
        for name, value in result.values.items()
    ]
    return Grid(["figure", "value", "unit"], rows)
