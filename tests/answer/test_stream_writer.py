"""adapter/answer/stream_writer.py: streams are written in one callback; none waits for another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from functools import partial

import pytest

from adapter.answer.stream_writer import Outbox
from adapter.engine.output_reader import Inbox
from tests.asgi_client import run
from tests.fake_engine import FakeCollector, said


@dataclass
class Stream:
    """A stream whose engine and reader are the test."""

    name: str
    log: list[str]
    """What happened to all streams, in order."""
    inbox: Inbox = field(default_factory=lambda: Inbox(lambda error: error))
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    """Unset while the reader is slow."""
    failure: BaseException | None = None
    """What the next write raises."""
    waits_first: bool = False

    def __post_init__(self) -> None:
        self.collector = FakeCollector(self.name)
        self.inbox.add(0, self.collector)
        self.reads.set()

    def say(self, text: str, *, finished: bool = False) -> None:
        update = said(text)
        update.finished = finished
        if (unread := self.collector.output) is not None:  # as vLLM's collector joins them
            assert not isinstance(unread, Exception)
            update.outputs[0].text = unread.outputs[0].text + text
        self.collector.put(update)

    def events(self) -> bytes:
        text = "".join(update.outputs[0].text for _, update in self.inbox.take())
        if text:
            self.log.append(f"made {self.name}:{text}")
        return text.encode()

    async def write(self, body: bytes) -> None:
        if self.waits_first:
            await asyncio.sleep(0)
        if not self.reads.is_set():
            self.log.append(f"slow {self.name}")
            await self.reads.wait()
        if self.failure is not None:
            raise self.failure
        self.log.append(f"wrote {self.name}:{body.decode()}")


@asynccontextmanager
async def writing(outbox: Outbox, *streams: Stream) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The streams, being written."""
    tasks = [
        asyncio.create_task(outbox.write(stream.inbox, stream.events, stream.write))
        for stream in streams
    ]
    await settled()
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settled() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_all_events_are_made_then_all_are_written() -> None:
    """What one turn brings is one batch, in the order in which it came."""

    async def batch() -> None:
        log: list[str] = []
        a, b = Stream("a", log), Stream("b", log)
        async with writing(Outbox(), a, b) as tasks:
            b.say("1")
            a.say("1")
            a.say("2")
            await settled()
            assert log == ["made b:1", "made a:12", "wrote b:1", "wrote a:12"]
            a.say("", finished=True)
            b.say("!", finished=True)
            await asyncio.gather(*tasks)
            assert log[4:] == ["made b:!", "wrote b:!"]

    run(batch())


