"""adapter/engine/output_reader.py: collectors tell their reader, who takes what is there."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adapter.engine.output_reader import Inbox, Updates
from adapter.errors import GenerationFailed
from tests.asgi_client import run
from tests.fake_engine import FakeCollector, Output, said


def last(text: str) -> Output:
    update = said(text, finish="stop")
    update.finished = True
    return update


def inbox_of(*collectors: FakeCollector) -> tuple[Inbox, list[str]]:
    """An inbox of these collectors, and how often it told of news."""
    inbox, told = Inbox(lambda error: GenerationFailed(str(error))), list[str]()
    inbox.on_news = lambda: told.append("news")
    for index, collector in enumerate(collectors):
        inbox.add(index, collector)
    return inbox, told


def texts(updates: Updates) -> list[tuple[int, str]]:
    return [(index, update.outputs[0].text) for index, update in updates]


def test_news_are_told_once_until_they_are_taken() -> None:
    """Whoever listens hears of the first of several updates, and takes them all."""
    collectors = [FakeCollector("a"), FakeCollector("b")]
    inbox, told = inbox_of(*collectors)
    collectors[1].put(said("b"))
    collectors[0].put(said("a"))
    assert told == ["news"]
    assert texts(inbox.take()) == [(1, "b"), (0, "a")]
    assert inbox.take() == []
    collectors[0].put(said("c"))
    assert told == ["news"] * 2


def test_what_came_before_is_news() -> None:
    """An update that was there before the inbox was is not forgotten."""
    collector = FakeCollector("a")
    collector.put(said("early"))
    inbox, told = inbox_of(collector)
    assert told == ["news"]
    assert texts(inbox.take()) == [(0, "early")]


def test_it_is_finished_with_the_last_update_of_every_prompt() -> None:
    """Not when the last update is there, but when it was taken."""
    collectors = [FakeCollector("a"), FakeCollector("b")]
    inbox, _ = inbox_of(*collectors)
    collectors[0].put(last("a"))
    inbox.take()
    assert not inbox.finished
    collectors[1].put(last("b"))
    assert not inbox.finished
    inbox.take()
    assert inbox.finished
    assert inbox.close() == []


def test_an_error_is_raised_as_what_it_becomes() -> None:
    """Also one that takes the place of an update that nobody took."""
    collector = FakeCollector("a")
    inbox, _ = inbox_of(collector)
    collector.put(said("lost"))
    collector.put(ValueError("gone"))
    with pytest.raises(GenerationFailed, match="gone") as caught:
        inbox.take()
    assert isinstance(caught.value.__cause__, ValueError)
    assert inbox.take() == []


def test_closing_tells_what_is_unfinished() -> None:
    """The engine's own ids of what it still works on; nobody is told anything afterwards."""
    collectors = [FakeCollector("a"), FakeCollector("b"), FakeCollector("c")]
    inbox, told = inbox_of(*collectors)
    collectors[1].put(last("b"))
    inbox.take()
    assert inbox.close() == ["a", "c"]
    collectors[0].put(said("a"))
    assert (told, inbox.take()) == (["news"], [])


@pytest.mark.parametrize("put", [lambda c: c.put(said("a")), lambda c: c.put(last("a"))])
def test_waiting_for_news(put: Callable[[FakeCollector], Any]) -> None:
    """A reader that waits is woken, and gets what is there by then."""

    async def read() -> list[tuple[int, str]]:
        collector = FakeCollector("a")
        inbox, _ = inbox_of(collector)
        reader = asyncio.create_task(inbox.news())
        await asyncio.sleep(0)
        assert not reader.done()
        put(collector)
        return texts(await reader)

    assert run(read()) == [(0, "a")]


def test_a_waiting_reader_that_leaves_is_not_woken() -> None:
    """News for a reader that was cancelled harm nobody."""

    async def leave() -> Updates:
        collector = FakeCollector("a")
        inbox, _ = inbox_of(collector)
        reader = asyncio.create_task(inbox.news())
        await asyncio.sleep(0)
        reader.cancel()
        collector.put(said("a"))
        await asyncio.gather(reader, return_exceptions=True)
        assert reader.cancelled()
        return await inbox.news()

    assert texts(run(leave())) == [(0, "a")]
