"""Every limit of docs/reliability.md: what just meets it passes, what is just beyond is refused."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapter.guided.constraint import MAX_TEXT
from adapter.languages import exact_json
from adapter.planning.limits import MAX_GUIDED_CHOICES, MAX_WHITESPACE_CHARS
from tests.asgi_client import Exchange, exchange
from tests.fake_engine import FakeEngineClient, Held, said
from tests.server.conftest import HI, Serve

pytestmark = pytest.mark.needs_vllm

DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"
VOCABULARY = 267
CONTEXT = 64
SECONDS = 90

SetUp = Callable[[FakeEngineClient, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Limit:
    """How one limit is met, and gone beyond."""

    met: dict[str, Any]
    over: dict[str, Any]
    refused: tuple[int, str | None, str]
    """Status, param and code."""
    says: str
    """What the message says of the limit."""
    values: dict[str, Any] = field(default_factory=dict)
    """The command line's."""
    meet: SetUp | None = None
    exceed: SetUp | None = None
    """What is done before each, where it is not the body that makes the difference."""


def nested(levels: int) -> Any:
    """Lists in a list, so many in all."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def schema_text(length: int) -> dict[str, Any]:
    """A schema that has so many characters as text."""
    schema = {"type": "null", "description": ""}
    return schema | {"description": "x" * (length - len(exact_json.dumps(schema)))}


def padded(length: int) -> dict[str, Any]:
    """A body of so many bytes."""
    return HI | {"user": "x" * (length - len(json.dumps(HI | {"user": ""})))}


def waiting(most: int, module: str) -> SetUp:
    return lambda _, patch: patch.setattr(f"{module}.MAX_WAITING", most)


def full(client: FakeEngineClient, _patch: pytest.MonkeyPatch) -> None:
    from vllm.exceptions import QueueOverflowError

    client.refusal = QueueOverflowError()


def held(client: FakeEngineClient, _patch: pytest.MonkeyPatch) -> None:
    client._answers.clear()
    client.will_answer(Held())


LARGE = {"user": "x, " * 30_000}
"""Makes a body large enough to be read in another process."""

LIMITS: dict[str, Limit] = {
    "bytes of a body": Limit(
        padded(2**20),
        padded(2**20 + 1),
        (413, None, "body_too_large"),
        "1048576",
        {"max_body_mb": 1},
    ),
    "levels of nesting of a body": Limit(
        {"u": nested(200)}, {"u": nested(201)}, (400, "u", "invalid_value"), "200"
    ),
    "fields that the contract does not know": Limit(
        {f"u{number}": 0 for number in range(10_000)},
        {f"u{number}": 0 for number in range(10_001)},
        (400, "u0", "too_many_fields"),
        "10000",
    ),
    "prompts": Limit(
        {"prompt": ["a"] * 2},
        {"prompt": ["a"] * 3},
        (400, "prompt", "invalid_value"),
        "may have 2",
        {"max_prompts": 2},
    ),
    "texts: prompts times `n`, `best_of` or beams": Limit(
        {"prompt": ["a"] * 2, "n": 2},
        {"prompt": ["a"] * 2, "n": 1, "best_of": 3},
        (400, "prompt", "invalid_value"),
        "may ask for 4",
        {"max_choices": 4},
    ),
    "token ids of all prompts": Limit(
        {"prompt": [[5, 6], [7, 8]]},
        {"prompt": [[5, 6], [7, 8, 9]]},
        (400, "prompt", "invalid_value"),
        "may have 4",
        {"max_prompt_tokens": 4},
    ),
    "tokens of all prompts that are texts": Limit(
        {"prompt": ["ab", "de"]},
        {"prompt": ["ab", "def"]},
        (400, "prompt", "invalid_value"),
        "may have 4",
        {"max_prompt_tokens": 4},
    ),
    "tokens of a prompt with `max_tokens`": Limit(
        {"prompt": [5] * (CONTEXT - 4), "max_tokens": 4},
        {"prompt": [5] * (CONTEXT - 4), "max_tokens": 5},
        (400, "max_tokens", "context_length_exceeded"),
        str(CONTEXT),
    ),
    "stop strings": Limit(
        {"stop": ["a"] * 4}, {"stop": ["a"] * 5}, (400, "stop", "invalid_value"), "at most 4"
    ),
    "characters of a stop string": Limit(
        {"stop": ["a", "b" * 4096]},
        {"stop": ["a", "b" * 4097]},
        (400, "stop[1]", "invalid_value"),
        "4096",
    ),
    "`stop_token_ids`": Limit(
        {"stop_token_ids": [5] * VOCABULARY},
        {"stop_token_ids": [5] * (VOCABULARY + 1)},
        (400, "stop_token_ids", "invalid_value"),
        str(VOCABULARY),
    ),
    "entries of `logit_bias`": Limit(
        {"logit_bias": {str(token): 1 for token in range(VOCABULARY)}},
        {"logit_bias": {str(token): 1 for token in range(VOCABULARY + 1)}},
        (400, "logit_bias", "invalid_value"),
        str(VOCABULARY),
    ),
    "texts of `guided_choice`": Limit(
        {"guided_choice": ["a"] * MAX_GUIDED_CHOICES},
        {"guided_choice": ["a"] * (MAX_GUIDED_CHOICES + 1)},
        (400, "guided_choice", "invalid_value"),
        "100000",
    ),
    "characters of a constraint as text, all choices together": Limit(
        {"guided_json": schema_text(MAX_TEXT)},
        {"guided_json": schema_text(MAX_TEXT + 1)},
        (400, "guided_json", "invalid_value"),
        "1048576",
    ),
    "characters of `guided_whitespace_pattern`": Limit(
        {"guided_json": {}, "guided_whitespace_pattern": f"[{' ' * (MAX_WHITESPACE_CHARS - 3)}]*"},
        {"guided_json": {}, "guided_whitespace_pattern": f"[{' ' * (MAX_WHITESPACE_CHARS - 2)}]*"},
        (400, "guided_whitespace_pattern", "invalid_value"),
        "4096",
    ),
    "levels of a JSON schema": Limit(
        {"guided_json": {"type": "null", "enum": [None, nested(62)]}},
        {"guided_json": {"type": "null", "enum": [None, nested(63)]}},
        (400, "guided_json", "unsupported_value"),
        "64",
    ),
    "levels of an expression": Limit(
        {"guided_regex": "(" * 100 + "a" + ")" * 100},
        {"guided_regex": "(" * 101 + "a" + ")" * 101},
        (400, "guided_regex", "unsupported_value"),
        "100",
    ),
    "CPU time that a constraint takes to compile": Limit(
        {"guided_regex": "a"},
        {"guided_regex": "(a|b)" * 200_000},
        (400, "guided_regex", "constraint_timeout"),
        "within 1 s",
        {"guided_timeout": 1.0},
    ),
    "constraints that wait to be compiled, for each backend": Limit(
        {"guided_regex": "a"},
        {"guided_regex": "b"},
        (503, None, "engine_overloaded"),
        "other constraints",
        meet=waiting(1, "adapter.guided.compile.processes"),
        exceed=waiting(0, "adapter.guided.compile.processes"),
    ),
    "bytes of large bodies that wait to be read": Limit(
        LARGE,
        LARGE,
        (503, None, "engine_overloaded"),
        "large bodies",
        meet=waiting(len(json.dumps(HI | LARGE)), "adapter.reading.reader"),
        exceed=waiting(len(json.dumps(HI | LARGE)) - 1, "adapter.reading.reader"),
    ),
    "seconds of a request": Limit(
        {},
        {},
        (503, None, "request_timeout"),
        "0.5 s",
        {"request_timeout": 0.5},
        exceed=held,
    ),
    "requests in the engine": Limit({}, {}, (503, None, "engine_overloaded"), "busy", exceed=full),
}


def documented() -> list[list[str]]:
    """The cells of each row of the table."""
    table = DOCS.read_text("utf-8").partition("<!-- limits -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| (.*) \|$", table, re.MULTILINE)[1:]
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def test_the_table_has_each_limit() -> None:
    """The documentation lists the limits that are tested, with status and code."""
    rows = {row[0]: row for row in documented()}
    assert list(rows) == list(LIMITS)
    for name, limit in LIMITS.items():
        status, _, code = limit.refused
        assert rows[name][3] == str(status), name
        assert f"`{code}`" in rows[name][5], name


@pytest.mark.parametrize("name", LIMITS)
def test_limit(
    name: str, serve: Serve, client: FakeEngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What just meets a limit passes; what is just beyond is refused by its name, before any call
    of the engine (but for the time limit, which ends what runs)."""
    limit = LIMITS[name]
    server = serve(**limit.values)
    state = server.plugin._endpoints[0]._server

    async def both() -> tuple[Exchange, int, Exchange]:
        async with asyncio.timeout(SECONDS):
            if limit.meet is not None:
                limit.meet(client, monkeypatch)
            for _ in range(4):
                client.will_answer(said("a", 100, 2, finish="stop"))
            met = await exchange(server.app, HI | limit.met)
            calls = len(client.calls)
            if limit.exceed is not None:
                limit.exceed(client, monkeypatch)
            return met, calls, await exchange(server.app, HI | limit.over)

    try:
        met, calls, over = asyncio.run(both())
    finally:
        state.engine._compile_service.close()
        state.reader.close()
    assert met.status == 200, met.body[:300]
    error = over.error()
    assert (over.status, error["param"], error["code"]) == limit.refused, error["message"][:300]
    assert limit.says in error["message"]
    assert ("retry-after" in over.headers) == (over.status == 503)
    if limit.exceed is held:
        assert client.aborted == [call.request_id for call in client.calls[calls:]]
    else:
        assert len(client.calls) == calls
    assert client.unfinished == set()


def test_request_that_is_ended_within_its_stream(serve: Serve, client: FakeEngineClient) -> None:
    """A stream that is over its time ends in an error event, and its work is aborted."""
    server = serve(request_timeout=0.3)
    client.will_answer(said("a", 100), Held(), said("b", 101))
    got = asyncio.run(exchange(server.app, HI | {"stream": True}))
    first, last = got.events()
    assert (got.status, first["choices"][0]["text"]) == (200, "a")
    assert last["error"]["code"] == "request_timeout"
    assert client.aborted == [call.request_id for call in client.calls]


@pytest.mark.parametrize("name", ["max_prompts", "max_prompt_tokens", "max_body_mb"])
def test_limit_that_bounds_nothing(name: str, serve: Serve) -> None:
    """A limit of an operator's own that bounds nothing stops the start."""
    with pytest.raises(ValueError, match="--" + name.replace("_", "-")):
        serve(**{name: 0})


def test_default_of_prompt_tokens(serve: Serve, client: FakeEngineClient) -> None:
    """A prompt that fills the context is never too long for the sum of all."""
    client.model_config.max_model_len = 2**21
    facts = serve().plugin._endpoints[0]._server.engine.facts
    assert facts.max_prompt_tokens == 2**21
