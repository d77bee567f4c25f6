"""What is asked of a server: streams, constraints, and constraints that nobody has seen before."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import Server
from benchmarks.schema_sets import BENCH, read_set
from benchmarks.schema_sets.real import real_schemas

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer", "auto")
RIVAL = "vllm_outlines"
PATHS = {RIVAL: "/v1/completions"} | dict.fromkeys(BACKENDS, "/v2/completions")

PROMPT = "Describe everything in the shop, one thing after the other."

# No text can finish them within MAX_TOKENS: 8 records of over 15 tokens each, and 81 words of a
# token or more. An array of 50 records takes outlines longer than a request may wait.
_RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "size": {"enum": ["small", "medium", "large"]},
        "sold": {"type": "boolean"},
    },
    "required": ["name", "count", "size", "sold"],
    "additionalProperties": False,
}
_RECORDS = {f"thing_{number}": _RECORD for number in range(8)}
WORKLOADS: dict[str, Any] = {
    "json": {
        "type": "object",
        "properties": _RECORDS,
        "required": list(_RECORDS),
        "additionalProperties": False,
    },
    "regex": "([a-z]+ ){80}[a-z]+",
}

COLD_REQUESTS = 40
LARGEST_SCHEMAS = 10


def guided(contender: str, kind: str, value: Any) -> dict[str, Any]:
    """The fields that hold a text to a constraint (kind: json or regex)."""
    if contender == RIVAL:
        return {"structured_outputs": {kind: value}}
    return {f"guided_{kind}": value, "guided_decoding_backend": contender}


def streamed(server: Server, max_tokens: int) -> dict[str, Any]:
    """The fields of a stream whose length is known; they mean the same on both routes."""
    return {
        "model": server.model,
        "prompt": PROMPT,
        "max_tokens": max_tokens,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def real_or_none(data: Path | None) -> list[dict[str, Any]] | None:
    """The schemas of the real set, or of DIR/bench.jsonl; None where they cannot be had."""
    try:
        rows = real_schemas() if data is None else read_set(BENCH, data)
    except BenchmarkError as error:
        print(f"made-up schemas, as there are no real ones: {error}", file=sys.stderr)
        return None
    return [row["schema"] for row in rows]


def base_schemas(known: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The schemas that the cold ones are made of, COLD_REQUESTS / 2 of them: the largest known
    ones, and others of all sizes; made-up ones where none are known."""
    count = COLD_REQUESTS // 2
    if known is None:
        return [_made_up(10 * number) for number in range(1, count + 1)]
    schemas = sorted(known, key=lambda schema: len(json.dumps(schema)), reverse=True)
    others = schemas[LARGEST_SCHEMAS:]
    step = len(others) // (count - LARGEST_SCHEMAS)
    mixed = zip(schemas[:LARGEST_SCHEMAS], others[::step], strict=False)
    return [schema for pair in mixed for schema in pair]


def _made_up(size: int) -> dict[str, Any]:
    names = [f"thing_{number}" for number in range(size)]
    return {"type": "object", "properties": dict.fromkeys(names, _RECORD), "required": names[:2]}


def never_seen(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A schema with one more property of a name that no other has, so that nobody has kept it."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema | {"$comment": name}
    return schema | {"properties": properties | {name: {"type": "boolean"}}}


def cold_requests(
    schemas: Sequence[dict[str, Any]], backends: Sequence[str], count: int, run: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """The fields of requests whose constraints are new in each run, and each one's backend."""
    labels = [backends[number % len(backends)] for number in range(count)]
    # The second time round, every schema meets the backend after the one that it met before.
    for number in range(len(schemas), count):
        labels[number] = backends[(number + number // len(schemas)) % len(backends)]
    fields = [
        guided(label, "json", never_seen(schemas[number % len(schemas)], f"{label} {run} {number}"))
        for number, label in enumerate(labels)
    ]
    return fields, labels
