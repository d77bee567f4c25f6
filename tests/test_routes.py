"""adapter/routes.py, in this process: statuses, headers, streams, and callers who leave."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from starlette.middleware.cors import CORSMiddleware

from adapter.contract_answer import CompletionV2Chunk, CompletionV2Response
from adapter.errors import ApiError, GenerationFailed, NotSupported, Unavailable
from adapter.guided.admission import Admitted
from adapter.guided.constraint import Constraint
from adapter.guided.program import Part, Program
from adapter.respond import Answer
from tests.asgi_client import Exchange, exchange, run
from tests.conftest import MODEL, Server
from tests.fake_engine import FakeEngineClient, FakeServingModels, FakeVllmConfig, Held, said
from tests.tiny_tokenizer import byte_ids

pytestmark = pytest.mark.needs_vllm

HI = {"model": MODEL, "prompt": "hi"}
Serve = Callable[..., Server]


@pytest.fixture
def server(serve: Serve) -> Server:
    """A server with the settings of a plain command line."""
    return serve()


def ask(server: Server, **fields: Any) -> Exchange:
    """Ask for a completion of "hi"."""
    return run(exchange(server.app, HI | fields))


# --- answers ------------------------------------------------------------------------------------


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


def test_stream_options_without_stream(server: Server, client: FakeEngineClient) -> None:
    """stream_options have no effect without stream."""
    client.will_answer(said("a", 10, finish="stop"))
    got = ask(server, stream_options={"include_usage": True})
    assert CompletionV2Response.model_validate_json(got.body).choices[0].text == "a"


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


@pytest.mark.parametrize(
    "priority", ["3", "-1", "99999999999999999999", "-99999999999999999999", "x"]
)
def test_priority_header(server: Server, client: FakeEngineClient, priority: str) -> None:
    """A router's priority reaches the engine where its transport can carry it."""
    client.will_answer(said("a", 10, finish="stop"))
    got = run(exchange(server.app, HI, headers={"x-vllm-priority": priority}))
    assert got.status == 200
    expected = int(priority) if priority in ("3", "-1") else 0
    assert client.calls[0].options["priority"] == expected


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
    assert b'"text":"b"' in got.body or not stream


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


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_fields_are_reported(
    server: Server, client: FakeEngineClient, stream: bool
) -> None:
    """Unknown fields are named in a header, streamed or not, and change nothing."""
    client.will_answer(said("a", 10, finish="stop"))
    got = ask(server, stream=stream, user="u", max_completion_tokens=50, guided_grammer="x")
    assert got.status == 200
    assert got.headers["x-ignored-fields"] == "max_completion_tokens, guided_grammer"
    assert client.calls[0].params.max_tokens == 16


def test_no_header_without_unknown_fields(server: Server, client: FakeEngineClient) -> None:
    """Where there is nothing to report there is no header."""
    client.will_answer(said("a", 10, finish="stop"))
    got = ask(server, user="u")
    assert not {"x-ignored-fields", "x-adjusted-fields"} & set(got.headers)


def test_any_name_fits_into_the_header(server: Server, client: FakeEngineClient) -> None:
    """A name of any characters and length cannot break the header."""
    client.will_answer(said("a", 10, finish="stop"))
    names = ["a\r\nset-cookie: x", "é,ü", "long" * 1000, *(f"field{i}" for i in range(2000))]
    got = ask(server, **dict.fromkeys(names, 1))
    value = got.headers["x-ignored-fields"]
    assert value.isascii()
    assert value.isprintable()
    assert value.split(", ")[:2] == [
        "a%0D%0Aset-cookie:%20x".replace("%20", " "),
        "%C3%A9%2C%C3%BC",
    ]
    assert len(value) < 5000
    assert value.endswith("...")


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_fields_can_be_refused(
    serve: Serve, client: FakeEngineClient, stream: bool
) -> None:
    """A server may refuse unknown fields instead, by name."""
    got = ask(serve(unknown_fields="reject"), stream=stream, guided_grammer="x")
    error = got.error()
    assert (got.status, error["param"], error["code"]) == (400, "guided_grammer", "unknown_field")
    assert "guided_grammer" in error["message"]
    assert client.calls == []


