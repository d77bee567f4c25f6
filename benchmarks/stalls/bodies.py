"""Bodies that are as large, as deep or as many-sided as a body can be."""

import json
from collections.abc import Callable, Iterable
from typing import Any

MIB = 2**20
LARGEST = 16 * MIB - 4096
"""Just under what a body may have."""
VOCABULARY = 262_144
"""Tokens of the model that is asked."""

Make = Callable[[], bytes]


def _body(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny", "prompt": "hi", "max_tokens": 4} | fields).encode()


def _raw(field: str, value: bytes) -> bytes:
    """A body in which one field is what is written."""
    return (
        b'{"model":"tiny","max_tokens":4,'
        + _prompt(field)
        + b'"%s":%s}'
        % (
            field.encode(),
            value,
        )
    )


def _prompt(field: str) -> bytes:
    return b"" if field == "prompt" else b'"prompt":"hi",'


def _full(item: bytes) -> bytes:
    """A list as long as a body can hold."""
    return b"[" + b",".join([item] * (LARGEST // (len(item) + 1))) + b"]"


def _members(count: int) -> bytes:
    return b",".join(b'"u%d":0' % number for number in range(count))


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _doubling(levels: int) -> dict[str, Any]:
    """A schema of a few hundred bytes that is exponentially large when references are put in."""
    definitions: dict[str, Any] = {
        f"d{level}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/d{level + 1}"} for key in "ab"},
        }
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{levels}": {"type": "string"}}}


def _enum(size: int) -> dict[str, Any]:
    return {"enum": [f"value {number}" for number in range(size // 16)]}


BODIES: dict[str, Make] = {
    "nothing special": _body,
    "prompt: 1.5 million token ids": lambda: _raw("prompt", _joined([b"200"] * 1_500_000)),
    "prompt: 16 MiB of token ids": lambda: _raw("prompt", _full(b"7")),
    "prompt: 2000 lists of 500 token ids": lambda: _raw(
        "prompt", _joined([_joined([b"200"] * 500)] * 2000)
    ),
    "prompt: 16 MiB of lists of one id": lambda: _raw("prompt", _full(b"[7]")),
    "prompt: 16 MiB of empty texts": lambda: _raw("prompt", _full(b'""')),
    "prompt: 2048 texts": lambda: _body(prompt=["hi"] * 2048),
    "prompt: 1 million token ids": lambda: _raw("prompt", _joined([b"200"] * 1_000_000)),
    "prompt: a text of 16 MiB": lambda: _raw("prompt", b'"' + b"abc, " * (LARGEST // 5) + b'"'),
    "prompt: 16 MiB of escapes": lambda: _raw("prompt", b'"' + b"\\u0041" * (LARGEST // 6) + b'"'),
    "prompt: 16 MiB of integers of 4000 digits": lambda: _raw("prompt", _full(b"9" * 4000)),
    "prompt: an integer of 16 MiB": lambda: _raw("prompt", b"[" + b"9" * LARGEST + b"]"),
    "prompt: token ids, the last one wrong": lambda: _raw("prompt", _full(b"7")[:-4] + b',"x"]'),
    "unknown: 16 MiB of numbers": lambda: _raw("unknown", _full(b"1.5")),
    "unknown: 16 MiB of lists": lambda: _raw("unknown", _full(b"[]")),
    "unknown: 16 MiB of objects": lambda: _raw("unknown", _full(b'{"a":{}}')),
    "unknown: 1 million fields": lambda: _raw("u", b"0," + _members(1_000_000)),
    "nested 100 000 deep": lambda: _raw("unknown", b"[" * 100_000 + b"]" * 100_000),
    "nested 8 million deep": lambda: _raw("unknown", b"[" * (LARGEST // 2) + b"]" * (LARGEST // 2)),
    "not closed: 16 MiB of objects": lambda: _raw("unknown", _full(b"{}"))[:-2],
    "a lone surrogate behind 16 MiB of lists": lambda: _raw(
        "unknown", _full(b"[]")[:-12] + b',"\\ud800"]'
    ),
    "a lone surrogate behind 16 MiB of text": lambda: _raw(
        "user", b'"' + b"abc, " * (LARGEST // 5 - 2) + b'\\ud800"'
    ),
    "NaN behind 16 MiB of numbers": lambda: _raw("unknown", _full(b"1.5")[:-5] + b",NaN]"),
    "no UTF-8 behind 16 MiB of text": lambda: _raw(
        "user", b'"' + b"abc, " * (LARGEST // 5 - 1) + b'\xff"'
    ),
    "16 MiB that are gzip": lambda: b"\x1f\x8b" + b"\x08\x00[{" * (LARGEST // 4),
    "logit_bias of the whole vocabulary": lambda: _body(
        logit_bias={str(token): 1 for token in range(VOCABULARY)}
    ),
    "logit_bias of the vocabulary, the last value wrong": lambda: _body(
        logit_bias={str(token): 1 + (token == VOCABULARY - 1) * 100 for token in range(VOCABULARY)}
    ),
    "logit_bias: 1 million keys": lambda: _body(
        logit_bias={str(token): 1 for token in range(1_000_000)}
    ),
    "stop: 10 000 strings": lambda: _body(stop=["x" * 100] * 10_000),
    "stop: 4 strings of 4 MiB": lambda: _body(stop=["x" * (4 * MIB - 4096)] * 4),
    "stop_token_ids: 3 million": lambda: _raw("stop_token_ids", _joined([b"200"] * 3_000_000)),
    "guided_choice: 100 000": lambda: _body(
        guided_choice=[f"c{number}" for number in range(100_000)]
    ),
    "guided_choice: 16 MiB": lambda: _raw("guided_choice", _full(b'"ab"')),
    "guided_choice: 1 MiB in one": lambda: _body(guided_choice=["x" * (MIB - 10), "y"]),
    "guided_json: an enum of 1 MiB": lambda: _body(guided_json=_enum(MIB)),
    "guided_json: an enum of 16 MiB": lambda: _body(guided_json=_enum(15 * MIB)),
    "guided_json: numbers as written, 1 MiB": lambda: _raw(
        "guided_json", b'{"enum":' + _joined([b"0.12345678901234567"] * 50_000) + b"}"
    ),
    "guided_json: 1 MiB of lists": lambda: _raw(
        "guided_json", b'{"enum":' + _joined([b"[]"] * (MIB // 4 - 100)) + b"}"
    ),
    "guided_json: doubling $refs": lambda: _body(guided_json=_doubling(40)),
    "guided_json: 60 levels": lambda: _body(
        guided_json=json.loads('{"not":' * 60 + "{}" + "}" * 60)
    ),
    "response_format: an enum of 16 MiB": lambda: _body(
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": _enum(15 * MIB)},
        }
    ),
    "guided_regex: 1 MiB": lambda: _body(guided_regex="(a|b)" * (MIB // 5)),
    "guided_regex: 16 MiB": lambda: _body(guided_regex="(a|b)" * (LARGEST // 6)),
    "guided_regex: 100 000 brackets": lambda: _body(guided_regex="(" * 100_000 + ")" * 100_000),
    "guided_grammar: 1 MiB": lambda: _body(
        guided_grammar="\n".join(
            ["root ::= r0", *(f'r{n} ::= "a" r{n + 1}' for n in range(40_000))]
        )
    ),
    "an answer of 128 texts of 2000 tokens with scores": lambda: _body(
        n=128, max_tokens=2000, logprobs=5
    ),
    "the same as a stream": lambda: _body(n=128, max_tokens=2000, logprobs=5, stream=True),
    "128 equal texts of 2000 tokens with scores": lambda: _body(
        n=128, max_tokens=2000, logprobs=5, temperature=0
    ),
    "scores of a prompt of 100 000 tokens": lambda: _body(
        prompt="abc, " * 20_000, max_tokens=0, echo=True, logprobs=5
    ),
    "scores of 2000 prompts of 500 tokens": lambda: (
        _raw("prompt", _joined([_joined([b"105"] * 500)] * 2000))[:-1]
        + b',"echo":true,"logprobs":5}'
    ),
    "user and model of 8 MiB": lambda: _body(user="x" * (7 * MIB), model="y" * (7 * MIB)),
}
