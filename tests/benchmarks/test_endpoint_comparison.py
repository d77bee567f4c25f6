"""Runs of the two routes beside each other."""

import math

import pytest

from benchmarks.endpoint.runs import Cell, Recorded, cells, named_ratios


def run(route: str, repeat: int, e2el: float, *, failed: int = 0, tokens: int = 640) -> Recorded:
    figures = {
        "num_prompts": 20,
        "completed": 20 - failed,
        "failed": failed,
        "request_throughput": 1.0,
        "total_output_tokens": tokens,
        "median_e2el_ms": e2el,
        "median_tpot_ms": 0.0,
    }
    return Recorded(route, "tiny", "plain", "c4", repeat, figures, math.inf, 0.5, None)


def cell(theirs: list[Recorded], ours: list[Recorded]) -> Cell:
    (only,) = cells([*theirs, *ours])
    return only


def test_a_ratio_is_that_of_neighbouring_runs() -> None:
    """Not of the medians, which here would be 30 / 20."""
    compared = cell(
        [run("v1", 1, 10), run("v1", 2, 20), run("v1", 3, 80)],
        [run("v2", 1, 30), run("v2", 2, 18), run("v2", 3, 40)],
    )
    assert compared.ratio("median_e2el_ms") == (0.9, 0.5, 3.0)
    assert compared.spread("v1", "median_e2el_ms") == (20, 10, 80)


def test_a_failed_run_is_in_no_figure_and_named() -> None:
    compared = cell(
        [run("v1", 1, 10), run("v1", 2, 20)], [run("v2", 1, 20), run("v2", 2, 1, failed=3)]
    )
    assert compared.ratio("median_e2el_ms") == (2.0, 2.0, 2.0)
    assert compared.spread("v2", "median_e2el_ms") == (20, 20, 20)
    assert compared.flags() == ["/v2, run 2: 3 requests failed"]


def test_runs_are_compared_by_their_number() -> None:
    compared = cell([run("v1", 2, 10)], [run("v2", 1, 40), run("v2", 2, 20)])
    assert compared.ratio("median_e2el_ms") == (2.0, 2.0, 2.0)


def test_a_route_that_was_not_measured_has_no_ratio() -> None:
    compared = cell([], [run("v2", 1, 20)])
    assert compared.ratio("median_e2el_ms") is None
    assert compared.spread("v1", "median_e2el_ms") is None
    assert named_ratios([compared]) == {}


def test_nothing_is_divided_by_zero() -> None:
    compared = cell([run("v1", 1, 10)], [run("v2", 1, 20)])
    assert compared.ratio("median_tpot_ms") is None
    assert named_ratios([compared]) == {"e2el_ratio_plain_tiny_c4": 2.0}


@pytest.mark.parametrize(("tokens", "told"), [(640, False), (644, False), (600, True), (700, True)])
def test_different_amounts_of_text_are_told(tokens: int, told: bool) -> None:
    compared = cell([run("v1", 1, 10)], [run("v2", 1, 20, tokens=tokens)])
    assert bool(compared.flags()) == told
