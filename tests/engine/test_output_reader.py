"""adapter/engine/output_reader.py: collectors tell their reader, who takes what is there."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adapter.engine.output_reader import OutputReader
from adapter.engine.updates import Updates
from adapter.errors import GenerationFailed
from tests.asgi_client import run
from tests.fake_engine import FakeCollector, Output, said


def last(text: str) -> Output:
    update = said(text, finish="stop")
    update.finished = True
    return update


def reader_of(*collectors: FakeCollector) -> tuple[OutputReader, list[str]]:
    """An reader of these collectors, and how often it told of news."""
    reader, told = OutputReader(lambda error: GenerationFailed(str(error))), list[str]()
    reader.on_news = lambda: told.append("news")
    for index, collector in enumerate(collectors):
        reader.add(index, collector)
    return reader, told


def texts(updates: Updates) -> list[tuple[int, str]]:
    return [(index, update.outputs[0].text) for index, update in updates]


def test_news_are_told_once_until_they_are_taken() -> None:
    """Whoever listens hears of the first of several updates, and takes them all."""
    collectors = [FakeCollector("a"), FakeCollector("b")]
    reader, told = reader_of(*collectors)
    collectors[1].put(said("b"))
    collectors[0].put(said("a"))
    assert told == ["news"]
    assert texts(reader.take()) == [(1, "b"), (0, "a")]
    assert reader.take() == []
    collectors[0].put(said("c"))
    assert told == ["news"] * 2


def test_what_came_before_is_news() -> None:
    """An update that was there before the reader was is not forgotten."""
    collector = FakeCollector("a")
    collector.put(said("early"))
    reader, told = reader_of(collector)
    assert told == ["news"]
    assert texts(reader.take()) == [(0, "early")]


def test_it_is_finished_with_the_last_update_of_every_prompt() -> None:
    """Not when the last update is there, but when it was taken."""
    collectors = [FakeCollector("a"), FakeCollector("b")]
    reader, _ = reader_of(*collectors)
    collectors[0].put(last("a"))
    reader.take()
    assert not reader.finished
    collectors[1].put(last("b"))
    assert not reader.finished
    reader.take()
    assert reader.finished
    assert reader.close() == []


def test_an_error_is_raised_as_what_it_becomes() -> None:
    """Also one that takes the place of an update that nobody took."""
    collector = FakeCollector("a")
    reader, _ = reader_of(collector)
    collector.put(said("lost"))
    collector.put(ValueError("gone"))
    with pytest.raises(GenerationFailed, match="gone") as caught:
        reader.take()
    assert isinstance(caught.value.__cause__, ValueError)
    assert reader.take() == []


def test_closing_tells_what_is_unfinished() -> None:
    """The engine's own ids of what it still works on; nobody is told anything afterwards."""
    collectors = [FakeCollector("a"), FakeCollector("b"), FakeCollector("c")]
    reader, told = reader_of(*collectors)
    collectors[1].put(last("b"))
    reader.take()
    assert reader.close() == ["a", "c"]
    collectors[0].put(said("a"))
    assert (told, reader.take()) == (["news"], [])


@pytest.mark.parametrize("put", [lambda c: c.put(said("a")), lambda c: c.put(last("a"))])
def test_waiting_for_news(put: Callable[[FakeCollector], Any]) -> None:
    """A reader that waits is woken, and gets what is there by then."""

    async def read() -> list[tuple[int, str]]:
        collector = FakeCollector("a")
        reader, _ = reader_of(collector)
        waiting = asyncio.create_task(reader.news())
        await asyncio.sleep(0)
        assert not waiting.done()
        put(collector)
        return texts(await waiting)

    assert run(read()) == [(0, "a")]


def test_a_waiting_reader_that_leaves_is_not_woken() -> None:
    """News for a reader that was cancelled harm nobody."""

    async def leave() -> Updates:
        collector = FakeCollector("a")
        reader, _ = reader_of(collector)
        waiting = asyncio.create_task(reader.news())
        await asyncio.sleep(0)
        waiting.cancel()
        collector.put(said("a"))
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        return await reader.news()

    assert texts(run(leave())) == [(0, "a")]


def test_nothing_more_will_come() -> None:
    """What is there is taken first; then a prompt that is not finished ends in the error."""

    async def read() -> None:
        finished, cut = FakeCollector("a"), FakeCollector("b")
        reader, told = reader_of(finished, cut)
        finished.put(last("a"))
        reader.end(RuntimeError("left"))
        assert told == ["news"]
        assert texts(await reader.news()) == [(0, "a")]
        with pytest.raises(GenerationFailed, match="left"):
            await reader.news()
        assert reader.close() == ["b"]

    run(read())


def test_a_waiting_reader_hears_that_nothing_more_will_come() -> None:
    """It is not left waiting."""

    async def read() -> None:
        reader, _ = reader_of(FakeCollector("a"))
        waiting = asyncio.create_task(reader.news())
        await asyncio.sleep(0)
        reader.end(RuntimeError("left"))
        with pytest.raises(GenerationFailed, match="left"):
            await waiting

    run(read())


def test_finished_answers_do_not_need_the_engine() -> None:
    """An engine that leaves after the last update harms nobody."""
    collector = FakeCollector("a")
    reader, _ = reader_of(collector)
    collector.put(last("a"))
    reader.end(RuntimeError("left"))
    assert texts(reader.take()) == [(0, "a")]
    assert reader.take() == []
