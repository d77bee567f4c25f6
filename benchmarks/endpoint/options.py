"""The command line."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.endpoint.workloads import (
    FEWEST_PROMPTS,
    SHAREGPT,
    VARIANTS,
    WORKLOADS,
    Closed,
    Load,
    Open,
)
from benchmarks.running import program

Adder = Callable[..., argparse.Action]

_GRID = [name for name in WORKLOADS if name not in {"tiny", SHAREGPT}]

# What an option is where it is not given: in a whole run, and in a quick one.
_DEFAULTS: dict[str, tuple[Any, Any]] = {
    "workloads": (_GRID, ["tiny"]),
    "variants": (["plain"], ["plain", "guided-auto"]),
    "concurrency": ([1, 4, 16, 64], [1, 4]),
    "rates": ([], [2.0]),
    "rate_seconds": (60.0, 4.0),
    "fewest_prompts": (FEWEST_PROMPTS, 4),
    "repeats": (3, 2),
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; those that were not given are those of a whole or of a quick run."""
    parser = program.parser(
        "endpoint",
        "/v2/completions beside /v1/completions of one server, by vLLM's own benchmark.",
    )
    _add_target(parser.add_argument_group("what is measured").add_argument)
    _add_load(parser.add_argument_group("the load").add_argument)
    _add_folder(parser.add_argument_group("the results").add_argument)
    options = parser.parse_args(argv)
    for name, (whole, quick) in _DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else whole)
    return options


def loads(options: argparse.Namespace) -> list[Load]:
    """Closed loops, then rates."""
    return [
        *(Closed(streams, options.fewest_prompts) for streams in options.concurrency),
        *(Open(rate, options.rate_seconds, options.fewest_prompts) for rate in options.rates),
    ]


def _add_target(add: Adder) -> None:
    add(
        "--base-url",
        metavar="URL",
        help="a server that runs, such as http://127.0.0.1:8000; its key in OPENAI_API_KEY. "
        "Without it, a server is started on the loopback.",
    )
    wait = "how long to wait for the server at --base-url to be ready (0)"
    add("--ready-seconds", type=float, default=0.0, metavar="S", help=wait)
    add("--model", help="the name it is served under (the server's first)")
    add("--tokenizer", help="a folder or a name on the hub (what the server says of its model)")
    add("--model-folder", type=Path, metavar="DIR", help="start with this model (the built-in one)")
    add(
        "--server-args",
        default="",
        metavar="FLAGS",
        help='more flags of the server that is started, as one text: --server-args="--load-format '
        'dummy"',
    )


def _add_load(add: Adder) -> None:
    for flag, known, words in (
        ("--workloads", WORKLOADS, f"shapes: {', '.join(WORKLOADS)} (all but tiny and sharegpt)"),
        ("--variants", VARIANTS, f"ways of asking: {', '.join(VARIANTS)} (plain)"),
    ):
        add(flag, nargs="+", choices=known, metavar="NAME", help=words)
    add("--sharegpt-file", type=Path, metavar="FILE", help="for sharegpt")
    closed = "closed loops with so many requests at a time (1 4 16 64)"
    add("--concurrency", type=_count, nargs="*", metavar="N", help=closed)
    rates = "open loops with so many requests a second, as a Poisson process (none)"
    add("--rates", type=_positive, nargs="*", metavar="R", help=rates)
    add("--rate-seconds", type=_positive, metavar="S", help="how long those are sent (60)")
    prompts = "requests of every run (4 for each at a time, or those of --rate-seconds)"
    add("--num-prompts", type=_count, metavar="N", help=prompts)
    fewest = "requests of a run that would have fewer, without --num-prompts (20)"
    add("--fewest-prompts", type=_count, metavar="N", help=fewest)
    add("--repeats", type=_count, metavar="N", help="runs of each load (3)")
    add("--seed", type=int, default=0, help="of prompts and arrivals (0)")
    goodput = "count the requests that keep to all of these: ttft, tpot, e2el, milliseconds each"
    add("--goodput", nargs="+", default=(), metavar="NAME:MS", help=goodput)


def _add_folder(add: Adder) -> None:
    out = "where they go (benchmarks/results/DATE-DEVICE-MODEL)"
    add("--out", type=Path, metavar="FOLDER", help=out)
    add("--resume", action="store_true", help="go on in a folder; do not repeat its runs")
    again = "run nothing; make tables, pictures and page from a folder's runs"
    add("--report-only", type=Path, metavar="FOLDER", help=again)
    add("--dry-run", action="store_true", help="print the commands; run and start nothing")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, not {text}")
    return value