def test_nobody_waits_for_the_making_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are made and written a portion of the streams at a time."""
    monkeypatch.setattr("adapter.answer.stream_writer._PORTION", 2)

    async def batch() -> None:
        log: list[str] = []
        streams = [Stream(name, log) for name in "abc"]
        async with writing(Outbox(), *streams):
            for stream in streams:
                stream.say("1")
            await settled()
        assert log == ["made a:1", "made b:1", "wrote a:1", "wrote b:1", "made c:1", "wrote c:1"]

    run(batch())


def test_news_before_the_writing_are_written() -> None:
    """What was there before anybody listened comes first."""

    async def early() -> None:
        stream = Stream("a", [])
        stream.say("early", finished=True)
        await Outbox().write(stream.inbox, stream.events, stream.write)
        assert stream.log == ["made a:early", "wrote a:early"]

    run(early())


def test_a_slow_reader_keeps_nobody_else_waiting() -> None:
    """Its own news are joined meanwhile, none is lost, and their order stays."""

    async def slow() -> None:
        log: list[str] = []
        a, b = Stream("a", log), Stream("b", log)
        async with writing(Outbox(), a, b) as tasks:
            a.reads.clear()
            for text in "123":
                a.say(text)
                b.say(text)
                await settled()
            a.say("4", finished=True)
            b.say("4", finished=True)
            await tasks[1]
            assert not tasks[0].done()
            assert [line for line in log if "wrote" in line] == [f"wrote b:{n}" for n in "1234"]
            a.reads.set()
            await tasks[0]
            assert [line for line in log if "wrote a" in line] == ["wrote a:1", "wrote a:234"]

    run(slow())


def test_a_write_that_takes_a_turn_is_finished_in_a_task() -> None:
    """A write that yields to the event loop goes on where it was, with a current task."""

    async def turns() -> None:
        stream = Stream("a", [], waits_first=True)
        async with writing(Outbox(), stream) as tasks:
            for text in "12":
                stream.say(text)
                await settled()
            stream.say("3", finished=True)
            await asyncio.gather(*tasks)
            wrote = [line for line in stream.log if "wrote" in line]
            assert wrote == ["wrote a:1", "wrote a:2", "wrote a:3"]

    run(turns())


def test_a_write_that_waits_gets_the_errors_of_what_it_waits_for() -> None:
    """It may handle them, and wait again, as in a task of its own from the start."""

    async def handles() -> None:
        stream = Stream("a", [])
        wrote = asyncio.Event()

        async def write(body: bytes) -> None:
            broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(broken.set_exception, OSError("broken"))
            with pytest.raises(OSError, match="broken"):
                await broken
            await asyncio.sleep(0)
            stream.log.append(body.decode())
            wrote.set()

        stream.say("1", finished=True)
        await Outbox().write(stream.inbox, stream.events, write)
        assert wrote.is_set()
        assert stream.log == ["made a:1", "1"]

    run(handles())


@pytest.mark.parametrize("slow", [False, True])
def test_a_write_sees_the_context_of_its_stream(slow: bool) -> None:
    """Not that of whoever brought the news, nor another stream's; also where it has to wait."""
    seen: list[str] = []
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")

    async def contexts() -> None:
        outbox = Outbox()

        async def stream_of(name: str) -> None:
            stream = Stream(name, [], waits_first=slow)
            whose.set(name)

            async def write(body: bytes) -> None:
                await stream.write(body)
                seen.append(whose.get())

            asyncio.get_running_loop().call_later(
                0.01, partial(stream.say, "1", finished=True), context=Context()
            )
            await outbox.write(stream.inbox, stream.events, write)

        await asyncio.gather(stream_of("a"), stream_of("b"))

    run(contexts())
    assert sorted(seen) == ["a", "b"]


@pytest.mark.parametrize("slow", [False, True])
def test_a_failing_write_ends_its_stream_alone(slow: bool) -> None:
    """The error reaches whoever waits for that stream; others go on."""

    async def fails() -> None:
        log: list[str] = []
        a, b = Stream("a", log, failure=OSError("gone"), waits_first=slow), Stream("b", log)
        async with writing(Outbox(), a, b) as tasks:
            a.say("1")
            b.say("1")
            await settled()
            with pytest.raises(OSError, match="gone"):
                await tasks[0]
            a.say("2")
            b.say("2", finished=True)
            await tasks[1]
            assert [line for line in log if "wrote" in line] == ["wrote b:1", "wrote b:2"]

    run(fails())


def test_a_cancelled_write_cancels_its_stream_alone() -> None:
    """A write that is cancelled, by what is around the application, ends its stream."""

    async def cancelled() -> None:
        log: list[str] = []
        a, b = Stream("a", log, failure=asyncio.CancelledError()), Stream("b", log)
        async with writing(Outbox(), a, b) as tasks:
            a.say("1")
            b.say("1", finished=True)
            await tasks[1]
            await settled()
            assert tasks[0].cancelled()
            assert log[-1] == "wrote b:1"

    run(cancelled())


def test_an_error_of_the_engine_ends_its_stream_alone() -> None:
    """What taking the news raises reaches whoever waits for the stream."""

    async def fails() -> None:
        log: list[str] = []
        a, b = Stream("a", log), Stream("b", log)
        async with writing(Outbox(), a, b) as tasks:
            a.collector.put(ValueError("broken"))
            b.say("1", finished=True)
            await tasks[1]
            with pytest.raises(ValueError, match="broken"):
                await tasks[0]

    run(fails())


@pytest.mark.parametrize("slow", [False, True])
def test_leaving_stops_the_writing(slow: bool) -> None:
    """Nothing is written for a stream that was cancelled, and a write that waits is given up."""

    async def leaves() -> None:
        log: list[str] = []
        stream = Stream("a", log)
        async with writing(Outbox(), stream) as tasks:
            if slow:
                stream.reads.clear()
                stream.say("1")
                await settled()
            tasks[0].cancel()
            stream.say("2")
            await asyncio.gather(*tasks, return_exceptions=True)
            assert tasks[0].cancelled()
            stream.reads.set()
            await settled()
            assert not [line for line in log if "wrote" in line]
            assert len(asyncio.all_tasks()) == 1

    run(leaves())
