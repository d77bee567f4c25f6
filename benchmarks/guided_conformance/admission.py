"""Compiling JSON schemas as the server does."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

from adapter.errors import ApiError
from adapter.guided.compile.service import CompileService
from adapter.guided.constraint import AUTO, Constraint, Kind
from adapter.guided.vocabulary import Vocabulary
from benchmarks.guided_conformance.cases import Case

CACHE_BYTES = 256 * 2**20  # the server's default
LOADING_SECONDS = 15.0


def json_constraint(schema: Any, backend: str) -> Constraint:
    """The constraint of a request with this guided_json."""
    return Constraint("guided_json", Kind.JSON, json.dumps(schema), backend)


def new_service(vocabulary: Vocabulary, seconds: float) -> CompileService:
    """The server's, with its default limits but for the time."""
    return CompileService(vocabulary, seconds=seconds, cache_bytes=CACHE_BYTES, relaxed=True)


async def warm(service: CompileService, backends: Iterable[str]) -> None:
    """Let each backend compile something, until its library is surely loaded."""
    for backend in backends:
        for attempt in range(6):
            started = time.monotonic()
            with contextlib.suppress(ApiError):
                await service.compile(json_constraint({"const": f"warm {attempt}"}, backend))
            if attempt > 1 and time.monotonic() - started < 0.5:
                break


async def admission_times(
    vocabulary: Vocabulary, cases: Iterable[Case], seconds: float
) -> list[float]:
    """Milliseconds that a request waits for its constraint under `auto`, none of them known."""
    service = new_service(vocabulary, seconds)
    service.start()
    times = []
    try:
        await warm(service, [AUTO])
        await asyncio.sleep(LOADING_SECONDS)  # the other libraries are loaded in between
        for case in cases:
            started = time.perf_counter()
            with contextlib.suppress(ApiError):  # a refusal is an answer too
                await service.compile(json_constraint(case.schema, AUTO))
            times.append((time.perf_counter() - started) * 1000)
    finally:
        service.close()
    return times
