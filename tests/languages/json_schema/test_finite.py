"""What no finite text satisfies is refused or left out, and the rest can be brought to an end."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.guided.backends.registry import Libraries, Maker
from adapter.guided.program import Part, Program
from tests.guided.texts import written
from tests.languages.conftest import COUNTED, Share
from tests.languages.json_schema.schemas import fault, holder, read

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


def _compiled(libraries: Libraries, schema: Any) -> tuple[Program, Maker] | None:
    """A schema for llguidance; None where we refuse it, or it a cycle with other keys beside it."""
    try:
        part = Part("guidance", "json", json.dumps(read(schema)))
        return Program((part,)), libraries.compile(part)
    except ValueError:
        return None


@settings(deadline=None, max_examples=40, suppress_health_check=COUNTED)
@given(schema=SCHEMAS, seed=st.integers(0, 99))
def test_what_is_kept_can_be_finished(
    share: Share, libraries: Libraries, schema: Any, seed: int
) -> None:
    """Whatever a text of a schema that was read begins with, llguidance can bring it to an end."""
    compiled = _compiled(libraries, schema)
    share.count(compiled)
    if compiled is None:
        return
    program, maker = compiled
    guides = (libraries.guide(program, [maker]) for _ in range(64))
    # Tokens that close are taken more often than others; written() fails where a text is stuck.
    assert any(written(guide, Random(seed + n), b'}]",0') for n, guide in enumerate(guides))
