"""adapter/guided/compile/validation.py: jsonschema's judgement, without fetching anything."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from adapter.guided.compile.validation import schema_fault, text_fault
from adapter.languages.json_schema.documents import documents_in

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("schema", "text", "part"),
    [
        (True, "1", None),
        ({}, "null", None),
        ({"type": "array", "uniqueItems": True}, "[1, 2]", None),
        ({"type": "array", "uniqueItems": True}, "[1, 1]", "non-unique"),
        ({"properties": {"a": {"minimum": 2}}}, '{"a": 1}', "at $.a: 1 is less"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}, "1", None),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}, "2", "1 was expected"),
        ({}, "", "Expecting value"),
        ({}, "{", "Expecting"),
        ({}, "1 2", "Extra data"),
        ({}, "[" * 100_000, "recursion"),
        ({"$ref": "#/$defs/none"}, "1", "none"),
        ({"$ref": "#"}, "1", "recursion"),
        ({"multipleOf": 0.01}, "5.02", None),
        ({"multipleOf": 0.1}, "1e400", None),
        ({"multipleOf": 0.1}, "1e99999", ""),
        ({"maximum": 9007199254740993}, "9007199254740993.0", None),
        ({"maximum": 9007199254740992}, "9007199254740992.5", "9007199254740992"),
        ({"type": "integer"}, "1.0", None),
        ({"type": "integer"}, "1e2", None),
        ({"type": "integer"}, "1.5", "integer"),
        ({"const": 1}, "1.0", None),
        ({"enum": [0.5]}, "5e-1", None),
        ({"uniqueItems": True}, "[0.5, 0.50]", "unique"),
    ],
)
def test_texts(schema: Any, text: str, part: str | None) -> None:
    """A text is right, or its fault is told in a short line."""
    fault = text_fault(json.dumps(schema), text)
    if part is None:
        assert fault is None
    else:
        assert fault is not None
        assert part in fault
        assert len(fault) < 400


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_what_json_has_not(text: str) -> None:
    """NaN and infinities, which Python's reader takes, are no JSON."""
    assert "is not JSON" in (text_fault("{}", text) or "")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$schema": DRAFT_4, "maximum": 3, "exclusiveMaximum": True}, False),
        ({"$schema": DRAFT_7, "items": [{"type": "string"}]}, False),
        ({"$schema": DRAFT_2020, "items": False}, False),
        ({"$schema": DRAFT_7, "prefixItems": [{"type": "string"}]}, True),
        ({"prefixItems": [{"type": "string"}]}, False),
        ({"$schema": "http://127.0.0.1:9/unknown", "prefixItems": [{"type": "string"}]}, False),
    ],
)
def test_drafts(schema: Any, expected: bool) -> None:
    """A schema is read by the draft that it names, else by the latest."""
    text = "3" if "maximum" in schema else "[1]"
    assert (text_fault(json.dumps(schema), text) is None) == expected


def test_documents_that_are_there(tmp_path: Path) -> None:
    """They are followed."""
    (tmp_path / "a.example").mkdir()
    (tmp_path / "a.example" / "b").write_text('{"minimum": 5, "multipleOf": 0.01}')
    documents = documents_in(tmp_path)
    schema = '{"$ref": "http://a.example/b"}'
    assert text_fault(schema, "5.02", documents) is None
    assert "minimum" in (text_fault(schema, "4", documents) or "")
    assert "multiple of 0.01" in (text_fault(schema, "5.023", documents) or "")


@pytest.mark.parametrize("way", ["$ref", "$dynamicRef", "$schema"])
def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A reference out of the schema is a fault, and nobody is asked for it."""
    asked: list[Any] = []

    def refuse(*arguments: Any, **_options: Any) -> Any:
        asked.append(arguments)
        raise OSError

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    fault = text_fault(json.dumps({way: "http://127.0.0.1:9/schema.json"}), "1")
    assert asked == []
    assert (fault is None) == (way == "$schema")


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ({"type": "integer"}, None),
        (False, None),
        ({"type": "no-such"}, "at $.type"),
        ({"properties": {"a": {"minimum": "1"}}}, "at $.properties.a.minimum"),
        ({"required": "a"}, "at $.required"),
        ({"$schema": DRAFT_4, "exclusiveMaximum": True, "maximum": 1}, None),
        ({"exclusiveMaximum": True}, "at $.exclusiveMaximum"),
        ({"enum": "x" * 5000}, "at $.enum"),
    ],
)
def test_schemas(schema: Any, part: str | None) -> None:
    """What makes it no schema is told with its place."""
    fault = schema_fault(schema)
    if part is None:
        assert fault is None
    else:
        assert fault is not None
        assert fault.startswith(part)
        assert len(fault) < 400
