"""What the fast tests share: a tokenizer, a fake engine, and a server of it in this process.

vLLM takes about 10 s to import, once for all tests that need it; those carry the marker needs_vllm.
"""

import asyncio
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.fake_engine import FakeEngineClient, FakeServingModels

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.datastructures import State

    from adapter.plugin import CompletionV2Plugin

MODEL = "tiny"


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A small byte-level BPE tokenizer, as vLLM wraps it."""
    from tests.tiny_tokenizer import tiny_tokenizer

    return tiny_tokenizer()


@pytest.fixture
def client(tokenizer: Any) -> FakeEngineClient:
    """A fake engine without an answer."""
    from vllm.renderers.params import TokenizeParams

    return FakeEngineClient(tokenizer, TokenizeParams(max_total_tokens=64))


@pytest.fixture
def models() -> FakeServingModels:
    """One served model."""
    return FakeServingModels(MODEL)


@dataclass
class Server:
    """An application with the plugin in it, as vLLM builds one."""

    app: "FastAPI"
    plugin: "CompletionV2Plugin"
    state: "State"


def start_server(
    engine: Any, models: FakeServingModels, monkeypatch: pytest.MonkeyPatch, **values: Any
) -> Server:
    """A server of an engine (or of None), given the command line's values.

    The processes that compile constraints are not started.
    """
    from fastapi import FastAPI
    from starlette.datastructures import State

    from adapter.engine.client import Engine
    from adapter.plugin import CompletionV2Plugin

    monkeypatch.setattr(Engine, "start", lambda self: None)
    app = FastAPI()
    plugin = CompletionV2Plugin()
    plugin.attach_router(app)
    state = State({"openai_serving_models": models})
    asyncio.run(plugin.init_state(engine, state, Namespace(**values)))
    return Server(app, plugin, state)


@pytest.fixture
def serve(
    client: FakeEngineClient, models: FakeServingModels, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Server]:
    """Starts a server of the fake engine, given the command line's values."""

    def start(*, engine: Any = client, **values: Any) -> Server:
        return start_server(engine, models, monkeypatch, **values)

    return start