def test_adjusted_fields_are_reported(server: Server, client: FakeEngineClient) -> None:
    """A value that the engine cannot take exactly is reported."""
    client.will_answer(said("a", 10, finish="stop"))
    assert ask(server, temperature=0.001).headers["x-adjusted-fields"] == "temperature"


def test_callers_request_id(server: Server, client: FakeEngineClient) -> None:
    """The caller's x-request-id comes back, and is part of the answer's id and the engine's."""
    client.will_answer(said("a", 10, finish="stop"))
    got = run(exchange(server.app, HI, headers={"x-request-id": "mine"}))
    assert got.headers["x-request-id"] == "mine"
    assert got.json()["id"] == "cmpl-mine"
    assert client.calls[0].request_id.startswith("cmpl-mine")


def test_own_request_ids_differ(server: Server, client: FakeEngineClient) -> None:
    """Without x-request-id every answer has an id of its own, errors too."""
    client.will_answer(said("a", 10, finish="stop"))
    ids = [ask(server).headers["x-request-id"], ask(server, n=0).headers["x-request-id"]]
    assert len(set(ids)) == 2


def test_vllms_own_request_id_header(serve: Serve, client: FakeEngineClient) -> None:
    """Where vLLM adds x-request-id itself, it is not added twice."""
    client.will_answer(said("a", 10, finish="stop"))
    assert "x-request-id" not in ask(serve(enable_request_id_headers=True)).headers


@pytest.mark.parametrize(
    ("headers", "priority", "rank"),
    [
        ({}, 0, None),
        ({"x-vllm-priority": "-3", "x-data-parallel-rank": "1"}, -3, 1),
        ({"x-vllm-priority": "high", "x-data-parallel-rank": ""}, 0, None),
    ],
    ids=["none", "numbers", "no numbers"],
)
def test_routing_headers(
    server: Server,
    client: FakeEngineClient,
    headers: dict[str, str],
    priority: int,
    rank: int | None,
) -> None:
    """A router's headers reach the engine."""
    client.will_answer(said("a", 10, finish="stop"))
    run(exchange(server.app, HI, headers=headers))
    options = client.calls[0].options
    assert (options["priority"], options["data_parallel_rank"]) == (priority, rank)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"n": 0}, (400, "n", "invalid_value"), id="schema"),
        pytest.param({"min_p": 2}, (400, "min_p", "invalid_value"), id="value"),
        pytest.param({"model": "other"}, (404, "model", "model_not_found"), id="model"),
        pytest.param(
            {"max_tokens": 1000}, (400, "max_tokens", "context_length_exceeded"), id="max_tokens"
        ),
        pytest.param(
            {"prompt": "hi" * 50}, (400, "max_tokens", "context_length_exceeded"), id="together"
        ),
        pytest.param(
            {"prompt": "x " * 70}, (400, "prompt", "context_length_exceeded"), id="prompt"
        ),
        pytest.param(
            {"prompt": "x" * 9999}, (400, "prompt", "context_length_exceeded"), id="huge prompt"
        ),
        pytest.param({"prompt": [267]}, (400, "prompt", "invalid_value"), id="token id"),
        pytest.param({"prompt": []}, (400, "prompt", "invalid_value"), id="no prompt"),
    ],
)
def test_refusal(
    server: Server,
    client: FakeEngineClient,
    stream: bool,
    fields: dict[str, Any],
    expected: tuple[int, str, str],
) -> None:
    """A wrong request is an HTTP error with the field's name, also where a stream was asked for."""
    got = ask(server, stream=stream, **fields)
    error = got.error()
    assert (got.status, error["param"], error["code"]) == expected
    assert error["param"] in error["message"]
    assert client.calls == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "\xff"}', b"[" * 10_000])
def test_body_that_is_no_request(server: Server, body: bytes) -> None:
    """A body that is no JSON object is refused."""
    got = run(exchange(server.app, body))
    assert (got.status, got.error()["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 400),
        ("", 400),
    ],
)
def test_content_types(
    server: Server, client: FakeEngineClient, content_type: str, status: int
) -> None:
    """A body must be JSON by its content type."""
    client.will_answer(said("a", 10, finish="stop"))
    got = run(exchange(server.app, HI, headers={"content-type": content_type}))
    assert got.status == status
    assert status == 200 or got.error()["param"] == "content-type"


