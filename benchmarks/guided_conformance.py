"""Whether guided decoding keeps its word: JSON schemas with instances, for every backend.

`python -m benchmarks.guided_conformance --data DIR` admits each schema of DIR/bench.jsonl (of the
real world) and DIR/suite.jsonl (the official test suite) as the server does, walks the tokens of
its valid and invalid instances under the masks, and draws random texts from them. No model runs:
the built-in tokenizer is all it needs. Exit status 1 where anything broke its schema unnoticed.

An instance's keys may come in any order, and a library may have one of its own: what is rejected is
tried again in others. A schema is *under* where an invalid instance got through, or a text might
have ended early on no valid document; else *over* where a valid one was rejected; else *exact*.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from adapter.errors import ApiError
from adapter.guided.admission import Admission, Admitted
from adapter.guided.blanks import DEFAULT
from adapter.guided.constraint import AUTO, BACKENDS, Constraint, Kind
from adapter.guided.libraries import LIBRARIES, Libraries, Maker
from adapter.guided.matcher import Mask
from adapter.guided.schema import SchemaError, resolve
from adapter.guided.validation import check_fault, text_fault
from adapter.guided.vocabulary import Vocabulary, end_token_ids, read_vocabulary
from benchmarks.environment import environment
from benchmarks.report import name_value_line, table

SETS = {"bench": "real", "suite": "suite"}
"""The files, and what they are called in the figures."""

PACKAGES = ("llguidance", "xgrammar", "outlines_core", "lm-format-enforcer", "jsonschema")

PLAN_SECONDS = 5.0  # the server's default limits
CACHE_BYTES = 256 * 2**20
SCHEMA_LIMITS = 12
"""How many times the limit of a plan all work on a schema may take."""
START_SECONDS = 600.0
LOADING_SECONDS = 15.0

DRAWS = (4, 15, 60, 60)
"""The random draws of a schema: after so many tokens each is brought to an end where it can be."""
LONGEST_DRAW = 300
END_SHARE = 0.5
CLOSE_SHARE = 0.9

PRINTED_FAULTS = 60


# --- cases --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A schema and what is known of it."""

    set: str
    id: str
    schema: Any
    tests: list[dict[str, Any]]
    """Each with data, valid, and format where a `format` alone makes it invalid."""
    keyword: str
    remote: bool = False
    """It needs documents from a server, or the test suite says so."""


class Task(NamedTuple):
    """What a worker does at once."""

    case: Case
    backend: str
    seed: int


def read_cases(path: Path, name: str) -> list[Case]:
    """The cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Case(
            name,
            row["id"],
            row["schema"],
            row.get("tests", []),
            row.get("keyword", ""),
            "remote" in row,
        )
        for row in rows
    ]


def sample(cases: Sequence[Case], limit: int | None, seed: int) -> list[Case]:
    """So many cases from all over the list, in its order."""
    if limit is None or limit >= len(cases):
        return list(cases)
    places = random.Random(seed).sample(range(len(cases)), limit)
    return [cases[place] for place in sorted(places)]


# --- instances as text --------------------------------------------------------------------------


def as_text(value: Any, *, compact: bool = False) -> str:
    """A value as JSON; escaped where it holds half of a surrogate pair, which no UTF-8 can."""
    separators = (",", ":") if compact else None
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=separators)
    return text


def orders(value: Any, schema: Any, seed: int) -> Iterator[Any]:
    """The value with its keys in several orders: as given, the schema's, reversed, and shuffled."""
    seen = set()
    shuffler = random.Random(seed)
    for ordered in (
        value,
        in_schema_order(value, schema),
        _reordered(value, lambda keys: keys[::-1]),
        _reordered(value, lambda keys: shuffler.sample(keys, len(keys))),
    ):
        text = as_text(ordered)
        if text not in seen:
            seen.add(text)
            yield ordered


def _reordered(value: Any, order: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(value[key], order) for key in order(list(value))}
    if isinstance(value, list):
        return [_reordered(item, order) for item in value]
    return value


def in_schema_order(value: Any, schema: Any) -> Any:
    """The value with the keys of its objects as the schema names them, unknown ones last."""
    return _ordered(value, [schema], schema)


