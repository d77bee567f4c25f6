"""A JSON schema in the keywords that lm-format-enforcer reads: types, names, items, unions, enums.

It is told nothing of lengths, counts, patterns and bounds, which the guard holds exactly, and "any
value" where it would stumble. Objects that declare names are closed: that is how it reads them.
"""

import json
from collections.abc import Iterable
from typing import Any

from adapter.languages.json_schema.references import is_local, resolve

_TYPES = ("object", "array", "string", "number", "boolean", "null")
_UNIONS = ("anyOf", "oneOf", "allOf")
_ANY = {"anyOf": [{"type": name} for name in _TYPES]}


def readable(schema: Any) -> dict[str, Any]:
    """The schema for the library; each `$ref` leads to a definition of its own.

    Raises:
        Exception: it is not a schema, or a `$ref` leads nowhere.
    """
    references: dict[str, str] = {}
    told = _told(schema, references)
    definitions: dict[str, Any] = {}
    while len(definitions) < len(references):
        for reference, name in list(references.items())[len(definitions) :]:
            definitions[name] = _told(resolve(reference, schema), references)
    return {**told, "$defs": definitions}


def _told(schema: Any, references: dict[str, str]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return _ANY
    if "$ref" in schema:
        return _reference(schema["$ref"], references)
    if "enum" in schema or "const" in schema:
        return _values(schema["enum"] if "enum" in schema else [schema["const"]])
    types = schema.get("type", _TYPES)
    unions = [name for name in _UNIONS if name in schema]
    if unions:
        # All of several, or names beside a union: the library would take one for the whole.
        alone = len(unions) == 1 and "properties" not in schema and "required" not in schema
        if alone and (unions[0] != "allOf" or len(schema["allOf"]) == 1):
            return _any_of(_told(branch, references) for branch in schema[unions[0]])
        schema = {}
    types = [types] if isinstance(types, str) else types
    return _any_of(_of_type(name, schema, references) for name in types)


def _reference(reference: str, references: dict[str, str]) -> dict[str, Any]:
    if not is_local(reference):
        return _ANY
    return {"$ref": f"#/$defs/{references.setdefault(reference, str(len(references)))}"}


def _values(values: list[Any]) -> dict[str, Any]:
    texts = [value for value in values if isinstance(value, str)]
    told: list[dict[str, Any]] = [
        {"type": name}
        for name, kinds in (("object", dict), ("array", list), ("boolean", bool))
        if any(isinstance(value, kinds) for value in values)
    ]
    if any(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        told.append({"type": "number"})
    if texts:
        told.append({"type": "string", **({"enum": texts} if all(map(_is_plain, texts)) else {})})
    return _any_of([*told, *([{"type": "null"}] if None in values else [])])


def _of_type(name: str, schema: dict[str, Any], references: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"type": name}
    items, others = schema.get("items"), schema.get("additionalProperties")
    if name == "array" and isinstance(items, dict) and items and "prefixItems" not in schema:
        told["items"] = _told(items, references)
    if name != "object":
        return told
    required = list(schema.get("required", ()))
    declared = {**dict.fromkeys(required, others), **schema.get("properties", {})}
    if schema.get("properties") and all(map(_is_plain, declared)):
        told["properties"] = {name: _told(value, references) for name, value in declared.items()}
        told["required"] = required
    elif isinstance(others, dict) and "properties" not in schema:
        told["additionalProperties"] = _told(others, references)
    return told


def _any_of(schemas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    told = list(schemas)
    return told[0] if len(told) == 1 else {"anyOf": told}


def _is_plain(text: str) -> bool:
    """Whether JSON writes it without escapes: the library compares what is written."""
    return json.dumps(text, ensure_ascii=False) == f'"{text}"'
