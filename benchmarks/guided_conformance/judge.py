"""Judging a schema with a backend: admitted, its instances walked through the masks, and draws."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adapter.errors import ApiError
from adapter.guided.backends.registry import LIBRARIES, Libraries, Maker
from adapter.guided.compile.service import CompiledConstraint, CompileService
from adapter.guided.compile.validation import check_fault
from adapter.guided.constraint import AUTO, Constraint, Kind
from adapter.guided.vocabulary import Vocabulary
from adapter.guided.whitespace import DEFAULT
from benchmarks.guided_conformance.cases import Case, Task, as_text, orders
from benchmarks.guided_conformance.goals import Hints
from benchmarks.guided_conformance.outcomes import (
    Outcome,
    Unjudged,
    fault_of,
    is_json,
    repeats_a_name,
    short,
    verdict,
)
from benchmarks.guided_conformance.walks import Draw, Drawer, Walk, Walker
from benchmarks.schema_sets import suite_documents

DRAWS = (4, 15, 60, 60)
"""The random draws of a schema: after so many tokens each is brought to an end where it can be."""


class Judge:
    """Judges schemas in one process."""

    def __init__(self, vocabulary: Vocabulary, seconds: float) -> None:
        """seconds: what compiling a constraint may take."""
        self._vocabulary = vocabulary
        self._libraries = Libraries(vocabulary)
        self._end = vocabulary.eos_token_ids[0]
        self._mask: npt.NDArray[np.int32] = np.zeros(vocabulary.words, np.int32)
        self._walker = Walker(vocabulary.tokens, self._end)
        self._drawer = Drawer(vocabulary.tokens, self._end)
        self._runner = asyncio.Runner()
        self._service = new_service(vocabulary, seconds)

    def load(self, backends: Sequence[str]) -> dict[str, str]:
        """Load all libraries, here and where constraints are compiled; what each failed on."""
        faults = {}
        self._service.start()
        self._libraries.whitespace_runs(DEFAULT).warm()
        for library in LIBRARIES:
            try:
                self._libraries.backend(library)
            except Exception as error:
                faults[str(library)] = f"{type(error).__name__}: {error}"
        whole = [name for name in backends if name not in faults]
        self._runner.run(warm(self._service, whole))
        return faults

    def close(self) -> None:
        """End its processes."""
        self._service.close()
        self._runner.close()

    def judge(self, task: Task) -> Outcome:
        """What becomes of a schema with a backend."""
        case = task.case
        outcome = Outcome(case.set, case.id, case.keyword, case.remote, task.backend)
        outcome.has_instances = bool(case.tests)
        outcome.forbidden = sum(not test["valid"] and not test.get("format") for test in case.tests)
        started = time.monotonic()
        compiled = self._compile(case, outcome)
        if compiled is None:
            forbidden = sum(not test["valid"] for test in case.tests)
            if outcome.unsatisfiable and forbidden == len(case.tests) > 0:
                outcome.verdict = "exact"
        else:
            outcome.checked = compiled.schema is not None
            makers = [self._libraries.compile(part) for part in compiled.program.parts]
            text = _Texts(self, compiled, makers, case.schema, outcome)
            for index, test in enumerate(case.tests):
                text.instance(test, task.seed + index)
            text.draws(task)
            outcome.verdict = verdict(outcome)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _compile(self, case: Case, outcome: Outcome) -> CompiledConstraint | None:
        constraint = json_constraint(case.schema, outcome.backend)
        started = time.perf_counter()
        try:
            return self._runner.run(self._service.compile(constraint))
        except ApiError as error:
            outcome.verdict = "refused"
            outcome.reason = error.message
            outcome.unsatisfiable = any(words in error.message for words in UNSATISFIABLE)
            outcome.too_slow = error.code == "constraint_timeout"
            outcome.crashed = error.code == "invalid_value"
            return None
        finally:
            outcome.admission_ms = (time.perf_counter() - started) * 1000

    def walk(
        self, compiled: CompiledConstraint, makers: list[Maker], text: str, times: list[float]
    ) -> Walk:
        """Walk a new text."""
        guide = self._libraries.guide(compiled.program, makers)
        return self._walker.walk(guide, text.encode(), self._mask, times)

    def draw(
        self,
        compiled: CompiledConstraint,
        makers: list[Maker],
        times: list[float],
        *,
        hurry: int,
        generator: np.random.Generator,
        hints: Hints,
    ) -> Draw:
        """Draw a new text."""
        guide = self._libraries.guide(compiled.program, makers)
        return self._drawer.draw(
            guide, self._mask, times, hurry=hurry, generator=generator, hints=hints
        )


UNSATISFIABLE = ("JSON text satisfies it", "Unsatisfiable schema")
"""In the refusal of a schema that has no value: where no instance is valid, that is exact."""


class _Texts:
    """The texts of one schema with one backend, and what is noted of them."""

    def __init__(
        self,
        judge: Judge,
        compiled: CompiledConstraint,
        makers: list[Maker],
        schema: Any,
        outcome: Outcome,
    ) -> None:
        self._judge = judge
        self._compiled = compiled
        self._makers = makers
        self._schema = schema
        self._outcome = outcome
        self._untellable = check_fault(schema)
        if self._untellable is not None:
            outcome.unjudged.append(self._untellable)

    def instance(self, test: dict[str, Any], seed: int) -> None:
        """Judge an instance."""
        accepted, why = self._accepted(test["data"], seed, compact=test["valid"])
        shown = short(as_text(test["data"]))
        if test.get("format"):
            self._outcome.by_format += 1
            self._outcome.by_format_accepted += accepted
        elif test["valid"] and not accepted:
            self._outcome.rejected.append(f"{shown}: {why}")
        elif accepted and not test["valid"]:
            self._outcome.under.append(f"accepted {shown}")

    def _accepted(self, data: Any, seed: int, *, compact: bool) -> tuple[bool, str]:
        """Whether the data gets through in some order of its keys, and why not."""
        why = ""
        for ordered in orders(data, self._schema, seed):
            accepted, stopped = self._text_accepted(as_text(ordered))
            if accepted and compact:
                accepted, stopped = self._text_accepted(as_text(ordered, compact=True))
            if accepted:
                return True, ""
            why = why or stopped
        return False, why

    def _text_accepted(self, text: str) -> tuple[bool, str]:
        outcome = self._outcome
        result = self._judge.walk(self._compiled, self._makers, text, outcome.fill_us)
        for prefix in result.early:
            self._early_end(prefix)
        if result.dead:
            outcome.dead.append(f"{result.dead}, after {_end_of(text, result.reached)}")
        if not result.accepted:
            return False, f"stopped after {_end_of(text, result.reached)}"
        if outcome.checked and (fault := self._fault(text.encode())):
            outcome.caught.append(f"{short(text)}: {short(fault)}")
            return False, f"caught: {fault}"
        return True, ""

    def _early_end(self, prefix: bytes) -> None:
        fault = self._fault(prefix)
        if fault and self._outcome.checked:
            self._outcome.caught.append(f"{short(repr(prefix))}: {short(fault)}")
        elif fault:
            self._outcome.under.append(f"may end after {short(repr(prefix))}: {short(fault)}")

    def _fault(self, text: bytes) -> str | None:
        if self._untellable is not None:
            return None if is_json(text) else "not JSON"
        try:
            return fault_of(self._schema, text)
        except Unjudged as error:
            self._outcome.unjudged.append(str(error))
            return None

    def draws(self, task: Task) -> None:
        """Draw random texts and judge them."""
        key = f"{task.seed} {task.case.set} {task.case.id} {task.backend}"
        generator = np.random.default_rng(list(key.encode()))
        hints = Hints.of(task.case.schema)
        for hurry in DRAWS:
            drawn = self._judge.draw(
                self._compiled,
                self._makers,
                self._outcome.fill_us,
                hurry=hurry,
                generator=generator,
                hints=hints,
            )
            self._drawn(drawn)

    def _drawn(self, drawn: Draw) -> None:
        outcome = self._outcome
        if drawn.dead is not None:
            outcome.draws["dead"] += 1
            outcome.dead.append(f"{short(drawn.dead)}, after {drawn.content[-100:]!r}")
        elif not drawn.finished:
            outcome.draws["unfinished"] += 1
            outcome.dead.append(f"came to no end: {drawn.content[-100:]!r}")
        else:
            outcome.draws["finished"] += 1
            if fault := self._fault(drawn.content):
                self._wrong(drawn.content, fault, checked=outcome.checked)
            elif repeats_a_name(drawn.content):
                outcome.draws["repeated"] += 1
                # No schema forbids it, so no check of the schema finds it.
                self._wrong(drawn.content, "a name twice in one object", checked=False)

    def _wrong(self, content: bytes, fault: str, *, checked: bool) -> None:
        outcome = self._outcome
        if checked:
            outcome.caught.append(f"{short(repr(content))}: {short(fault)}")
            outcome.draws["caught"] += 1
            return
        outcome.draws["wrong"] += 1
        outcome.draws["not_json"] += not is_json(content)
        outcome.wrong.append(f"{short(fault)}, in {short(repr(content), 300)}")


def _end_of(text: str, reached: int) -> str:
    return repr(text.encode()[:reached][-60:])


CACHE_BYTES = 256 * 2**20  # the server's default
LOADING_SECONDS = 15.0


def json_constraint(schema: Any, backend: str) -> Constraint:
    """The constraint of a request with this guided_json."""
    return Constraint("guided_json", Kind.JSON, json.dumps(schema), backend)


def new_service(vocabulary: Vocabulary, seconds: float) -> CompileService:
    """The server's, with its default limits but for the time, and with the suite's documents."""
    return CompileService(
        vocabulary,
        seconds=seconds,
        cache_bytes=CACHE_BYTES,
        relaxed=True,
        documents=suite_documents(),
    )


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
