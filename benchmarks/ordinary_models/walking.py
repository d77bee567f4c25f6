"""Texts drawn through the masks alone: no engine, no model but its tokenizer."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler, Refused
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.matcher import Guide
from adapter.guided.vocabulary import Vocabulary
from benchmarks.guided_conformance.goals import Hints
from benchmarks.guided_conformance.walks import Draw, Drawer
from benchmarks.ordinary_models.counts import Count
from benchmarks.ordinary_models.judging import fault_of
from benchmarks.ordinary_models.shape import Shape

WALK = "walk"
HURRY = (4, 15, 40, 80)
"""After how many tokens the draws begin to close what they can, one after the other."""


class Walks:
    """Draws texts for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self._libraries = Libraries(vocabulary)
        self._folder = tempfile.TemporaryDirectory()
        self._compiler = ConstraintCompiler(self._libraries, Path(self._folder.name))
        self._drawer = Drawer(vocabulary.tokens, vocabulary.eos_token_ids[0])
        self._mask = np.zeros(vocabulary.words, np.int32)
        self._seed = seed

    def shapes(
        self, shapes: Sequence[Shape], backends: Sequence[str], draws: int
    ) -> Iterator[Count]:
        """What became of so many random texts of each shape, with each backend."""
        for shape in shapes:
            for backend in backends:
                yield self._shape(shape, backend, draws)

    def close(self) -> None:
        """Remove what was compiled."""
        self._folder.cleanup()

    def _shape(self, shape: Shape, backend: str, draws: int) -> Count:
        count = Count(shape.name, backend, WALK)
        started = time.perf_counter()
        try:
            make, count.checked = self._compiled(shape.schema, backend)
        except Refused as refused:
            count.add("refused", refused.message)
            return count
        count.admission_ms = (time.perf_counter() - started) * 1000
        times: list[float] = []
        for drawn in self._draws(make, shape.schema, draws, times):
            _take(count, shape, drawn)
        count.tokens, count.seconds = len(times), sum(times) / 1e6
        base = shape.base()
        if base is not None:
            times = self._base_times(base, backend, draws)
            count.base_tokens, count.base_seconds = len(times), sum(times) / 1e6
        return count

    def _compiled(self, schema: Any, backend: str) -> tuple[Callable[[], Guide], bool]:
        constraint = Constraint("guided_json", Kind.JSON, json.dumps(schema), backend)
        compiled = self._compiler.compile(constraint, relaxed=True)
        makers = [self._libraries.compile(part) for part in compiled.program.parts]
        return lambda: self._libraries.guide(compiled.program, makers), compiled.checked

    def _draws(
        self, make: Callable[[], Guide], schema: Any, draws: int, times: list[float]
    ) -> Iterator[Draw]:
        hints = Hints.of(schema)
        for number in range(draws):
            dice = np.random.default_rng([self._seed, number])
            hurry = HURRY[number % len(HURRY)]
            yield self._drawer.draw(
                make(), self._mask, times, hurry=hurry, generator=dice, hints=hints
            )

    def _base_times(self, base: Any, backend: str, draws: int) -> list[float]:
        """Microseconds of each mask of the base; none where it is refused."""
        times: list[float] = []
        try:
            make, _ = self._compiled(base, backend)
        except Refused:
            return times
        for _ in self._draws(make, base, draws, times):
            pass
        return times


def _take(count: Count, shape: Shape, drawn: Draw) -> None:
    text = drawn.content.decode(errors="replace")
    if drawn.dead is not None:
        count.add("dead", f"{drawn.dead}, after {text[-80:]}")
    elif not drawn.finished:
        count.add("cut")
    elif (fault := fault_of(shape.schema, text)) is not None and count.checked:
        count.add("not_satisfied", f"{fault}, in {text}")
    else:
        count.judged(fault, text)
