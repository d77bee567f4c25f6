"""What a recorded run says, and what makes its figures doubtful."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endpoint.runs import (
    COUNTS,
    LATENCIES,
    RATES,
    load_order,
    recorded,
    recorded_runs,
)
from benchmarks.running.process import BenchmarkError

RECORDED = Path(__file__).parents[1] / "data" / "endpoint"
RAW = sorted((RECORDED / "raw").glob("*.json"))

Changed = Callable[..., Path]


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    """Writes a recorded file with other values; None takes one out."""

    def write(**values: Any) -> Path:
        content = json.loads((RECORDED / "raw" / "tiny_plain_r1_1_v2.json").read_text()) | values
        file = tmp_path / "run.json"
        file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
        return file

    return write


@pytest.mark.parametrize("file", RAW, ids=lambda file: file.stem)
def test_recorded_files_are_as_vllm_writes_them(file: Path) -> None:
    """Each has the figures and facts that are read, as numbers, and is named after them."""
    content = json.loads(file.read_text())
    for name in (*COUNTS, *RATES, *LATENCIES):
        assert isinstance(content[name], int | float), name
        assert math.isfinite(content[name]), name
    facts = (content[name] for name in ("workload", "variant", "load", "repeat", "route"))
    assert "_".join(facts) == file.stem
    assert content["completed"] + content["failed"] == content["num_prompts"]
    assert content["request_throughput"] == pytest.approx(
        content["completed"] / content["duration"]
    )


def test_figures_keep_vllms_names_and_values() -> None:
    file = RECORDED / "raw" / "tiny_plain_c4_1_v1.json"
    run, content = recorded(file, RECORDED / "absent"), json.loads(file.read_text())
    assert (run.cell, run.route, run.repeat) == (("tiny", "plain", "c4"), "v1", 1)
    assert run.figures["p99_itl_ms"] == content["p99_itl_ms"]
    assert run.offered_rate == math.inf
    assert run.client_cores is None
    assert run.valid
    assert run.flags() == []


def test_the_client_is_measured_in_cores(tmp_path: Path) -> None:
    usage = tmp_path / "usage.json"
    usage.write_text('{"user_seconds": 3.0, "system_seconds": 1.0, "wall_seconds": 4.0}')
    run = recorded(RAW[0], usage)
    assert run.client_cores == 1.0
    assert any("client used over 80% of a core" in flag for flag in run.flags())


def test_runs_come_by_load_and_not_by_letters() -> None:
    loads = list(dict.fromkeys(run.load for run in recorded_runs(RECORDED)))
    assert loads == ["c1", "c4", "r1"]
    assert sorted(["r0.5", "c16", "c4", "r16"], key=load_order) == ["c4", "c16", "r0.5", "r16"]


def test_a_run_with_failed_requests_is_not_valid(changed: Changed, tmp_path: Path) -> None:
    run = recorded(changed(failed=2), tmp_path)
    assert not run.valid
    assert "2 requests failed" in run.flags()
    assert not recorded(changed(completed=0), tmp_path).valid


def test_a_server_that_keeps_up_is_not_saturated(changed: Changed, tmp_path: Path) -> None:
    """Also where a run is so short that its last answer takes a good part of it."""
    rates: dict[str, Any] = {"num_prompts": 10, "request_rate": 2.0}
    # Five seconds of sending; then the last request's own second.
    kept_up = changed(**rates, latencies=[1.0, 1.2], request_throughput=10 / 6.1)
    assert recorded(kept_up, tmp_path).flags() == []
    late = changed(**rates, latencies=[1.0, 1.2], request_throughput=10 / 7.0)
    assert [flag[:14] for flag in recorded(late, tmp_path).flags()] == ["over-saturated"]


def test_a_long_run_is_saturated_below_nine_tenths(changed: Changed, tmp_path: Path) -> None:
    rates: dict[str, Any] = {"num_prompts": 10**6, "request_rate": 2.0}
    assert recorded(changed(**rates, request_throughput=1.79), tmp_path).flags() != []
    assert recorded(changed(**rates, request_throughput=1.81), tmp_path).flags() == []


def test_of_an_answer_in_one_piece_only_its_whole_is_measured(
    changed: Changed, tmp_path: Path
) -> None:
    figures = recorded(changed(backend="openai-whole"), tmp_path).figures
    assert "p99_e2el_ms" in figures
    assert "output_throughput" in figures
    assert not {"median_ttft_ms", "median_tpot_ms", "mean_itl_ms"} & set(figures)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"p95_tpot_ms": None}, "p95_tpot_ms"),
        ({"route": None}, "route"),
        ({"duration": "long"}, "duration is 'long'"),
        ({"completed": True}, "completed is True"),
        ({"route": "v3"}, "no route v3"),
        ({"workload": "huge"}, "no workload huge"),
    ],
)
def test_another_file_is_refused(
    changed: Changed, tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BenchmarkError, match=reason):
        recorded(changed(**values), tmp_path)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="No runs"):
        recorded_runs(tmp_path)
