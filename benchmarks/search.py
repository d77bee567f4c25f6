"""How long a beam search takes here, over vLLM's own /v1/completions with use_beam_search.

The same server, model, width and max_tokens, the two routes in turn. Two kinds of prompts: those
whose answers end early, and the same with the end of text ignored, so that nothing ends early.

Run: python -m benchmarks.search [--runs N] [--json FILE]
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.environment import environment
from benchmarks.report import Spread, name_value_line, paired_ratio, spread, table
from benchmarks.search_agreement import PROMPTS
from benchmarks.server import BenchmarkError, Server, running_server

WIDTH = 4
MAX_TOKENS = 48
ROUTES = ("/v2/completions", "/v1/completions")
KINDS = {"ends_early": False, "nothing_ends": True}

# Questions that the built-in model answers in a few words.
QUESTIONS = [PROMPTS[0], PROMPTS[4], PROMPTS[7]]


def main() -> None:
    """Measure both kinds, and print the ratios."""
    from tqdm import tqdm

    from adapter.default_model import MODEL_NAME, ensure_default_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each route and kind (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to a file")
    options = parser.parse_args()
    machine = environment()
    print("\n".join(machine.lines()), flush=True)
    seconds: dict[str, dict[str, list[float]]] = {
        kind: {route: [] for route in ROUTES} for kind in KINDS
    }
    total = (options.runs + 1) * len(KINDS) * len(ROUTES)
    flags = ["--enforce-eager"]
    with (
        running_server(ensure_default_model(), MODEL_NAME, flags) as server,
        tqdm(total=total, unit="run", file=sys.stderr) as bar,
    ):
        for run in range(options.runs + 1):
            for kind, ignore_eos in KINDS.items():
                for route in ROUTES:
                    taken = run_once(server, route, ignore_eos=ignore_eos)
                    if run:  # the first one warms up
                        seconds[kind][route].append(taken)
                    bar.update()
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": asdict(machine), "seconds": seconds}))
    print(report(seconds))


def run_once(server: Server, route: str, *, ignore_eos: bool) -> float:
    """Seconds that one beam search a question takes, one after another.

    Raises:
        BenchmarkError: a text is longer or shorter than was asked for.
    """
    started = time.perf_counter()
    for question in QUESTIONS:
        fields: dict[str, Any] = {"prompt": question, "n": WIDTH, "max_tokens": MAX_TOKENS}
        answer = server.ask(route, **fields, use_beam_search=True, ignore_eos=ignore_eos)
        if len(answer.choices) != WIDTH:
            raise BenchmarkError(f"{route} gave {len(answer.choices)} texts")
        if ignore_eos and answer.usage["completion_tokens"] != WIDTH * MAX_TOKENS:
            raise BenchmarkError(f"{route} ended early: {answer.usage}")
    return time.perf_counter() - started


def report(seconds: dict[str, dict[str, list[float]]]) -> str:
    """A table for people, and the line of ratios."""
    ours, theirs = ROUTES
    ratios = {kind: paired_ratio(times[ours], times[theirs]) for kind, times in seconds.items()}
    rows = [
        [kind, *(_text(spread(times[route])) for route in ROUTES), ratios[kind].text()]
        for kind, times in seconds.items()
    ]
    header = ["seconds, median (range)", *ROUTES, "ratio"]
    values = {f"time_ratio_{kind}": ratio.median for kind, ratio in ratios.items()}
    return f"{table(header, rows)}\n\n{name_value_line(values)}"


def _text(times: Spread) -> str:
    return times.text(decimals=2)


if __name__ == "__main__":
    main()
