"""The program: `python -m benchmarks.guided_conformance`."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from adapter.builtin_model.model import ensure_tiny_model
from adapter.guided.constraint import BACKENDS
from adapter.guided.vocabulary import Vocabulary, eos_token_ids, read_vocabulary
from benchmarks.guided_conformance.cases import SETS, Case, Task, read_cases
from benchmarks.guided_conformance.judge import admission_times
from benchmarks.guided_conformance.outcomes import Outcome
from benchmarks.guided_conformance.results import (
    UNITS,
    figures,
    is_bad,
    recorded_fills,
    sections,
    tallies,
)
from benchmarks.guided_conformance.workers import Setting, Workers
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.process import BenchmarkError
from benchmarks.schema_sets import BENCH

PACKAGES = ("llguidance", "xgrammar", "outlines_core", "lm-format-enforcer", "jsonschema")
PLAN_SECONDS = 5.0  # the server's default limit
QUICK_SCHEMAS = 8
"""Of each set."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where something broke its schema unnoticed."""
    return program.run(_benchmark, _parse(argv), sections)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = program.parser(
        "guided_conformance", "Whether guided decoding keeps its word, for every backend."
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="other schemas: DIR/bench.jsonl, DIR/suite.jsonl"
    )
    parser.add_argument("--backends", type=listed(BACKENDS), default=list(BACKENDS), help="all")
    parser.add_argument("--sets", type=listed(SETS), default=list(SETS), help="bench,suite")
    parser.add_argument("--limit", type=int, help="only so many schemas of each set")
    parser.add_argument("--seed", type=int, default=0, help="of the random draws and orders")
    parser.add_argument(
        "--seconds", type=float, default=PLAN_SECONDS, help="the time limit of a plan (5)"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    return parser.parse_args(argv)


def listed(known: Iterable[str]) -> Any:
    """A parser of names with commas between them."""
    allowed = list(known)

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(allowed)}")
        return names

    return parse


def _benchmark(options: argparse.Namespace) -> Result:
    limit = options.limit or (QUICK_SCHEMAS if options.quick else None)
    cases, missing = _cases(options.sets, options.data, limit)
    vocabulary = tiny_vocabulary()
    real = [case for case in cases if case.set == BENCH]
    times = []
    if real and not options.quick:
        times = asyncio.run(admission_times(vocabulary, real, options.seconds))
    outcomes, broken = _judged(vocabulary, cases, options)
    found = tallies(outcomes)
    values = figures(found, times)
    record = {
        "libraries": ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES),
        "backends": [name for name in options.backends if name not in broken],
        "broken": broken,
        "missing": missing,
        "admission_ms": times,
        "fill_us": recorded_fills(found),
        "outcomes": [outcome.record() for outcome in outcomes],
    }
    failure = "something broke its schema unnoticed" if is_bad(values) else ""
    return Result(values, record, UNITS, failure=failure)


def _cases(
    names: Sequence[str], folder: Path | None, limit: int | None
) -> tuple[list[Case], dict[str, str]]:
    """The cases of all sets that can be had, and why others cannot.

    Raises:
        BenchmarkError: none can.
    """
    cases: list[Case] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            cases += read_cases(name, folder, limit)
        except (BenchmarkError, OSError) as error:
            missing[name] = str(error)
    if not cases:
        raise BenchmarkError("\n".join(["There are no schemas:", *missing.values()]))
    return cases, missing


def _judged(
    vocabulary: Vocabulary, cases: Sequence[Case], options: argparse.Namespace
) -> tuple[list[Outcome], dict[str, str]]:
    """The outcomes of all cases, in their order, and the backends that could not be loaded."""
    tasks = [Task(case, name, options.seed) for case in cases for name in options.backends]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary"
        vocabulary.save(path)
        workers = Workers(options.workers, Setting(path, options.backends, options.seconds))
        outcomes = []
        with program.progress_bar(len(tasks), "schemas") as bar:
            for outcome in workers.run(tasks):
                outcomes.append(outcome)
                bar.update()
    ranks = {(task.case.set, task.case.id, task.backend): i for i, task in enumerate(tasks)}
    outcomes.sort(key=lambda outcome: ranks[outcome.set, outcome.id, outcome.backend])
    return outcomes, workers.broken


def tiny_vocabulary() -> Vocabulary:
    """That of the built-in models, as the server reads it."""
    from transformers import AutoTokenizer

    folder = ensure_tiny_model()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    ends = eos_token_ids(generation, tokenizer.eos_token_id)
    return read_vocabulary(tokenizer, model["vocab_size"], ends)


if __name__ == "__main__":
    sys.exit(main())