def test_body_too_large(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body beyond the limit is refused before it is read to its end."""
    from adapter import routes

    monkeypatch.setattr(routes, "MAX_BODY_BYTES", 1000)
    got = run(exchange(server.app, HI | {"user": "x" * 5000}, cut=100))
    assert (got.status, got.error()["code"]) == (400, "body_too_large")


def test_too_many_choices(serve: Serve) -> None:
    """A server has a limit of choices for one request."""
    got = ask(serve(max_choices=3), prompt=["a", "b"], n=2)
    assert (got.status, got.error()["param"]) == (400, "prompt")
    assert "4" in got.error()["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_no_engine(serve: Serve, stream: bool) -> None:
    """Without an engine (vLLM's render server) the route answers 503."""
    got = ask(serve(engine=None), stream=stream)
    assert (got.status, got.error()["code"]) == (503, "engine_unavailable")
    assert got.headers["retry-after"] == "1"


@pytest.mark.parametrize("stream", [False, True])
def test_dead_engine(server: Server, client: FakeEngineClient, stream: bool) -> None:
    """A dead engine is a 503 before anything is started."""
    client.errored = True
    got = ask(server, stream=stream)
    assert (got.status, got.error()["code"]) == (503, "engine_unavailable")
    assert got.headers["retry-after"] == "1"
    assert client.calls == []


@pytest.mark.parametrize("stream", [False, True])
def test_full_engine(server: Server, client: FakeEngineClient, stream: bool) -> None:
    """A full engine is a 503 before anything is started."""
    from vllm.exceptions import QueueOverflowError

    client.refusal = QueueOverflowError()
    got = ask(server, stream=stream)
    assert (got.status, got.error()["code"]) == (503, "engine_overloaded")
    assert "busy" in got.error()["message"]
    assert got.headers["retry-after"] == "1"
    assert client.calls == []


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_first_error_is_an_http_error(
    server: Server, client: FakeEngineClient, stream: bool
) -> None:
    """What fails before the engine's first word is an HTTP error, in a stream too."""
    from adapter.vllm_api import VLLMValidationError

    client.will_answer(VLLMValidationError("no such rank", parameter="rank", value=7))
    got = ask(server, stream=stream)
    error = got.error()
    assert (got.status, error["message"], error["param"]) == (400, "no such rank", "rank")


def test_error_after_the_first_chunk(server: Server, client: FakeEngineClient) -> None:
    """What fails later is an error event, then [DONE]."""
    from adapter.vllm_api import EngineDeadError

    client.will_answer(said("a", 10), EngineDeadError())
    got = ask(server, stream=True)
    assert got.status == 200
    chunk, error = got.events()
    assert chunk["choices"][0]["text"] == "a"
    assert error["error"]["code"] == "engine_unavailable"
    assert set(error["error"]) == {"message", "type", "param", "code"}


def test_abort_in_a_stream(server: Server, client: FakeEngineClient) -> None:
    """A stream that the engine aborts ends with an error event, not with a finish reason."""
    client.will_answer(said("a", 10), said("", finish="abort"))
    events = ask(server, stream=True).events()
    assert "error" in events[-1]
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None]


def break_answers(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Have the updates after so many raise where they become deltas."""
    deltas = Answer.deltas
    seen: list[Any] = []

    def broken(self: Answer, updates: Any) -> Any:
        seen.extend(updates)
        if len(seen) > after:
            raise ValueError("secret path /etc/x")
        return deltas(self, updates)

    monkeypatch.setattr(Answer, "deltas", broken)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("whose", ["ours", "the engine's"])
def test_unexpected_fault_tells_nothing(
    server: Server,
    client: FakeEngineClient,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
    whose: str,
) -> None:
    """An unexpected error is a 500 that shows nothing of the inside."""
    if whose == "ours":
        client.will_answer(said("a", 10, finish="stop"))
        break_answers(monkeypatch, after=0)
    else:
        client.will_answer(ValueError("secret path /etc/x"))
    got = ask(server, stream=stream)
    code = "internal_error" if whose == "ours" else "generation_failed"
    assert (got.status, got.error()["code"]) == (500, code)
    assert b"secret" not in got.body
    assert b"Traceback" not in got.body


@pytest.mark.parametrize("whose", ["ours", "the engine's"])
def test_unexpected_fault_within_a_stream(
    server: Server, client: FakeEngineClient, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """One after the first chunk ends the stream properly, and tells nothing."""
    if whose == "ours":
        client.will_answer(said("a", 10), said("b", 11, finish="stop"))
        break_answers(monkeypatch, after=1)
    else:
        client.will_answer(said("a", 10), ValueError("secret"))
    got = ask(server, stream=True)
    code = "internal_error" if whose == "ours" else "generation_failed"
    assert got.events()[-1]["error"]["code"] == code
    assert b"secret" not in got.body
    assert client.unfinished == set()


@pytest.mark.parametrize(
    ("where", "stream"),
    [
        ("renderer", False),
        ("renderer", True),
        ("parameters", False),
        ("parameters", True),
        ("beam search", False),
    ],
)
def test_vllms_refusals_anywhere_are_400(
    server: Server,
    client: FakeEngineClient,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    stream: bool,
) -> None:
    """What vLLM refuses as the caller's fault is a 400, wherever vLLM looks at it."""
    from adapter import beam_run, engine
    from adapter.vllm_api import VLLMValidationError

    refusal = VLLMValidationError("vLLM does not like it", parameter="prompt")
    if where == "renderer":
        client.renderer.failure = refusal
    else:

        def refuse(**_fields: Any) -> None:
            raise refusal

        module = beam_run if where == "beam search" else engine
        monkeypatch.setattr(module, "SamplingParams", refuse)
    got = ask(server, stream=stream, use_beam_search=where == "beam search")
    assert (got.status, got.error()["message"]) == (400, "vLLM does not like it")


def test_one_failing_prompt_ends_the_others(server: Server, client: FakeEngineClient) -> None:
    """When one of several prompts fails, the others are given up."""
    from adapter.vllm_api import EngineDeadError

    client.will_answer(Held())
    client.will_answer(EngineDeadError())
    got = ask(server, prompt=["hi", "x"])
    assert (got.status, client.unfinished) == (503, set())
    assert client.aborted == [client.calls[0].request_id]


# --- callers who leave --------------------------------------------------------------------------


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


# --- models -------------------------------------------------------------------------------------


def test_lora_adapter_by_name(
    server: Server, client: FakeEngineClient, models: FakeServingModels
) -> None:
    """A LoRA adapter's name serves with that adapter, and is the answer's model."""
    adapter = object()
    models.lora_requests["mine"] = adapter
    client.will_answer(said("a", 10, finish="stop"))
    assert ask(server, model="mine").json()["model"] == "mine"
    assert client.calls[0].options["lora_request"] is adapter


def test_unknown_model_lists_the_served_ones(server: Server, models: FakeServingModels) -> None:
    """The refusal of a model names those that are served."""
    models.lora_requests["mine"] = object()
    message = ask(server, model="other").error()["message"]
    assert all(name in message for name in ("other", MODEL, "mine"))


# --- around the endpoint ------------------------------------------------------------------------


class RefusesAll:
    """vLLM's key check, as far as a wrong key is concerned."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error":"Unauthorized"}'})


def test_wrong_key_has_the_contracts_form(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's 401 gets the contract's body on this route, and keeps its other headers."""
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    server = serve()
    server.app.add_middleware(RefusesAll)
    got = ask(server)
    error = got.error()
    assert (got.status, error["code"], got.complete) == (401, "invalid_api_key", True)
    assert got.headers["www-authenticate"] == "Bearer"
    assert got.headers["content-length"] == str(len(got.body))


@pytest.mark.parametrize("stream", [False, True])
def test_load_is_tracked(serve: Serve, client: FakeEngineClient, stream: bool) -> None:
    """vLLM's load metric counts a request while it runs."""
    server = serve()
    server.state.enable_server_load_tracking = True
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


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Reads the lines of the request log."""
    caplog.set_level(logging.INFO, "vllm.completion_v2")

    def lines() -> list[str]:
        messages = (record.getMessage() for record in caplog.records)
        return [m.removeprefix("completion ") for m in messages if m.startswith("completion ")]

    return lines


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


# --- guided decoding ----------------------------------------------------------------------------

EOS = 2
PROGRAM = Program((Part("guidance", "regex", "a+"),))


class FakeAdmission:
    """Admits every constraint without compiling it, unless it is told what to raise."""

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary
        self.schema: str | None = None
        """What finished texts have to be checked against."""
        self.refusal: ApiError | None = None
        self.fault: ApiError | None = None
        self.asked: list[Constraint] = []
        self.checked: list[tuple[str, str]] = []

    async def admit(self, constraint: Constraint) -> Admitted:
        self.asked.append(constraint)
        if self.refusal is not None:
            raise self.refusal
        return Admitted(PROGRAM, "guidance", self.schema)

    async def check(self, schema: str, text: str) -> None:
        self.checked.append((schema, text))
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def admission(server: Server) -> FakeAdmission:
    """What admits the server's constraints."""
    engine = server.plugin._endpoints[0].engine
    engine._admission = FakeAdmission(engine._admission.vocabulary)
    fake: FakeAdmission = engine._admission
    return fake


def programs(client: FakeEngineClient) -> list[Program | None]:
    """What the engine was given to hold."""
    given = [call.params.structured_outputs for call in client.calls]
    assert all(params is None or params._backend == "completion_v2" for params in given)
    return [params and Program.loads(params.grammar) for params in given]


@pytest.mark.parametrize("stream", [False, True])
def test_constraint_reaches_the_engine(
    server: Server, client: FakeEngineClient, admission: FakeAdmission, stream: bool
) -> None:
    """Each prompt's call carries the admitted program, and the caller is told who holds it."""
    client.will_answer(said("a", 100, EOS, finish="stop"))
    client.will_answer(said("a", 100, EOS, finish="stop"))
    got = ask(server, prompt=["hi", "x"], guided_regex="a+", stream=stream)
    assert (got.status, got.headers["x-guided-decoding"]) == (200, "guidance")
    assert programs(client) == [Program(PROGRAM.parts, ends=(EOS,))] * 2
    assert [(one.field, one.text, one.backend) for one in admission.asked] == [
        ("guided_regex", "a+", "auto")
    ]


def test_request_without_a_constraint(
    server: Server, client: FakeEngineClient, admission: FakeAdmission
) -> None:
    """A request without a constraint, or with nulls for one, asks nobody."""
    for fields in ({}, {"guided_json": None, "response_format": {"type": "text"}}):
        client.will_answer(said("a", 100, finish="length"))
        assert "x-guided-decoding" not in ask(server, **fields).headers
    assert programs(client) == [None, None]
    assert admission.asked == []


@pytest.mark.parametrize("ignore", [None, False, True])
def test_ignore_eos_of_a_constrained_text(
    server: Server, client: FakeEngineClient, admission: FakeAdmission, ignore: bool | None
) -> None:
    """With ignore_eos a constrained text ends where it cannot go on: vLLM's own flag is not set."""
    client.will_answer(said("a", 100, EOS, finish="stop"))
    ask(server, guided_regex="a+", ignore_eos=ignore)
    (program,) = programs(client)
    assert program is not None
    assert program.end_last == bool(ignore)
    assert client.calls[0].params.ignore_eos is False


def test_nothing_generated_is_not_constrained(
    server: Server, client: FakeEngineClient, admission: FakeAdmission
) -> None:
    """With max_tokens 0 a constraint is admitted or refused, and the engine is given none."""
    client.will_answer(said("", finish="length"))
    fields = {"guided_regex": "a+", "max_tokens": 0}
    got = ask(server, **fields, echo=True, logprobs=1)
    assert (got.status, programs(client)) == (200, [None])
    admission.refusal = NotSupported("guided_regex: no.", param="guided_regex")
    assert ask(server, **fields).status == 400


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [
        NotSupported("guided_regex: no.", param="guided_regex"),
        Unavailable("busy", code="engine_overloaded"),
    ],
    ids=["refused", "busy"],
)
def test_refused_constraint(
    server: Server,
    client: FakeEngineClient,
    admission: FakeAdmission,
    stream: bool,
    refusal: ApiError,
) -> None:
    """A constraint that is not admitted is an HTTP error, and the engine is not asked."""
    admission.refusal = refusal
    got = ask(server, guided_regex="a+", stream=stream)
    assert (got.status, got.json()) == (refusal.status, refusal.body())
    assert client.calls == []


def test_constraint_that_no_library_is_asked_about(
    server: Server, client: FakeEngineClient, admission: FakeAdmission
) -> None:
    """What is wrong with a constraint by itself is refused before it is compiled."""
    got = ask(server, guided_regex="a+", guided_choice=["a"], stream=True)
    assert (got.status, got.error()["param"]) == (400, "guided_choice")
    assert admission.asked == client.calls == []


@pytest.mark.parametrize("stream", [False, True])
def test_finished_text_is_checked(
    server: Server, client: FakeEngineClient, admission: FakeAdmission, stream: bool
) -> None:
    """A text for which the libraries hold less than the schema is checked as it was made."""
    admission.schema = "{}"
    tokens = byte_ids(b"[1]")
    parts = [said("[1", *tokens[:2]), said("]", tokens[2], EOS, finish="stop")]
    client.will_answer(*(parts if stream else [said("[1]", *tokens, EOS, finish="stop")]))
    got = ask(server, guided_json={}, stream=stream, echo=True)
    assert (got.status, got.headers["x-guided-decoding"]) == (200, "guidance; checked")
    assert admission.checked == [("{}", "[1]")]


def test_text_that_fails_its_check(
    server: Server, client: FakeEngineClient, admission: FakeAdmission
) -> None:
    """A finished text that is not what was asked for is no answer but an error."""
    admission.schema = "{}"
    admission.fault = GenerationFailed("no", code="constraint_not_satisfied")
    client.will_answer(said("1", 52, EOS, finish="stop"))
    got = ask(server, guided_json={})
    assert (got.status, got.error()["code"]) == (500, "constraint_not_satisfied")


def test_streamed_text_that_fails_its_check(
    server: Server, client: FakeEngineClient, admission: FakeAdmission
) -> None:
    """In a stream the failed check is an error event where the finish reason would be."""
    admission.schema = "{}"
    admission.fault = GenerationFailed("no", code="constraint_not_satisfied")
    client.will_answer(said("1", 52), said("2", 53, EOS, finish="stop"))
    got = ask(server, guided_json={}, stream=True)
    chunk, error = got.events()
    assert (chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) == ("1", None)
    assert error["error"]["code"] == "constraint_not_satisfied"


@pytest.mark.parametrize(
    ("tokens", "finish"), [((52,), "length"), ((52,), "stop"), ((52, EOS), "length")], ids=str
)
def test_text_that_was_cut_is_not_checked(
    server: Server,
    client: FakeEngineClient,
    admission: FakeAdmission,
    tokens: tuple[int, ...],
    finish: str,
) -> None:
    """A text cut by its length or a stop string is passed on, and says so by its finish reason."""
    admission.schema = "{}"
    admission.fault = GenerationFailed("no")
    client.will_answer(said("1", *tokens, finish=finish))
    got = ask(server, guided_json={}, stop="2")
    assert (got.status, got.json()["choices"][0]["finish_reason"]) == (200, finish)
    assert admission.checked == []


def test_caller_leaves_while_a_constraint_is_compiled(
    server: Server, client: FakeEngineClient, admission: FakeAdmission
) -> None:
    """A caller who leaves while the constraint is compiled takes nothing of the engine."""
    waiting = asyncio.Event()

    async def endless(constraint: Constraint) -> Admitted:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    admission.admit = endless  # type: ignore[method-assign]

    async def asked() -> Exchange:
        progress = Exchange()
        task = asyncio.create_task(
            exchange(server.app, HI | {"guided_regex": "a+"}, progress=progress)
        )
        await waiting.wait()
        progress.left.set()
        return await task

    assert run(asked()).status is None
    assert client.calls == []


def test_constraint_is_in_the_log(
    server: Server, client: FakeEngineClient, admission: FakeAdmission, log: Callable[[], list[str]]
) -> None:
    """The log says what kind of constraint it was and who held it, not its text."""
    client.will_answer(said("a", 100, EOS, finish="stop"))
    ask(server, guided_regex="secret")
    (line,) = log()
    facts = json.loads(line)
    assert (facts["constraint"], facts["backend"]) == ("regex", "guidance")
    assert "secret" not in line
