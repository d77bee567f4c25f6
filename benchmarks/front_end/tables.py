"""What is kept and printed of the cells."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.front_end.cells import STREAMING_CELL, CellResult
from benchmarks.front_end.limit import LimitRun
from benchmarks.reporting.report import Grid, Section
from benchmarks.reporting.result import OVER_RIVAL, Result, significant, spread
from benchmarks.running.server import ROUTES

UNITS = {"ratio": OVER_RIVAL, "us_per_token": "µs of CPU", "us_per_request": "µs of CPU"}


def result_of(results: Sequence[CellResult], limit: Sequence[LimitRun]) -> Result:
    """Every run, and the figures of them."""
    record = {
        "cells": [result.as_json() for result in results],
        "limit": [asdict(run) for run in limit],
    }
    return Result(named_values(results, limit), record, UNITS)


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what result_of kept."""
    results = [CellResult.from_json(cell) for cell in record["cells"]]
    limit = [LimitRun(**run) for run in record["limit"]]
    text = ["A ratio is /v2 over /v1: median (lowest to highest) of neighbouring runs."]
    if limit:
        floor = spread(run.us_per_token for run in limit)
        text.append(f"AsyncLLM without HTTP, {STREAMING_CELL.label}: {floor.text(1)} us/token.")
    streamed = [result for result in results if result.cell.streamed]
    whole = [result for result in results if not result.cell.streamed]
    grids = [grid for grid in (_streamed_grid(streamed), _whole_grid(whole)) if grid.rows]
    return [Section("Front end: what the API server costs", text, grids)]


def _streamed_grid(results: Sequence[CellResult]) -> Grid:
    """CPU per token, throughput and time to first token."""
    header = [
        *("load", "v1 us/token", "v2 us/token", "CPU ratio"),
        *("v1 tokens/s", "v2 tokens/s", "throughput ratio"),
        *("v1 first ms", "v2 first ms", "first token ratio", "v1, v2 tokens/event"),
    ]
    rows = [
        [
            *_compared(result, "us_per_token", "tokens_per_second", "first_ms"),
            ", ".join(f"{result.spread(r, 'tokens_per_event').median:.2f}" for r in ROUTES),
        ]
        for result in results
    ]
    note = "Streamed. CPU of the API server process in microseconds per token."
    return Grid(header, rows, note)


def _whole_grid(results: Sequence[CellResult]) -> Grid:
    """CPU per request, throughput and latency."""
    header = [
        *("load", "v1 us/request", "v2 us/request", "CPU ratio"),
        *("v1 tokens/s", "v2 tokens/s", "throughput ratio"),
        *("v1 answer ms", "v2 answer ms", "answer ratio"),
    ]
    rows = [_compared(each, "us_per_request", "tokens_per_second", "first_ms") for each in results]
    return Grid(header, rows, "In one piece. CPU in microseconds per request.")


def _compared(result: CellResult, *figures: str) -> list[str]:
    """The cell; of each figure the medians on the two routes, and the ratio with its spread."""
    row = [result.cell.label]
    for figure in figures:
        row += [significant(result.spread(route, figure).median) for route in ROUTES]
        row.append(result.ratio(figure).text())
    return row


def named_values(results: Sequence[CellResult], limit: Sequence[LimitRun]) -> dict[str, float]:
    """Medians by name. The streams of a cell are in its name, n and logprobs where they are on."""
    values: dict[str, float] = {}
    for result in results:
        cell, key = result.cell, result.cell.key
        if cell.counts_requests:
            values["cpu_per_request_ratio"] = result.ratio("us_per_request").median
            for route in ROUTES:
                values[f"{route}_us_per_request"] = result.spread(route, "us_per_request").median
        elif cell.streamed:
            values[f"cpu_per_token_ratio_{key}"] = result.ratio("us_per_token").median
            values[f"throughput_ratio_{key}"] = result.ratio("tokens_per_second").median
            values[f"ttft_ratio_{key}"] = result.ratio("first_ms").median
            for route in ROUTES:
                values[f"{route}_us_per_token_{key}"] = result.spread(route, "us_per_token").median
    if limit:
        floor = spread(run.us_per_token for run in limit).median
        values[f"limit_us_per_token_{STREAMING_CELL.key}"] = floor
    return values