def _ordered(value: Any, schemas: Sequence[Any], root: Any) -> Any:
    if not isinstance(value, dict | list):
        return value
    nodes = _all_of_them(schemas, root)
    if isinstance(value, list):
        return [_ordered(item, _of_item(nodes, i), root) for i, item in enumerate(value)]
    ranks: dict[str, int] = {}
    for name in ("properties", "required"):
        for node in nodes:
            for key in node.get(name) or ():
                ranks.setdefault(key, len(ranks))
    keys = sorted(value, key=lambda key: ranks.get(key, len(ranks)))
    return {key: _ordered(value[key], _of_key(nodes, key), root) for key in keys}


def _all_of_them(schemas: Sequence[Any], root: Any) -> list[dict[str, Any]]:
    """The schema objects that may speak of one value: these, and what they are put together of."""
    found: dict[int, dict[str, Any]] = {}
    waiting = deque(schemas)
    while waiting:
        node = waiting.popleft()
        if not isinstance(node, dict) or id(node) in found:
            continue
        found[id(node)] = node
        for name in ("allOf", "anyOf", "oneOf"):
            waiting += node.get(name) or ()
        waiting += [node.get(name) for name in ("if", "then", "else")]
        reference = node.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            try:
                waiting.append(resolve(reference, root))
            except SchemaError:
                continue
    return list(found.values())


def _of_key(nodes: Iterable[dict[str, Any]], key: str) -> list[Any]:
    found = []
    for node in nodes:
        properties = node.get("properties")
        if isinstance(properties, dict) and key in properties:
            found.append(properties[key])
        elif isinstance(node.get("patternProperties"), dict):
            found += node["patternProperties"].values()
        found.append(node.get("additionalProperties"))
    return found


def _of_item(nodes: Iterable[dict[str, Any]], index: int) -> list[Any]:
    found = []
    for node in nodes:
        items = node.get("items")
        for listed in (node.get("prefixItems"), items):
            if isinstance(listed, list) and index < len(listed):
                found.append(listed[index])
        found.append(items)
    return found


