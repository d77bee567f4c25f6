"""A reference leads to a place in the schema, or is refused."""

import pytest

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
