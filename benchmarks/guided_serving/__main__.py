"""The program: `python -m benchmarks.guided_serving`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from adapter.builtin_model.model import MODEL_NAME, ensure_default_model
from benchmarks.guided_serving.requests import (
    BACKENDS,
    RIVAL,
    WORKLOADS,
    base_schemas,
    real_or_none,
)
from benchmarks.guided_serving.results import UNITS, as_record, named_values, sections
from benchmarks.guided_serving.stalls import (
    ALONE,
    COLD,
    SCENARIOS,
    Stalls,
    measure_rival_stalls,
    measure_stalls,
)
from benchmarks.guided_serving.throughput import Throughput, measure_throughput
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.server import running_server

FLAGS = ["--enforce-eager"]
RIVAL_FLAGS = [*FLAGS, "--structured-outputs-config", '{"backend": "outlines"}']


def main(argv: Sequence[str] | None = None) -> int:
    """Measure us, then the rival, and print what came out. A missed target is no error."""
    return program.run(_benchmark, _parse(argv), sections)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = program.parser("guided_serving", "What guided decoding costs a running server.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="other schemas: DIR/bench.jsonl")
    parser.add_argument("--runs", type=int, help="runs of everything (3; quick: 1)")
    parser.add_argument("--only", choices=("throughput", "stalls"), help="one half alone")
    parser.add_argument("--skip-rival", action="store_true", help="not vLLM's own; quick: never")
    return parser.parse_args(argv)


def _benchmark(options: argparse.Namespace) -> Result:
    known = None if options.only == "throughput" else real_or_none(options.data)
    schemas = base_schemas(known)
    quick = options.quick
    runs = options.runs or (1 if quick else 3)
    backends = ("auto",) if quick else BACKENDS
    workloads = {"json": WORKLOADS["json"]} if quick else WORKLOADS
    scenarios = (ALONE, COLD) if quick else SCENARIOS
    throughput: Throughput = {}
    stalls: Stalls = {}
    folder = ensure_default_model()
    with running_server(folder, MODEL_NAME, FLAGS) as server:
        if options.only != "stalls":
            throughput = measure_throughput(server, backends, workloads, runs)
        if options.only != "throughput":
            stalls = measure_stalls(server, schemas, runs, scenarios)
    if not options.skip_rival and not quick:
        plain = "benchmarks.running.plain_vllm"
        with running_server(folder, MODEL_NAME, RIVAL_FLAGS, module=plain) as server:
            if options.only != "stalls":
                for kind, found in measure_throughput(server, [RIVAL], workloads, runs).items():
                    throughput[kind] |= found
            if options.only != "throughput":
                stalls |= measure_rival_stalls(server, schemas)
    record = as_record(throughput, stalls, made_up=known is None)
    return Result(named_values(throughput, stalls), record, UNITS)


if __name__ == "__main__":
    sys.exit(main())