class Words:
    """The tokens by their bytes."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """texts: the bytes of each id, empty where it has none."""
        self._ids = {text: token for token, text in reversed(list(enumerate(texts))) if text}
        self._longest = max(map(len, self._ids), default=0)

    def at(self, text: bytes, start: int) -> Iterator[int]:
        """The tokens that a text may go on with, the longest first."""
        for end in range(min(start + self._longest, len(text)), start, -1):
            token = self._ids.get(text[start:end])
            if token is not None:
                yield token

    def one(self, text: bytes) -> int | None:
        """The token of a text."""
        return self._ids.get(text)


# --- walking and drawing ------------------------------------------------------------------------


class AnyGuide(Protocol):
    """What is asked of a Guide."""

    @property
    def failure(self) -> str | None: ...

    def fill(self, mask: Mask) -> None: ...

    def accept(self, tokens: Sequence[int]) -> bool: ...


@dataclass(slots=True)
class Walk:
    """How far a text came under the masks."""

    accepted: bool = False
    early: list[bytes] = field(default_factory=list)
    """The beginnings where the text might have ended."""
    reached: int = 0
    """Bytes that were allowed."""
    dead: str | None = None
    """Why no token at all could come next."""


def has_bit(mask: Mask, token: int) -> bool:
    """Whether a mask allows a token."""
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def timed_fill(guide: AnyGuide, mask: Mask, times: list[float]) -> None:
    """Fill a mask, and note the microseconds of CPU: other work on the machine is not counted."""
    started = time.thread_time_ns()
    guide.fill(mask)
    times.append((time.thread_time_ns() - started) / 1000)


class Walker:
    """Takes texts under the masks of one vocabulary."""

    def __init__(self, texts: Sequence[bytes], end: int) -> None:
        self._texts = texts
        self._end = end
        self._words = Words(texts)

    def walk(self, guide: AnyGuide, text: bytes, mask: Mask, times: list[float]) -> Walk:
        """Take a text and its end, as long as the masks allow it.

        Each step takes the longest token that is allowed: where only one text can follow,
        llguidance allows the tokens that its tokenizer would make of it, and no others.
        """
        result = Walk()
        while result.dead is None:
            timed_fill(guide, mask, times)
            result.dead = guide.failure
            done = result.reached == len(text)
            may_end = guide.failure is None and has_bit(mask, self._end)
            if may_end and not done:
                result.early.append(text[: result.reached])
            choices = [self._end] if done else self._words.at(text, result.reached)
            token = next((token for token in choices if has_bit(mask, token)), None)
            if token is None or result.dead is not None:
                break
            if not guide.accept([token]):
                result.dead = f"token {token} of its own mask was refused"
            elif done:
                result.accepted = True
                break
            else:
                result.reached += len(self._texts[token])
        return result


class Place(NamedTuple):
    """Where a JSON text stands."""

    in_string: bool = False
    escaped: bool = False

    def after(self, text: bytes) -> "Place":
        """Where it stands after more of it."""
        in_string, escaped = self
        for byte in text:
            if escaped:
                escaped = False
            elif byte == ord('"'):
                in_string = not in_string
            else:
                escaped = in_string and byte == ord("\\")
        return Place(in_string, escaped)


@dataclass(slots=True)
class Draw:
    """A text drawn at random from the masks."""

    content: bytes
    finished: bool = False
    dead: str | None = None


class Drawer:
    """Draws texts for one vocabulary."""

    def __init__(self, texts: Sequence[bytes], end: int) -> None:
        self._texts = texts
        self._end = end
        words = Words(texts)
        self._inside = [token for token in [words.one(b'"')] if token is not None]
        self._outside = [
            token for text in b'}]":,' if (token := words.one(bytes([text]))) is not None
        ]

    def draw(
        self,
        guide: AnyGuide,
        mask: Mask,
        times: list[float],
        *,
        hurry: int,
        generator: np.random.Generator,
    ) -> Draw:
        """A random text; after `hurry` tokens it closes what it can."""
        drawn = Draw(b"")
        place = Place()
        for taken in range(LONGEST_DRAW):
            timed_fill(guide, mask, times)
            if guide.failure is not None:
                drawn.dead = guide.failure
                return drawn
            token = self._next(mask, place, taken >= hurry, generator)
            if not guide.accept([token]):
                drawn.dead = f"token {token} of its own mask was refused"
                return drawn
            if token == self._end:
                drawn.finished = True
                return drawn
            drawn.content += self._texts[token]
            place = place.after(self._texts[token])
        return drawn

    def _next(self, mask: Mask, place: Place, hurry: bool, generator: np.random.Generator) -> int:
        if has_bit(mask, self._end) and generator.random() < END_SHARE:
            return self._end
        if hurry and generator.random() < CLOSE_SHARE:
            for token in self._inside if place.in_string else self._outside:
                if has_bit(mask, token):
                    return token
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        return int(generator.choice(allowed))


# --- judging ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What became of one schema with one backend."""

    set: str
    id: str
    keyword: str
    remote: bool
    backend: str
    verdict: str = "served"
    """exact, over or under; served where there are no instances; refused; failed (no answer)."""
    reason: str = ""
    """Why it was refused or failed."""
    has_instances: bool = False
    too_slow: bool = False
    """Refused because of the time limit."""
    crashed: bool = False
    """Refused because the process that compiled it ended."""
    checked: bool = False
    """Finished texts are validated."""
    admission_ms: float = 0.0
    rejected: list[str] = field(default_factory=list)
    """Valid instances that did not get through."""
    under: list[str] = field(default_factory=list)
    """Invalid instances that did, and ends allowed on what is not valid."""
    caught: int = 0
    """Texts that only the validation of finished texts stopped."""
    by_format: int = 0
    """Instances that a `format` alone makes invalid, and how many of them got through."""
    by_format_accepted: int = 0
    draws: Counter[str] = field(default_factory=Counter)
    """finished, wrong, not_json, unfinished, dead."""
    wrong: list[str] = field(default_factory=list)
    """Finished draws that break the schema."""
    dead: list[str] = field(default_factory=list)
    """Texts that no token could continue."""
    unjudged: list[str] = field(default_factory=list)
    """Why texts could not be validated."""
    fill_us: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def served(self) -> bool:
        """Whether the backend took the schema."""
        return self.verdict not in ("refused", "failed")

    def record(self) -> dict[str, Any]:
        """As JSON, of the times the greatest alone."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        del fields["fill_us"]
        fields["draws"] = dict(self.draws)
        fields["fills"] = len(self.fill_us)
        fields["fill_max_us"] = max(self.fill_us, default=0)
        return fields


def verdict(outcome: Outcome) -> str:
    """The verdict on an admitted schema."""
    if outcome.under:
        return "under"
    if not outcome.has_instances:
        return "served"
    return "over" if outcome.rejected else "exact"


class Unjudged(Exception):
    """The validator failed on a text."""


def fault_of(schema: Any, text: bytes) -> str | None:
    """Why a text is not what the schema asks for, None where it is.

    Raises:
        Unjudged: the validator itself failed.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error}"
    try:
        return text_fault(schema, decoded)
    except Exception as error:
        raise Unjudged(f"{type(error).__name__}: {error}") from error


