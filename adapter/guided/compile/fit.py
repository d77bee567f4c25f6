"""Where a library is so much narrower than a schema that it and the guard would leave no text.

A text has to be allowed by both. So what a library would write otherwise than the guard is mended
in the schema that it is given, and what it cannot write at all is refused.
"""

import json
from typing import Any

from adapter.guided.constraint import OUTLINES
from adapter.languages.json_schema.schema import Schema, SchemaError, rewrite, walk

_TYPES: dict[str, Any] = {
    "array": list,
    "boolean": bool,
    "integer": int | float,
    "null": type(None),
    "number": int | float,
    "object": dict,
    "string": str,
}


def fit_for(backend: str, schema: Schema) -> Schema:
    """The schema as outlines or xgrammar is given it.

    Raises:
        SchemaError: naming the keyword that the library cannot follow.
    """
    for node in walk(schema):
        _check(node)
        if backend == OUTLINES:
            _check_for_outlines(node)
    fit: Schema = rewrite(schema, _mended)
    return fit


def check_names_are_counted(schema: Schema) -> None:
    """Refuse what llguidance cannot hold: it counts a name that comes twice as two.

    Raises:
        SchemaError: minProperties asks for names that the schema does not declare.
    """
    for node in walk(schema):
        needed = node.get("minProperties", 0)
        free = node.get("additionalProperties", True) is not False or node.get("patternProperties")
        if free and needed > len(set(node.get("required") or ())):
            raise SchemaError("minProperties above the number of required names")


def _check(node: dict[str, Any]) -> None:
    """Both close the objects that the schema leaves open, and so write declared names alone."""
    declared = node.get("properties") or {}
    for name in node.get("required") or ():
        if name not in declared and "additionalProperties" not in node:
            raise SchemaError(
                f"required names {json.dumps(name)}, which properties does not declare"
            )


def _check_for_outlines(node: dict[str, Any]) -> None:
    if len(node.get("allOf") or ()) > 1:
        raise SchemaError("allOf of several schemas")
    for name in node.get("properties") or ():
        if json.dumps(name, ensure_ascii=False) != f'"{name}"':
            raise SchemaError(f"properties has a name that JSON escapes: {json.dumps(name)}")


def _mended(node: dict[str, Any]) -> dict[str, Any]:
    node = dict(node)
    # The guard writes 2 where the schema says 2.0.
    if "const" in node:
        node["const"] = _plain(node["const"])
    if isinstance(node.get("enum"), list):
        node["enum"] = [_plain(value) for value in node["enum"]]
    if isinstance(node.get("properties"), dict):
        # The guard leaves out a property that no value satisfies; the library would begin it.
        required = node.get("required") or ()
        node["properties"] = {
            name: value
            for name, value in node["properties"].items()
            if name in required or not _impossible(value)
        }
    return node


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _impossible(schema: Any) -> bool:
    """Whether no value satisfies a schema: false, or an enum without a value of its type."""
    if not isinstance(schema, dict):
        return schema is False
    values, named = schema.get("enum"), schema.get("type")
    if not isinstance(values, list) or named is None:
        return False
    types = named if isinstance(named, list) else [named]
    return not any(
        isinstance(value, _TYPES.get(name, object)) for value in values for name in types
    )
