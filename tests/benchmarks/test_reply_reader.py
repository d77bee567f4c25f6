"""The client's reading of replies: events counted, usage found, failures noticed."""

import pytest

from benchmarks.running.load import ReplyReader, http_request
from benchmarks.running.process import BenchmarkError

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def token(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"text":"%b"}]}\n\n' % text.encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(*events: bytes) -> bytes:
    return HEAD + b"".join(map(chunk, events)) + b"0\r\n\r\n"


THREE_TOKENS = stream(token("a"), token("b") + token("data: {"), USAGE, DONE)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_a_stream_is_read_the_same_however_the_network_cuts_it(size: int) -> None:
    reader = ReplyReader()
    pieces = [THREE_TOKENS[start : start + size] for start in range(0, len(THREE_TOKENS), size)]
    complete = [reader.feed(piece, float(index)) for index, piece in enumerate(pieces)]
    assert complete == [False] * (len(pieces) - 1) + [True]
    reply = reader.reply()
    assert reply.tokens() == (5, 3)
    assert reply.events == 4  # three tokens, and the usage


def test_the_first_event_has_the_time_that_its_start_came() -> None:
    reader = ReplyReader()
    reader.feed(HEAD, 1.0)
    reader.feed(chunk(b": keep-alive\n\n"), 2.0)
    reader.feed(chunk(token("a")), 3.0)
    reader.feed(chunk(USAGE) + chunk(DONE) + b"0\r\n\r\n", 4.0)
    assert reader.reply().first_at == 3.0


def test_events_before_a_long_text_are_not_lost_with_it() -> None:
    reader = ReplyReader()
    assert reader.feed(stream(token("a"), token("x" * 50_000), USAGE, DONE), 1.0)
    assert reader.reply().events == 3


def test_a_body_with_a_length_is_read_to_its_end() -> None:
    body = b'{"choices":[],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    reader = ReplyReader()
    assert not reader.feed(head % len(body) + body[:10], 1.0)
    assert reader.feed(body[10:], 2.0)
    reply = reader.reply()
    assert (reply.tokens(), reply.events) == ((7, 2), 0)
    assert reply.first_at == 1.0


def test_an_http_error_is_told_with_its_body() -> None:
    reader = ReplyReader()
    assert reader.feed(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 13\r\n\r\nno such field", 1.0)
    with pytest.raises(BenchmarkError, match="answered 400: no such field"):
        reader.reply().tokens()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n{}", (200, "")),
        (b'HTTP/1.1 400 Bad Request\r\n\r\n{"error": {"code": "slow"}}', (400, "slow")),
        (b'HTTP/1.1 400 Bad Request\r\n\r\n{"error": {"code": 400, "param": 1}}', (400, "400")),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\noh", (500, "")),
        (b"", None),
        (b"HTTP/1.1", None),
        (HEAD, None),  # chunks that do not end
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\noh", None),
    ],
)
def test_a_reply_that_the_hang_up_ends_has_its_status_and_code(
    text: bytes, found: tuple[int, str] | None
) -> None:
    reader = ReplyReader()
    assert not reader.feed(text, 1.0)
    assert reader.hang_up() == (found is not None)
    if found is not None:
        assert (reader.reply().status, reader.reply().error_code) == found


def test_a_stream_without_done_is_no_answer() -> None:
    reader = ReplyReader()
    assert reader.feed(stream(token("a"), USAGE), 1.0)
    with pytest.raises(BenchmarkError, match=r"\[DONE\]"):
        reader.reply().tokens()


def test_a_stream_that_failed_has_no_usage() -> None:
    reader = ReplyReader()
    assert reader.feed(stream(token("a"), b'data: {"error":{"message":"dead"}}\n\n', DONE), 1.0)
    with pytest.raises(BenchmarkError, match=r"without usage.*dead"):
        reader.reply().tokens()


def test_a_request_has_its_length_and_body() -> None:
    request = http_request(80, "/v2/completions", {"n": 1})
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/completions HTTP/1.1\r\nhost: 127.0.0.1:80\r\n")
    assert b"content-length: 8" in head
    assert body == b'{"n": 1}'
