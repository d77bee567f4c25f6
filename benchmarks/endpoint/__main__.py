"""`/v2/completions` beside `/v1/completions` of one server, measured by vLLM's own benchmark.

`python -m benchmarks.endpoint` starts a server with the built-in model, or takes the one at
`--base-url`, and puts the same load on both routes in turn. Everything goes to a folder, from which
`--report-only FOLDER` makes the tables, pictures and the page again.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import program
from benchmarks.endpoint import results
from benchmarks.endpoint.measure import measure, plan, settings
from benchmarks.endpoint.options import parse
from benchmarks.endpoint.plan import PROGRAM, Target, flags
from benchmarks.endpoint.raw import Recorded, recorded_runs
from benchmarks.plots import check_installed
from benchmarks.report import as_text


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; 1 where nothing that means anything could be measured."""
    options = parse(argv)
    if options.dry_run:
        print("\n".join(commands(options)))
        return 0
    return program.run(_endpoint, options)


def commands(options: argparse.Namespace) -> list[str]:
    """The command line of every run, with names for what only a running server tells."""
    base_url = (options.base_url or "http://127.0.0.1:PORT").rstrip("/")
    target = Target(base_url, options.model or "MODEL", options.tokenizer or "TOKENIZER")
    folder = options.out or Path("FOLDER")
    return [
        shlex.join(["python", "-m", PROGRAM, *flags(run, target, settings(options), folder)])
        for run in plan(options)
    ]


def _endpoint(options: argparse.Namespace) -> program.Outcome:
    check_installed()
    folder, failures = options.report_only, 0
    if folder is None:
        folder, failures = measure(options)
    return outcome(folder, failures)


def outcome(folder: Path, failures: int = 0) -> program.Outcome:
    """What a folder's runs say; its summary, pictures and page are written anew.

    Raises:
        BenchmarkError: it holds no runs, or matplotlib is not installed.
    """
    sections = results.rebuild(folder)
    measured_on = "\n".join(["Measured on", *results.facts(folder)])
    written = f"Written: {folder / results.PAGE_FILE}"
    return program.Outcome(
        text="\n\n".join([measured_on, as_text(sections), written]),
        values=results.ratios(folder),
        record={
            "measured_on": results.read_environment(folder),
            "runs": [_as_json(run) for run in recorded_runs(folder)],
        },
        sections=sections,
        failure=f"{failures} runs could not be measured." if failures else "",
    )


def _as_json(run: Recorded) -> dict[str, Any]:
    rate = run.offered_rate if math.isfinite(run.offered_rate) else None
    return asdict(run) | {"offered_rate": rate, "flags": run.flags()}


if __name__ == "__main__":
    sys.exit(main())
