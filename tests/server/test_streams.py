"""The route, in this process: streams are events, in order, and are kept alive."""

import asyncio
from typing import Any

import pytest
from starlette.middleware.cors import CORSMiddleware

from adapter.contract.answer import CompletionV2Chunk
from tests.asgi_client import Exchange, exchange, run
from tests.conftest import Server
from tests.fake_engine import FakeEngineClient, Held, said
from tests.server.conftest import HI, Serve, ask

pytestmark = pytest.mark.needs_vllm


def test_stream(server: Server, client: FakeEngineClient) -> None:
    """A stream is events of the contract's chunks, then [DONE], without a usage key."""
    client.will_answer(said("a", 10), said("b", 11), said("", 2, finish="stop"))
    got = ask(server, stream=True)
    assert (got.status, got.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "content-length" not in got.headers
    events = got.events()
    chunks = [CompletionV2Chunk.model_validate(event) for event in events]
    assert [chunk.choices[0].text for chunk in chunks] == ["a", "b", ""]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]
    assert not any("usage" in event for event in events)
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


def test_stream_with_usage(server: Server, client: FakeEngineClient) -> None:
    """With include_usage the last chunk has the totals, every other one usage null."""
    client.will_answer(said("a", 10), said("b", 11, finish="stop"))
    events = ask(server, stream=True, stream_options={"include_usage": True}).events()
    assert [event["usage"] for event in events[:-1]] == [None, None]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


@pytest.mark.parametrize(
    "options", [None, {}, {"include_usage": None}, {"include_usage": False}], ids=str
)
def test_stream_without_usage(
    server: Server, client: FakeEngineClient, options: dict[str, Any] | None
) -> None:
    """Usage that was not asked for is not sent."""
    client.will_answer(said("a", 10, finish="stop"))
    events = ask(server, stream=True, stream_options=options).events()
    assert [set(event) & {"usage"} for event in events] == [set()]


def test_stream_of_two_choices(server: Server, client: FakeEngineClient) -> None:
    """Each choice of a stream keeps its index, whoever comes first."""
    client.will_answer(
        said("b", 11, index=1),
        said("a", 10, index=0),
        said("B", 11, finish="stop", index=1),
        said("A", 10, finish="stop", index=0),
    )
    choices = [event["choices"][0] for event in ask(server, stream=True, n=2).events()]
    texts = ["".join(c["text"] for c in choices if c["index"] == index) for index in (0, 1)]
    assert texts == ["aA", "bB"]


def test_stream_of_ranked_choices(server: Server, client: FakeEngineClient) -> None:
    """With best_of = n the engine gives whole answers, and a stream brings them best first."""
    worse, better = said("a", 10, finish="stop"), said("b", 11, finish="stop", index=1)
    worse.outputs[0].cumulative_logprob, better.outputs[0].cumulative_logprob = -3.0, -1.0
    worse.outputs.append(better.outputs[0])
    client.will_answer(worse)
    choices = [event["choices"][0] for event in ask(server, stream=True, n=2, best_of=2).events()]
    assert [(choice["index"], choice["text"]) for choice in choices] == [(0, "b"), (1, "a")]
    assert client.calls[0].params.output_kind.name == "FINAL_ONLY"


def test_keep_alive_before_the_first_token(serve: Serve, client: FakeEngineClient) -> None:
    """With a keep-alive interval a stream that waits for its first token is answered and kept."""
    held = Held()
    client.will_answer(held, said("a", 10, finish="stop"))
    server = serve(sse_keep_alive_interval=0.01)

    async def asked() -> Exchange:
        kept = asyncio.Event()
        progress = Exchange(on_piece=lambda _piece: kept.set())
        task = asyncio.create_task(exchange(server.app, HI | {"stream": True}, progress=progress))
        await held.reached.wait()
        await kept.wait()
        held.release.set()
        return await task

    got = run(asked())
    assert got.status == 200
    assert got.body.startswith(b": keep-alive\n\n")
    assert got.body.endswith(b"data: [DONE]\n\n")
    assert b'"text":"a"' in got.body


@pytest.mark.parametrize("stream", [False, True])
def test_slow_stream_is_kept_alive(serve: Serve, client: FakeEngineClient, stream: bool) -> None:
    """While a stream is silent comments are sent; they are no events. A response has none."""
    server = serve(sse_keep_alive_interval=0.001)
    held = Held()
    client.will_answer(said("a", 10), held, said("b", 11, finish="stop"))

    async def asked() -> Exchange:
        got = Exchange()
        quiet = asyncio.Event()

        def seen(piece: bytes) -> None:
            if piece.startswith(b":"):
                quiet.set()

        got.on_piece = seen
        task = asyncio.create_task(exchange(server.app, HI | {"stream": stream}, progress=got))
        if stream:
            await quiet.wait()
        held.release.set()
        return await task

    got = run(asked())
    assert (b": keep-alive" in got.body) is stream
    if stream:
        assert b'"text":"b"' in got.body
    else:
        assert got.json()["choices"][0]["text"] == "ab"


class PassesOn:
    """Middleware of a user's: nobody knows what it may need."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


@pytest.mark.parametrize(
    ("around", "together"),
    [(None, True), ("cors", True), ("theirs", False), ("base", False)],
)
def test_streams_are_written_together_where_nobody_needs_a_task(
    serve: Serve, client: FakeEngineClient, around: str | None, together: bool
) -> None:
    """Through middleware that may need the request's own task each event is written in it."""
    server = serve()
    if around == "cors":
        server.app.add_middleware(CORSMiddleware, allow_origins=["*"])
    elif around == "theirs":
        server.app.add_middleware(PassesOn)
    elif around == "base":  # as vLLM adds it to log responses
        server.app.middleware("http")(lambda request, call_next: call_next(request))
    client.will_answer(*(said(text, 10) for text in "abc"), said("d", 11, finish="stop"))
    got = Exchange()
    tasks: list[Any] = []
    got.on_piece = lambda _piece: tasks.append(asyncio.current_task())
    run(exchange(server.app, HI | {"stream": True}, progress=got))
    assert [event["choices"][0]["text"] for event in got.events()] == list("abcd")
    assert (None in tasks) is together
