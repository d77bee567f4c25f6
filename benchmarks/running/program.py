"""What every benchmark program does around its measuring: options, printing, files, exit status."""

import argparse
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from adapter.builtin_model.model import DefaultModelError
from benchmarks.reporting.report import Section, as_text
from benchmarks.reporting.result import Result
from benchmarks.running.machine import environment
from benchmarks.running.process import BenchmarkError

Report = Callable[[Mapping[str, Any]], list[Section]]
"""The sections of a result's record."""


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that every program has; name: its module in this package."""
    options = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    options.add_argument("--json", type=Path, metavar="FILE", help="write everything to a file")
    options.add_argument("--quick", action="store_true", help="a small version, for a first look")
    return options


def run(
    measure: Callable[[argparse.Namespace], Result], options: argparse.Namespace, report: Report
) -> int:
    """Print the machine, measure, print what came out, its figures on the last line; write --json.

    measure: may call `save` for what it has so far.

    Returns: the exit status: 1 where it could not measure, or what it found is a failure.
    """
    exit_on_sigterm()
    options.environment = environment()
    print("\n".join(options.environment.lines()), flush=True)
    try:
        result = measure(options)
    except (BenchmarkError, DefaultModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if result.failure:
        print(f"error: {result.failure}", file=sys.stderr)
    print(f"\n{result.text or as_text(report(result.record))}\n\n{result.line()}")
    save(options, result)
    return 1 if result.failure else 0


def exit_on_sigterm() -> None:
    """Make SIGTERM an exit: unlike the signal's default, it also ends servers and clients."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def save(options: argparse.Namespace, result: Result) -> None:
    """Write a result to the file of --json, if there is one; options: those that `run` passes."""
    if options.json is not None:
        result.write(options.json, options.environment)


def progress_bar(total: int, unit: str) -> "tqdm[Any]":
    """A progress bar on stderr."""
    return tqdm(total=total, unit=f" {unit}", file=sys.stderr)
