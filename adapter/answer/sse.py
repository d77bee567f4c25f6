"""The wire: deltas to server-sent events, and the whole response to JSON.

Chunks are built as text around one escaped string: no model and no dict for each token.
"""

import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any

from adapter.answer.choice import Delta
from adapter.answer.deltas import Usage
from adapter.errors import ApiError

DONE = b"data: [DONE]\n\n"

# Tokens whose scores are written at once.
_PIECE = 4096

# JSON leaves these as they are, but many clients' line splitters take them for ends of lines.
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def json_string(text: str) -> str:
    """A JSON string, UTF-8, without any character that ends a line."""
    quoted: str = encode_basestring(text)
    if quoted.isascii():
        return quoted
    for char, escaped in _LINE_ENDS.items():
        if char in quoted:
            quoted = quoted.replace(char, escaped)
    return quoted


def json_bytes(value: Any) -> bytes:
    """Compact strict JSON: UTF-8, no NaN, no Infinity."""
    return _json_text(value).encode()


def _json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not text.isascii():
        for char, escaped in _LINE_ENDS.items():
            text = text.replace(char, escaped)
    return text


def _scores_text(logprobs: dict[str, Any] | None) -> str:
    """The logprobs object; written in pieces, since Python's lock is held for each."""
    if logprobs is None:
        return "null"
    return "{" + ",".join(f'"{name}":{_list_text(logprobs[name])}' for name in logprobs) + "}"


def _list_text(values: Sequence[Any]) -> str:
    starts = range(0, len(values), _PIECE)
    pieces = (_json_text(values[start : start + _PIECE])[1:-1] for start in starts)
    return "[" + ",".join(pieces) + "]"


class Envelope:
    """What all chunks of an answer, or the one response, have in common."""

    def __init__(
        self,
        *,
        answer_id: str,
        created: int,
        model: str,
        system_fingerprint: str | None,
        include_usage: bool = False,
        without_nulls: bool = False,
    ) -> None:
        """created: seconds since the epoch. include_usage: each chunk has a usage key.

        without_nulls: for a reader that cannot take the contract's nulls (LLM Engine's gateway): a
        chunk before the last says "stop", and a token without a log-probability has 0.
        """
        self.include_usage = include_usage
        self._without_nulls = without_nulls
        self._unfinished = '"stop"' if without_nulls else "null"
        self._fields = {
            "id": answer_id,
            "object": "text_completion",
            "created": created,
            "model": model,
            "system_fingerprint": system_fingerprint,
        }
        opening = json_bytes(self._fields).decode()[:-1]
        self._head = f'data: {opening},"choices":[{{"index":'
        self._tail = '}],"usage":null}\n\n' if include_usage else "}]}\n\n"

    def chunk(self, delta: Delta) -> str:
        """One event."""
        choice, text, logprobs, finish_reason = delta
        scores = _scores_text(self._logprobs(None if logprobs is None else logprobs.as_json()))
        reason = f'"{finish_reason}"' if finish_reason is not None else self._unfinished
        return (
            f'{self._head}{choice},"text":{json_string(text)},"logprobs":{scores},'
            f'"finish_reason":{reason}{self._tail}'
        )

    def chunks(self, deltas: Sequence[Delta]) -> bytes:
        """The events of one batch; a delta without any news makes none."""
        if len(deltas) == 1:  # each token of a request with one choice
            delta = deltas[0]
            return self.chunk(delta).encode() if _says_something(delta) else b""
        return "".join([self.chunk(delta) for delta in deltas if _says_something(delta)]).encode()

    def usage_chunk(self, usage: Usage) -> bytes:
        """The last event before [DONE] where usage was asked for."""
        return event({**self._fields, "choices": [], "usage": usage.as_json()})

    def response(self, choices: Iterable[dict[str, Any]], usage: Usage) -> list[bytes]:
        """The whole answer, in pieces: one would take long to put together where it is large."""
        pieces = [json_bytes(self._fields)[:-1] + b',"choices":[']
        for index, choice in enumerate(choices):
            pieces.append((("," if index else "") + self._choice(choice)).encode())
        return [*pieces, b'],"usage":' + json_bytes(usage.as_json()) + b"}"]

    def _choice(self, choice: dict[str, Any]) -> str:
        return (
            f'{{"index":{choice["index"]},"text":{json_string(choice["text"])},'
            f'"logprobs":{_scores_text(self._logprobs(choice["logprobs"]))},'
            f'"finish_reason":{_json_text(choice["finish_reason"])}}}'
        )

    def _logprobs(self, logprobs: dict[str, Any] | None) -> dict[str, Any] | None:
        if not self._without_nulls or logprobs is None:
            return logprobs
        return logprobs | {
            "token_logprobs": [value or 0.0 for value in logprobs["token_logprobs"]],
            "top_logprobs": [entries or {} for entries in logprobs["top_logprobs"]],
        }


def _says_something(delta: Delta) -> bool:
    return bool(delta.text or delta.finish_reason or delta.logprobs)


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json_bytes(value) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """What a stream that fails ends with, before [DONE]."""
    return event(error.body())
