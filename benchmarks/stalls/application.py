"""The application in this process: the route on an engine that answers at once."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from benchmarks.stalls.bodies import VOCABULARY
from tests.asgi_client import Exchange, exchange
from tests.fake_engine import Call, FakeCollector, FakeEngineClient, FakeServingModels, said

MAX_MODEL_LEN = 4_000_000
PATIENCE_SECONDS = 120.0


class _QuickEngine(FakeEngineClient):
    """Answers every call with two tokens."""

    async def add_request(
        self, request_id: str, prompt: Mapping[str, Any], params: Any, **options: Any
    ) -> FakeCollector:
        self.will_answer(said("a", 200), said("b", 201, finish="length"))
        collector = await super().add_request(request_id, prompt, params, **options)
        self.calls.clear()
        return collector


class Application:
    """The route, with the processes that compile constraints."""

    def __init__(self) -> None:
        from fastapi import FastAPI
        from starlette.datastructures import State
        from vllm.renderers.params import TokenizeParams

        from adapter.plugin import CompletionV2Plugin
        from tests.tiny_tokenizer import tiny_tokenizer

        tokenizer = tiny_tokenizer()
        engine = _QuickEngine(
            tokenizer,
            TokenizeParams(max_total_tokens=MAX_MODEL_LEN),
            max_model_len=MAX_MODEL_LEN,
        )
        engine.model_config._vocab_size = VOCABULARY
        self._app = FastAPI()
        self._plugin = CompletionV2Plugin()
        self._plugin.attach_router(self._app)
        self._engine = engine
        self._state = State({"openai_serving_models": FakeServingModels("tiny")})

    async def start(self) -> None:
        """Give the route its engine."""
        await self._plugin.init_state(self._engine, self._state, Namespace())

    async def ask(self, body: bytes) -> Exchange:
        """The answer to a body, which comes in pieces as from a socket."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await exchange(self._app, body, cut=2**16)


__all__ = ["Application", "Call"]
