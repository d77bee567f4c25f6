"""What is refused of a schema, wherever it stands, and what is left out of one."""

import json
from typing import Any

import pytest

from adapter.languages.json_schema.read import MAX_DEPTH, read_schema, without_formats
from adapter.languages.json_schema.schema import rewrite, walk
from tests.languages.json_schema.schemas import fault, read


@pytest.mark.parametrize("schema", [[], 1, "a", None])
def test_schema_is_an_object(schema: Any) -> None:
    """What is neither an object nor a boolean is no schema."""
    assert "must be an object" in fault(schema)


@pytest.mark.parametrize("schema", [True, False, {}, {"type": "integer"}, {"x-note": {"$ref": 1}}])
def test_plain_schemas_are_kept(schema: Any) -> None:
    """A schema without references comes back as it was."""
    assert read(schema) == schema


def nested(levels: int) -> Any:
    """A schema of so many levels."""
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


def test_depth_is_bounded() -> None:
    """64 levels are read, one more is refused, and so is a depth that no recursion could read."""
    assert MAX_DEPTH == 64
    assert read(nested(64)) == nested(64)
    assert "deeper than 64" in fault(nested(65))
    assert "deeper than 64" in fault({"enum": [json.loads("[" * 900 + "]" * 900)]})


POSITIONS: dict[str, Any] = {
    "root": lambda inner: inner,
    "property": lambda inner: {"properties": {"a": inner}},
    "pattern": lambda inner: {"patternProperties": {"^a": inner}},
    "additional": lambda inner: {"additionalProperties": inner},
    "names": lambda inner: {"propertyNames": inner},
    "items": lambda inner: {"items": inner},
    "tuple": lambda inner: {"items": [{}, inner]},
    "prefix": lambda inner: {"prefixItems": [inner]},
    "contains": lambda inner: {"contains": inner},
    "anyOf": lambda inner: {"anyOf": [True, inner]},
    "oneOf": lambda inner: {"oneOf": [inner]},
    "allOf": lambda inner: {"allOf": [inner]},
    "not": lambda inner: {"not": inner},
    "if": lambda inner: {"if": inner, "then": True},
    "else": lambda inner: {"else": inner},
    "defs": lambda inner: {"$defs": {"a": inner}},
    "definitions": lambda inner: {"definitions": {"a": inner}},
    "dependent": lambda inner: {"dependentSchemas": {"a": inner}},
    "unevaluated": lambda inner: {"unevaluatedProperties": inner, "unevaluatedItems": True},
    "deep": lambda inner: {"items": {"anyOf": [{"properties": {"a": inner}}]}},
}


@pytest.mark.parametrize("position", POSITIONS)
def test_every_schema_is_looked_at(position: str) -> None:
    """Wherever a schema stands, a switch for llguidance or a wrong reference in it is refused."""
    place = POSITIONS[position]
    assert '"x-guidance"' in fault(place({"x-guidance": {"lenient": True}}))
    assert "leads to nothing" in fault(place({"$ref": "#/nowhere"}))
    assert "nothing is fetched" in fault(place({"$ref": "http://127.0.0.1:9/schema.json"}))
    marked = {"title": "here"}
    assert marked in list(walk(place(marked)))
    changed = rewrite(place(marked), lambda node: {} if node == marked else node)
    assert changed == place({})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x-guidance": {"type": "string"}, "$ref": {"type": "integer"}}},
        {"properties": {"$id": {}, "id": {}, "$defs": {}, "const": {"type": "null"}}},
        {"const": {"x-guidance": 1, "$ref": "#/nowhere"}},
        {"enum": [{"x-guidance": 1}, {"$ref": "http://127.0.0.1:9"}]},
        {"default": {"$ref": "#/nowhere"}, "examples": [{"x-guidance": 1}]},
        {"required": ["$ref"], "description": "$ref"},
    ],
    ids=["names", "more names", "const", "enum", "default", "required"],
)
def test_names_and_values_are_no_schemas(schema: Any) -> None:
    """A property may have any name, and a value is not read as a schema."""
    assert read(schema) == schema


def test_unknown_formats_are_left_out() -> None:
    """A format that a library does not know is no constraint; names and values stay."""
    schema = {
        "format": "no-such",
        "properties": {
            "format": {"type": "string", "format": "date"},
            "a": {"anyOf": [{"format": "no-such", "minLength": 1}]},
            "b": {"const": {"format": "no-such"}},
            "c": {"format": 7},
        },
    }
    assert without_formats(schema, lambda name: name == "date") == {
        "properties": {
            "format": {"type": "string", "format": "date"},
            "a": {"anyOf": [{"minLength": 1}]},
            "b": {"const": {"format": "no-such"}},
            "c": {"format": 7},
        },
    }
    assert without_formats(True, lambda _name: False) is True


@pytest.mark.parametrize("value", ["\0", "\x01", "\x1f", "a\n\t\b", "\\u0001", "\x7f"])
def test_control_characters(value: str) -> None:
    """They are characters of a schema's texts as any others."""
    assert read_schema(json.dumps({"enum": [value]})) == {"enum": [value]}