def is_json(text: bytes) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    return True


class Judge:
    """Judges schemas in one process."""

    def __init__(self, vocabulary: Vocabulary, seconds: float) -> None:
        """seconds: what a plan may take."""
        self._vocabulary = vocabulary
        self._libraries = Libraries(vocabulary)
        self._end = vocabulary.ends[0]
        self._mask: npt.NDArray[np.int32] = np.zeros(vocabulary.words, np.int32)
        self._walker = Walker(vocabulary.tokens, self._end)
        self._drawer = Drawer(vocabulary.tokens, self._end)
        self._runner = asyncio.Runner()
        self._admission = new_admission(vocabulary, seconds)

    def load(self, backends: Sequence[str]) -> dict[str, str]:
        """Load all libraries, here and where constraints are compiled; what each failed on."""
        faults = {}
        self._admission.start()
        self._libraries.blank_runs(DEFAULT).warm()
        for library in LIBRARIES:
            try:
                self._libraries.backend(library)
            except Exception as error:
                faults[str(library)] = f"{type(error).__name__}: {error}"
        whole = [name for name in backends if name not in faults]
        self._runner.run(warm(self._admission, whole))
        return faults

    def close(self) -> None:
        """End its processes."""
        self._admission.close()
        self._runner.close()

    def judge(self, task: Task) -> Outcome:
        """What becomes of a schema with a backend."""
        case = task.case
        outcome = Outcome(case.set, case.id, case.keyword, case.remote, task.backend)
        outcome.has_instances = bool(case.tests)
        started = time.monotonic()
        admitted = self._admit(case, outcome)
        if admitted is not None:
            outcome.checked = admitted.schema is not None
            makers = [self._libraries.compile(part) for part in admitted.program.parts]
            text = _Texts(self, admitted, makers, case.schema, outcome)
            for index, test in enumerate(case.tests):
                text.instance(test, task.seed + index)
            text.draws(task)
            outcome.verdict = verdict(outcome)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _admit(self, case: Case, outcome: Outcome) -> Admitted | None:
        constraint = json_constraint(case.schema, outcome.backend)
        started = time.perf_counter()
        try:
            return self._runner.run(self._admission.admit(constraint))
        except ApiError as error:
            outcome.verdict = "refused"
            outcome.reason = error.message
            outcome.too_slow = error.code == "constraint_timeout"
            outcome.crashed = error.code == "invalid_value"
            return None
        finally:
            outcome.admission_ms = (time.perf_counter() - started) * 1000

    def walk(self, admitted: Admitted, makers: list[Maker], text: str, times: list[float]) -> Walk:
        """Walk a new text."""
        guide = self._libraries.guide(admitted.program, makers)
        return self._walker.walk(guide, text.encode(), self._mask, times)

    def draw(
        self,
        admitted: Admitted,
        makers: list[Maker],
        times: list[float],
        *,
        hurry: int,
        generator: np.random.Generator,
    ) -> Draw:
        """Draw a new text."""
        guide = self._libraries.guide(admitted.program, makers)
        return self._drawer.draw(guide, self._mask, times, hurry=hurry, generator=generator)


