"""The golden cases whose answer does not depend on the model's words, on a real server."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.golden.files import Case, Json, all_cases
from tests.golden.player import SEEN_HEADERS, content_type
from tests.live.server import Server, sse_events, strict_json

pytestmark = pytest.mark.live

AT_ONCE = 16
EXCHANGES = [
    (case, streamed)
    for case in all_cases()
    if "live" in case.fields
    for streamed in ([False, True] if "streamed" in case.fields else [False])
]

Key = tuple[str, bool]


def key(case: Case, streamed: bool) -> Key:
    """What a reply is kept by."""
    return case.id, streamed


@pytest.fixture(scope="module")
def replies(server: Server) -> dict[Key, httpx.Response]:
    """The replies to all of them, asked several at once."""

    def ask(exchange: tuple[Case, bool]) -> httpx.Response:
        case, streamed = exchange
        given: Json = case.fields["request"].get("headers", {})
        headers = {"content-type": "application/json"} | given
        body = with_model(case.raw_body(streamed=streamed), server.model)
        return server.http.post("/v2/completions", content=body.encode(), headers=headers)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = threads.map(ask, EXCHANGES)
    return {key(*exchange): reply for exchange, reply in zip(EXCHANGES, asked, strict=True)}


def with_model(text: str, model: str) -> str:
    """A text with the served model's name in place of the cases'."""
    return text.replace('"tiny"', json.dumps(model))


@pytest.mark.parametrize(
    ("case", "streamed"),
    EXCHANGES,
    ids=[f"{case.id}{', streamed' if streamed else ''}" for case, streamed in EXCHANGES],
)
def test_live(replies: dict[Key, httpx.Response], case: Case, streamed: bool) -> None:
    """Status, headers and the form of the answer are the case's own; all of a refusal is."""
    got, expected = replies[key(case, streamed)], case.reply(streamed=streamed)
    assert got.status_code == expected["status"], got.text
    check_headers(got, expected)
    if "body" in expected:
        body = strict_json(got.text)
        if case.fields["live"] == "shape":
            check_body(body, expected["body"])
        else:
            check_error(body["error"], expected["body"]["error"], case.fields["live"])
        return
    *events, done = sse_events(got.read())
    assert done == "[DONE]"
    check_events([strict_json(event) for event in events], expected["events"][:-1])


def check_headers(got: httpx.Response, expected: Json) -> None:
    """The headers that the cases list have these values, or are not there."""
    listed = {name: got.headers[name] for name in SEEN_HEADERS if name in got.headers}
    own_id = expected.get("headers", {}).get("x-request-id")
    assert listed | ({"x-request-id": own_id} if own_id else {}) == expected.get("headers", {})
    assert own_id is None or got.headers["x-request-id"] == own_id
    kind = "events" if "events" in expected else "body"
    assert got.headers["content-type"] == content_type(kind)


def check_error(error: Json, expected: Json, live: str) -> None:
    """live: "exact", or "error" where the message tells of the model or the server."""
    told = expected["message"] if live == "exact" else error["message"]
    assert error == expected | {"message": told}
    assert list(error) == list(expected)
    assert error["message"]


def check_body(body: Json, expected: Json) -> None:
    """The same members in the same order, and the same choices; words and counts may differ."""
    assert list(body) == [*ENVELOPE, *expected]
    assert list(body["usage"]) == list(expected["usage"])
    check_usage(body["usage"], expected["usage"])
    assert len(body["choices"]) == len(expected["choices"])
    for choice, like in zip(body["choices"], expected["choices"], strict=True):
        assert choice["index"] == like["index"]
        check_choice(choice, like, says_nothing=not expected["usage"]["completion_tokens"])
        assert choice["finish_reason"] in ("stop", "length")


ENVELOPE = ("id", "object", "created", "model", "system_fingerprint")


def check_usage(usage: Json, expected: Json) -> None:
    """The counts add up, and are none where the case's are."""
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert bool(usage["completion_tokens"]) == bool(expected["completion_tokens"])
    assert usage["prompt_tokens"] > 0


def check_choice(choice: Json, like: Json, *, says_nothing: bool) -> None:
    """The same members; the same text and reason where the model says nothing."""
    assert list(choice) == list(like)
    assert (choice["logprobs"] is None) == (like["logprobs"] is None)
    if like["logprobs"] is not None:
        assert list(choice["logprobs"]) == list(like["logprobs"])
        assert len({len(values) for values in choice["logprobs"].values()}) == 1
    if says_nothing:
        assert choice["text"] == like["text"]
        assert choice["finish_reason"] == like["finish_reason"]


def check_events(events: Sequence[Json], expected: Sequence[Json]) -> None:
    """Chunks with the same members; each choice ends once; the totals where the case has them."""
    chunks, totals = parted(events)
    like, like_totals = parted(expected)
    assert {tuple(chunk) for chunk in chunks} == {(*ENVELOPE, *chunk) for chunk in like}
    assert all(chunk.get("usage") is None for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert sorted(ends(chunks)) == sorted(ends(like))
    for chunk in chunks:
        check_choice(chunk["choices"][0], like[0]["choices"][0], says_nothing=False)
    for usage, wanted in zip(totals, like_totals, strict=True):
        check_usage(usage, wanted)


def parted(events: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """The chunks of choices, and the usage of those without."""
    return (
        [event for event in events if event["choices"]],
        [event["usage"] for event in events if not event["choices"]],
    )


def ends(chunks: Sequence[Json]) -> Iterator[int]:
    """The choices that end, each as often as it ends."""
    for chunk in chunks:
        (choice,) = chunk["choices"]
        if choice["finish_reason"] is not None:
            yield choice["index"]
