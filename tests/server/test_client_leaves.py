"""The route, in this process: what a caller leaves is given up in the engine."""

import asyncio
import contextlib

import pytest

from tests.asgi_client import Exchange, exchange, run
from tests.conftest import Server
from tests.fake_engine import FakeEngineClient, Held, said
from tests.server.conftest import HI, Serve

pytestmark = pytest.mark.needs_vllm


@pytest.mark.parametrize("prompts", [1, 3])
def test_caller_leaves_a_response(server: Server, client: FakeEngineClient, prompts: int) -> None:
    """When the caller of a response leaves, the engine's work for it is given up."""
    held = [Held() for _ in range(prompts)]
    for one in held:
        client.will_answer(one, said("a", 10, finish="stop"))

    async def left() -> Exchange:
        got = Exchange()
        body = HI | {"prompt": ["hi"] * prompts}
        task = asyncio.create_task(exchange(server.app, body, progress=got))
        for one in held:
            await one.reached.wait()
        got.left.set()
        return await task

    got = run(left())
    assert got.status is None
    assert client.unfinished == set()
    assert sorted(client.aborted) == sorted(call.request_id for call in client.calls)
    assert len(client.aborted) == prompts


@pytest.mark.parametrize("prompts", [1, 3])
@pytest.mark.parametrize("keep_alive", [0, 60])
def test_caller_leaves_a_stream(
    serve: Serve, client: FakeEngineClient, prompts: int, keep_alive: int
) -> None:
    """When the caller of a stream leaves, the engine's work for it is given up."""
    server = serve(sse_keep_alive_interval=keep_alive)
    for _ in range(prompts):
        client.will_answer(said("a", 10), Held())

    async def left() -> Exchange:
        got = Exchange()
        got.on_piece = lambda _piece: got.left.set()
        body = HI | {"prompt": ["hi"] * prompts, "stream": True}
        return await exchange(server.app, body, progress=got)

    got = run(left())
    assert (got.status, got.complete) == (200, False)
    assert client.unfinished == set()
    assert sorted(client.aborted) == sorted(call.request_id for call in client.calls)
    assert len(client.aborted) == prompts


def test_caller_leaves_before_the_first_word(server: Server, client: FakeEngineClient) -> None:
    """A caller may leave a stream before it has begun."""
    held = Held()
    client.will_answer(held)

    async def left() -> Exchange:
        got = Exchange()
        task = asyncio.create_task(exchange(server.app, HI | {"stream": True}, progress=got))
        await held.reached.wait()
        got.left.set()
        return await task

    assert run(left()).status is None
    assert client.aborted == [client.calls[0].request_id]


def test_caller_leaves_with_the_body_unfinished(server: Server, client: FakeEngineClient) -> None:
    """A caller who leaves before the body is complete starts nothing."""
    got = Exchange()
    got.left.set()
    run(exchange(server.app, HI, progress=got))
    assert client.calls == []


def test_shutdown_is_no_caller_leaving(server: Server, client: FakeEngineClient) -> None:
    """A cancellation from outside goes on outwards, and the engine's work is given up."""
    held = Held()
    client.will_answer(held)

    async def cancelled() -> bool:
        task = asyncio.create_task(exchange(server.app, HI))
        await held.reached.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert run(cancelled())
    assert client.unfinished == set()
