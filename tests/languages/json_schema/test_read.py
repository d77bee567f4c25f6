"""adapter/languages/json_schema.py: what is refused of a schema, and what no text could finish."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.guided.backends.registry import Libraries
from adapter.guided.program import Part, Program
from adapter.languages.json_schema.read import MAX_DEPTH, read_schema, without_formats
from adapter.languages.json_schema.schema import Schema, SchemaError, rewrite, walk
from tests.guided.texts import written


def read(schema: Any) -> Schema:
    return read_schema(json.dumps(schema))


def fault(schema: Any) -> str:
    """Why a schema is refused."""
    with pytest.raises(SchemaError) as caught:
        read(schema)
    return str(caught.value)


def holder(name: str, schema: Any) -> Any:
    """An object with one required property, described under $defs by that name."""
    return {"type": "object", "properties": {name: schema}, "required": [name]}


# --- what is no schema --------------------------------------------------------------------------


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


# --- positions ----------------------------------------------------------------------------------

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


# --- references ---------------------------------------------------------------------------------

LOST = [
    "#/$defs/none",
    "#/nowhere",
    "#/$defs/list/7",
    "#/$defs/list/a",
    "#/$defs/a/type/0/0",
    "#/$defs/~0",
    "#/$defs/list/-1",
]


@pytest.mark.parametrize("reference", LOST)
def test_reference_to_nothing(reference: str) -> None:
    """A reference that leads nowhere is refused with its name."""
    message = fault({"$ref": reference, "$defs": {"a": {"type": "null"}, "list": [{}]}})
    assert reference in message
    assert "leads to nothing" in message


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:9/a", "other.json", "other.json#/a", "/a", "file:///etc/hosts"]
)
def test_reference_out_of_the_schema(reference: str) -> None:
    """Nothing is ever fetched: what is referred to must be in the schema."""
    message = fault({"items": {"$ref": reference}})
    assert reference in message
    assert "$defs" in message


def test_reference_is_a_string() -> None:
    """A $ref that is no string is refused."""
    assert fault({"$ref": 1}) == "$ref must be a string."


@pytest.mark.parametrize(
    ("name", "reference"),
    [("a", "#/$defs/a"), ("a b", "#/$defs/a%20b"), ("a/b", "#/$defs/a~1b"), ("~", "#/$defs/~0")],
)
def test_references_that_lead_somewhere(name: str, reference: str) -> None:
    """A JSON pointer with its escapes, in a URI with its own, is followed."""
    schema = {"$ref": reference, "$defs": {name: {"type": "integer"}}}
    assert read(schema) == schema


# --- what can be finished -----------------------------------------------------------------------

TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
    "required": ["value"],
}
FINITE: dict[str, Any] = {
    "tree": TREE,
    "union": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    "list": {"type": "array", "items": {"$ref": "#"}},
    "nullable": {**holder("a", {"$ref": "#"}), "type": ["object", "null"]},
    "enum": {"$ref": "#/$defs/a", "$defs": {"a": {"enum": [1], "allOf": [{"type": "integer"}]}}},
    "mutual": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"anyOf": [holder("b", {"$ref": "#/$defs/b"}), {"type": "null"}]},
            "b": holder("a", {"$ref": "#/$defs/a"}),
        },
    },
}


@pytest.mark.parametrize("name", FINITE)
def test_recursion_that_can_end_is_kept(name: str) -> None:
    """A schema that refers to itself is as good as any other where a text can be finished."""
    assert read(FINITE[name]) == FINITE[name]


ENDLESS: dict[str, Any] = {
    "itself": {"$ref": "#"},
    "each other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "allOf": {"allOf": [{"type": "object"}, {"$ref": "#"}]},
    "anyOf": {"anyOf": [{"$ref": "#"}, holder("a", {"$ref": "#"})]},
    "oneOf": {"oneOf": [{"$ref": "#"}]},
    "required": holder("a", {"$ref": "#"}),
    "in turns": {
        "$ref": "#/$defs/a",
        "$defs": {"a": holder("b", {"$ref": "#/$defs/b"}), "b": holder("a", {"$ref": "#/$defs/a"})},
    },
    "items": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "prefix": {"type": "array", "prefixItems": [{}, {"$ref": "#"}], "minItems": 2},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_recursion_is_refused(name: str) -> None:
    """A schema that no finite text satisfies is refused, and says so."""
    assert "no finite JSON text" in fault(ENDLESS[name])


_NEEDS_A = {"type": "object", "required": ["a"]}
UNSEEN: dict[str, Any] = {
    "additionalProperties": {**_NEEDS_A, "additionalProperties": {"$ref": "#"}},
    "patternProperties": {**_NEEDS_A, "patternProperties": {"a": {"$ref": "#"}}},
    "minProperties": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"$ref": "#"},
    },
    "tuple": {"type": "array", "items": [{"$ref": "#"}], "minItems": 1},
    "any place": {
        "$ref": "#/x/a",
        "x": {"a": holder("b", {"$ref": "#/x/b"}), "b": holder("a", {"$ref": "#/x/a"})},
    },
    "$id": {"$id": "http://a/b", **holder("a", {"$ref": "http://a/b"})},
}


@pytest.mark.parametrize("name", UNSEEN)
def test_endless_recursion_elsewhere_is_refused(name: str) -> None:
    """It does not matter by which keyword an endless recursion goes on."""
    assert "no finite JSON text" in fault(UNSEEN[name])


def test_endless_optional_property_is_left_out() -> None:
    """What is optional and could never be finished may not be begun; the rest stays."""
    definitions = {"endless": holder("a", {"$ref": "#/$defs/endless"})}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/endless"}, "b": {"type": "integer"}},
        "additionalProperties": False,
        "$defs": definitions,
    }
    read_back = read(schema)
    assert isinstance(read_back, dict)
    assert read_back["properties"] == {"a": False, "b": {"type": "integer"}}
    assert read({"type": "array", "items": {"$ref": "#/$defs/endless"}, "$defs": definitions}) == {
        "type": "array",
        "items": False,
        "$defs": {"endless": holder("a", False)},
    }


LEAVES = st.sampled_from(
    [
        {"type": "integer"},
        {"enum": ["a", "b"]},
        {"$ref": "#"},
        *({"$ref": f"#/$defs/{name}"} for name in "abab"),
    ]
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from("pq"), inner, max_size=2)
    return st.one_of(
        st.builds(
            lambda known, needed: {
                "type": "object",
                "properties": known,
                "required": sorted(known)[:needed],
                "additionalProperties": False,
            },
            properties,
            st.integers(0, 2),
        ),
        st.builds(
            lambda items, low: {"type": "array", "items": items, "minItems": low, "maxItems": 2},
            inner,
            st.integers(0, 1),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=2)),
    )


SCHEMAS = st.builds(
    lambda root, a, b: {**root, "$defs": {"a": a, "b": b}},
    *(st.recursive(LEAVES, _larger, max_leaves=4) for _ in range(3)),
)


@settings(deadline=None, max_examples=40)
@given(schema=SCHEMAS, seed=st.integers(0, 99))
def test_what_is_kept_can_be_finished(libraries: Libraries, schema: Any, seed: int) -> None:
    """Whatever a text of a schema that was read begins with, llguidance can bring it to an end."""
    try:
        part = Part("guidance", "json", json.dumps(read(schema)))
        maker = libraries.compile(part)
    except ValueError:  # ours, or llguidance's own for a cycle with other keys beside it
        return
    guides = (libraries.guide(Program((part,)), [maker]) for _ in range(8))
    # Tokens that close are taken more often than others; written() fails where a text is stuck.
    assert any(written(guide, Random(seed + n), b'}]",0') for n, guide in enumerate(guides))


# --- formats ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("value", "refused"),
    [("\x01", True), ("\x1f", True), ("a\n\t\b", False), ("\\u0001", False), ("\x7f", False)],
)
def test_control_characters_without_a_short_form(value: str, refused: bool) -> None:
    """Each character has one spelling, and these would have none."""
    text = json.dumps({"enum": [value]})
    if refused:
        with pytest.raises(SchemaError, match="control character"):
            read_schema(text)
    else:
        assert read_schema(text) == {"enum": [value]}
