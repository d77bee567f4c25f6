"""What /v2/completions costs in the API server process, over vLLM's own /v1/completions.

`python -m benchmarks.front_end` starts one server with a tiny random model, puts the same load on
both routes in turn, and compares. Tables go to stdout, and `name=value` pairs on its last line.
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from adapter.default_model import DefaultModelError, ensure_tiny_model
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
from benchmarks.environment import Environment, environment
from benchmarks.limit import ENGINE, LimitRun, engine_flags, measure_limit
from benchmarks.load import Load, run_load
from benchmarks.report import name_value_line, significant, spread, table
from benchmarks.server import BenchmarkError, Server, running_server

_ROUTES: tuple[Route, Route] = ("v1", "v2")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where nothing that means anything could be measured."""
    options = _parse(argv)
    # An exit, unlike the signal's default, also ends the client, or the run without HTTP.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.show is not None:
        print(shown([file.read_text(encoding="utf-8") for file in options.show]))
        return 0
    try:
        _benchmark(options)
    except (BenchmarkError, DefaultModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.front_end",
        description="API server CPU of /v2/completions over vLLM's own /v1/completions.",
    )
    parser.add_argument("--quick", action="store_true", help="two cells of the matrix only")
    parser.add_argument(
        "--streams",
        type=int,
        nargs="+",
        choices=STREAMS,
        default=STREAMS,
        help="only the matrix's cells with so many streams",
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each cell and route (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to a file")
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


def _benchmark(options: argparse.Namespace) -> None:
    model_folder = ensure_tiny_model()
    machine = environment()
    print("\n".join(machine.lines()), flush=True)
    results: list[CellResult] = []
    limit: list[LimitRun] = []

    def save() -> None:
        if options.json is not None:
            options.json.write_text(as_json(machine, results, limit), encoding="utf-8")

    cells = quick_cells() if options.quick else all_cells(options.streams)
    flags = ["--api-server-count", "1", *engine_flags(ENGINE)]
    print("Starting the server.", file=sys.stderr, flush=True)
    with (
        running_server(model_folder, MODEL, flags) as server,
        tqdm(total=len(cells) * (options.runs + 1) * len(_ROUTES), unit=" runs") as bar,
    ):
        for cell in cells:
            bar.set_description(cell.label)
            results.append(measure(server, cell, options.runs, bar.update))
            save()
    if options.limit:
        print("Measuring AsyncLLM without HTTP.", file=sys.stderr, flush=True)
        limit = measure_limit(model_folder, STREAMING_CELL, options.runs)
        save()
    print(report(results, limit))


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


def as_json(machine: Environment, results: Sequence[CellResult], limit: Sequence[LimitRun]) -> str:
    """Everything that was measured."""
    everything = {
        "environment": asdict(machine),
        "cells": [result.as_json() for result in results],
        "limit": [asdict(run) for run in limit],
    }
    return json.dumps(everything, indent=1) + "\n"


def shown(recorded: Sequence[str]) -> str:
    """What was printed when these JSON texts, as_json's, were measured, as one report.

    They should be of one machine: the first one's is shown.
    """
    parts = [json.loads(text) for text in recorded]
    results = merged(CellResult.from_json(cell) for part in parts for cell in part["cells"])
    limit = [LimitRun(**run) for part in parts for run in part["limit"]]
    machine = Environment(**parts[0]["environment"])
    return "\n".join([*machine.lines(), report(results, limit)])


def report(results: Sequence[CellResult], limit: Sequence[LimitRun]) -> str:
    """Tables for people; on the last line pairs for programs."""
    parts = [
        "",
        "Streamed. CPU of the API server process in microseconds per token. A ratio is /v2 over "
        "/v1: median (lowest to highest) of neighbouring runs.",
        "",
        streamed_table([result for result in results if result.cell.streamed]),
        "",
        "In one piece. CPU in microseconds per request.",
        "",
        whole_table([result for result in results if not result.cell.streamed]),
        "",
    ]
    if limit:
        floor = spread(run.us_per_token for run in limit)
        parts += [
            f"AsyncLLM without HTTP, {STREAMING_CELL.label}: {floor.text(1)} us/token.",
            "",
        ]
    return "\n".join([*parts, name_value_line(named_values(results, limit))])


def streamed_table(results: Sequence[CellResult]) -> str:
    """CPU per token, throughput and time to first token of the streamed cells."""
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
    return table(
        header,
        [
            [
                result.cell.label,
                *_compared(result, "us_per_token"),
                *_compared(result, "tokens_per_second"),
                *_compared(result, "first_ms"),
                ", ".join(f"{result.spread(r, 'tokens_per_event').median:.2f}" for r in _ROUTES),
            ]
            for result in results
        ],
    )


def whole_table(results: Sequence[CellResult]) -> str:
    """CPU per request, throughput and latency of the cells that were not streamed."""
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
    return table(
        header,
        [
            [
                result.cell.label,
                *_compared(result, "us_per_request"),
                *_compared(result, "tokens_per_second"),
                *_compared(result, "first_ms"),
            ]
            for result in results
        ],
    )


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
