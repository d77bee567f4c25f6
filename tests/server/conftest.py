"""A server of the fake engine, and how these tests ask it."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.asgi_client import Exchange, exchange, run
from tests.conftest import MODEL, Server

HI = {"model": MODEL, "prompt": "hi"}

Serve = Callable[..., Server]


@pytest.fixture
def server(serve: Serve) -> Server:
    """A server with the settings of a plain command line."""
    return serve()


def ask(server: Server, **fields: Any) -> Exchange:
    """Ask for a completion of "hi"."""
    return run(exchange(server.app, HI | fields))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Reads the lines of the request log."""
    caplog.set_level(logging.INFO, "vllm.completion_v2")

    def lines() -> list[str]:
        messages = (record.getMessage() for record in caplog.records)
        return [m.removeprefix("completion ") for m in messages if m.startswith("completion ")]

    return lines
