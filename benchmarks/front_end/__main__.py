"""What /v2/completions costs in the API server process, over vLLM's own /v1/completions.

`python -m benchmarks.front_end` starts one server with a tiny random model, puts the same load on
both routes in turn, and compares. Tables go to stdout, and `name=value` pairs on its last line.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from adapter.builtin_model.model import ensure_tiny_model
from benchmarks.front_end.cells import (
    MODEL,
    STREAMING_CELL,
    STREAMS,
    Cell,
    CellResult,
    Run,
    all_cells,
    merged,
    quick_cells,
)
from benchmarks.front_end.limit import ENGINE, LimitRun, engine_flags, measure_limit
from benchmarks.front_end.tables import result_of, sections
from benchmarks.reporting.report import as_text
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.load import Load, run_load
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import PATHS, ROUTES, Route, Server, running_server


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print, or print what was measured before."""
    options = _parse(argv)
    if options.show is not None:
        print(shown(options.show))
        return 0
    return program.run(_benchmark, options, sections)


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


def _benchmark(options: argparse.Namespace) -> Result:
    model_folder = ensure_tiny_model()
    results: list[CellResult] = []
    cells = quick_cells() if options.quick else all_cells(options.streams)
    flags = ["--api-server-count", "1", *engine_flags(ENGINE)]
    print("Starting the server.", file=sys.stderr, flush=True)
    with (
        running_server(model_folder, MODEL, flags) as server,
        program.progress_bar(len(cells) * (options.runs + 1) * len(ROUTES), "runs") as bar,
    ):
        for cell in cells:
            bar.set_description(cell.label)
            results.append(measure(server, cell, options.runs, bar.update))
            program.save(options, result_of(results, []))
    if not options.limit:
        return result_of(results, [])
    print("Measuring AsyncLLM without HTTP.", file=sys.stderr, flush=True)
    return result_of(results, measure_limit(model_folder, STREAMING_CELL, options.runs))


def measure(server: Server, cell: Cell, runs: int, progress: Callable[[], object]) -> CellResult:
    """Warm both routes up, then run them in turn.

    Raises:
        BenchmarkError: the two routes did not do the same work.
    """
    measured: dict[Route, list[Run]] = {"v1": [], "v2": []}
    for number in range(runs + 1):
        for route in ROUTES:
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


def shown(files: Sequence[Path]) -> str:
    """What was printed when these files were measured, as one report.

    They should be of one machine: the first one's is shown.
    """
    parts = [Result.read(file) for file in files]
    results = merged(CellResult.from_json(cell) for part in parts for cell in part.record["cells"])
    limit = [LimitRun(**run) for part in parts for run in part.record["limit"]]
    whole = result_of(results, limit)
    machine = parts[0].environment.lines() if parts[0].environment else []
    return "\n".join([*machine, "", as_text(sections(whole.record)), "", whole.line()])


if __name__ == "__main__":
    sys.exit(main())