class _Texts:
    """The texts of one schema with one backend, and what is noted of them."""

    def __init__(
        self,
        judge: Judge,
        admitted: Admitted,
        makers: list[Maker],
        schema: Any,
        outcome: Outcome,
    ) -> None:
        self._judge = judge
        self._admitted = admitted
        self._makers = makers
        self._schema = schema
        self._outcome = outcome
        self._untellable = check_fault(schema)
        if self._untellable is not None:
            outcome.unjudged.append(self._untellable)

    def instance(self, test: dict[str, Any], seed: int) -> None:
        """Judge an instance."""
        accepted, why = self._accepted(test["data"], seed, compact=test["valid"])
        shown = _short(as_text(test["data"]))
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
        result = self._judge.walk(self._admitted, self._makers, text, outcome.fill_us)
        for prefix in result.early:
            self._early_end(prefix)
        if result.dead:
            outcome.dead.append(f"{result.dead}, after {_end_of(text, result.reached)}")
        if not result.accepted:
            return False, f"stopped after {_end_of(text, result.reached)}"
        if outcome.checked and (fault := self._fault(text.encode())):
            outcome.caught += 1
            return False, f"caught: {fault}"
        return True, ""

    def _early_end(self, prefix: bytes) -> None:
        fault = self._fault(prefix)
        if fault and self._outcome.checked:
            self._outcome.caught += 1
        elif fault:
            self._outcome.under.append(f"may end after {_short(repr(prefix))}: {_short(fault)}")

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
        for hurry in DRAWS:
            drawn = self._judge.draw(
                self._admitted,
                self._makers,
                self._outcome.fill_us,
                hurry=hurry,
                generator=generator,
            )
            self._drawn(drawn)

    def _drawn(self, drawn: Draw) -> None:
        outcome = self._outcome
        if drawn.dead is not None:
            outcome.draws["dead"] += 1
            outcome.dead.append(f"{_short(drawn.dead)}, after {drawn.content[-100:]!r}")
        elif not drawn.finished:
            outcome.draws["unfinished"] += 1
        else:
            outcome.draws["finished"] += 1
            if fault := self._fault(drawn.content):
                self._wrong(drawn.content, fault)

    def _wrong(self, content: bytes, fault: str) -> None:
        outcome = self._outcome
        if outcome.checked:
            outcome.caught += 1
            outcome.draws["caught"] += 1
            return
        outcome.draws["wrong"] += 1
        outcome.draws["not_json"] += not is_json(content)
        outcome.wrong.append(f"{_short(fault)}, in {_short(repr(content), 300)}")


def _short(text: str, length: int = 160) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _end_of(text: str, reached: int) -> str:
    return repr(text.encode()[:reached][-60:])


def json_constraint(schema: Any, backend: str) -> Constraint:
    """The constraint of a request with this guided_json."""
    return Constraint("guided_json", Kind.JSON, json.dumps(schema), backend)


def new_admission(vocabulary: Vocabulary, seconds: float) -> Admission:
    """The server's, with its default limits but for the time."""
    return Admission(vocabulary, seconds=seconds, cache_bytes=CACHE_BYTES, relaxed=True)


async def warm(admission: Admission, backends: Iterable[str]) -> None:
    """Let each backend compile something, until its library is surely loaded."""
    for backend in backends:
        for attempt in range(6):
            started = time.monotonic()
            with contextlib.suppress(ApiError):
                await admission.admit(json_constraint({"const": f"warm {attempt}"}, backend))
            if attempt > 1 and time.monotonic() - started < 0.5:
                break


# --- worker processes ---------------------------------------------------------------------------


class Setting(NamedTuple):
    """What a worker process needs to know."""

    vocabulary: Path
    backends: Sequence[str]
    seconds: float


def work(connection: Connection, setting: Setting) -> None:
    """Take tasks until there are no more; runs in a process of its own."""
    judge = Judge(Vocabulary.load(setting.vocabulary), setting.seconds)
    connection.send(judge.load(setting.backends))
    while (task := connection.recv()) is not None:
        try:
            connection.send(judge.judge(task))
        except Exception as error:
            connection.send(failed(task, f"{type(error).__name__}: {error}"))
    judge.close()


def failed(task: Task, reason: str) -> Outcome:
    """The outcome of a task that gave none."""
    case = task.case
    outcome = Outcome(case.set, case.id, case.keyword, case.remote, task.backend)
    outcome.verdict = "failed"
    outcome.reason = _short(reason)
    outcome.has_instances = bool(case.tests)
    return outcome


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, setting: Setting) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, setting), daemon=True)
        self._process.start()
        theirs.close()
        self.task: Task | None = None
        self.ready = False
        self.until = time.monotonic() + START_SECONDS

    def give(self, task: Task, seconds: float) -> None:
        """Let it work on a task for so long."""
        self.task = task
        self.until = time.monotonic() + seconds
        self.connection.send(task)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def finish(self) -> None:
        """Let it end by itself."""
        self.connection.send(None)
        self._process.join(10)
        self.kill()


