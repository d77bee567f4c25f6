"""What every benchmark program does around its measuring."""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from adapter.builtin_model.model import DefaultModelError
from benchmarks.reporting.report import Grid, Picture, Section
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.process import REPOSITORY, BenchmarkError

SECTIONS = [Section("Speed", ["It is fast."], [Grid(["load", "us"], [["64", "7"]], "CPU.")])]


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Leave SIGTERM as it was."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def no_report(_: Mapping[str, Any]) -> list[Section]:
    return []


def outcome(**fields: Any) -> Result:
    known = {
        "text": "a table",
        "values": {"ratio": 0.5},
        "record": {"runs": [1, 2]},
        "units": {"ratio": "times"},
    }
    return Result(**known | fields)


def ran(*found: Result, json: Path | None = None, report: Sequence[Section] = ()) -> int:
    """The exit status of a program that finds one thing after the other."""

    def main(options: argparse.Namespace) -> Result:
        for partial in found[:-1]:
            program.save(options, partial)
        return found[-1]

    arguments = [] if json is None else ["--json", str(json)]
    return program.run(
        main, program.parser("any", "Any.").parse_args(arguments), lambda _: [*report]
    )


def test_the_machine_comes_first_and_the_figures_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(outcome()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("machine: ")
    assert lines[1].startswith("versions: ")
    assert "a table" in lines
    assert lines[-1] == "ratio=0.500"


def test_sections_are_printed_where_there_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Section("A picture", pictures=[Picture("Bars", b"png")])
    ran(outcome(text=""), report=[*SECTIONS, picture])
    out = capsys.readouterr().out
    assert "## Speed\n\nIt is fast.\n\nCPU.\n\n| load | us |\n" in out
    assert "## A picture" in out
    assert "png" not in out


def test_the_file_holds_the_machine_the_figures_and_the_record(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert ran(outcome(values={"ratio": 0.5, "none": math.nan}), json=file) == 0
    content = json.loads(file.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert content["environment"]["cores"] >= 1
    assert content["values"] == {"ratio": 0.5, "none": None}
    assert content["units"] == {"ratio": "times", "none": ""}
    assert content["runs"] == [1, 2]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    written = outcome(values={"ratio": 0.5, "count": 2})
    ran(written, json=file)
    read = Result.read(file)
    assert (read.values, read.record) == (written.values, written.record)
    assert read.unit("ratio") == "times"
    assert read.line() == "ratio=0.500 count=2"


def test_what_was_found_before_an_error_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"

    def main(options: argparse.Namespace) -> Result:
        program.save(options, outcome(record={"runs": [1]}))
        raise BenchmarkError("no server")

    assert (
        program.run(main, program.parser("any", "").parse_args(["--json", str(file)]), no_report)
        == 1
    )
    assert json.loads(file.read_text())["runs"] == [1]
    assert capsys.readouterr().err.splitlines()[-1] == "error: no server"


def test_a_model_that_is_not_there_is_an_error_too(capsys: pytest.CaptureFixture[str]) -> None:
    def main(options: argparse.Namespace) -> Result:
        raise DefaultModelError("no model")

    assert program.run(main, program.parser("any", "").parse_args([]), no_report) == 1
    assert "error: no model" in capsys.readouterr().err


def test_a_failure_is_the_exit_status_but_all_is_printed_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    assert ran(outcome(failure="it broke"), json=file) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "ratio=0.500"
    assert "error: it broke" in said.err
    assert file.exists()


def test_other_errors_are_not_hidden() -> None:
    def main(options: argparse.Namespace) -> Result:
        raise LookupError("a mistake of our own")

    with pytest.raises(LookupError):
        program.run(main, program.parser("any", "").parse_args([]), no_report)


_WAITS = """
import sys, time
from benchmarks.running import program

def main(options):
    try:
        print("measuring", flush=True)
        time.sleep(60)
    finally:
        print("server ended", flush=True)

sys.exit(program.run(main, program.parser("any", "").parse_args([]), lambda _: []))
"""


def test_sigterm_ends_what_the_program_started() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        while process.stdout.readline() != "measuring\n":
            assert process.poll() is None
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "server ended\n"
        assert process.wait(10) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()


def test_a_bar_is_drawn_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with program.progress_bar(2, "runs") as bar:
        bar.update()
    said = capsys.readouterr()
    assert said.out == ""
    assert "1/2" in said.err
