"""A JSON schema as Python has it, and how to go through its schemas: all of them, and no values."""

from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any] | bool


class SchemaError(ValueError):
    """A schema that no library is given; the message is for the caller."""


# Keywords whose value is a schema, a list of schemas, or an object of schemas (JSON Schema draft
# 2020-12 and the drafts before it).
_ONE = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_LIST = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_TABLE = frozenset(
    (
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    )
)


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object that stands where a schema stands, the schema itself first."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += children(node)


def children(node: dict[str, Any]) -> Iterator[Any]:
    """The schemas directly inside a schema."""
    for name, value in node.items():
        if isinstance(value, dict):
            if name in _TABLE:
                yield from value.values()
            elif name in _ONE:
                yield value
        elif name in _LIST and isinstance(value, list):
            yield from value


def rewrite(schema: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """A copy where every schema object was passed through `change`, the outer one first."""
    if not isinstance(schema, dict):
        return schema
    node = change(schema)
    if not isinstance(node, dict):
        return node
    return with_children(node, lambda inner: rewrite(inner, change))


def with_children(node: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy of a schema where those directly inside were passed through `change`."""
    node = dict(node)
    for name, value in node.items():
        if isinstance(value, dict):
            if name in _TABLE:
                node[name] = {key: change(item) for key, item in value.items()}
            elif name in _ONE:
                node[name] = change(value)
        elif name in _LIST and isinstance(value, list):
            node[name] = [change(item) for item in value]
    return node


def as_schema(value: Any) -> Schema:
    """A rewritten schema, for who knows that it still is one."""
    assert isinstance(value, dict | bool)
    return value
