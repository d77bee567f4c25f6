"""LLM Engine's forwarder and gateway: the requests that they send, and the models they read by.

The models are CreateCompletionResponse and what it is made of, as LLM Engine has them; it reads
each event of a stream by the same ones.
"""

import json
from typing import Any, Literal

import httpx
import pytest
from pydantic import BaseModel, ConfigDict

from adapter.contract.request import CompletionV2Request
from tests.live.conftest import LLM_ENGINE_NAME
from tests.live.server import Server, error_of, sse_events, strict_json

pytestmark = pytest.mark.live

PATH = "/v1/completions"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class Logprobs(_Strict):
    """The numbers are floats: no null."""

    text_offset: list[int] | None = None
    token_logprobs: list[float] | None = None
    tokens: list[str] | None = None
    top_logprobs: list[dict[str, float]] | None = None


class Choice(_Strict):
    """The reason is one of three: no null, no "abort"."""

    finish_reason: Literal["stop", "length", "content_filter"]
    index: int
    logprobs: Logprobs | None
    text: str


class Usage(_Strict):
    """Counts of tokens."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int


class Response(_Strict):
    """An answer, and an event."""

    id: str
    choices: list[Choice]
    created: int
    model: str
    system_fingerprint: str | None = None
    object: Literal["text_completion"]
    usage: Usage | None = None


def forward(server: Server, path: str = PATH, **fields: Any) -> httpx.Response:
    """The forwarder's request: the gateway's dump under its own model name, and one header."""
    request = CompletionV2Request.model_validate({"model": LLM_ENGINE_NAME, **fields})
    body = json.dumps(request.model_dump(exclude_none=True))
    headers = {"Content-Type": "application/json"}
    return httpx.post(server.url + path, content=body, headers=headers, timeout=60)


def events(response: httpx.Response) -> list[Any]:
    """The events before [DONE]."""
    assert response.status_code == 200, response.text
    *found, done = sse_events(response.content)
    assert done == "[DONE]"
    return [strict_json(event) for event in found]


def test_sync(second: Server) -> None:
    """An answer validates, scores too, for every name that the gateway's command gives."""
    for _ in range(4):  # from both API servers
        response = forward(second, prompt="a b c", max_tokens=4, n=2, logprobs=2)
        assert response.status_code == 200, response.text
        answer = Response.model_validate_json(response.content)
        assert answer.model == LLM_ENGINE_NAME
        assert len(answer.choices) == 2
    command = second.process.args
    names = command[command.index(LLM_ENGINE_NAME) - 1 :][:3]
    assert names[2].startswith("/")  # where the weights lie
    for name in names:
        assert forward(second, prompt="a", max_tokens=1, model=name).json()["model"] == name


def test_stream(second: Server) -> None:
    """Each event validates; the last of a choice has its real reason, and usage comes after."""
    options = {"include_usage": True}
    response = forward(second, prompt="a b", max_tokens=6, stream=True, stream_options=options)
    read = [Response.model_validate(event) for event in events(response)]
    *chunks, last = read
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert len(chunks) > 1
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 6


def test_echo_with_logprobs(second: Server) -> None:
    """The first token of a prompt has no score, and is read all the same, streamed too."""
    fields: dict[str, Any] = {"prompt": "a b", "max_tokens": 3, "echo": True, "logprobs": 2}
    answer = Response.model_validate_json(forward(second, **fields).content)
    streamed = [
        Response.model_validate(event) for event in events(forward(second, stream=True, **fields))
    ]
    for logprobs in (answer.choices[0].logprobs, streamed[0].choices[0].logprobs):
        assert logprobs is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.token_logprobs[0] == 0
        assert logprobs.top_logprobs is not None
        assert logprobs.top_logprobs[0] == {}


def test_guided(second: Server) -> None:
    """The contract's fields, which vLLM's own route would pass over, hold on this path."""
    fields: dict[str, Any] = {"prompt": "a", "max_tokens": 8, "guided_choice": ["yes", "no"]}
    assert forward(second, **fields).json()["choices"][0]["text"] in ("yes", "no")


@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_json(second: Server, stream: bool) -> None:
    """A refusal is the contract's error with its status, before the first byte of a stream."""
    response = forward(second, prompt="a", max_tokens=5000, stream=stream)
    assert response.status_code == 400
    assert error_of(response)["code"] == "context_length_exceeded"
    response = forward(second, prompt="a", guided_regex="ab**", stream=stream)
    assert response.status_code == 400
    assert error_of(response)["param"] == "guided_regex"
    response = forward(second, prompt="a", model="another", stream=stream)
    assert response.status_code == 404
    error_of(response)


def test_the_contract_s_own_path_keeps_null(second: Server) -> None:
    """On the same server /v2/completions keeps null: for reasons before the last, and scores."""
    fields: dict[str, Any] = {"prompt": "a b", "max_tokens": 6, "stream": True}
    fields |= {"echo": True, "logprobs": 1}
    *chunks, last = events(forward(second, "/v2/completions", **fields))
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}
    assert last["choices"][0]["finish_reason"] == "length"
    assert chunks[0]["choices"][0]["logprobs"]["token_logprobs"][0] is None
