"""The route, in this process: the load metric and the request log."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.asgi_client import exchange, run
from tests.conftest import Server
from tests.fake_engine import FakeEngineClient, Held, said
from tests.server.conftest import HI, Serve, ask

pytestmark = pytest.mark.needs_vllm


@pytest.mark.parametrize("stream", [False, True])
def test_load_is_tracked(serve: Serve, client: FakeEngineClient, stream: bool) -> None:
    """vLLM's load metric counts a request while it runs."""
    server = serve(enable_server_load_tracking=True)
    server.state.server_load_metrics = 0
    held = Held()
    client.will_answer(said("a", 10), held, said("b", 11, finish="stop"))

    async def loads() -> tuple[int, int]:
        task = asyncio.create_task(exchange(server.app, HI | {"stream": stream}))
        await held.reached.wait()
        during = server.state.server_load_metrics
        held.release.set()
        await task
        return during, server.state.server_load_metrics

    assert run(loads()) == (1, 0)


def test_request_is_one_log_line(
    server: Server, client: FakeEngineClient, log: Callable[[], list[str]]
) -> None:
    """A request is one line: who asked, what it cost, what was ignored, and no text of it."""
    client.will_answer(said("answer", 10, 11, finish="stop"))
    ask(server, prompt="question", user="a\nb", extra=1)
    (line,) = log()
    facts = json.loads(line)
    assert (facts["status"], facts["user"], facts["ignored_fields"]) == (200, "a\nb", "extra")
    assert (facts["prompt_tokens"], facts["completion_tokens"]) == (8, 2)
    assert "\n" not in line
    assert "question" not in line
    assert "answer" not in line


@pytest.mark.parametrize(
    ("fields", "status"), [({"n": 0}, 400), ({"model": "x"}, 404)], ids=["400", "404"]
)
def test_refusals_are_logged(
    server: Server, log: Callable[[], list[str]], fields: dict[str, Any], status: int
) -> None:
    """A refused request has its log line too."""
    ask(server, **fields)
    (line,) = log()
    assert json.loads(line)["status"] == status
