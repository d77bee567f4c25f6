"""Texts of a real server, for each shape."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.ordinary_models.counts import Count
from benchmarks.ordinary_models.judging import fault_of
from benchmarks.ordinary_models.shape import Shape
from benchmarks.running.server import PATHS, Answer, Server

DEFAULT, NO_RETRIES = "default", "no retries"
TEMPERATURES = (0.7, 1.0)
AT_ONCE = 8
"""Requests."""

NOT_SATISFIED = "constraint_not_satisfied"


@dataclass(frozen=True, slots=True)
class Asking:
    """How a server is asked."""

    server: Server
    way: str
    texts: int
    """Of each shape, at each temperature."""
    seed: int
    """The first of the seeds."""

    def shape(self, shape: Shape, backend: str, *, base: bool) -> Count:
        """What became of the texts; base: compare their cost with that of the shape's base."""
        count = Count(shape.name, backend, self.way)
        answers, count.seconds = self._answers(shape, shape.schema, backend)
        for answer in answers:
            count.tokens += _take(count, shape, answer)
        plain = shape.base() if base else None
        if plain is not None:
            answers, count.base_seconds = self._answers(shape, plain, backend)
            count.base_tokens = sum(map(_tokens, answers))
        return count

    def _answers(self, shape: Shape, schema: Any, backend: str) -> tuple[list[Answer], float]:
        """To all requests, and the seconds of all."""
        bodies = [
            {
                "model": self.server.model,
                "prompt": shape.prompt,
                "max_tokens": shape.max_tokens,
                "temperature": temperature,
                "seed": self.seed + number,
                "guided_json": schema,
                "guided_decoding_backend": backend,
            }
            for temperature in TEMPERATURES
            for number in range(self.texts)
        ]
        started = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda body: self.server.site.post(PATHS["v2"], body), bodies))
        return answers, time.monotonic() - started


def _take(count: Count, shape: Shape, answer: Answer) -> int:
    """Count a text; how many tokens it had."""
    if answer.status != 200:
        error = _error(answer)
        kind = "refused" if answer.status == 400 else "error"
        if error.get("code") == NOT_SATISFIED:
            kind = "not_satisfied"
        count.add(kind, str(error.get("message", answer.text)))
        return 0
    (choice,) = json.loads(answer.text)["choices"]
    count.checked |= any(
        name.lower() == "x-guided-decoding" and "checked" in value
        for name, value in answer.headers.items()
    )
    if choice["finish_reason"] != "stop":
        count.add("cut")
    else:
        count.judged(fault_of(shape.schema, choice["text"]), choice["text"])
    return _tokens(answer)


def _tokens(answer: Answer) -> int:
    if answer.status != 200:
        return 0
    tokens: int = json.loads(answer.text)["usage"]["completion_tokens"]
    return tokens


def _error(answer: Answer) -> dict[str, Any]:
    try:
        error: dict[str, Any] = json.loads(answer.text)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error


def sample(shapes: Sequence[Shape], limit: int | None) -> list[Shape]:
    """So many from all over the list, in its order."""
    if limit is None or limit >= len(shapes):
        return list(shapes)
    return [shapes[number * len(shapes) // limit] for number in range(limit)]
