"""What a library beside the guard is told: no less than the schema allows, and not too much."""

import json
import time
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from adapter.guided.backends.outlines_schema import affordable
from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import Compiled, ConstraintCompiler, Refused
from adapter.guided.constraint import BACKENDS, Constraint, Kind
from adapter.guided.structure import structure_of
from benchmarks.schema_sets import SUITE, read_set
from tests.guided.texts import ids, takes

NAMED = [name for name in BACKENDS if name != "auto"]
SUITE_ROWS = [row for row in read_set(SUITE) if "remote" not in row]


@pytest.mark.parametrize("plainly", [False, True])
def test_no_valid_value_is_forbidden(plainly: bool) -> None:
    """What the official suite calls valid is valid for what the libraries are told as well."""
    seen = 0
    for row in SUITE_ROWS:
        told = structure_of(row["schema"], plainly=plainly)
        values = [test["data"] for test in row["tests"] if test["valid"]]
        for value in values:
            jsonschema.Draft202012Validator(told).validate(value)
        seen += len(values)
    assert seen > 500


def test_closed_tuples_and_names_are_told() -> None:
    """Structure that is plain comes through, and what counts or measures does not."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 10_000, "pattern": "^a"},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer", "minimum": 5}, {"enum": ["a", 1, None]}],
                "minItems": 2,
                "maxItems": 2,
            },
            "next": {"$ref": "#"},
        },
        "required": ["name"],
        "additionalProperties": {"type": "number", "multipleOf": 7},
    }
    told = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"enum": ["a", 1, None]}],
            },
            "next": {"$ref": "#/$defs/0"},
        },
        "required": ["name"],
        "additionalProperties": {"type": "number"},
    }
    assert structure_of(schema) == {**told, "$defs": {"0": told}}


@pytest.mark.parametrize("plainly", [False, True])
def test_numbers_are_told_as_they_are_written(plainly: bool) -> None:
    """Whole ones as integers; of those that a float would change, that they are numbers."""
    assert structure_of({"enum": [1.0, 2]}) == {"enum": [1, 2]}
    for value in (Decimal("0.1000000000000000000001"), Decimal("1e400"), 2**60, 1e300):
        assert structure_of({"const": value}, plainly=plainly) == {"type": "number"}


# --- never slow -----------------------------------------------------------------------------------


def chain(length: int) -> dict[str, Any]:
    """Definitions that each lead to the next."""
    definitions: dict[str, Any] = {
        f"d{i}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/$defs/d{i + 1}"}, "v": {"type": "integer"}},
            "required": ["next"],
            "additionalProperties": False,
        }
        for i in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{length}": {"type": "null"}}}


OBJECT = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
LARGE: dict[str, Any] = {
    **{f"maxLength {n}": {"type": "string", "maxLength": n} for n in (500, 2_000, 65_536)},
    **{f"minLength {n}": {"type": "string", "minLength": n} for n in (2_000, 65_536)},
    **{f"maxItems {n}": {"type": "array", "items": OBJECT, "maxItems": n} for n in (50, 65_536)},
    **{f"chain of {n}": chain(n) for n in (200, 1_000)},
    "pattern": {"type": "string", "pattern": "^[a-z ]{0,10000}$"},
    "texts": {"enum": [f"city {i * 7919 % 10_007}" for i in range(5_000)]},
    "numbers": {"enum": [i * 7919 for i in range(5_000)]},
    "many texts": {"enum": [f"v{i}" for i in range(50_000)]},
    "long text": {"const": "x" * 100_000},
    "optional names": {"type": "object", "properties": {f"p{i}": OBJECT for i in range(200)}},
    "required names": {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(100)},
        "required": [f"p{i}" for i in range(100)],
    },
    "large integers": {"type": "integer", "minimum": -(2**63), "maximum": 10**30},
    "alternatives": {
        "anyOf": [
            {"type": "object", "properties": {"kind": {"const": f"k{i}"}, "v": OBJECT}}
            for i in range(60)
        ]
    },
}


def compiled(
    compiler: ConstraintCompiler, schema: Any, backend: str, kind: Kind = Kind.JSON
) -> Compiled:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return compiler.compile(Constraint("field", kind, text, backend), relaxed=True, seconds=5)


@pytest.mark.parametrize("backend", NAMED)
@pytest.mark.parametrize("name", LARGE)
def test_large_schemas_compile_soon(compiler: ConstraintCompiler, name: str, backend: str) -> None:
    """In well under the five seconds that a server allows, on any backend."""
    started = time.process_time()
    compiled(compiler, LARGE[name], backend)
    assert time.process_time() - started < 2.5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_long_chain_is_held_to_its_end(
    libraries: Libraries, compiler: ConstraintCompiler, backend: str
) -> None:
    """A thousand definitions deep the schema still says what comes."""
    program = compiled(compiler, chain(1_000), backend).program
    guide = libraries.guide(program, [*map(libraries.compile, program.parts)])
    right = '{"next":' * 1_000 + "null" + "}" * 1_000
    for token in ids(right[: -len("null") - 1_000]):
        assert guide.accept([token])
    assert not takes(guide, ids("1" + "}" * 1_000))
    assert takes(guide, ids("null" + "}" * 1_000))


def test_references_alone_are_followed_however_many(compiler: ConstraintCompiler) -> None:
    """Definitions that are nothing but a reference."""
    definitions: dict[str, Any] = {
        f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in reversed(range(2_000))
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {"d2000": {"type": "null"}, **definitions}}
    started = time.process_time()
    assert not compiled(compiler, schema, "auto").checked
    assert time.process_time() - started < 2.5


@pytest.mark.parametrize(
    "text",
    [".{0,2000}", "(?:[a-z]+ ){0,5000}"],
)
def test_what_would_surely_be_too_slow_is_refused_at_once(
    compiler: ConstraintCompiler, text: str
) -> None:
    """It says how long it would take, and what is quick."""
    started = time.process_time()
    with pytest.raises(Refused, match=r"^field: outlines would take .* guidance is quick"):
        compiled(compiler, text, "outlines", Kind.REGEX)
    assert time.process_time() - started < 2.5
    assert compiled(compiler, text, "auto", Kind.REGEX).backend == "guidance"


@pytest.mark.parametrize("backend", ["outlines", "lm-format-enforcer"])
def test_choices_are_told_by_their_beginnings(
    compiler: ConstraintCompiler, libraries: Libraries, backend: str
) -> None:
    """However many there are, each can be made and no other text, and the named one narrows."""
    texts = [f"{i * 7919 % 100_003:05d} {i}" for i in range(9_000)]
    program = compiled(compiler, json.dumps(texts), backend, Kind.CHOICE).program
    assert [part.library for part in program.parts] == ["guidance", backend]
    assert len(program.parts[1].text) < 0.1 * len(program.parts[0].text)
    makers = [libraries.compile(part) for part in program.parts]
    for text in texts[::1_000]:
        assert takes(libraries.guide(program, makers), ids(text), exact=False)
        assert not takes(libraries.guide(program, makers), ids(text + "0"), exact=False)


# --- outlines -------------------------------------------------------------------------------------


def test_what_outlines_can_afford_is_told_whole() -> None:
    """References stand as what they lead to, as often as they are used."""
    pair = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/0"}, "b": {"$ref": "#/$defs/0"}},
    }
    told = {**pair, "required": ["a"], "$defs": {"0": {"type": "array", "items": OBJECT_TOLD}}}
    array = {"type": "array", "items": OBJECT_TOLD}
    assert affordable(told) == {
        "type": "object",
        "properties": {"a": array, "b": array},
        "required": ["a"],
    }


OBJECT_TOLD = {**OBJECT, "required": ["a"]}

ANY_VALUES = [
    *("1", "-2.5e3", '"a"', "null", "[]", '[[1],{"b":2}]', "{}", '{"b":{"a":[]},"c":1}'),
]


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({}, ANY_VALUES),
        ({"type": "object", "properties": {"a": {}}}, [f'{{"a":{value}}}' for value in ANY_VALUES]),
        ({"type": "array"}, ["[]", '[1,"a",[{}]]']),
        ({**OBJECT, "additionalProperties": True}, ['{"c":1,"a":"","d":{}}', "{}"]),
        ({**OBJECT, "patternProperties": {"^c": {}}}, ['{"c":1,"a":""}']),
        (LARGE["optional names"], ['{"p1":{"a":"b"},"p7":{}}', "{}"]),
        (LARGE["alternatives"], ['{"kind":"k59","v":{"b":1,"a":""}}', "{}"]),
        (
            {
                "type": "array",
                "items": {"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "integer"}]},
                "$defs": chain(20)["$defs"],
            },
            ["[1,2]", "[" + '{"next":' * 20 + "null" + "}" * 20 + ",3]"],
        ),
    ],
)
def test_outlines_leaves_to_the_guard_what_it_cannot_follow(
    libraries: Libraries, compiler: ConstraintCompiler, schema: Any, texts: list[str]
) -> None:
    """Any value is one with inner ones too, and what costs too much is any: to the end of text."""
    program = compiled(compiler, schema, "outlines").program
    guide = libraries.guide(program, [*map(libraries.compile, program.parts)])
    for text in texts:
        assert takes(guide, ids(text)), text
