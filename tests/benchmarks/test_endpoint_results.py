"""The table, the pictures and the page that are made of recorded runs."""

import csv
import json
import re
import shutil
import struct
import sys
from pathlib import Path

import pytest

from benchmarks.endpoint import results
from benchmarks.endpoint.__main__ import main
from benchmarks.endpoint.runs import LATENCIES, recorded_runs
from benchmarks.reporting.plots import PNG_SIGNATURE
from benchmarks.reporting.result import OVER_RIVAL
from benchmarks.running.process import BenchmarkError

RECORDED = Path(__file__).parents[1] / "data" / "endpoint"
KINDS = ["knee", "latency", "ratio", "throughput"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded runs, and what is made of them."""
    pytest.importorskip("matplotlib")
    copy = tmp_path_factory.mktemp("results") / "recorded"
    shutil.copytree(RECORDED, copy)
    results.rebuild(copy, results.record_of(copy))
    return copy


def test_the_summary_has_every_run_under_vllms_names(folder: Path) -> None:
    with (folder / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    raw = [json.loads(path.read_text()) for path in (folder / "raw").glob("*.json")]
    assert len(rows) == len(raw) == 12
    assert set(LATENCIES) < set(rows[0])
    found = {(row["route"], row["load"], row["repeat"]): row for row in rows}
    for run in raw:
        row = found[run["route"], run["load"], run["repeat"]]
        assert float(row["p99_ttft_ms"]) == run["p99_ttft_ms"]
        assert float(row["request_rate"]) == float(run["request_rate"])
        assert float(row["client_cores"]) < 0.8


def test_the_pictures_are_png_files_of_a_readable_size(folder: Path) -> None:
    pictures = sorted((folder / "plots").iterdir())
    assert [picture.name for picture in pictures] == [f"tiny_plain_{kind}.png" for kind in KINDS]
    for picture in pictures:
        content = picture.read_bytes()
        assert content.startswith(PNG_SIGNATURE)
        width, height = struct.unpack(">II", content[16:24])
        assert width >= 700
        assert height >= 500
        assert len(content) > 10_000


def test_the_page_needs_nothing_else(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert page.count("<img") == page.count('src="data:image/png;base64,') == len(KINDS)
    assert not re.search(r"<script|<link|https?://", page.replace("http://127.0.0.1", ""))
    assert "prefers-color-scheme: dark" in page


def test_the_page_says_what_was_measured_on_what(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    environment = json.loads((folder / "env.json").read_text())
    for fact in (
        environment["environment"]["cpu"],
        environment["environment"]["commit"],
        environment["server"]["version"],
        environment["server"]["command"],
        "emptied before each run",
    ):
        assert fact in page


def test_what_was_not_measured_is_told_with_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    copy = tmp_path / "recorded"
    shutil.copytree(RECORDED, copy)
    environment = results.read_environment(copy)
    reason = "beam on /v1/completions: the server answered 400: no"
    results.write_environment(copy, environment | {"not_measured": [reason]})
    assert results.sections(results.record_of(copy))[-1].text == [reason]


def test_every_load_has_a_row_with_both_routes(folder: Path) -> None:
    (section,) = results.sections(results.record_of(folder))
    (grid,) = section.grids
    assert [row[0] for row in grid.rows] == ["1 at a time", "4 at a time", "1 a second"]
    assert all(len(row) == len(grid.header) for row in grid.rows)
    assert re.fullmatch(r"[\d.]+, [\d.]+", grid.rows[0][1])
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", grid.rows[0][2])


def test_the_last_line_has_every_ratio_by_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.json"
    assert main(["--report-only", str(folder), "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("machine: ")
    values = dict(pair.split("=") for pair in lines[-1].split(" "))
    assert list(values)[:4] == [
        "ttft_ratio_plain_tiny_c1",
        "tpot_ratio_plain_tiny_c1",
        "e2el_ratio_plain_tiny_c1",
        "output_throughput_ratio_plain_tiny_c1",
    ]
    assert len(values) == 12
    written = json.loads(file.read_text())
    assert len(written["runs"]) == 12
    assert written["runs"][0]["figures"]["p99_ttft_ms"] > 0
    assert written["measured_on"]["server"]["max_model_len"] == 8192
    assert set(written["units"].values()) == {OVER_RIVAL}
    assert results.sections(written) == results.sections(results.record_of(folder))


def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main(["--report-only", str(tmp_path)]) == 1
    assert "No runs are recorded" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BenchmarkError, match=r"vllm-completion-v2\[bench\]"):
        results.sections(results.record_of(RECORDED))


def test_the_recorded_runs_are_all_valid() -> None:
    assert all(run.valid for run in recorded_runs(RECORDED))