class Workers:
    """Worker processes; one that works too long on a schema, or dies of it, is replaced."""

    def __init__(self, count: int, setting: Setting) -> None:
        self._setting = setting
        self._seconds = SCHEMA_LIMITS * setting.seconds
        self._workers = [_Worker(setting) for _ in range(count)]
        self.broken: dict[str, str] = {}
        """The backends that could not be loaded, and why."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """The outcomes, as they come; tasks of broken backends are left out."""
        waiting = deque(tasks)
        while True:
            for worker in self._workers:
                self._feed(worker, waiting)
            if not waiting and all(worker.task is None for worker in self._workers):
                break
            connections: list[Any] = [worker.connection for worker in self._workers]
            wait(connections, timeout=1.0)
            for worker in list(self._workers):
                outcome = self._look(worker)
                if outcome is not None:
                    yield outcome
        for worker in self._workers:
            worker.finish() if worker.ready else worker.kill()

    def _feed(self, worker: _Worker, waiting: deque[Task]) -> None:
        while waiting and worker.ready and worker.task is None:
            task = waiting.popleft()
            if task.backend not in self.broken:
                worker.give(task, self._seconds)

    def _look(self, worker: _Worker) -> Outcome | None:
        """What a worker says."""
        try:
            if worker.connection.poll():
                return self._hear(worker)
        except (EOFError, OSError):
            return self._replace(worker, "the worker process ended")
        if worker.until < time.monotonic() and (worker.task or not worker.ready):
            return self._replace(worker, f"no answer within {self._seconds:g} s")
        return None

    def _hear(self, worker: _Worker) -> Outcome | None:
        said = worker.connection.recv()
        if not worker.ready:
            self.broken.update(said)
            worker.ready = True
            return None
        worker.task = None
        outcome: Outcome = said
        return outcome

    def _replace(self, worker: _Worker, reason: str) -> Outcome | None:
        worker.kill()
        if not worker.ready:
            raise RuntimeError(f"a worker process could not start: {reason}")
        self._workers[self._workers.index(worker)] = _Worker(self._setting)
        return None if worker.task is None else failed(worker.task, reason)


# --- figures ------------------------------------------------------------------------------------


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them stay at or below; nan of none."""
    if not values:
        return float("nan")
    ranked = sorted(values)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


class Tally:
    """The outcomes of one set with one backend."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.all = list(outcomes)
        self.judged = [outcome for outcome in self.all if outcome.has_instances]
        self.served = [outcome for outcome in self.judged if outcome.served]
        self.fills = np.array([time for outcome in self.all for time in outcome.fill_us])

    def count(self, name: str) -> int:
        """Schemas with instances and this verdict."""
        return sum(outcome.verdict == name for outcome in self.judged)

    def share(self, count: int) -> float:
        """Of the schemas with instances."""
        return count / max(len(self.judged), 1)

    def draws(self, name: str) -> int:
        """Random draws that ended so, over all schemas."""
        return sum(outcome.draws[name] for outcome in self.all)

    @property
    def under(self) -> int:
        """Schemas that are under, those without instances too."""
        return sum(outcome.verdict == "under" for outcome in self.all)

    @property
    def dead(self) -> int:
        """Texts that no token could continue, walked and drawn."""
        return sum(len(outcome.dead) for outcome in self.all)

    def row(self, backend: str) -> list[str]:
        """A row of the verdicts' table."""
        served = [outcome for outcome in self.all if outcome.served]
        wrong = sum(bool(outcome.draws["wrong"]) for outcome in served)
        slow = sum(outcome.too_slow for outcome in self.judged)
        times = [outcome.admission_ms for outcome in self.all]
        return [
            backend,
            f"{self._percent(self.count('refused'))}" + (f" ({slow} too slow)" if slow else ""),
            self._percent(self.count("over")),
            self._percent(self.count("under")),
            self._percent(self.count("exact")),
            self._percent(len(self.served)),
            str(self.count("failed")),
            f"{100 * wrong / max(len(served), 1):.1f}",
            str(self.dead),
            f"{percentile(times, 0.5):.1f} / {percentile(times, 0.99):.1f}",
            self._fill_text(),
        ]

    def _percent(self, count: int) -> str:
        return f"{100 * self.share(count):.1f}"

    def _fill_text(self) -> str:
        if not len(self.fills):
            return "-"
        middle, high = np.percentile(self.fills, [50, 99])
        return f"{middle:.0f} / {high:.0f} / {self.fills.max():.0f}"

    def draw_row(self, backend: str) -> list[str]:
        """A row of the random draws' table."""
        names = ("finished", "wrong", "not_json", "caught", "unfinished", "dead")
        walks = sum(outcome.caught - outcome.draws["caught"] for outcome in self.all)
        checked = sum(outcome.checked for outcome in self.all)
        return [backend, *(str(self.draws(name)) for name in names), str(checked), str(walks)]


VERDICT_HEADER = [
    "backend",
    "refused %",
    "over %",
    "under %",
    "exact %",
    "served %",
    "failed",
    "random wrong, % of served",
    "dead ends",
    "admission ms p50 / p99",
    "fill CPU us p50 / p99 / max",
]

