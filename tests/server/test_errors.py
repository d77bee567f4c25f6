"""The route, in this process: what is refused or fails, by status, code and field."""

from typing import Any

import pytest

from adapter.answer.deltas import Answer
from tests.asgi_client import exchange, run
from tests.conftest import MODEL, Server
from tests.fake_engine import FakeEngineClient, FakeServingModels, Held, said
from tests.server.conftest import HI, Serve, ask

pytestmark = pytest.mark.needs_vllm


# --- refusals -------------------------------------------------------------------------------------


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


def test_compressed_body(server: Server) -> None:
    """A compressed body is refused by its header, not by what it looks like."""
    got = run(exchange(server.app, b"\x1f\x8b", headers={"content-encoding": "gzip"}))
    error = got.error()
    assert (got.status, error["param"]) == (415, "content-encoding")
    assert error["code"] == "unsupported_content_encoding"
    assert "gzip" in error["message"]


def test_identity_is_no_compression(server: Server, client: FakeEngineClient) -> None:
    """A body that says it is not compressed is read."""
    client.will_answer(said("a", 10, finish="stop"))
    got = run(exchange(server.app, HI, headers={"content-encoding": "Identity"}))
    assert got.status == 200


def test_too_many_choices(serve: Serve) -> None:
    """A server has a limit of choices for one request."""
    got = ask(serve(max_choices=3), prompt=["a", "b"], n=2)
    assert (got.status, got.error()["param"]) == (400, "prompt")
    assert "4" in got.error()["message"]


def test_unknown_model_lists_the_served_ones(server: Server, models: FakeServingModels) -> None:
    """The refusal of a model names those that are served."""
    models.lora_requests["mine"] = object()
    message = ask(server, model="other").error()["message"]
    assert all(name in message for name in ("other", MODEL, "mine"))


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


# --- failures -------------------------------------------------------------------------------------


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
    from adapter.engine import beam_scores
    from adapter.engine import client as engine
    from adapter.vllm_api import VLLMValidationError

    refusal = VLLMValidationError("vLLM does not like it", parameter="prompt")
    if where == "renderer":
        client.renderer.failure = refusal
    else:

        def refuse(**_fields: Any) -> None:
            raise refusal

        module = beam_scores if where == "beam search" else engine
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
