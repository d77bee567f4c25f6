"""`/v2/completions` beside `/v1/completions` of one server, measured by vLLM's own benchmark.

`python -m benchmarks.endpoint` starts a server with the built-in model, or takes the one at
`--base-url`, and puts the same load on both routes in turn. Everything goes to a folder, from which
`--report-only FOLDER` makes the tables, pictures and the page again.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.endpoint import results
from benchmarks.endpoint.measure import measure, plan, settings
from benchmarks.endpoint.options import parse
from benchmarks.endpoint.plan import PROGRAM, Target, flags
from benchmarks.reporting.plots import check_installed
from benchmarks.reporting.report import as_text
from benchmarks.reporting.result import OVER_RIVAL, Result
from benchmarks.running import program


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; 1 where nothing that means anything could be measured."""
    options = parse(argv)
    if options.dry_run:
        print("\n".join(commands(options)))
        return 0
    return program.run(_endpoint, options, results.sections)


def commands(options: argparse.Namespace) -> list[str]:
    """The command line of every run, with names for what only a running server tells."""
    base_url = (options.base_url or "http://127.0.0.1:PORT").rstrip("/")
    target = Target(base_url, options.model or "MODEL", options.tokenizer or "TOKENIZER")
    folder = options.out or Path("FOLDER")
    return [
        shlex.join(["python", "-m", PROGRAM, *flags(run, target, settings(options), folder)])
        for run in plan(options)
    ]


def _endpoint(options: argparse.Namespace) -> Result:
    check_installed()
    folder, failures = options.report_only, 0
    if folder is None:
        folder, failures = measure(options)
    return outcome(folder, failures)


def outcome(folder: Path, failures: int = 0) -> Result:
    """What a folder's runs say; its summary, pictures and page are written anew.

    Raises:
        BenchmarkError: it holds no runs, or matplotlib is not installed.
    """
    record = results.record_of(folder)
    sections = results.rebuild(folder, record)
    measured_on = "\n".join(["Measured on", *results.facts(record)])
    written = f"Written: {folder / results.PAGE_FILE}"
    return Result(
        results.ratios(record),
        record,
        {"ratio": OVER_RIVAL},
        text="\n\n".join([measured_on, as_text(sections), written]),
        failure=f"{failures} runs could not be measured." if failures else "",
    )


if __name__ == "__main__":
    sys.exit(main())
