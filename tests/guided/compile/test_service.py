"""adapter/guided/compile/: the service that compiles, with its real processes."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adapter.errors import (
    ApiError,
    GenerationFailed,
    InvalidRequest,
    NotSatisfied,
    NotSupported,
    Unavailable,
)
from adapter.guided.backends.registry import LIBRARIES, Libraries
from adapter.guided.compile import processes, service
from adapter.guided.compile.cache import ConstraintCache
from adapter.guided.compile.messages import WALL_FACTOR
from adapter.guided.compile.processes import WorkerPool
from adapter.guided.compile.service import CompiledConstraint, CompileService
from adapter.guided.constraint import AUTO, BACKENDS, Constraint, Kind
from tests.guided.texts import VOCABULARY, ids, takes

T = TypeVar("T")

NAMED = ("guidance", "xgrammar", "outlines", "lm-format-enforcer")
LIMIT = 0.3


class Site:
    """One service for all tests of this file, and the loop that it lives in."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.service = CompileService(VOCABULARY, seconds=60, cache_bytes=2**26, relaxed=True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(60):
                return await work

        return self._runner.run(limited())

    def compile(self, *constraints: Constraint) -> list[CompiledConstraint | BaseException]:
        """All of them at once, each one's outcome."""

        async def together() -> list[CompiledConstraint | BaseException]:
            tasks = map(self.service.compile, constraints)
            return await asyncio.gather(*tasks, return_exceptions=True)

        return self.run(together())

    @property
    def fork_server(self) -> int:
        process = self.service._fork_server._process
        assert process is not None
        return process.pid

    @property
    def folder(self) -> Path:
        folder = self.service._fork_server._folder
        assert folder is not None
        return folder

    def kill_fork_server(self) -> None:
        process = self.service._fork_server._process
        assert process is not None
        process.kill()
        process.wait()

    def workers(self) -> set[int]:
        fork_server = self.fork_server
        return {process for process, (parent, _) in running().items() if parent == fork_server}

    def busy(self) -> set[int]:
        """The workers that work, and do not wait for a request."""
        found = running()
        return {process for process in self.workers() if found.get(process, (0, ""))[1] == "R"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A service whose libraries are loaded."""
    with asyncio.Runner() as runner:
        made = Site(runner)
        made.service.start()
        for backend in NAMED:
            (outcome,) = made.compile(regex("warm", backend))
            assert isinstance(outcome, CompiledConstraint), outcome
        yield made
        made.service.close()


@pytest.fixture
def short(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same with a short time limit."""
    monkeypatch.setattr(site.service, "_seconds", LIMIT)
    return site


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that are given to workers."""
    given: list[dict[str, Any]] = []
    run = WorkerPool.run

    async def counted(self: WorkerPool, request: dict[str, Any]) -> dict[str, Any]:
        given.append(request)
        return await run(self, request)

    monkeypatch.setattr(WorkerPool, "run", counted)
    return given


def regex(text: str, backend: str = "auto") -> Constraint:
    return Constraint("guided_regex", Kind.REGEX, text, backend)


def slow(number: int = 0) -> Constraint:
    """A constraint of a million states, another one for each number."""
    return regex(f"[ab]*a[ab]{{20}}c{{{number}}}", "outlines")


def schema(value: Any, backend: str = "auto") -> Constraint:
    return Constraint("guided_json", Kind.JSON, json.dumps(value), backend)


def running() -> dict[int, tuple[int, str]]:
    """All processes that have not ended: who started each, and its state."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(stat.parent.name)] = (int(parent), state)
    return found


def kill(processes: set[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def soon(holds: Callable[[], bool], seconds: float = 5) -> bool:
    """Whether it comes true in time."""
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.005)
    return holds()


# --- compiled and refused -------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["auto", *NAMED])
def test_compiled_program_holds_the_text(site: Site, libraries: Libraries, backend: str) -> None:
    """A compiled constraint is a program that another process's libraries run."""
    (compiled,) = site.compile(regex("a|ab{2}", backend))
    assert isinstance(compiled, CompiledConstraint)
    assert compiled.backend == ("guidance" if backend == "auto" else backend)
    assert compiled.schema is None
    guide = libraries.guide(compiled.program, [*map(libraries.compile, compiled.program.parts)])
    texts = ("a", "abb", "ab", "b", "")
    assert [takes(guide, ids(text)) for text in texts] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("constraint", "param", "part"),
    [
        (regex("(?=a)b"), "guided_regex", "no text"),
        (schema({"$ref": "#/$defs/a"}), "guided_json", "leads to nothing"),
        (Constraint("guided_grammar", Kind.GRAMMAR, "", "auto"), "guided_grammar", "guided_gram"),
        (
            Constraint("guided_json", Kind.JSON, "{}", "auto", "a"),
            "guided_whitespace_pattern",
            "guided_whitespace_pattern",
        ),
    ],
    ids=["pattern", "schema", "grammar", "whitespace"],
)
def test_refusal_names_the_field(
    site: Site, requests: list[Any], constraint: Constraint, param: str, part: str
) -> None:
    """A refusal is a 400 of the field at fault; asked again it is refused without a worker."""
    for _ in range(2):
        (error,) = site.compile(constraint)
        assert isinstance(error, NotSupported)
        assert (error.status, error.param, error.code) == (400, param, "unsupported_value")
        assert part in error.message
    assert len(requests) == 1


def test_compiled_once_for_two(site: Site, requests: list[Any]) -> None:
    """What was compiled is cached; another backend or field is another constraint."""
    asked = [regex("kept"), regex("kept"), regex("kept", "xgrammar"), regex("kept")]
    outcomes = [site.compile(constraint)[0] for constraint in asked]
    assert outcomes[0] is outcomes[1] is outcomes[3]
    assert outcomes[0] is not outcomes[2]
    assert len(requests) == 2


def test_compiled_once_for_all_at_once(site: Site, requests: list[Any]) -> None:
    """Requests that come together share the work, also where the first of them leaves."""

    async def asked() -> list[Any]:
        tasks = [asyncio.create_task(site.service.compile(regex("at once"))) for _ in range(20)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, *others = site.run(asked())
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(second, CompiledConstraint)
    assert all(other is second for other in others)
    assert len(requests) == 1
    assert not site.service._running


def test_workers_are_used_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick constraints start no processes."""
    monkeypatch.setattr(processes, "_LONG_REQUEST", 60)  # quick ones may be slow where tests run
    site.compile(regex("again"))
    before = site.workers()
    for number in range(5):
        site.compile(regex(f"again{number}"))
    assert site.workers() <= before


# --- time limit -----------------------------------------------------------------------------------


def test_too_slow_is_refused_in_time(short: Site, requests: list[Any]) -> None:
    """What takes too long is refused at the limit, with its worker, and is not tried again."""
    before = short.workers()
    started = time.monotonic()
    (error,) = short.compile(slow())
    taken = time.monotonic() - started
    assert LIMIT <= taken < LIMIT + 1
    assert isinstance(error, InvalidRequest)
    assert (error.param, error.code) == ("guided_regex", "constraint_timeout")
    assert "outlines" in error.message
    assert soon(lambda: short.workers() <= before)
    assert isinstance(short.compile(slow())[0], InvalidRequest)
    # On a busy machine the clock may end it before its CPU time does: then it may be tried again.
    assert len(requests) == 1 or taken > LIMIT * WALL_FACTOR * 0.9


def test_slow_ones_hold_up_nobody(site: Site) -> None:
    """While slow constraints are compiled, others are served, of the same backend too."""

    async def asked() -> None:
        before = site.workers()
        tasks = [asyncio.create_task(site.service.compile(slow(n))) for n in (1, 2)]
        quick = (regex("quick", backend) for backend in ("auto", *NAMED))
        await asyncio.gather(*map(site.service.compile, quick))
        assert not any(task.done() for task in tasks)
        await asyncio.to_thread(soon, lambda: len(site.busy()) >= len(tasks))
        ended = asyncio.gather(*tasks, return_exceptions=True)
        while not ended.done():  # a lost worker is replaced once
            kill(site.busy() | (site.workers() - before))
            await asyncio.sleep(0.05)

    site.run(asked())


def test_time_outs_leave_nothing_behind(short: Site) -> None:
    """Many time-outs leave no process, no thread and no open socket."""
    before = (len(short.workers()), threading.active_count(), len(os.listdir("/proc/self/fd")))
    for batch in (range(10, 20), range(20, 30)):
        errors = short.compile(*map(slow, batch))
        assert {getattr(error, "code", error) for error in errors} == {"constraint_timeout"}

    def now() -> tuple[int, int, int]:
        return (len(short.workers()), threading.active_count(), len(os.listdir("/proc/self/fd")))

    short.run(asyncio.sleep(0))
    assert soon(lambda: now() <= before), (now(), before)


def test_all_workers_busy_is_unavailable(short: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constraint for which no worker becomes free is a 503, and may be tried again."""
    monkeypatch.setattr(short.service._pools["auto"], "_free", asyncio.Semaphore(0))
    (error,) = short.compile(schema({"const": "busy"}))
    assert isinstance(error, Unavailable)
    assert error.code == "engine_overloaded"
    monkeypatch.undo()
    assert isinstance(short.compile(schema({"const": "busy"}))[0], CompiledConstraint)


def test_slow_start_is_no_fault_of_a_constraint(
    short: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time until there is a worker, as while the libraries are loaded, is nobody's limit."""
    monkeypatch.setattr(processes, "_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(short.service._pools["auto"], "_idle", [])
    fork_server = short.fork_server

    async def asked() -> CompiledConstraint:
        os.kill(fork_server, signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        loop.call_later(LIMIT + 0.3, os.kill, fork_server, signal.SIGCONT)
        return await short.service.compile(schema({"const": "while loading"}))

    assert short.run(asked()).backend == "guidance"


def test_fork_server_that_does_not_answer(short: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no worker starts the server is unavailable for a while; nothing of that is cached."""
    monkeypatch.setattr(processes, "_START_SECONDS", 0.1)
    with monkeypatch.context() as empty:
        empty.setattr(short.service._pools["auto"], "_idle", [])
        os.kill(short.fork_server, signal.SIGSTOP)
        try:
            (error,) = short.compile(schema({"const": "not now"}))
        finally:
            os.kill(short.fork_server, signal.SIGCONT)
    assert isinstance(error, Unavailable)
    monkeypatch.undo()
    assert isinstance(short.compile(schema({"const": "not now"}))[0], CompiledConstraint)


# --- lost processes -------------------------------------------------------------------------------


def test_idle_workers_that_were_killed_are_replaced(site: Site) -> None:
    """Workers that ended while they were idle are no fault of the next constraint."""
    site.compile(regex("before"))
    kill(killed := site.workers())
    assert soon(lambda: not killed & site.workers())
    for backend in ("auto", *NAMED):
        assert isinstance(site.compile(regex("after", backend))[0], CompiledConstraint)


async def kill_busy(site: Site) -> None:
    """End the workers that work, once there are some."""

    killed: set[int] = set()

    def kill_some() -> bool:
        if not killed:
            kill(busy := site.busy())
            killed.update(busy)
        return bool(killed)

    await asyncio.sleep(0.2)
    assert await asyncio.to_thread(soon, kill_some, 30)


def test_worker_killed_at_work_is_replaced(site: Site) -> None:
    """A constraint whose worker is ended from outside is compiled by another one."""

    async def asked() -> CompiledConstraint:
        task = asyncio.create_task(site.service.compile(regex("[ab]*a[ab]{15}", "outlines")))
        await kill_busy(site)
        assert not task.done()
        return await task

    assert isinstance(site.run(asked()), CompiledConstraint)


def test_constraint_that_ends_its_workers(site: Site) -> None:
    """A constraint over which one worker after another ends is refused, and may be tried again."""

    async def asked() -> None:
        task = asyncio.create_task(site.service.compile(slow(50)))
        for _ in range(2):
            await kill_busy(site)
        await task

    with pytest.raises(InvalidRequest, match="failed on it") as caught:
        site.run(asked())
    assert caught.value.param == "guided_regex"
    assert site.service._cache.get(slow(50)) is None


# --- finished texts -------------------------------------------------------------------------------

UNIQUE = {"type": "array", "uniqueItems": True}


def test_schema_beyond_the_libraries_is_checked(site: Site) -> None:
    """What auto cannot hold comes with the schema that finished texts are checked against."""
    (compiled,) = site.compile(schema(UNIQUE))
    assert isinstance(compiled, CompiledConstraint)
    assert compiled.schema is not None
    assert json.loads(compiled.schema) == UNIQUE
    site.run(site.service.check(compiled.schema, "[1, 2]"))
    with pytest.raises(GenerationFailed, match="non-unique") as caught:
        site.run(site.service.check(compiled.schema, "[1, 1]"))
    assert (caught.value.status, caught.value.code) == (500, "constraint_not_satisfied")


def test_check_has_a_time_limit(short: Site) -> None:
    """A text that cannot be checked in time is not passed on as right."""
    endless = json.dumps({"type": "string", "pattern": "^(a|a)*$"})
    with pytest.raises(GenerationFailed, match="could not be checked"):
        short.run(short.service.check(endless, json.dumps("a" * 60 + "b")))
    short.run(short.service.check(json.dumps(UNIQUE), "[]"))


# --- what is cached -------------------------------------------------------------------------------


def test_cached_bytes_are_bounded(
    site: Site, monkeypatch: pytest.MonkeyPatch, requests: list[Any]
) -> None:
    """Beyond so many bytes the least used constraint is left out, with its index file."""
    cache: ConstraintCache[CompiledConstraint | ApiError] = ConstraintCache(2**30)
    monkeypatch.setattr(site.service, "_cache", cache)
    one, two, three = (regex(f"bound{n}", "outlines") for n in range(3))
    files = [index_of(site.compile(constraint)[0]) for constraint in (one, two)]
    assert all(file.parent == site.folder and file.exists() for file in files)
    assert cache._bytes > sum(file.stat().st_size for file in files)
    cache._limit = cache._bytes + 100
    site.compile(one)
    last = index_of(site.compile(three)[0])
    assert [file.exists() for file in (*files, last)] == [True, False, True]
    assert cache._bytes <= cache._limit
    assert len(requests) == 3
    assert index_of(site.compile(two)[0]).exists()
    assert len(requests) == 4
    assert not files[0].exists()


def index_of(compiled: Any) -> Path:
    (part,) = compiled.program.parts
    return Path(part.artifact)


def test_refusals_are_bounded_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many wrong constraints do not fill the memory."""
    cache: ConstraintCache[CompiledConstraint | ApiError] = ConstraintCache(10_000)
    monkeypatch.setattr(site.service, "_cache", cache)
    site.compile(*(regex(f"({'a' * number})\\1") for number in range(1, 60)))
    assert 0 < cache._bytes <= 10_000
    assert len(cache._entries) < 20


# --- the end: these close the service, which starts again where it is asked -----------------------


def test_close_leaves_nothing(site: Site) -> None:
    """Closing ends all processes and removes their folder; it may be done twice."""
    site.compile(regex("last", "outlines"))
    fork_server, workers, folder = site.fork_server, site.workers(), site.folder
    assert workers
    assert list(folder.iterdir())
    site.service.close()
    site.service.close()
    site.run(asyncio.sleep(0))
    assert soon(lambda: not running().keys() & {fork_server, *workers})
    assert not folder.exists()


def test_fork_server_that_was_killed_is_replaced(site: Site) -> None:
    """A lost fork server, or one that was closed, is started again by the next constraint."""
    fork_servers = set()
    folders = []
    for text in ("one", "two"):
        site.service._pools["auto"].close()  # else an idle worker would do it
        assert isinstance(site.compile(regex(text))[0], CompiledConstraint)
        fork_servers.add(site.fork_server)
        folders.append(site.folder)
        site.kill_fork_server()
    assert len(fork_servers) == 2
    assert not folders[0].exists()


def test_folder_of_a_lost_fork_server_is_removed(site: Site) -> None:
    """Closing removes the folder of a fork server that was killed."""
    folder = site.folder
    site.kill_fork_server()
    site.service.close()
    assert not folder.exists()


def test_every_backend_is_a_library_with_workers() -> None:
    """What a request can name has a library behind it, and processes that compile for it."""
    assert {*LIBRARIES} == {*BACKENDS} - {AUTO}
    assert {*BACKENDS} <= {*service._WORKERS}


def test_documents_that_schemas_refer_to(tmp_path: Path) -> None:
    """What an operator put into a folder is followed, in the compile and in the check."""
    (tmp_path / "a.example").mkdir()
    (tmp_path / "a.example" / "b").write_text('{"enum": ["here"]}')
    schema = '{"$ref": "https://a.example/b"}'

    async def asked() -> str:
        service = CompileService(
            VOCABULARY, seconds=60, cache_bytes=2**20, relaxed=True, documents=tmp_path
        )
        service.start()
        try:
            compiled = await service.compile(Constraint("f", Kind.JSON, schema, "auto"))
            await service.check(schema, '"here"')
            with pytest.raises(NotSatisfied, match="not one of"):
                await service.check(schema, '"there"')
            return compiled.program.parts[0].text
        finally:
            service.close()

    assert "here" in asyncio.run(asked())
