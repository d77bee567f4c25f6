"""Reads a caller's JSON schema: what is wrong with it, and what no text could satisfy.

Only what holds for every library: malformed references, endless recursion, keys that would switch
a library's checks off. What one library cannot do is its own to say.
"""

from collections.abc import Callable, Iterable
from typing import Any

from adapter.languages import exact_json
from adapter.languages.json_schema.documents import METASCHEMAS, Documents, with_local_references
from adapter.languages.json_schema.finite import finite
from adapter.languages.json_schema.references import check_reference
from adapter.languages.json_schema.schema import Schema, SchemaError, as_schema, rewrite, walk

MAX_DEPTH = 64
"""Levels of nesting; deeper ones overflow the libraries' stacks."""

# llguidance's own options inside a schema: with them a caller, or whoever wrote the schema, could
# switch its checks off.
_OPTIONS = "x-guidance"


def read_schema(text: str, documents: Documents = METASCHEMAS) -> Schema:
    """The schema, checked, with what can never be finished taken out.

    documents: what it may refer to beside itself.

    Raises:
        SchemaError: it is not a schema, or no finite text satisfies it.
    """
    given = exact_json.loads(text)
    given = _checked(given)
    schema = as_schema(rewrite(with_local_references(given, documents), _plain))
    nodes = list(walk(schema))
    based = any("$id" in node or "id" in node for node in nodes if node is not schema)
    for node in nodes:
        _check_node(node, schema, based)
    return schema if based else finite(schema, nodes)


def _checked(schema: Any) -> Schema:
    """What is a schema by its form."""
    if not isinstance(schema, dict | bool):
        raise SchemaError("the schema must be an object.")
    if isinstance(schema, dict) and not isinstance(schema.get("$schema"), str | None):
        raise SchemaError("$schema must be a string.")
    if _is_deep(schema):
        raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH} levels.")
    return schema


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in _inside(node)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_node(node: dict[str, Any], root: Schema, based: bool) -> None:
    if _OPTIONS in node:
        raise SchemaError(
            f'the key "{_OPTIONS}" is no part of JSON Schema and could switch checks off: '
            "remove it."
        )
    if "$ref" in node:
        check_reference(node["$ref"], root, based)


_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_NOTES = frozenset(
    (
        "$comment",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    )
)


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    """The same schema as the libraries read it best: counts as integers, a $ref without notes."""
    counts = {
        name: int(node[name])
        for name in _COUNTS
        if isinstance(node.get(name), float) and node[name].is_integer()
    }
    if "$ref" in node:
        node = {name: value for name, value in node.items() if name not in _NOTES}
    return node | counts


def without_formats(schema: Schema, known: Callable[[str], bool]) -> Schema:
    """Leave out the formats that a library does not know, as a validator would."""

    def change(node: dict[str, Any]) -> dict[str, Any]:
        name = node.get("format")
        if not isinstance(name, str) or known(name):
            return node
        return {key: value for key, value in node.items() if key != "format"}

    return as_schema(rewrite(schema, change))


_DRAFTS = frozenset(
    (
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    )
)


def without_unknown_draft(schema: Schema) -> Schema:
    """Leave out a `$schema` that names no draft, as validators do: a library would look for it."""
    if isinstance(schema, bool) or str(schema.get("$schema")).rstrip("#") in _DRAFTS:
        return schema
    return {name: value for name, value in schema.items() if name != "$schema"}
