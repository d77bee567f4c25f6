"""adapter/languages/json_schema/documents.py: references become paths, and mean what they did."""

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for

from adapter.languages.json_schema.documents import documents_in, with_local_references
from adapter.languages.json_schema.references import is_local
from adapter.languages.json_schema.schema import SchemaError, walk
from benchmarks.schema_sets import SUITE, read_set, suite_documents

DRAFT = "https://json-schema.org/draft/"
TREE = {
    "$schema": f"{DRAFT}2019-09/schema",
    "$id": "http://a.example/tree",
    "$recursiveAnchor": True,
    "type": "object",
    "properties": {"data": True, "children": {"type": "array", "items": {"$recursiveRef": "#"}}},
}


def check_plain(schema: Any) -> None:
    for node in walk(schema):
        assert "$dynamicRef" not in node
        assert "$recursiveRef" not in node
        assert "$ref" not in node or is_local(node["$ref"])


def test_the_suite() -> None:
    """The JSON Schema Test Suite's judgements stay; what documents it needs are in a folder."""
    changed, documents = 0, documents_in(suite_documents())
    for row in read_set(SUITE):
        found = with_local_references(row["schema"], documents)
        if found is row["schema"]:
            continue
        changed += 1
        check_plain(found)
        validator = jsonschema.Draft202012Validator(found)
        for test in row["tests"]:
            assert validator.is_valid(test["data"]) == test["valid"], (row["id"], test)
    assert changed > 50


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {
                **TREE,
                "$id": "http://a.example/strict",
                "$ref": "tree",
                "unevaluatedProperties": False,
                "$defs": {"tree": TREE},
            },
            [{"children": [{"data": 1}]}, {}],
            [{"children": [{"daat": 1}]}, {"daat": 1}, 3],
        ),
        (TREE, [{"children": [{"daat": 1}]}], [{"children": [3]}]),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$id": "http://a.example/root.json",
                "definitions": {"A": {"$id": "#foo", "type": "integer"}, "b": {"$id": "b.json"}},
                "allOf": [
                    {"$ref": "#foo"},
                    {"$ref": "b.json"},
                    {"$ref": "root.json#/definitions/A"},
                ],
            },
            [1],
            ["x", 1.5],
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "id": "http://a.example/",
                "properties": {"a": {"id": "inner/", "$ref": "#/definitions/n"}},
                "definitions": {"n": {"type": "null"}, "m": {"id": "inner/x", "type": "string"}},
                "items": {"$ref": "inner/x"},
            },
            [{"a": None}, ["x"]],
            [{"a": 1}, [1]],
        ),
        (
            {"$ref": f"{DRAFT}2020-12/schema"},
            [{"minLength": 1}, {"properties": {"a": {"type": "string"}}}, True],
            [{"minLength": -1}, {"properties": {"a": {"type": "strng"}}}, 1],
        ),
        (
            {
                "$dynamicRef": "#x",
                "$ref": "#y",
                "$defs": {
                    "a": {"$dynamicAnchor": "x", "minimum": 2},
                    "b": {"$anchor": "y", "maximum": 3},
                },
            },
            [2, 3, "x"],
            [1, 4],
        ),
    ],
    ids=["recursive", "not recursive", "draft 7", "draft 4", "metaschema", "two"],
)
def test_drafts(schema: Any, good: list[Any], bad: list[Any]) -> None:
    """References of all drafts, as the validator of that draft reads them."""
    found = with_local_references(schema)
    check_plain(found)
    cls = validator_for(schema, default=jsonschema.Draft202012Validator)
    for one in (schema, found):
        assert [value for value in good if not cls(one).is_valid(value)] == []
        assert [value for value in bad if cls(one).is_valid(value)] == []


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"$id": "http://a.example/", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}},
        {"$anchor": "a", "enum": [{"$ref": "http://a.example/", "$id": "b"}]},
        {
            "$schema": f"{DRAFT}2020-12/schema",
            "not": {"$id": "a", "$schema": f"{DRAFT}2019-09/schema"},
        },
    ],
    ids=json.dumps,
)
def test_what_is_left_as_it_is(schema: Any) -> None:
    """Schemas whose references are paths already, and those that mix drafts."""
    assert with_local_references(schema) is schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "b.json"}, r'\$ref "b.json" leads out of the schema'),
        ({"$ref": "#nowhere"}, r'\$ref "#nowhere" leads to nothing'),
        ({"$dynamicRef": "#/a/b"}, r'\$ref "#/a/b" leads to nothing'),
        ({"$ref": 3}, "must be a string"),
        ({"$dynamicRef": 3}, "cannot be read"),
        ({"$ref": "http://[", "$id": "x"}, "cannot be read"),
        ({"properties": {"a": {"$id": 3}, "b": {"$ref": "#c"}}}, "leads to nothing|cannot be read"),
        ({"$ref": "http://127.0.0.1:9/a.json"}, "nothing is fetched"),
    ],
)
def test_references_that_lead_nowhere(schema: Any, message: str) -> None:
    """They are refused in words, and nothing is fetched."""
    with pytest.raises(SchemaError, match=message):
        with_local_references(schema)