DRAW_HEADER = [
    "backend",
    "finished",
    "wrong",
    "not JSON",
    "caught",
    "unfinished",
    "dead",
    "schemas checked",
    "walks caught",
]

_MARKS = ("exact", "over", "under", "refused")

Tallies = dict[tuple[str, str], Tally]


def tallies(outcomes: Iterable[Outcome]) -> Tallies:
    """By set and backend."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.set, outcome.backend].append(outcome)
    return {key: Tally(group) for key, group in groups.items()}


def keyword_table(outcomes: Iterable[Outcome], backends: Sequence[str]) -> str:
    """Groups of the suite by keyword: exact/over/under/refused, for each backend."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for outcome in outcomes:
        counts[outcome.keyword][outcome.backend][outcome.verdict] += 1
    rows = []
    for keyword, by_backend in sorted(counts.items()):
        groups = max(sum(counter.values()) for counter in by_backend.values())
        cells = ["/".join(str(by_backend[name][mark]) for mark in _MARKS) for name in backends]
        rows.append([f"{keyword} ({groups})", *cells])
    return table(["keyword (groups)", *backends], rows)


def fault_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """What has to be mended, a line each: the worst first."""
    lines: list[tuple[int, str]] = []
    for outcome in outcomes:
        where = f"{outcome.backend} {outcome.set} {outcome.id}"
        for rank, name, texts in (
            (0, "under", outcome.under),
            (1, "wrong", outcome.wrong),
            (3, "dead end", outcome.dead),
            (4, "failed", [outcome.reason] if outcome.verdict == "failed" else []),
            (5, "crashed", [outcome.reason] if outcome.crashed else []),
            (6, "not judged", outcome.unjudged),
        ):
            if texts:
                more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
                lines.append((rank, f"{name}: {where}: {texts[0]}{more}"))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def refusal_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """What a backend refuses, the same reasons together: how many, the reason, some ids."""
    groups: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.verdict == "refused":
            groups[re.sub(r'"[^"]*"|\d+', "_", outcome.reason)].append(outcome.id)
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    return [f"{len(ids)}: {_short(reason)} ({', '.join(ids[:3])})" for reason, ids in ranked]


def figures(found: Tallies, admission: Sequence[float]) -> dict[str, float]:
    """The values of the last line."""
    values: dict[str, float] = {}
    for (name, backend), tally in found.items():
        prefix = f"{SETS[name]}_{backend.replace('-', '_')}"
        values[f"{prefix}_exact"] = tally.share(tally.count("exact"))
        values[f"{prefix}_served"] = tally.share(len(tally.served))
        values[f"{prefix}_refused"] = tally.share(tally.count("refused"))
        values[f"{prefix}_under"] = tally.under
        values[f"{prefix}_wrong"] = tally.draws("wrong")
        values[f"{prefix}_dead"] = tally.dead
        values[f"{prefix}_failed"] = sum(outcome.verdict == "failed" for outcome in tally.all)
    values["caught"] = sum(outcome.caught for tally in found.values() for outcome in tally.all)
    if admission:
        values["admission_p50_ms"] = percentile(admission, 0.5)
        values["admission_p99_ms"] = percentile(admission, 0.99)
    return values


def is_bad(values: dict[str, float]) -> bool:
    """Whether something broke its schema unnoticed."""
    return any(value > 0 for name, value in values.items() if name.endswith(("_under", "_wrong")))


def _notes(tally: Tally, backend: str) -> Iterator[str]:
    formats = sum(outcome.by_format for outcome in tally.served)
    if formats:
        through = sum(outcome.by_format_accepted for outcome in tally.served)
        yield f"\nInvalid by a format alone: {backend} lets {through} of {formats} through."
    remote = [outcome for outcome in tally.all if outcome.remote]
    if remote:
        refused = sum(not outcome.served for outcome in remote)
        yield f"\nOf documents elsewhere: {backend} refuses {refused} of {len(remote)}."


