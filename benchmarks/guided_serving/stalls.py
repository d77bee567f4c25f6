"""Gaps in a plain stream while constraints that the server has never seen arrive."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.guided_serving.arrivals import Arrivals, Seen, run_arrivals
from benchmarks.guided_serving.requests import (
    BACKENDS,
    COLD_REQUESTS,
    PATHS,
    RIVAL,
    cold_requests,
    streamed,
)
from benchmarks.running.server import Server

COLD_ENFORCER_REQUESTS = 16
COLD_SPACING = 0.375  # seconds: 40 requests in 15 s
COLD_TOKENS = 16
ALONE_TOKENS = 400
# Longer than any run lasts: the client hangs up when all others have their answers.
BESIDE_TOKENS = 6000
PATIENCE = 45.0  # seconds for which a request's answer is waited for

Stalls = dict[str, list[Seen]]
"""By scenario, run by run."""

ALONE, UNGUIDED, COLD, COLD_ENFORCER = "alone", "unguided", "cold", "cold_lmfe"
SCENARIOS = (ALONE, UNGUIDED, COLD, COLD_ENFORCER)
RIVAL_ALONE, RIVAL_UNGUIDED, RIVAL_COLD = "vllm_alone", "vllm_unguided", "vllm_cold"


def measure_stalls(
    server: Server,
    schemas: Sequence[dict[str, Any]],
    runs: int,
    scenarios: Sequence[str] = SCENARIOS,
) -> Stalls:
    """Our own server's scenarios, in turn."""
    found: Stalls = {name: [] for name in scenarios}
    for run in range(runs):
        for name in scenarios:
            found[name].append(_stall(server, schemas, name, run))
    return found


def _stall(server: Server, schemas: Sequence[dict[str, Any]], scenario: str, run: int) -> Seen:
    path = PATHS["auto"]
    if scenario == ALONE:
        return alone(server, path)
    if scenario == UNGUIDED:
        return beside(server, path, *_unguided(COLD_REQUESTS))
    if scenario == COLD:
        return beside(server, path, *cold_requests(schemas, BACKENDS, COLD_REQUESTS, f"a{run}"))
    enforcer = ["lm-format-enforcer"]
    return beside(
        server, path, *cold_requests(schemas, enforcer, COLD_ENFORCER_REQUESTS, f"b{run}")
    )


def measure_rival_stalls(server: Server, schemas: Sequence[dict[str, Any]]) -> Stalls:
    """The rival's. Once: what it was asked to compile keeps it busy after the client has left."""
    cold = cold_requests(schemas, [RIVAL], COLD_REQUESTS, "a0")
    return {
        RIVAL_ALONE: [alone(server, PATHS[RIVAL])],
        RIVAL_UNGUIDED: [beside(server, PATHS[RIVAL], *_unguided(COLD_REQUESTS))],
        RIVAL_COLD: [beside(server, PATHS[RIVAL], *cold)],
    }


def _unguided(count: int) -> tuple[list[dict[str, Any]], list[str]]:
    return [{"ignore_eos": True}] * count, ["unguided"] * count


def alone(server: Server, path: str) -> Seen:
    """A stream with nobody beside it."""
    plain = streamed(server, ALONE_TOKENS) | {"ignore_eos": True}
    return run_arrivals(Arrivals(server.port, path, plain, [], 0, PATIENCE), [])


def beside(server: Server, path: str, others: list[dict[str, Any]], labels: list[str]) -> Seen:
    """A stream, and others that arrive while it runs."""
    plain = streamed(server, BESIDE_TOKENS) | {"ignore_eos": True}
    common = {"model": server.model, "max_tokens": COLD_TOKENS, "temperature": 0}
    bodies = [
        common | {"prompt": f"{number}: an example in JSON. "} | fields
        for number, fields in enumerate(others)
    ]
    return run_arrivals(Arrivals(server.port, path, plain, bodies, COLD_SPACING, PATIENCE), labels)


def gaps_ms(seen: Seen) -> list[float]:
    """Milliseconds between the moments at which something of the stream came, without those for
    which the client itself did not get to run."""
    ends = zip(seen.times, seen.times[1:], seen.late[1:], strict=False)
    return [max(after - before - late, 0.0) * 1000 for before, after, late in ends]


def largest_gap_ms(runs: Sequence[Seen]) -> float:
    """The largest of all runs."""
    return max(max(gaps_ms(seen)) for seen in runs)


def normal_gap_ms(runs: Sequence[Seen]) -> float:
    """The median over all runs."""
    return statistics.median(gap for seen in runs for gap in gaps_ms(seen))


def under_way(seen: Seen, start: float, end: float) -> Counter[str]:
    """The backends of the requests that waited for an answer in a span of time."""
    return Counter(
        label
        for label, answer in zip(seen.labels, seen.answers, strict=True)
        if answer.asked < end and answer.asked + answer.seconds > start
    )
