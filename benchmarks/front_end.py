"""What /v2/completions costs in the API server process, over vLLM's own /v1/completions.

`python -m benchmarks.front_end` starts one server with a tiny random model, puts the same load on
both routes in turn, and compares. Tables go to stdout, and `name=value` pairs on its last line.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adapter.builtin_model.model import ensure_tiny_model
from benchmarks import program
from benchmarks.cells import (
    MODEL,
    PATHS,
    STREAMING_CELL,
    STREAMS,
    Cell,
    CellResult,
    Route,
    Run,
    all_cells,
    merged,
    quick_cells,
)
from benchmarks.environment import Environment
from benchmarks.limit import ENGINE, LimitRun, engine_flags, measure_limit
from benchmarks.load import Load, run_load
from benchmarks.page import Grid, Section
from benchmarks.report import as_text, name_value_line, significant, spread
from benchmarks.server import BenchmarkError, Server, running_server

_ROUTES: tuple[Route, Route] = ("v1", "v2")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print, or print what was measured before."""
    options = _parse(argv)
    if options.show is not None:
        print(shown([json.loads(file.read_text(encoding="utf-8")) for file in options.show]))
        return 0
    return program.run(_benchmark, options)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = program.parser(
        "front_end", "API server CPU of /v2/completions over vLLM's own /v1/completions."
    )
    parser.add_argument(
        "--streams",
        type=int,
        nargs="+",
        choices=STREAMS,
        default=STREAMS,
        help="only the matrix's cells with so many streams",
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each cell and route (5)")
    parser.add_argument(
        "--show",
        type=Path,
        metavar="FILE",
        nargs="+",
        help="print the tables of such files as one; run nothing",
    )
    parser.add_argument(
        "--limit", action="store_true", help="measure AsyncLLM without HTTP too: the floor"
    )
    return parser.parse_args(argv)


def _benchmark(options: argparse.Namespace) -> program.Outcome:
    model_folder = ensure_tiny_model()
    results: list[CellResult] = []
    cells = quick_cells() if options.quick else all_cells(options.streams)
    flags = ["--api-server-count", "1", *engine_flags(ENGINE)]
    print("Starting the server.", file=sys.stderr, flush=True)
    with (
        running_server(model_folder, MODEL, flags) as server,
        program.progress_bar(len(cells) * (options.runs + 1) * len(_ROUTES), "runs") as bar,
    ):
        for cell in cells:
            bar.set_description(cell.label)
            results.append(measure(server, cell, options.runs, bar.update))
            program.save(options, _outcome(results, []))
    if not options.limit:
        return _outcome(results, [])
    print("Measuring AsyncLLM without HTTP.", file=sys.stderr, flush=True)
    return _outcome(results, measure_limit(model_folder, STREAMING_CELL, options.runs))


def _outcome(results: Sequence[CellResult], limit: Sequence[LimitRun]) -> program.Outcome:
    record = as_record(results, limit)
    return program.Outcome("", named_values(results, limit), record, sections(record))


# --- measuring


def measure(server: Server, cell: Cell, runs: int, progress: Callable[[], object]) -> CellResult:
    """Warm both routes up, then run them in turn.

    Raises:
        BenchmarkError: the two routes did not do the same work.
    """
    measured: dict[Route, list[Run]] = {"v1": [], "v2": []}
    for number in range(runs + 1):
        for route in _ROUTES:
            run = run_once(server, cell, route)
            check(cell, run, measured["v1"][0] if measured["v1"] else run)
            if number > 0:  # the first one warms up
                measured[route].append(run)
            progress()
    return CellResult(cell, **measured)


def run_once(server: Server, cell: Cell, route: Route) -> Run:
    """One load on one route."""
    load = Load(server.port, PATHS[route], cell.body(), cell.streams, cell.requests_per_stream)
    before = server.cpu_seconds()
    result = run_load(load)
    return Run(server.cpu_seconds() - before, result)


def check(cell: Cell, run: Run, other: Run) -> None:
    """Refuse a run that made other tokens than the cell asks for, or than another run.

    Raises:
        BenchmarkError: with the counts.
    """
    seen, expected = run.load.completion_tokens, cell.completion_tokens
    if seen != expected:
        raise BenchmarkError(f"{cell.label}: the usage says {seen} tokens, not {expected}")
    if run.load.prompt_tokens != other.load.prompt_tokens:
        raise BenchmarkError(
            f"{cell.label}: prompts of {run.load.prompt_tokens} and {other.load.prompt_tokens} "
            "tokens in all"
        )


# --- what is printed and kept


def as_record(results: Sequence[CellResult], limit: Sequence[LimitRun]) -> dict[str, Any]:
    """Every run, as JSON."""
    return {
        "cells": [result.as_json() for result in results],
        "limit": [asdict(run) for run in limit],
    }


def shown(records: Sequence[Mapping[str, Any]]) -> str:
    """What was printed when these files' contents were measured, as one report.

    They should be of one machine: the first one's is shown.
    """
    results = merged(CellResult.from_json(cell) for record in records for cell in record["cells"])
    limit = [LimitRun(**run) for record in records for run in record["limit"]]
    machine = Environment(**records[0]["environment"]).lines()
    text = as_text(sections(as_record(results, limit)))
    return "\n".join([*machine, "", text, "", name_value_line(named_values(results, limit))])


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what as_record made."""
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
        "load",
        "v1 us/token",
        "v2 us/token",
        "CPU ratio",
        "v1 tokens/s",
        "v2 tokens/s",
        "throughput ratio",
        "v1 first ms",
        "v2 first ms",
        "first token ratio",
        "v1, v2 tokens/event",
    ]
    rows = [
        [
            result.cell.label,
            *_compared(result, "us_per_token"),
            *_compared(result, "tokens_per_second"),
            *_compared(result, "first_ms"),
            ", ".join(f"{result.spread(r, 'tokens_per_event').median:.2f}" for r in _ROUTES),
        ]
        for result in results
    ]
    note = "Streamed. CPU of the API server process in microseconds per token."
    return Grid(header, rows, note)


def _whole_grid(results: Sequence[CellResult]) -> Grid:
    """CPU per request, throughput and latency."""
    header = [
        "load",
        "v1 us/request",
        "v2 us/request",
        "CPU ratio",
        "v1 tokens/s",
        "v2 tokens/s",
        "throughput ratio",
        "v1 answer ms",
        "v2 answer ms",
        "answer ratio",
    ]
    rows = [
        [
            result.cell.label,
            *_compared(result, "us_per_request"),
            *_compared(result, "tokens_per_second"),
            *_compared(result, "first_ms"),
        ]
        for result in results
    ]
    return Grid(header, rows, "In one piece. CPU in microseconds per request.")


def _compared(result: CellResult, figure: str) -> list[str]:
    """A figure's medians on the two routes, and the ratio with its spread."""
    medians = [significant(result.spread(route, figure).median) for route in _ROUTES]
    return [*medians, result.ratio(figure).text()]


def named_values(results: Sequence[CellResult], limit: Sequence[LimitRun]) -> dict[str, float]:
    """Medians by name. The streams of a cell are in its name, n and logprobs where they are on."""
    values: dict[str, float] = {}
    for result in results:
        cell, key = result.cell, result.cell.key
        if cell.counts_requests:
            values["cpu_per_request_ratio"] = result.ratio("us_per_request").median
            for route in _ROUTES:
                values[f"{route}_us_per_request"] = result.spread(route, "us_per_request").median
        elif cell.streamed:
            values[f"cpu_per_token_ratio_{key}"] = result.ratio("us_per_token").median
            values[f"throughput_ratio_{key}"] = result.ratio("tokens_per_second").median
            values[f"ttft_ratio_{key}"] = result.ratio("first_ms").median
            for route in _ROUTES:
                values[f"{route}_us_per_token_{key}"] = result.spread(route, "us_per_token").median
    if limit:
        floor = spread(run.us_per_token for run in limit).median
        values[f"limit_us_per_token_{STREAMING_CELL.key}"] = floor
    return values


if __name__ == "__main__":
    sys.exit(main())