def report(outcomes: Sequence[Outcome], backends: Sequence[str]) -> Iterator[str]:
    """The tables and lists, as text."""
    found = tallies(outcomes)
    for name in dict.fromkeys(outcome.set for outcome in outcomes):
        mine = [backend for backend in backends if (name, backend) in found]
        first = found[name, mine[0]]
        yield f"\n### {name}: {len(first.judged)} schemas with instances of {len(first.all)}\n"
        yield table(VERDICT_HEADER, [found[name, each].row(each) for each in mine])
        yield "\nRandom draws, and texts that the validation of checked schemas caught:\n"
        yield table(DRAW_HEADER, [found[name, each].draw_row(each) for each in mine])
        yield from _notes(first, mine[0])
        if any(outcome.keyword for outcome in first.all):
            yield "\nexact/over/under/refused:\n"
            yield keyword_table([each for each in outcomes if each.set == name], mine)
        yield f"\nWhat {mine[0]} refuses in {name}:"
        yield from refusal_lines(first.all)
    faults = fault_lines(outcomes)
    yield f"\nFaults: {len(faults)}"
    yield from faults[:PRINTED_FAULTS]


# --- the program --------------------------------------------------------------------------------


async def admission_times(
    vocabulary: Vocabulary, cases: Iterable[Case], seconds: float
) -> list[float]:
    """Milliseconds that a request waits for its constraint under `auto`, none of them known."""
    admission = new_admission(vocabulary, seconds)
    admission.start()
    times = []
    try:
        await warm(admission, [AUTO])
        await asyncio.sleep(LOADING_SECONDS)  # the other libraries are loaded in between
        for case in cases:
            started = time.perf_counter()
            with contextlib.suppress(ApiError):  # a refusal is an answer too
                await admission.admit(json_constraint(case.schema, AUTO))
            times.append((time.perf_counter() - started) * 1000)
    finally:
        admission.close()
    return times


def tiny_vocabulary() -> Vocabulary:
    """That of the built-in models, as the server reads it."""
    from transformers import AutoTokenizer

    from adapter.default_model import ensure_tiny_model

    folder = ensure_tiny_model()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    ends = end_token_ids(generation, tokenizer.eos_token_id)
    return read_vocabulary(tokenizer, model["vocab_size"], ends)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where something broke its schema unnoticed."""
    options = _parse(argv)
    # An exit, unlike the signal's default, also ends the workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    machine = environment()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    print(*machine.lines(), f"libraries: {versions}", sep="\n")
    cases = [
        case
        for name in options.sets
        for case in sample(read_cases(options.data / f"{name}.jsonl", name), options.limit, 0)
    ]
    vocabulary = tiny_vocabulary()
    real = [case for case in cases if case.set == "bench"]
    times = asyncio.run(admission_times(vocabulary, real, options.seconds)) if real else []
    outcomes, broken = _judged(vocabulary, cases, options)
    for backend, why in broken.items():
        print(f"{backend} left out, it cannot be loaded: {why}")
    backends = [name for name in options.backends if name not in broken]
    print(*report(outcomes, backends), sep="\n")
    values = figures(tallies(outcomes), times)
    if options.out:
        result = {
            "environment": asdict(machine),
            "libraries": versions,
            "figures": values,
            "admission_ms": times,
            "broken": broken,
            "outcomes": [outcome.record() for outcome in outcomes],
        }
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=True))
    print(name_value_line(values))
    return int(is_bad(values))


def _judged(
    vocabulary: Vocabulary, cases: Sequence[Case], options: argparse.Namespace
) -> tuple[list[Outcome], dict[str, str]]:
    """The outcomes of all cases, in their order, and the backends that could not be loaded."""
    tasks = [Task(case, name, options.seed) for case in cases for name in options.backends]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary"
        vocabulary.save(path)
        workers = Workers(options.workers, Setting(path, options.backends, options.seconds))
        outcomes = list(tqdm(workers.run(tasks), total=len(tasks), unit="schema", file=sys.stderr))
    ranks = {(task.case.set, task.case.id, task.backend): i for i, task in enumerate(tasks)}
    outcomes.sort(key=lambda outcome: ranks[outcome.set, outcome.id, outcome.backend])
    return outcomes, workers.broken


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guided_conformance",
        description="Whether guided decoding keeps its word, for every backend.",
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of the test data")
    parser.add_argument("--backends", type=listed(BACKENDS), default=list(BACKENDS), help="all")
    parser.add_argument("--sets", type=listed(SETS), default=list(SETS), help="bench,suite")
    parser.add_argument("--limit", type=int, help="only so many schemas of each set")
    parser.add_argument("--seed", type=int, default=0, help="of the random draws and orders")
    parser.add_argument(
        "--seconds", type=float, default=PLAN_SECONDS, help="the time limit of a plan (5)"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args(argv)


def listed(known: Iterable[str]) -> Any:
    """A parser of names with commas between them."""
    allowed = list(known)

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(allowed)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
