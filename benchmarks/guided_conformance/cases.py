"""The schemas that are judged, and their instances as text, in several orders of their keys."""

import json
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adapter.languages.json_schema.references import resolve
from adapter.languages.json_schema.schema import SchemaError
from benchmarks.schema_sets import BENCH, SUITE, read_set

SETS = {BENCH: "real", SUITE: "suite"}
"""The sets, and what they are called in the figures."""


class Case(NamedTuple):
    """A schema and what is known of it."""

    set: str
    id: str
    schema: Any
    tests: list[dict[str, Any]]
    """Each with data, valid, and format where a `format` alone makes it invalid."""
    keyword: str
    remote: bool = False
    """It needs documents from a server, or the test suite says so."""


class Task(NamedTuple):
    """What a worker does at once."""

    case: Case
    backend: str
    seed: int


def read_cases(name: str, folder: Path | None, limit: int | None) -> list[Case]:
    """So many cases of a set; folder: of NAME.jsonl, in place of the project's own."""
    return [
        Case(
            name,
            row["id"],
            row["schema"],
            row.get("tests", []),
            row.get("keyword", ""),
            "remote" in row,
        )
        for row in read_set(name, folder, limit)
    ]


def as_text(value: Any, *, compact: bool = False) -> str:
    """A value as JSON; escaped where it holds half of a surrogate pair, which no UTF-8 can."""
    separators = (",", ":") if compact else None
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=separators)
    return text


def orders(value: Any, schema: Any, seed: int) -> Iterator[Any]:
    """The value with its keys in several orders: as given, the schema's, reversed, and shuffled."""
    seen = set()
    shuffler = random.Random(seed)
    for ordered in (
        value,
        in_schema_order(value, schema),
        _reordered(value, lambda keys: keys[::-1]),
        _reordered(value, lambda keys: shuffler.sample(keys, len(keys))),
    ):
        text = as_text(ordered)
        if text not in seen:
            seen.add(text)
            yield ordered


def _reordered(value: Any, order: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(value[key], order) for key in order(list(value))}
    if isinstance(value, list):
        return [_reordered(item, order) for item in value]
    return value


def in_schema_order(value: Any, schema: Any) -> Any:
    """The value with the keys of its objects as the schema names them, unknown ones last."""
    return _ordered(value, [schema], schema)


def _ordered(value: Any, schemas: Sequence[Any], root: Any) -> Any:
    if not isinstance(value, dict | list):
        return value
    nodes = _all_of_them(schemas, root)
    if isinstance(value, list):
        return [_ordered(item, _of_item(nodes, i), root) for i, item in enumerate(value)]
    ranks: dict[str, int] = {}
    for name in ("properties", "required"):
        for node in nodes:
            for key in node.get(name) or ():
                ranks.setdefault(key, len(ranks))
    keys = sorted(value, key=lambda key: ranks.get(key, len(ranks)))
    return {key: _ordered(value[key], _of_key(nodes, key), root) for key in keys}


def _all_of_them(schemas: Sequence[Any], root: Any) -> list[dict[str, Any]]:
    """The schema objects that may speak of one value: these, and what they are put together of."""
    found: dict[int, dict[str, Any]] = {}
    waiting = deque(schemas)
    while waiting:
        node = waiting.popleft()
        if not isinstance(node, dict) or id(node) in found:
            continue
        found[id(node)] = node
        for name in ("allOf", "anyOf", "oneOf"):
            waiting += node.get(name) or ()
        waiting += [node.get(name) for name in ("if", "then", "else")]
        reference = node.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            try:
                waiting.append(resolve(reference, root))
            except SchemaError:
                continue
    return list(found.values())


def _of_key(nodes: Iterable[dict[str, Any]], key: str) -> list[Any]:
    found = []
    for node in nodes:
        properties = node.get("properties")
        if isinstance(properties, dict) and key in properties:
            found.append(properties[key])
        elif isinstance(node.get("patternProperties"), dict):
            found += node["patternProperties"].values()
        found.append(node.get("additionalProperties"))
    return found


def _of_item(nodes: Iterable[dict[str, Any]], index: int) -> list[Any]:
    found = []
    for node in nodes:
        items = node.get("items")
        for listed in (node.get("prefixItems"), items):
            if isinstance(listed, list) and index < len(listed):
                found.append(listed[index])
        found.append(items)
    return found
