"""The application in this process: the route on an engine that answers at once."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.stalls.bodies import VOCABULARY
from tests.asgi_client import Exchange, exchange
from tests.fake_engine import Candidate as Text
from tests.fake_engine import FakeCollector, FakeEngineClient, FakeServingModels, Output, Table

MAX_MODEL_LEN = 2**20
PATIENCE_SECONDS = 300.0

# vLLM hands out so many outputs before others get their turn (VLLM_V1_OUTPUT_PROC_CHUNK_SIZE).
_AT_ONCE = 128
_TOKEN = 104  # the letter e
_SCORES = ((_TOKEN, -1.0, "e"), *((110 + rank, -2.0 - rank, "kmnop"[rank]) for rank in range(5)))


class _QuickEngine(FakeEngineClient):
    """Answers each call with as many tokens as it asks for, and does in threads what vLLM does
    there."""

    def __init__(self, tokenizer: Any, tok_params: Any) -> None:
        super().__init__(tokenizer, tok_params, max_model_len=MAX_MODEL_LEN)
        self.model_config._vocab_size = VOCABULARY
        self.vllm_config.use_v2_model_runner = False  # type: ignore[attr-defined]
        render = self.renderer.render_cmpl_async

        async def beside(prompts: Sequence[Mapping[str, str]], params: Any) -> Any:
            return await asyncio.to_thread(asyncio.run, render(prompts, params))

        self.renderer.render_cmpl_async = beside  # type: ignore[method-assign]
        self._waiting: list[tuple[FakeCollector, Output]] = []
        self._answering: asyncio.Task[None] | None = None

    async def add_request(
        self, request_id: str, prompt: Mapping[str, Any], params: Any, **_options: Any
    ) -> FakeCollector:
        collector = FakeCollector(request_id)
        output = await asyncio.to_thread(_output, prompt["prompt_token_ids"], params)
        self._waiting.append((collector, output))
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer())
        return collector

    async def _answer(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            ready, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            for collector, output in ready:
                collector.put(output)

    async def abort(self, request_id: Sequence[str], internal: bool = False) -> None:
        self._waiting.clear()


def _output(prompt: Sequence[int], params: Any) -> Output:
    """What vLLM would give at the end."""
    scored = params.prompt_logprobs is not None
    count = params.max_tokens
    texts = [
        Text(
            "e" * count,
            [_TOKEN] * count,
            "length",
            logprobs=_table(count) if params.logprobs is not None else None,
            index=index,
            cumulative_logprob=-1.0 * count,
        )
        for index in range(params.n)
    ]
    return Output(texts, _table(len(prompt)) if scored else None, finished=True)


def _table(count: int) -> Table:
    width = len(_SCORES)
    names: list[str | None] = [text for _, _, text in _SCORES]
    return Table(
        list(range(0, count * width, width)),
        list(range(width, (count + 1) * width, width)),
        [token for token, _, _ in _SCORES] * count,
        [score for _, score, _ in _SCORES] * count,
        names * count,
    )


class Application:
    """The route, with the processes that it starts."""

    def __init__(self) -> None:
        from fastapi import FastAPI
        from starlette.datastructures import State
        from vllm.renderers.params import TokenizeParams

        from adapter.plugin import CompletionV2Plugin
        from tests.tiny_tokenizer import tiny_tokenizer

        tokenizer = tiny_tokenizer()
        self._engine = _QuickEngine(tokenizer, TokenizeParams(max_total_tokens=MAX_MODEL_LEN))
        self._app = FastAPI()
        self._plugin = CompletionV2Plugin()
        self._plugin.attach_router(self._app)
        self._state = State({"openai_serving_models": FakeServingModels("tiny")})

    async def start(self) -> None:
        """Give the route its engine."""
        await self._plugin.init_state(self._engine, self._state, Namespace())

    async def ask(self, body: bytes) -> Exchange:
        """The answer to a body, which comes in pieces as from a socket."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await exchange(self._app, body, cut=2**16)
