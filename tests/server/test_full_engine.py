"""A full engine: a request is refused as a whole, or finished, never cut off by itself."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import Server
from tests.fake_engine import Candidate, FakeCollector, FakeEngineClient, Output, Table
from tests.server.conftest import Serve, ask

pytestmark = pytest.mark.needs_vllm

SEARCH = {"use_beam_search": True, "n": 2, "max_tokens": 3, "ignore_eos": True}
CALLS = 1 + 2 + 2
"""Of this search, of which nothing ends early."""


def scored() -> Output:
    """The scores of a step."""
    best = [(100 + rank, -1.0 - rank, None) for rank in range(8)]
    return Output([Candidate("", [100], "length", logprobs=Table().add(best[0], *best))])


class FillsUp(FakeEngineClient):
    """Is full after so many calls."""

    room = 0

    async def add_request(
        self, request_id: str, prompt: Mapping[str, Any], params: Any, **options: Any
    ) -> FakeCollector:
        from vllm.exceptions import QueueOverflowError

        if len(self.calls) >= self.room:
            self.refusal = QueueOverflowError()
        return await super().add_request(request_id, prompt, params, **options)


@pytest.fixture
def client(tokenizer: Any) -> FakeEngineClient:
    """An engine that asks for room with each call."""
    from vllm.renderers.params import TokenizeParams

    client = FillsUp(tokenizer, TokenizeParams(max_total_tokens=64))
    client.checks_each_call = True
    for _ in range(2 * CALLS):
        client.will_answer(scored())
    return client


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


@pytest.mark.parametrize("room", range(1, CALLS))
def test_search_that_has_begun_is_finished(server: Server, client: FillsUp, room: int) -> None:
    """An engine that is full after a search's first step, or within it, does not end the search."""
    client.room = room
    got = ask(server, **SEARCH)
    assert (got.status, len(client.calls)) == (200, CALLS)
    assert len(got.json()["choices"]) == 2


def test_search_is_refused_as_a_whole(server: Server, client: FillsUp) -> None:
    """An engine that is full when a search begins refuses it, before any step."""
    got = ask(server, **SEARCH)
    assert (got.status, got.error()["code"]) == (503, "engine_overloaded")
    assert got.headers["retry-after"] == "1"
    assert client.calls == []


def test_others_are_refused_meanwhile(server: Server, client: FillsUp) -> None:
    """What goes on for one request lets nobody else in."""
    client.room = 1
    assert ask(server, **SEARCH).status == 200
    assert ask(server, **SEARCH).status == 503


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_are_refused_together(server: Server, client: FillsUp, stream: bool) -> None:
    """Where there is room for some of a request's prompts, none is answered: a 503, no stream."""
    client.room = 2
    got = ask(server, prompt=["a", "b", "c"], stream=stream)
    assert (got.status, got.error()["code"]) == (503, "engine_overloaded")
    assert got.headers["retry-after"] == "1"
    assert client.unfinished == set()
