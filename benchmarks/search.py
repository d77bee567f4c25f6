"""How long a beam search takes here, over vLLM's own /v1/completions with use_beam_search.

The same server, model, width and max_tokens, the two routes in turn. Two kinds of prompts: those
whose answers end early, and the same with the end of text ignored, so that nothing ends early.

Run: python -m benchmarks.search [--quick] [--runs N] [--json FILE]
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.builtin_model.model import MODEL_NAME, ensure_default_model
from benchmarks.reporting.report import Grid, Section
from benchmarks.reporting.result import OVER_RIVAL, Result, Spread, paired_ratio, spread
from benchmarks.running import program
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import PATHS, Server, running_server
from benchmarks.search_agreement import PROMPTS

WIDTH = 4
MAX_TOKENS = 48
QUICK_MAX_TOKENS = 32
QUICK_WARM_UP_TOKENS = 4
ROUTES = (PATHS["v2"], PATHS["v1"])
KINDS = {"ends_early": False, "nothing_ends": True}

# Questions that the built-in model answers in a few words.
QUESTIONS = [PROMPTS[0], PROMPTS[4], PROMPTS[7]]

UNITS = {"ratio": OVER_RIVAL}

Seconds = dict[str, dict[str, list[float]]]
"""By kind and route, run by run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both kinds, and print the ratios."""
    parser = program.parser("search", "Seconds of a beam search, over vLLM's own.")
    parser.add_argument("--runs", type=int, help="runs of each route and kind (3; quick: 1)")
    return program.run(_benchmark, parser.parse_args(argv), sections)


def _benchmark(options: argparse.Namespace) -> Result:
    quick = options.quick
    questions = QUESTIONS[:1] if quick else QUESTIONS
    max_tokens = QUICK_MAX_TOKENS if quick else MAX_TOKENS
    warm_up_tokens = QUICK_WARM_UP_TOKENS if quick else MAX_TOKENS
    lengths = [warm_up_tokens] + [max_tokens] * (options.runs or (1 if quick else 3))
    seconds: Seconds = {kind: {route: [] for route in ROUTES} for kind in KINDS}
    with (
        running_server(ensure_default_model(), MODEL_NAME, ["--enforce-eager"]) as server,
        program.progress_bar(len(lengths) * len(KINDS) * len(ROUTES), "runs") as bar,
    ):
        for run, length in enumerate(lengths):
            for kind, ignore_eos in KINDS.items():
                for route in ROUTES:
                    taken = run_once(server, route, questions, length, ignore_eos=ignore_eos)
                    if run:  # the first one warms up
                        seconds[kind][route].append(taken)
                    bar.update()
    record = {"questions": len(questions), "max_tokens": max_tokens, "seconds": seconds}
    values = {f"time_ratio_{kind}": ratio.median for kind, ratio in ratios(seconds).items()}
    return Result(values, record, UNITS)


def run_once(
    server: Server, route: str, questions: Sequence[str], max_tokens: int, *, ignore_eos: bool
) -> float:
    """Seconds that one beam search a question takes, one after another.

    Raises:
        BenchmarkError: a text is longer or shorter than was asked for.
    """
    started = time.perf_counter()
    for question in questions:
        fields: dict[str, Any] = {"prompt": question, "n": WIDTH, "max_tokens": max_tokens}
        answer = server.ask(route, **fields, use_beam_search=True, ignore_eos=ignore_eos)
        if len(answer.choices) != WIDTH:
            raise BenchmarkError(f"{route} gave {len(answer.choices)} texts")
        if ignore_eos and answer.usage["completion_tokens"] != WIDTH * max_tokens:
            raise BenchmarkError(f"{route} ended early: {answer.usage}")
    return time.perf_counter() - started


def ratios(seconds: Seconds) -> dict[str, Spread]:
    """Our seconds over theirs, by kind."""
    ours, theirs = ROUTES
    return {kind: paired_ratio(times[ours], times[theirs]) for kind, times in seconds.items()}


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what the program wrote."""
    seconds = record["seconds"]
    rows = [
        [kind, *(spread(seconds[kind][route]).text() for route in ROUTES), ratio.text()]
        for kind, ratio in ratios(seconds).items()
    ]
    text = (
        f"Questions: {record['questions']}; beams: {WIDTH}; at most {record['max_tokens']} tokens."
    )
    grid = Grid(["seconds, median (range)", *ROUTES, "ratio"], rows)
    return [Section("Beam search: how long it takes", [text], [grid])]


if __name__ == "__main__":
    sys.exit(main())
