"""One page of the results of several benchmarks, made of the files that they left in a folder."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import Environment
from benchmarks.page import Grid, Section, page

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
    sections: Callable[[Path], list[Section]]
    """Of what it left in a folder."""
    skip: str = ""
    """Why it cannot run here."""


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a benchmark."""

    name: str
    state: str
    seconds: float
    reason: str = ""
    """Why it failed or was skipped."""


def of_json(
    name: str, sections: Callable[[Mapping[str, Any]], list[Section]]
) -> Callable[[Path], list[Section]]:
    """The sections of NAME.json in a folder."""
    return lambda folder: sections(_content(folder / f"{name}.json"))


def write(folder: Path, benchmarks: Sequence[Benchmark]) -> Path:
    """Write the report of what lies in a folder; its path.

    Results that were put there without an index of runs are reported too.
    """
    runs = _runs(folder, benchmarks)
    overview = Grid(
        ["benchmark", "result", "seconds"],
        [[run.name, run.state, f"{run.seconds:.0f}" if run.seconds else ""] for run in runs],
    )
    sections = [Section("What was run", grids=[overview])]
    known = {benchmark.name: benchmark for benchmark in benchmarks}
    for run in runs:
        sections += _sections(run, known[run.name], folder)
    path = folder / REPORT
    text = page("Benchmarks of /v2/completions", _facts(folder, benchmarks), sections)
    path.write_text(text, encoding="utf-8")
    return path


def values(folder: Path, benchmarks: Sequence[Benchmark]) -> dict[str, float]:
    """The figures of all benchmarks that left a file, with the benchmark's name before each."""
    return {
        f"{benchmark.name}_{name}": math.nan if value is None else value
        for benchmark in benchmarks
        if (file := folder / f"{benchmark.name}.json").is_file()
        for name, value in _content(file)["values"].items()
    }


def _runs(folder: Path, benchmarks: Sequence[Benchmark]) -> list[Run]:
    index = folder / INDEX
    if index.is_file():
        return [Run(**run) for run in _content(index)["runs"]]
    return [
        Run(benchmark.name, RECORDED, 0)
        if (folder / f"{benchmark.name}.json").is_file()
        else Run(benchmark.name, SKIPPED, 0, "no result in the folder")
        for benchmark in benchmarks
    ]


def _sections(run: Run, benchmark: Benchmark, folder: Path) -> list[Section]:
    """What went wrong, and what there is to show all the same."""
    found = []
    if run.state in (FAILED, SKIPPED):
        found.append(Section(f"{run.name}: {run.state}", [run.reason]))
    if (folder / f"{run.name}.json").is_file():
        try:
            found += benchmark.sections(folder)
        except Exception as error:  # the others are shown all the same
            why = f"{type(error).__name__}: {error}"
            found.append(Section(f"{run.name}: its results cannot be shown", [why]))
    return found


def _facts(folder: Path, benchmarks: Sequence[Benchmark]) -> list[str]:
    """The machine and the versions, as the first file that is there has them."""
    names = [INDEX, *(f"{benchmark.name}.json" for benchmark in benchmarks)]
    for name in names:
        if (folder / name).is_file():
            return Environment(**_content(folder / name)["environment"]).lines()
    return []


def _content(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
