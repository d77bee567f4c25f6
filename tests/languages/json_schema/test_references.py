"""A reference leads to a place in the schema, or is refused."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from adapter.languages.json_schema.references import resolve
from adapter.languages.json_schema.schema import SchemaError
from tests.languages.json_schema.schemas import fault, read

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


KEYS = ["a", "b", "a/b", "a~b", "~1", "a b", "%41", "%2F", "é", "", "0", "1"]
POINTERS = st.lists(
    st.sampled_from(["a", "b", "a~1b", "~01", "%61", "a%2Fb", "%7E1", "0", "1", ""])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.just({}),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=3), st.lists(inner, max_size=2)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(root=VALUES, tokens=POINTERS)
@example(root={"a": {"b": {}}, "a/b": []}, tokens=["a%2Fb"])
@example(root={"a/b": [{}]}, tokens=["a~1b", "0"])
@example(root={"~1": {}}, tokens=["~01"])
def test_references_lead_where_jsonschema_goes(root: Any, tokens: list[str]) -> None:
    """A reference stands for what jsonschema's own library finds, and otherwise for nothing."""
    reference = "#" + "".join(f"/{token}" for token in tokens)
    resource = DRAFT202012.create_resource(root)
    resolver = Registry().with_resource("", resource).resolver()
    try:
        expected = resolver.lookup(reference).contents
    except (Unresolvable, ValueError, TypeError):
        with pytest.raises(SchemaError, match="leads to nothing"):
            resolve(reference, root)
        return
    assert resolve(reference, root) is expected
