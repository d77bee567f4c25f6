"""What the program makes of recorded runs, and the runs that it refuses."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.front_end.__main__ import check, main, shown
from benchmarks.front_end.cells import STREAMING_CELL, CellResult, Run
from benchmarks.front_end.limit import LimitRun, engine_flags
from benchmarks.front_end.tables import named_values, result_of
from benchmarks.reporting.result import OVER_RIVAL
from benchmarks.running.process import BenchmarkError

RECORDED = Path(__file__).parents[1] / "data" / "benchmarks" / "front_end.json"


@pytest.fixture(scope="module")
def results() -> list[CellResult]:
    return [CellResult.from_json(cell) for cell in json.loads(RECORDED.read_text())["cells"]]


@pytest.fixture(scope="module")
def streamed_run(results: list[CellResult]) -> Run:
    return results[0].v1[0]


def test_the_last_line_has_every_figure_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", str(RECORDED)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    values = dict(pair.split("=") for pair in last.split(" "))
    assert list(values) == [
        "cpu_per_token_ratio_64",
        "throughput_ratio_64",
        "ttft_ratio_64",
        "v1_us_per_token_64",
        "v2_us_per_token_64",
        "cpu_per_request_ratio",
        "v1_us_per_request",
        "v2_us_per_request",
        "limit_us_per_token_64",
    ]
    assert values["v1_us_per_token_64"] == "61.5"
    assert values["v2_us_per_token_64"] == "50.5"


def test_the_ratio_is_the_median_of_neighbours(results: list[CellResult]) -> None:
    first = results[0]
    ratios = sorted(b.cpu_seconds / a.cpu_seconds for a, b in zip(first.v1, first.v2, strict=True))
    assert named_values([first], [])["cpu_per_token_ratio_64"] == pytest.approx(ratios[1])


def test_the_tables_have_a_row_for_each_cell() -> None:
    lines = shown([RECORDED]).splitlines()
    assert lines[0].startswith("machine: 2 cores, AMD EPYC, 24 GiB of memory, load average ")
    assert lines[1].startswith("versions: python 3.11")
    assert sum(line.startswith("| 64 streams, n 1, 256 tokens ") for line in lines) == 1
    assert sum(line.startswith("| 16 streams, n 1, 1 tokens ") for line in lines) == 1
    rows = [line for line in lines if line.startswith("|")]
    assert len({len(row) for row in rows[:3]}) == 1  # they line up


def test_files_of_parts_are_shown_as_one(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text())
    parts = [tmp_path / "one.json", tmp_path / "two.json"]
    for part, cell in zip(parts, recorded["cells"], strict=True):
        part.write_text(json.dumps(recorded | {"cells": [cell]}))
    assert "| 16 streams" not in shown(parts[:1])
    assert "| 16 streams" in shown(parts)


def test_what_is_written_is_what_is_shown() -> None:
    recorded = json.loads(RECORDED.read_text())
    results = [CellResult.from_json(cell) for cell in recorded["cells"]]
    limit = [LimitRun(**run) for run in recorded["limit"]]
    result = result_of(results, limit)
    written = json.loads(json.dumps(result.record))
    assert written == {name: recorded[name] for name in ("cells", "limit")}
    assert result.values == recorded["values"]
    assert {result.unit(name) for name in result.values} == {OVER_RIVAL, "µs of CPU"}


def test_a_run_with_too_few_tokens_is_refused(streamed_run: Run) -> None:
    with pytest.raises(BenchmarkError, match="the usage says 32768 tokens, not 16384"):
        check(STREAMING_CELL, streamed_run, streamed_run)


def test_a_run_with_other_prompts_is_refused(results: list[CellResult], streamed_run: Run) -> None:
    other = Run(1.0, dataclasses.replace(streamed_run.load, prompt_tokens=1))
    check(results[0].cell, streamed_run, streamed_run)
    with pytest.raises(BenchmarkError, match=r"prompts of 1 and \d+ tokens"):
        check(results[0].cell, other, streamed_run)


def test_engine_arguments_become_flags() -> None:
    assert engine_flags({"enforce_eager": True, "max_num_seqs": 8}) == [
        "--enforce-eager",
        "--max-num-seqs",
        "8",
    ]
