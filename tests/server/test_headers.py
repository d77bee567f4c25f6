"""The route, in this process: what the headers say of an answer, and what a router's headers do."""

import pytest

from tests.asgi_client import exchange, run
from tests.conftest import Server
from tests.fake_engine import FakeEngineClient, said
from tests.server.conftest import HI, Serve, ask

pytestmark = pytest.mark.needs_vllm


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
    "priority", ["3", "-1", "99999999999999999999", "-99999999999999999999", "x"]
)
def test_priority_header(server: Server, client: FakeEngineClient, priority: str) -> None:
    """A router's priority reaches the engine where its transport can carry it."""
    client.will_answer(said("a", 10, finish="stop"))
    got = run(exchange(server.app, HI, headers={"x-vllm-priority": priority}))
    assert got.status == 200
    expected = int(priority) if priority in ("3", "-1") else 0
    assert client.calls[0].options["priority"] == expected


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
