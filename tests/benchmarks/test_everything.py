"""The joint run of all benchmarks, with programs that measure nothing, and its report."""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import everything, search, search_agreement
from benchmarks.front_end.tables import sections as front_end_sections
from benchmarks.guided_conformance.results import sections as conformance_sections
from benchmarks.guided_serving.results import sections as serving_sections
from benchmarks.reporting import joint
from benchmarks.reporting.joint import Benchmark
from benchmarks.reporting.report import Section
from benchmarks.running import program
from benchmarks.running.process import REPOSITORY, BenchmarkError

RECORDED = Path(__file__).parents[1] / "data" / "benchmarks"


def stub_sections(record: Mapping[str, Any]) -> list[Section]:
    return [Section("A stub", [record["words"]])]


def stub(name: str, folder: Path, code: str = "", *, seconds: float = 60) -> Benchmark:
    """A program that leaves a file and then runs some code."""
    content = json.dumps(
        {
            "environment": {
                "cores": 3,
                "cpu": "a stub's",
                "memory_gib": 1,
                "load_average": 0,
                "versions": {},
            },
            "values": {"ratio": 0.5, "none": None},
            "words": f"what {name} found",
        }
    )
    file = folder / f"{name}.json"
    whole = f"open({str(file)!r}, 'w').write({content!r})\n{code}"
    return Benchmark(name, ("-c", whole), seconds, stub_sections)


FAILS = "import sys; print('10 %\\r20 %\\rit broke <here>', file=sys.stderr); sys.exit(3)"


def run(folder: Path, *benchmarks: Benchmark) -> int:
    options = argparse.Namespace(out=folder, json=folder / joint.INDEX)
    return program.run(lambda _: everything.run_all(options, benchmarks), options, lambda _: [])


def report(folder: Path) -> str:
    return (folder / joint.REPORT).read_text(encoding="utf-8")


def states(folder: Path) -> dict[str, str]:
    index = json.loads((folder / joint.INDEX).read_text())
    return {run["name"]: run["state"] for run in index["runs"]}


def test_all_figures_are_on_the_last_line_with_their_programs_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, stub("one", tmp_path), stub("two", tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "one_ratio=0.500 one_none=nan two_ratio=0.500 two_none=nan"
    assert f"report: {tmp_path / 'report.html'}" in lines
    assert "what one found" in report(tmp_path)
    assert "what two found" in report(tmp_path)


def test_one_that_fails_is_shown_and_the_others_still_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, stub("one", tmp_path, FAILS), stub("two", tmp_path)) == 1
    said = capsys.readouterr()
    assert "error: failed: one" in said.err
    assert said.out.splitlines()[-1].startswith("one_ratio=0.500")
    assert states(tmp_path) == {"one": "failed", "two": "done"}
    text = report(tmp_path)
    assert "exit status 3\n10 %\n20 %\nit broke &lt;here&gt;" in text
    assert "what one found" in text  # before it failed
    assert "what two found" in text


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    code = "import time; time.sleep(60)"
    assert run(tmp_path, stub("one", tmp_path, code, seconds=0.5), stub("two", tmp_path)) == 1
    assert states(tmp_path) == {"one": "failed", "two": "done"}
    assert "not done after 0.5 s" in report(tmp_path)


_ENDS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
try:
    pathlib.Path("{folder}/started").touch()
    time.sleep(60)
finally:
    pathlib.Path("{folder}/ended").touch()