def test_documents_of_a_folder(tmp_path: Path) -> None:
    """A reference to https://host/path is to host/path there, and to nothing outside of it."""
    folder = tmp_path / "documents"
    (folder / "a.example" / "x").mkdir(parents=True)
    (folder / "a.example" / "x" / "b c.json").write_text('{"$ref": "d", "maximum": 5}')
    (folder / "a.example" / "x" / "d").write_text('{"type": "integer"}')
    (folder / "a.example" / "broken.json").write_text("{")
    (tmp_path / "secret").write_text("{}")
    documents = documents_in(folder)
    found = with_local_references({"$ref": "https://a.example/x/b%20c.json#"}, documents)
    check_plain(found)
    validator = jsonschema.Draft202012Validator(found)
    assert [value for value in (5, 6, 1.5) if validator.is_valid(value)] == [5]
    for outside in (
        "https://a.example/../../secret",
        "https://a.example/%2e%2e/%2e%2e/secret",
        "https://../secret",
        "file:///a.example/x/d",
        "ftp://a.example/x/d",
        "https://a.example/broken.json",
        "https://a.example/x",
        "https://a.example/none",
    ):
        with pytest.raises(SchemaError, match="leads out of the schema"):
            with_local_references({"$ref": outside}, documents)


def test_documents_are_read_as_they_are(tmp_path: Path) -> None:
    """Each counts as one schema however often it is referred to, and its numbers are exact."""
    folder = tmp_path / "a.example"
    folder.mkdir()
    for number in range(12):
        inner = {"$ref": f"d{number + 1}"}
        text = json.dumps({"properties": {"a": inner, "b": inner, "c": inner}})
        (folder / f"d{number}").write_text(text)
    last = folder / "d12"
    last.write_text('{"maximum": 0.10000000000000000001}')
    documents = documents_in(tmp_path)
    asked = {"$ref": "http://a.example/d0"}
    found = with_local_references(asked, documents)
    assert isinstance(found, dict)
    assert len(found["$defs"]) == 13
    assert {"maximum": Decimal("0.10000000000000000001")} in found["$defs"].values()
    last.write_text('{"maximum": 7}')
    os.utime(last, ns=(1, 1))
    changed = with_local_references(asked, documents)
    assert isinstance(changed, dict)
    assert {"maximum": 7} in changed["$defs"].values()


def test_copies_are_bounded() -> None:
    """Documents that extend one another in every order are refused, not copied for ever."""
    names = [f"d{number}" for number in range(9)]
    documents = {
        name: {
            "$id": name,
            "$dynamicAnchor": "a",
            "anyOf": [{"$dynamicRef": "#a"}, *({"$ref": other} for other in names)],
        }
        for name in names
    }
    with pytest.raises(SchemaError, match="more than 2000 references"):
        with_local_references({"$ref": "d0", "$defs": documents})
