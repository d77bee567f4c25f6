"""The matrix, the requests' bodies, and the figures of a run."""

import json

import pytest

from adapter.contract.parsing import parse_request
from adapter.contract.request import unknown_fields
from benchmarks.front_end.cells import (
    MODEL,
    REQUEST_CELL,
    STREAMING_CELL,
    Cell,
    CellResult,
    Run,
    all_cells,
    merged,
    quick_cells,
    sized_cell,
)
from benchmarks.running.load import LoadResult


def run(cpu_seconds: float, tokens: int = 1000, events: int = 1000) -> Run:
    load = LoadResult(
        requests=10,
        prompt_tokens=50,
        completion_tokens=tokens,
        events=events,
        seconds=2.0,
        first=0.05,
        latency=1.5,
    )
    return Run(cpu_seconds, load)


def test_the_matrix_has_every_combination_once() -> None:
    kinds = [(c.streams, c.n, c.logprobs, c.streamed) for c in all_cells() if c.max_tokens > 1]
    assert len(kinds) == len(set(kinds)) == 4 * 2 * 2 * 2
    assert all(cell in all_cells() for cell in quick_cells())


def test_a_part_of_the_matrix_has_its_streams_only() -> None:
    part = [cell for cell in all_cells([16]) if not cell.counts_requests]
    assert {cell.streams for cell in part} == {16}
    assert len(part) == 8


def test_a_run_keeps_to_its_size() -> None:
    assert all(0 < cell.completion_tokens <= 16384 for cell in all_cells())
    assert STREAMING_CELL.completion_tokens == 64 * 256


@pytest.mark.parametrize("cell", all_cells(), ids=lambda cell: cell.label)
def test_the_contract_knows_every_field_of_a_body(cell: Cell) -> None:
    request = parse_request(json.dumps(cell.body()).encode())
    assert list(unknown_fields(request)) == []
    assert (request.model, request.n, request.max_tokens) == (MODEL, cell.n, cell.max_tokens)
    assert (request.stream, request.logprobs is not None) == (cell.streamed, cell.logprobs)


def test_names_tell_cells_apart() -> None:
    assert STREAMING_CELL.key == "64"
    assert sized_cell(16, 4, logprobs=True, streamed=True).key == "16_n4_logprobs"
    assert REQUEST_CELL.counts_requests
    assert not STREAMING_CELL.counts_requests


def test_a_run_has_its_cost_by_token_and_by_request() -> None:
    measured = run(cpu_seconds=0.1)
    assert measured.us_per_token == pytest.approx(100)
    assert measured.us_per_request == pytest.approx(10_000)
    assert measured.tokens_per_second == 500
    assert measured.first_ms == 50


def test_joined_tokens_show() -> None:
    assert run(0.1, tokens=1000, events=800).tokens_per_event == 1.25
    assert run(0.1, events=0).tokens_per_event == 0  # nothing was streamed


def test_a_result_survives_json() -> None:
    result = CellResult(STREAMING_CELL, [run(0.2), run(0.4)], [run(0.1), run(0.3)])
    assert CellResult.from_json(json.loads(json.dumps(result.as_json()))) == result
    assert result.ratio("us_per_token") == pytest.approx((0.625, 0.5, 0.75))


def test_results_of_one_cell_are_one() -> None:
    first = CellResult(STREAMING_CELL, [run(0.2)], [run(0.1)])
    other = CellResult(REQUEST_CELL, [run(0.5)], [run(0.5)])
    again = CellResult(STREAMING_CELL, [run(0.4)], [run(0.3)])
    assert merged([first, other, again]) == [
        CellResult(STREAMING_CELL, [run(0.2), run(0.4)], [run(0.1), run(0.3)]),
        other,
    ]
