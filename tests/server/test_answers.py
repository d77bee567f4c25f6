"""The route, in this process: what is asked reaches the engine; the answer is the contract's."""

import asyncio
from typing import Any

import pytest

from adapter.contract.answer import CompletionV2Response
from tests.asgi_client import Exchange, exchange, run
from tests.conftest import MODEL, Server
from tests.fake_engine import FakeEngineClient, FakeServingModels, FakeVllmConfig, Held, said
from tests.server.conftest import HI, ask

pytestmark = pytest.mark.needs_vllm


def test_answer(server: Server, client: FakeEngineClient) -> None:
    """A plain request is answered with the contract's response, as JSON."""
    from adapter.vllm_api import get_system_fingerprint

    client.will_answer(said(" cat", 10, 11, finish="stop"))
    got = ask(server)
    assert (got.status, got.headers["content-type"]) == (200, "application/json")
    assert got.headers["content-length"] == str(len(got.body))
    answer = CompletionV2Response.model_validate_json(got.body)
    assert [choice.text for choice in answer.choices] == [" cat"]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 2)
    assert (answer.model, answer.id) == (MODEL, f"cmpl-{got.headers['x-request-id']}")
    assert answer.system_fingerprint == get_system_fingerprint(FakeVllmConfig())


def test_engine_gets_the_request(server: Server, client: FakeEngineClient) -> None:
    """What was asked reaches the engine, for each prompt."""
    client.will_answer(said("", finish="length"))
    client.will_answer(said("", finish="length"))
    ask(server, prompt=["hi", "é"], max_tokens=3, temperature=0.5, stop="x", n=2, logprobs=1)
    assert [call.prompt["prompt_token_ids"] for call in client.calls] == [[259], [264]]
    assert client.admissions == [4]
    for call in client.calls:
        params = call.params
        assert (params.max_tokens, params.temperature, params.stop) == (3, 0.5, ["x"])
        assert (params.n, params.logprobs, params.flat_logprobs) == (2, 1, True)
        assert call.options["lora_request"] is None
    assert len({call.request_id for call in client.calls}) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_kind_of_output(server: Server, client: FakeEngineClient, stream: bool) -> None:
    """A stream asks for what is new, a response for one final piece."""
    from adapter.vllm_api import RequestOutputKind

    client.will_answer(said("a", 10, finish="length"))
    ask(server, stream=stream)
    kinds = RequestOutputKind
    expected = kinds.DELTA if stream else kinds.FINAL_ONLY
    assert client.calls[0].params.output_kind == expected


def test_stream_options_without_stream(server: Server, client: FakeEngineClient) -> None:
    """stream_options have no effect without stream."""
    client.will_answer(said("a", 10, finish="stop"))
    got = ask(server, stream_options={"include_usage": True})
    assert CompletionV2Response.model_validate_json(got.body).choices[0].text == "a"


def test_admission_counts_what_the_engine_makes(server: Server, client: FakeEngineClient) -> None:
    """n greedy answers take one place in the engine, and nothing to generate takes none."""
    client.will_answer(said("a", 10, finish="stop"))
    ask(server, n=4, temperature=0)
    ask(server, n=4, max_tokens=0)
    assert client.admissions[-2:] == [1, 0]


def test_several_prompts(server: Server, client: FakeEngineClient) -> None:
    """Choice prompt * n + i is the i-th answer to a prompt, whichever prompt is ready first."""
    first = Held()
    client.will_answer(first, said("a", 10, finish="stop"))
    client.will_answer(said("b", 10, finish="stop"))

    async def asked() -> Exchange:
        task = asyncio.create_task(exchange(server.app, HI | {"prompt": ["hi", "x"]}))
        await first.reached.wait()
        first.release.set()
        return await task

    answer = run(asked()).json()
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [
        (0, "a"),
        (1, "b"),
    ]
    assert answer["usage"]["prompt_tokens"] == 2


def test_nothing_is_asked_of_the_engine(server: Server, client: FakeEngineClient) -> None:
    """max_tokens 0 without scores is answered without the engine."""
    got = ask(server, prompt=["hi", "x"], max_tokens=0, echo=True, n=2)
    assert [choice["text"] for choice in got.json()["choices"]] == ["hi", "hi", "x", "x"]
    assert client.calls == []
    streamed = ask(server, max_tokens=0, stream=True).events()
    assert [event["choices"][0]["finish_reason"] for event in streamed] == ["length"]


@pytest.mark.parametrize("prompt", ["", None, [""]], ids=str)
def test_empty_prompt_is_the_separator(
    server: Server, client: FakeEngineClient, prompt: Any
) -> None:
    """An empty prompt is the document separator alone."""
    client.will_answer(said("a", 10, finish="stop"))
    assert ask(server, prompt=prompt).json()["usage"]["prompt_tokens"] == 1
    assert client.calls[0].prompt["prompt_token_ids"] == [0]


def test_answer_that_is_cut_into_pieces(server: Server, client: FakeEngineClient) -> None:
    """A body that comes in pieces is one body."""
    client.will_answer(said("a", 10, finish="stop"))
    got = run(exchange(server.app, HI | {"user": "é" * 50}, cut=7))
    assert got.status == 200


def test_lora_adapter_by_name(
    server: Server, client: FakeEngineClient, models: FakeServingModels
) -> None:
    """A LoRA adapter's name serves with that adapter, and is the answer's model."""
    adapter = object()
    models.lora_requests["mine"] = adapter
    client.will_answer(said("a", 10, finish="stop"))
    assert ask(server, model="mine").json()["model"] == "mine"
    assert client.calls[0].options["lora_request"] is adapter


def test_scores_that_a_beam_search_asks_for(server: Server, client: FakeEngineClient) -> None:
    """A few more than a step needs where many are changed, and never more than the server gives."""
    from adapter.vllm_api import EngineDeadError

    for prompt, expected in (([5], 4), ([5, 6, 7, 8], 7), ([*range(5, 55)], 20)):
        client.will_answer(EngineDeadError())
        ask(server, prompt=prompt, max_tokens=4, n=2, use_beam_search=True, repetition_penalty=2)
        assert client.calls[-1].params.logprobs == expected
