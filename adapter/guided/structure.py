"""A JSON schema as a library beside the guard is told it: types, names, items, unions, values.

It is told nothing of lengths, counts, patterns, formats and bounds, which the guard holds exactly:
told twice they cost the libraries seconds, and each reads some of them wrongly. Where a schema is
more than a library can follow it is told "any value", so that it is wider than the guard. In one
way it is narrower: objects that declare names, and say nothing of others, are closed, since that is
how the libraries read them.
"""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from adapter.languages.json_schema.references import is_local, resolve
from adapter.languages.json_schema.schema import SchemaError

_TYPES = ("object", "array", "string", "number", "boolean", "null")
_UNIONS = ("$ref", "allOf", "anyOf", "oneOf")
_BESIDE = ("additionalProperties", "items", "patternProperties", "properties", "required")
"""What says more about a value than a union beside it."""

ANY = {"anyOf": [{"type": name} for name in _TYPES]}

_MOST_DEFINITIONS = 500
_MOST_NAMES = 500
"""Declared in one object: xgrammar writes optional ones in all pairs."""
_MOST_TEXT = 100_000
"""Of an enum, in characters."""

_EXACT = 2**53  # what floats tell apart, which some libraries read integers as


def structure_of(schema: Any, *, plainly: bool = False) -> dict[str, Any]:
    """The schema for a library; each `$ref` leads to a definition of its own.

    plainly: for one that reads no enums but of strings, no items by place, and no names beside the
    declared ones.

    Raises:
        Exception: it is not a schema.
    """
    teller = _Teller(plainly)
    told = teller.told(schema)
    definitions: dict[str, Any] = {}
    while len(definitions) < len(teller.references):
        for reference, name in list(teller.references.items())[len(definitions) :]:
            definitions[name] = teller.told(_target(reference, schema))
    return {**told, "$defs": definitions} if definitions else told


class _Teller:
    def __init__(self, plainly: bool) -> None:
        self._plainly = plainly
        self.references: dict[str, str] = {}
        """The name of the definition of each reference."""

    def told(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict):
            return ANY
        if "enum" in schema or "const" in schema:
            return self._values(schema["enum"] if "enum" in schema else [schema["const"]])
        types = schema.get("type", _TYPES)
        unions = [name for name in _UNIONS if name in schema]
        if unions:
            # All of several, or names beside a union: a library would take one for the whole.
            if len(unions) == 1 and not any(name in schema for name in _BESIDE):
                if unions[0] == "$ref":
                    return self._reference(schema["$ref"])
                if unions[0] != "allOf" or len(schema["allOf"]) == 1:
                    return _any_of(self.told(branch) for branch in schema[unions[0]])
            schema = {}
        types = [types] if isinstance(types, str) else types
        return _any_of(self._of_type(name, schema) for name in types)

    def _reference(self, reference: str) -> dict[str, Any]:
        if not is_local(reference):
            return ANY
        if reference not in self.references and len(self.references) >= _MOST_DEFINITIONS:
            return ANY
        name = self.references.setdefault(reference, str(len(self.references)))
        return {"$ref": f"#/$defs/{name}"}

    def _values(self, values: list[Any]) -> dict[str, Any]:
        short = sum(len(str(value)) for value in values) <= _MOST_TEXT
        if not self._plainly and short and values and all(map(_is_exact, values)):
            return {"enum": [int(value) if _is_number(value) else value for value in values]}
        texts = [value for value in values if isinstance(value, str)]
        told: list[dict[str, Any]] = [
            {"type": name}
            for name, kinds in (("object", dict), ("array", list), ("boolean", bool))
            if any(isinstance(value, kinds) for value in values)
        ]
        if any(map(_is_number, values)):
            told.append({"type": "number"})
        if texts:
            plain = short and all(map(_is_plain, texts))
            told.append({"type": "string", **({"enum": texts} if plain else {})})
        return _any_of([*told, *([{"type": "null"}] if None in values else [])])

    def _of_type(self, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        if name == "object":
            return {"type": name, **self._members(schema)}
        if name == "array":
            return {"type": name, **self._items(schema)}
        return {"type": name}

    def _members(self, schema: dict[str, Any]) -> dict[str, Any]:
        names = schema.get("properties") or {}
        # A pattern may say something else of a name that is not declared.
        others = True if schema.get("patternProperties") else schema.get("additionalProperties")
        if not names:
            return {"additionalProperties": self.told(others)} if isinstance(others, dict) else {}
        required = list(schema.get("required", ()))
        declared = {**dict.fromkeys(required, others), **names}
        if len(declared) > _MOST_NAMES or not all(map(_is_plain, declared)):
            return {}
        told: dict[str, Any] = {
            "properties": {name: self.told(value) for name, value in declared.items()},
            "required": required,
        }
        if others not in (None, False) and not self._plainly:
            told["additionalProperties"] = self.told(others)
        return told

    def _items(self, schema: dict[str, Any]) -> dict[str, Any]:
        first, items = schema.get("prefixItems"), schema.get("items")
        if first is None:
            return {"items": self.told(items)} if isinstance(items, dict) and items else {}
        count = len(first)
        ends = items is False or schema.get("maxItems") == count
        if self._plainly or not ends or schema.get("minItems") != count:
            return {}  # the libraries ask for all of them, and for no more
        return {"prefixItems": [self.told(item) for item in first]}


def _target(reference: str, schema: Any) -> Any:
    try:
        return resolve(reference, schema)
    except SchemaError:
        return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_exact(value: Any) -> bool:
    """Whether all libraries write it as the guard does."""
    if _is_number(value):
        return bool(abs(value) < _EXACT and value == value // 1)
    return value is None or isinstance(value, bool) or (isinstance(value, str) and _is_plain(value))


def _any_of(schemas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    told = list(schemas)
    return told[0] if len(told) == 1 else {"anyOf": told}


def _is_plain(text: str) -> bool:
    """Whether all write it without escapes: some libraries compare what is written."""
    return json.dumps(text, ensure_ascii=False) == f'"{text}"' and "\x7f" not in text