"""

_RUNS = """
import argparse, pathlib
from benchmarks import everything
from benchmarks.reporting import joint
from benchmarks.running import program
folder = pathlib.Path("{folder}/out")
options = argparse.Namespace(out=folder, json=folder / "everything.json")
one = joint.Benchmark("one", ("-c", {code!r}), 60, lambda folder: [])
program.run(lambda _: everything.run_all(options, [one]), options, lambda _: [])
"""


def test_sigterm_lets_the_running_benchmark_end(tmp_path: Path) -> None:
    code = _RUNS.format(folder=tmp_path, code=_ENDS.format(folder=tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    try:
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert (tmp_path / "ended").exists()


def test_results_that_cannot_be_read_do_not_hide_the_others(tmp_path: Path) -> None:
    file = str(tmp_path / "one.json")
    spoils = f"open({file!r}, 'w').write('{{\"values\": {{}}}}')"
    assert run(tmp_path, stub("one", tmp_path, spoils), stub("two", tmp_path)) == 0
    assert "one: its results cannot be shown" in report(tmp_path)
    assert "what two found" in report(tmp_path)


def test_an_earlier_runs_results_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    run(tmp_path, stub("one", tmp_path))
    (tmp_path / "one").mkdir()
    dies = Benchmark("one", ("-c", FAILS), 60, stub_sections)
    assert run(tmp_path, dies) == 1
    assert not (tmp_path / "one").exists()
    assert "what one found" not in report(tmp_path)


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "one.json"
    mine.write_text("mine")
    assert run(tmp_path, stub("one", tmp_path)) == 1
    assert mine.read_text() == "mine"
    options = argparse.Namespace(out=tmp_path, json=None)
    with pytest.raises(BenchmarkError, match="other things"):
        everything.run_all(options, [])


def test_the_report_can_be_made_again(tmp_path: Path) -> None:
    benchmarks = [stub("one", tmp_path, FAILS), stub("two", tmp_path)]
    run(tmp_path, *benchmarks)
    first = report(tmp_path)
    joint.write(tmp_path, benchmarks)
    assert report(tmp_path) == first


def test_results_without_an_index_are_reported(tmp_path: Path) -> None:
    benchmarks = [stub("one", tmp_path), stub("two", tmp_path)]
    everything.run_one(benchmarks[0], tmp_path)
    joint.write(tmp_path, benchmarks)
    text = report(tmp_path)
    assert "machine: 3 cores, a stub&#x27;s" in text
    assert "what one found" in text
    assert "<p>no result in the folder</p>" in text


def test_every_program_is_run_small_and_leaves_its_file(tmp_path: Path) -> None:
    for each in everything.benchmarks(tmp_path):
        flags = ["--quick", "--json", str(tmp_path / f"{each.name}.json")]
        assert list(each.command[:5]) == ["-m", f"benchmarks.{each.name}", *flags]
        assert "--data" not in each.command


def test_other_data_goes_to_those_that_take_it(tmp_path: Path) -> None:
    given = [each for each in everything.benchmarks(tmp_path, tmp_path) if "--data" in each.command]
    assert [each.name for each in given] == ["guided_conformance", "guided_serving"]


SECTIONS: dict[str, Callable[[Mapping[str, Any]], list[Section]]] = {
    "front_end": front_end_sections,
    "search": search.sections,
    "search_agreement": search_agreement.sections,
    "guided_conformance": conformance_sections,
    "guided_serving": serving_sections,
}


@pytest.mark.parametrize(
    ("name", "titles", "row"),
    [
        ("front_end", ["Front end: what the API server costs"], ["64 streams, n 1, 256 tokens"]),
        ("search", ["Beam search: how long it takes"], ["ends_early", "4.60 (4.60 to 4.60)"]),
        (
            "search_agreement",
            ["Beam search: agreement with transformers"],
            ["15", "15", "100.00 %"],
        ),
        (
            "guided_conformance",
            [
                "Guided decoding: what was run",
                "Guided decoding, bench: 2 schemas with instances of 3",
                "Guided decoding, suite: 4 schemas with instances of 4",
                "Guided decoding, suite: what auto refuses",
                "Guided decoding, faults: 0",
            ],
            ["auto", "25.0", "0.0", "0.0", "75.0"],
        ),
        (
            "guided_serving",
            [
                "Guided serving: throughput",
                "Guided serving: stalls",
                "Guided serving: the worst gaps",
            ],
            ["json, auto", "266 (266 to 266)", "261 (261 to 261)", "1.02 (1.02 to 1.02)"],
        ),
    ],
)
def test_a_recording_gives_its_sections(name: str, titles: list[str], row: list[str]) -> None:
    found = SECTIONS[name](json.loads((RECORDED / f"{name}.json").read_text()))
    assert [section.title for section in found] == titles
    grids = [grid for section in found for grid in section.grids]
    rows = [list(each) for grid in grids for each in grid.rows]
    assert row in [each[: len(row)] for each in rows]
    assert all(len(each) == len(grid.header) for grid in grids for each in grid.rows)


def test_report_only_makes_a_report_of_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in RECORDED.glob("*.json"):
        (tmp_path / file.name).write_text(file.read_text())
    assert everything.main(["--report-only", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.html'}\n"
    text = report(tmp_path)
    assert "cannot be shown" not in text
    assert text.count("<td>recorded</td>") == 5
    assert "endpoint: skipped" in text
