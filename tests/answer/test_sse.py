"""adapter/answer/sse.py: the bytes that go over the wire."""

import json

import pytest

from adapter.answer.choice import Delta
from adapter.answer.deltas import Usage
from adapter.answer.logprobs import Logprobs
from adapter.answer.sse import DONE, Envelope, error_event, event, json_bytes, json_string
from adapter.contract.answer import CompletionV2Chunk, CompletionV2Error, CompletionV2Response
from adapter.errors import InvalidRequest, Unavailable

HEAD = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m",'
    b'"system_fingerprint":"f","choices":['
)


def envelope(*, include_usage: bool = False, model: str = "m") -> Envelope:
    return Envelope(
        answer_id="cmpl-1",
        created=1_700_000_000,
        model=model,
        system_fingerprint="f",
        include_usage=include_usage,
    )


def logprobs() -> Logprobs:
    return Logprobs(["a", "é"], [None, -0.5], [None, {"é": -0.5, '"': -1.0}], [0, 1])


GOLDEN = [
    pytest.param(
        Delta(0, "Hi", None, None),
        b'{"index":0,"text":"Hi","logprobs":null,"finish_reason":null}',
        id="text",
    ),
    pytest.param(
        Delta(5, "", None, "stop"),
        b'{"index":5,"text":"","logprobs":null,"finish_reason":"stop"}',
        id="end",
    ),
    pytest.param(
        Delta(0, 'a"b\\c\nd\te\x00\x7f', None, "length"),
        b'{"index":0,"text":"a\\"b\\\\c\\nd\\te\\u0000\x7f","logprobs":null,"finish_reason":"length"}',
        id="escapes",
    ),
    pytest.param(
        Delta(0, "é🐈\x85\u2028\u2029", None, None),
        '{"index":0,"text":"é🐈\\u0085\\u2028\\u2029","logprobs":null,"finish_reason":null}'.encode(),
        id="line ends",
    ),
    pytest.param(
        Delta(0, "aé", logprobs(), None),
        '{"index":0,"text":"aé","logprobs":{"text_offset":[0,1],"token_logprobs":[null,-0.5],'
        '"tokens":["a","é"],"top_logprobs":[null,{"é":-0.5,"\\"":-1.0}]},'
        '"finish_reason":null}'.encode(),
        id="logprobs",
    ),
]


@pytest.mark.parametrize(("delta", "choice"), GOLDEN)
def test_chunk_is_byte_for_byte(delta: Delta, choice: bytes) -> None:
    """A chunk is one event with one choice, and no usage key unless it was asked for."""
    assert envelope().chunks([delta]) == HEAD + choice + b"]}\n\n"


@pytest.mark.parametrize(("delta", "choice"), GOLDEN)
def test_chunk_with_usage_null(delta: Delta, choice: bytes) -> None:
    """Where usage was asked for, every chunk before the last has usage null."""
    made = envelope(include_usage=True).chunks([delta])
    assert made == HEAD + choice + b'],"usage":null}\n\n'


@pytest.mark.parametrize(("delta", "choice"), GOLDEN)
def test_chunk_is_valid(delta: Delta, choice: bytes) -> None:
    """What a chunk says is what the delta says, and it has the contract's shape."""
    data = envelope().chunks([delta]).removeprefix(b"data: ")
    chunk = CompletionV2Chunk.model_validate_json(data)
    assert chunk.choices[0].text == delta.text
    assert json.loads(choice)["finish_reason"] == chunk.choices[0].finish_reason


def test_usage_chunk() -> None:
    """The usage chunk has no choices, and the totals."""
    made = envelope(include_usage=True).usage_chunk(Usage(3, 4))
    assert made == HEAD + (
        b'],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\n'
    )


def test_deltas_without_news_make_no_chunk() -> None:
    """A delta without text, logprobs or finish reason is not sent."""
    made = envelope()
    assert made.chunks([Delta(0, "", None, None)]) == b""
    assert made.chunks([Delta(0, "", None, None), Delta(1, "a", None, None)]) == made.chunks(
        [Delta(1, "a", None, None)]
    )
    # The tokens of an unfinished character have no text yet, and scores all the same.
    assert made.chunks([Delta(0, "", Logprobs([""], [-1.0], [{"": -1.0}], [0]), None)])


def test_response_is_byte_for_byte() -> None:
    """A response has the chunks' envelope, all choices, and usage."""
    choices = [{"index": 0, "text": "\u2028é", "logprobs": None, "finish_reason": "stop"}]
    made = b"".join(envelope().response(choices, Usage(1, 2)))
    assert made == (
        HEAD.removeprefix(b"data: ")
        + '{"index":0,"text":"\\u2028é","logprobs":null,"finish_reason":"stop"}],'
        '"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'.encode()
    )
    CompletionV2Response.model_validate_json(made)


@pytest.mark.parametrize("model", ['a"b', "a\u2028b", "é", "a\nb"])
def test_model_name_is_escaped(model: str) -> None:
    """The model's name, which the caller chose, cannot break out of its string."""
    data = envelope(model=model).chunks([Delta(0, "x", None, None)])
    assert len(data.decode().splitlines()) == 2
    assert json.loads(data.removeprefix(b"data: "))["model"] == model


def test_error_event_is_byte_for_byte() -> None:
    """A stream that fails ends with an event that has an error's body."""
    made = error_event(Unavailable("The engine\nstopped."))
    assert made == (
        b'data: {"error":{"message":"The engine\\nstopped.","type":"server_error","param":null,'
        b'"code":"engine_unavailable"}}\n\n'
    )
    CompletionV2Error.model_validate_json(made.removeprefix(b"data: "))


def test_error_body_names_the_field() -> None:
    """An error's body has the four keys, param and code too."""
    body = InvalidRequest("n is wrong.", param="n").body()
    assert body == {
        "error": {
            "message": "n is wrong.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }


def test_done() -> None:
    """A stream's last line is the one that clients wait for."""
    assert DONE == b"data: [DONE]\n\n"


EVERY_LINE_END = "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b"


def test_no_character_ends_a_line() -> None:
    """Whatever a text holds, an event is one line for every client's line splitter."""
    assert len(event({"a": EVERY_LINE_END}).decode().splitlines()) == 2
    assert len(json_string(EVERY_LINE_END).splitlines()) == 1
    assert json.loads(json_string(EVERY_LINE_END)) == EVERY_LINE_END
    assert json.loads(json_bytes({EVERY_LINE_END: [EVERY_LINE_END]})) == {
        EVERY_LINE_END: [EVERY_LINE_END]
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_no_number_that_json_lacks(number: float) -> None:
    """NaN and Infinity raise before they reach a client."""
    with pytest.raises(ValueError, match="JSON compliant"):
        json_bytes([number])
