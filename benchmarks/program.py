"""What every benchmark program does around its measuring: options, printing, files, exit status."""

import argparse
import json
import math
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from adapter.builtin_model.model import DefaultModelError
from benchmarks.environment import environment
from benchmarks.page import Section
from benchmarks.report import as_text, name_value_line
from benchmarks.server import BenchmarkError


@dataclass(frozen=True)
class Outcome:
    """What a program found out."""

    text: str
    """For people; empty where the sections say it all: then they are printed."""
    values: Mapping[str, float]
    """The figures of the last line."""
    record: Mapping[str, Any]
    """As JSON: all that the sections can be made of again."""
    sections: Sequence[Section] = ()
    failure: str = ""
    """Why the exit status is 1, though everything was measured."""


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that every program has; name: its module in this package."""
    options = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    options.add_argument("--json", type=Path, metavar="FILE", help="write everything to a file")
    options.add_argument("--quick", action="store_true", help="a small version, for a first look")
    return options


def run(main: Callable[[argparse.Namespace], Outcome], options: argparse.Namespace) -> int:
    """Print the machine, measure, print what came out, its figures on the last line; write --json.

    main: may call `save` for what it has so far.

    Returns: the exit status: 1 where main could not measure, or what it found is a failure.
    """
    exit_on_sigterm()
    options.environment = environment()
    print("\n".join(options.environment.lines()), flush=True)
    try:
        outcome = main(options)
    except (BenchmarkError, DefaultModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if outcome.failure:
        print(f"error: {outcome.failure}", file=sys.stderr)
    print(f"\n{outcome.text or as_text(outcome.sections)}\n\n{name_value_line(outcome.values)}")
    save(options, outcome)
    return 1 if outcome.failure else 0


def exit_on_sigterm() -> None:
    """Make SIGTERM an exit: unlike the signal's default, it also ends servers and clients."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def save(options: argparse.Namespace, outcome: Outcome) -> None:
    """Write an outcome to the file of --json, if there is one; options: those that `run` passes."""
    if options.json is None:
        return
    # JSON has no word for a figure that is none.
    values = {name: v if math.isfinite(v) else None for name, v in outcome.values.items()}
    content = {"environment": asdict(options.environment), "values": values, **outcome.record}
    options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def progress_bar(total: int, unit: str) -> "tqdm[Any]":
    """A progress bar on stderr."""
    return tqdm(total=total, unit=f" {unit}", file=sys.stderr)
