"""JSON schemas as grammars, held to jsonschema's judgement of instances."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import jsonschema
import pytest

from adapter.json_language.grammar.write import Held, TooLargeError, held
from adapter.languages.json_schema.read import read_schema
from adapter.languages.json_schema.schema import SchemaError
from benchmarks.schema_sets import SUITE, read_set
from tests.languages.byte_tokenizer import ByteTokenizer

llguidance = pytest.importorskip("llguidance")

TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteTokenizer()))


def reader(schema: Any) -> tuple[Held, Callable[[str], int]]:
    """A schema's grammar, and how many bytes of a text its masks allow: -1 for all and its end."""
    return reader_of(json.dumps(schema))


def reader_of(schema: str) -> tuple[Held, Callable[[str], int]]:
    """The same of a schema's text."""
    found = held(read_schema(schema))
    grammar = llguidance.LLMatcher.grammar_from_lark(found.lark)
    fresh = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    assert not fresh.is_error(), (fresh.get_error(), found.lark)

    def read(text: str) -> int:
        matcher = fresh.deep_copy()
        taken: int = matcher.try_consume_tokens(list(text.encode()))
        return -1 if taken == len(text.encode()) and matcher.is_accepting() else taken

    return found, read


# Each with what is allowed and what is not: the mask refuses that before the text may end.
KINDS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    (
        {
            "if": {"properties": {"c": {"const": "US"}}, "required": ["c"]},
            "then": {"properties": {"p": {"pattern": "^[0-9]{5}$"}}},
            "else": {"properties": {"p": {"pattern": "^[A-Z]{2}$"}}},
            "properties": {"c": {"enum": ["US", "NL"]}, "p": {"type": "string"}},
            "required": ["c", "p"],
            "additionalProperties": False,
            "type": "object",
        },
        [{"c": "US", "p": "12345"}, {"p": "12345", "c": "US"}, {"c": "NL", "p": "AB"}],
        [{"c": "US", "p": "AB"}, {"p": "AB", "c": "US"}, {"c": "NL"}],
    ),
    (
        {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}},
        [{}, {"b": 1, "a": 2}, 3],
        [{"c": 1}, {"a": "x"}],
    ),
    (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
        [{"a": 1}, {"b": 1, "c": 2}],
        [{"a": 1, "b": 2}, {}, {"c": 1}],
    ),
    (
        {"items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2, "type": "array"},
        [["a", "b"], ["c", "a", "b"]],
        [["a", "a"], ["a"], ["a", "b", "c", "a"]],
    ),
    (
        {"contains": {"type": "string"}, "minContains": 2, "maxContains": 3, "maxItems": 5},
        [["a", 1, "b"], ["a", "b", "c", 1, 2], 7],
        [["a"], ["a", "b", "c", "d"], [1, 2, 3, 4], ["a", "b", 1, 2, 3, 4]],
    ),
    (
        {
            "allOf": [
                {"properties": {"a": {"type": "integer"}}},
                {"properties": {"b": {"type": "integer"}}},
            ],
            "unevaluatedProperties": False,
            "type": "object",
        },
        [{"a": 1, "b": 2}, {"b": 1}],
        [{"c": 1}, {"a": "x"}],
    ),
    (
        {
            "anyOf": [True, {"properties": {"a": {"type": "integer"}}}],
            "unevaluatedProperties": False,
        },
        [{"a": 1}, {}],
        [{"b": 1}],
    ),
    (
        {
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "minProperties": 2,
            "maxProperties": 3,
            "type": "object",
        },
        [{"a": 1, "x": 1}, {"y": 1, "x": "1"}, {"c": 3, "b": 2, "a": 1}],
        [{"a": 1}, {"a": 1, "b": 2, "c": 3, "d": 4}],
    ),
    (
        {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"maxProperties": 2}}},
        [{"a": 1, "b": 2}, {"b": 1}, {}, {"c": 1, "d": 2, "e": 3}],
        [{"a": 1}, {"b": 1, "c": 2, "d": 3}],
    ),
    (
        {"not": {"properties": {"a": {"type": "integer"}}, "required": ["b"]}},
        [{}, {"a": 1}, {"a": "x", "b": 1}],
        [{"b": 1}, {"a": 1, "b": 1}, "x", 3],
    ),
    (
        {"type": "string", "pattern": "^[a-z]{2,4}$", "not": {"enum": ["admin", "root"]}},
        ["ab", "roo", "roots"[:3]],
        ["root", "a", "abcde"],
    ),
    (
        {"patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}, "type": "object"},
        [{"ab": 7, "a": 1, "b": "x"}, {"c": None}],
        [{"ab": 1}, {"a": "x"}, {"b": 3}],
    ),
    (
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": {
                    "properties": {"v": {"type": "integer"}, "l": {"$ref": "#/$defs/n"}},
                    "required": ["v"],
                    "additionalProperties": False,
                    "type": "object",
                }
            },
        },
        [{"v": 1}, {"l": {"v": 2, "l": {"v": 3}}, "v": 1}],
        [{"l": {"v": 1}}, {"v": 1, "l": {}}],
    ),
    (
        {"const": {"a": [1, {"b": None}], "c": 9007199254740993}},
        [{"c": 9007199254740993, "a": [1, {"b": None}]}],
        [{"a": [1, {"b": None}], "c": 9007199254740992}, {"a": [1, {}], "c": 9007199254740993}],
    ),
    (
        {"items": {"enum": [1.5, 2, "a", None]}, "uniqueItems": True, "type": "array"},
        [[1.5, 2], ["a", 1.5, None, 2]],
        [[1.5, 1.5], [2, 1.5, 2]],
    ),
    (
        {"type": "integer", "multipleOf": 0.5},
        [3, -2, 0],
        [1.5, 0.5],
    ),
    (
        {"prefixItems": [{"const": 1}, {"type": "string"}], "items": False, "minItems": 1},
        [[1], [1, "a"]],
        [[], [2], [1, "a", 2], [1, 2]],
    ),
    (
        {"type": "string", "pattern": r"^(?:(?!-)[a-z-]{1,63}(?<!-)\.)+[a-z]{2,6}$"},
        ["a.de", "a-b.c.org"],
        ["-a.de", "a-.de", "a..de", "de"],
    ),
    (
        {"type": "string", "pattern": r"\bcat\b"},
        ["cat", "a cat!"],
        ["cats", "concat", "cat_"],
    ),
    (
        {"type": "string", "not": {"pattern": r"\w"}},
        ["-", "", "!?"],
        ["a", "-é", "1"],
    ),
    (
        {
            "patternProperties": {"^(?:a|b(?=c)|c)+$": {"type": "integer"}},
            "additionalProperties": False,
            "type": "object",
        },
        [{"abc": 1, "c": 2}, {}],
        [{"ab": 1}, {"bc": "x"}, {"": 1}],
    ),
    (
        {"propertyNames": {"pattern": "^(?>a+)(?<!aaa)b?$"}, "type": "object"},
        [{"a": 1, "aab": 1}],
        [{"aaab": 1}, {"b": 1}],
    ),
    (
        {
            "patternProperties": {r"^\w$": {"type": "integer"}},
            "additionalProperties": {"const": "x"},
        },
        [{"a": 1, "-": "x"}],
        [{"é": "x"}, {"a": "x"}, {"-": 1}],
    ),
    (
        {
            "patternProperties": {r"^\w$": {"type": "integer"}},
            "unevaluatedProperties": {"const": 1},
        },
        [{"a": 1, "-": 1, "é": 1}],
        [{"é": "x"}, {"a": "x"}, {"-": 2}],
    ),
    (
        {
            # What a reference means inside of what it leads to is not what it means beside it.
            "oneOf": [
                {"$ref": "#/$defs/x", "maxLength": 1},
                {"if": {"$ref": "#/$defs/x"}, "then": {"type": "boolean"}},
            ],
            "$defs": {"x": {"dependentSchemas": {"b": {"$ref": "#/$defs/x"}}}},
        },
        ["a", 3],
        [True, "ab"],
    ),
]


@pytest.mark.parametrize(("schema", "good", "bad"), KINDS, ids=lambda each: json.dumps(each)[:60])
def test_kinds_are_held(schema: Any, good: list[Any], bad: list[Any]) -> None:
    """Exactly, and jsonschema says the same."""
    found, read = reader(schema)
    assert found.complete
    validator = jsonschema.Draft202012Validator(schema)
    for value in good:
        assert validator.is_valid(value), value
        assert read(json.dumps(value, ensure_ascii=False)) == -1, value
    for value in bad:
        assert not validator.is_valid(value), value
        assert read(json.dumps(value, ensure_ascii=False)) != -1, value


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ('{"const": 1.00000000000000000001}', ["1.00000000000000000001"], ["1", "1.0"]),
        ('{"enum": [123456789012345678.5]}', ["123456789012345678.5"], ["123456789012345680"]),
        (
            '{"type": "number", "minimum": 0.10000000000000000001, "maximum": 0.2}',
            ["0.10000000000000000001", "0.1000000000000000001", "0.2"],
            ["0.1", "0.10000000000000000000", "0.20000000000000000001"],
        ),
        (
            '{"type": "integer", "maximum": 100000000000000000000.0}',
            ["100000000000000000000"],
            ["100000000000000000001"],
        ),
        ('{"type": "number", "multipleOf": 0.00000000000000000001}', ["0.5"], ["1e-21"]),
    ],
)
def test_numbers_are_what_is_written(schema: str, good: list[str], bad: list[str]) -> None:
    """Also where a binary fraction cannot tell them apart, and jsonschema neither."""
    found, read = reader_of(schema)
    assert found.complete
    assert [text for text in good if read(text) != -1] == []
    assert [text for text in bad if read(text) == -1] == []


# Where the texts of numbers, formats and patterns are narrower than a validator's, by intent.
NARROWER = {"format", "multipleOf", "vocabulary"}
WHOLE_FRACTION = re.compile(r"\d\.0\b")
"""Integers, and numbers of a list, are written in their shortest form."""


def test_the_suite() -> None:
    """What a complete grammar allows is valid, and in most groups all that is valid is allowed."""
    groups, whole = 0, 0
    for row in read_set(SUITE):
        try:
            read_schema(json.dumps(row["schema"]))
        except SchemaError:  # documents elsewhere, and characters without a spelling
            continue
        try:
            found, read = reader(row["schema"])
        except SchemaError:
            assert not any(test["valid"] for test in row["tests"]), row
            continue
        except TooLargeError:
            continue
        if not found.complete or found.places:
            continue
        groups += 1
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in row["tests"]]
        good = []
        for test, text in zip(row["tests"], texts, strict=True):
            if test["valid"]:
                good += [] if WHOLE_FRACTION.search(text) else [text]
            elif not test.get("format"):
                assert read(text) != -1, (row["id"], text)
        exact = all(read(text) == -1 for text in good)
        assert exact or row["keyword"] in NARROWER, (row["id"], good)
        whole += exact
    assert groups > 290
    assert whole > 280


NAMES = ["a", "b", "c"]
VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    7,
    1.5,
    "",
    "a",
    "ab",
    [],
    [1],
    [1, "a"],
    ["a", "a"],
    [[]],
    {},
]


LEAVES = [True, {"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": ["a", None]}]


def random_schema(random: Random, depth: int) -> Any:
    """One of two or three keywords that speak of one another."""
    if depth == 0 or random.random() < 0.1:
        return random.choice(
            [True, {"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": ["a", None]}]
        )

    def inner() -> Any:
        return random_schema(random, depth - 1)

    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {"properties": {random.choice(NAMES): inner(), random.choice(NAMES): inner()}},
        lambda: {"required": [random.choice(NAMES)]},
        lambda: {"additionalProperties": random.choice([False, inner()])},
        lambda: {"propertyNames": {"enum": random.sample(NAMES, 2)}},
        lambda: {"patternProperties": {"^[ab]$": inner()}},
        lambda: {"minProperties": random.randint(0, 2)},
        lambda: {"maxProperties": random.randint(0, 2)},
        lambda: {"dependentRequired": {"a": ["b"]}},
        lambda: {"dependentSchemas": {"b": inner()}},
        lambda: {"unevaluatedProperties": random.choice([False, inner()])},
        lambda: {"prefixItems": [inner()]},
        lambda: {"items": random.choice([False, inner()])},
        lambda: {"minItems": random.randint(0, 2)},
        lambda: {"maxItems": random.randint(0, 2)},
        lambda: {"contains": inner()},
        lambda: {"contains": inner(), "minContains": 0, "maxContains": 1},
        lambda: {"unevaluatedItems": random.choice([False, inner()])},
        lambda: {"not": inner()},
        lambda: {"anyOf": [inner(), inner()]},
        lambda: {"oneOf": [inner(), inner()]},
        lambda: {"allOf": [inner(), inner()]},
        lambda: {"if": inner(), "then": inner(), "else": inner()},
        lambda: {"type": random.choice(["object", "array", "string", ["integer", "null"]])},
        lambda: {"minimum": 1},
        lambda: {"maxLength": 1},
    ]
    made: dict[str, Any] = {}
    for kind in random.sample(kinds, random.randint(1, 3)):
        made |= kind()
    return made


def random_value(random: Random, depth: int = 2) -> Any:
    """A value of what the schemas speak of."""
    if depth == 0 or random.random() < 0.4:
        return random.choice(VALUES)
    if random.random() < 0.5:
        names = random.sample(NAMES, random.randint(0, 3))
        return {name: random_value(random, depth - 1) for name in names}
    return [random_value(random, depth - 1) for _ in range(random.randint(0, 3))]


@pytest.mark.parametrize("part", range(8))
def test_random_schemas(part: int) -> None:
    """Any keywords together: a value is allowed where jsonschema finds it valid, and only there."""
    random = Random(part)
    complete, valid, invalid = 0, 0, 0
    for _ in range(150):
        schema = random_schema(random, 2)
        validator = jsonschema.Draft202012Validator(schema)
        values = [random_value(random) for _ in range(25)]
        try:
            found, read = reader(schema)
        except SchemaError:
            assert not any(map(validator.is_valid, values)), schema
            continue
        except TooLargeError:
            continue
        complete += found.complete
        for value in values:
            is_valid = validator.is_valid(value)
            allowed = read(json.dumps(value)) == -1
            assert allowed or not is_valid, (schema, value)
            assert is_valid or not allowed or not found.complete, (schema, value)
            valid, invalid = valid + is_valid, invalid + (not is_valid)
    assert complete > 100
    assert min(valid, invalid) > 300


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {}},
        {"type": "object", "required": ["a"], "propertyNames": {"const": "b"}},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "string", "pattern": "^ab$", "maxLength": 1},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"allOf": [{"const": 1}, {"const": 2}]},
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "contains": {"type": "string"}, "items": {"type": "integer"}},
        {"type": "object", "minProperties": 2, "propertyNames": {"enum": ["a"]}},
    ],
    ids=json.dumps,
)
def test_without_a_value(schema: Any) -> None:
    """It is refused, before any text."""
    with pytest.raises(SchemaError):
        reader(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"uniqueItems": True}},
        {"not": {"format": "email"}},
        {"not": {"propertyNames": {"format": "email"}}},
        {"not": {"dependencies": {"a": ["b"]}}},
        {"not": {"pattern": r"(a)\1"}},
        {"not": {"unevaluatedProperties": False}},
        {"$dynamicRef": "#a", "$dynamicAnchor": "a"},
        {"uniqueItems": True, "items": {"type": "array"}},
        {"maximum": 1e999},
        {
            "anyOf": [
                {
                    "properties": {"k": {"const": 1}, "t": {"uniqueItems": True}},
                    "required": ["k", "t"],
                },
                {"properties": {"k": {"const": 2}}, "required": ["k", "t"]},
            ]
        },
    ],
    ids=json.dumps,
)
def test_what_is_not_stated_is_checked(schema: Any) -> None:
    """A grammar that allows more says so."""
    assert not held(schema).complete


CONTROLS = [chr(point) for point in range(0x20)]


@pytest.mark.parametrize(
    ("schema", "good"),
    [
        ({"enum": CONTROLS}, CONTROLS),
        ({"enum": [f"a{char}b" for char in CONTROLS]}, [f"a{char}b" for char in CONTROLS]),
        ({"const": "".join(CONTROLS)}, ["".join(CONTROLS)]),
        ({"const": "".join(CONTROLS[1:]), "minLength": 31}, ["".join(CONTROLS[1:])]),
        ({"enum": ["\x01", "\x02c"], "pattern": ".c"}, ["\x02c"]),
        ({"enum": ["\x01", "a"], "not": {"const": "a"}}, ["\x01"]),
        ({"type": "string", "not": {"const": "\x01"}}, ["a", ""]),
        ({"const": {"\x01": ["\x1f"]}}, [{"\x01": ["\x1f"]}]),
        (
            {"properties": {"\x01": {"const": 1}}, "additionalProperties": {"const": 2}},
            [{"\x01": 1}, {"a": 2, "\x01": 1}],
        ),
        (
            {"patternProperties": {r"^[\x01a]$": {}}, "additionalProperties": False},
            [{"a": 1}, {"\x01": 1}],
        ),
        ({"type": "string", "pattern": r"^[\x01-\x05]+$"}, ["\x01\x05"]),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_control_characters_are_spelled(schema: Any, good: list[Any]) -> None:
    """As json.dumps does it, and in no other way."""
    found, read = reader(schema)
    assert found.complete
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    for value in good:
        text = json.dumps(value)
        assert is_valid(value)
        assert read(text) == -1, text
        for other in (text.replace("\\n", "\\u000a"), text.replace("001f", "001F")):
            assert (read(other) == -1) == (other == text), other
    for value in (
        "a",
        "b",
        "\x01",
        "\x02",
        "\x01b",
        "\x02c",
        1,
        {"\x01": 2},
        {"b": 1},
        {"\x02": 1},
    ):
        assert is_valid(value) or read(json.dumps(value)) != -1, value


_PAIRS = [
    {"anyOf": [{"required": [name], "properties": {name: {}}} for name in (f"a{n}", f"b{n}")]}
    for n in range(8)
]
_ONE_OF_EACH = {f"{'ab'[n % 2]}{n}": 0 for n in range(8)}
_BRANCHES = [
    {"properties": {"kind": {"const": number}, f"a{number}": {"type": "integer"}}}
    for number in range(100)
]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"type": "object", "properties": {"n": {"type": "integer"}}, "allOf": _PAIRS},
            [_ONE_OF_EACH, {"n": 1} | _ONE_OF_EACH],
            [[], {"n": "x"}],
        ),
        (
            {"type": "object", "required": ["n"], "properties": {"n": {"oneOf": _BRANCHES}}},
            [{"n": {"kind": 3, **{f"a{n}": "" for n in range(100) if n != 3}}}],
            [{}, {"m": 1}],
        ),
        (
            {
                "allOf": [*_PAIRS, {"properties": {"n": {"type": "integer"}}}],
                "type": "object",
                "unevaluatedProperties": False,
            },
            [_ONE_OF_EACH, {"n": 2} | _ONE_OF_EACH],
            [[], 5],
        ),
        (
            {
                "patternProperties": {f"^{letter}": {} for letter in "abcdef"},
                "additionalProperties": {"type": "array"},
                "required": ["n"],
                "type": "object",
            },
            [{"n": [], "a": 1}],
            [5, "x"],
        ),
    ],
)
def test_what_is_too_much_at_once_is_left_to_the_check(
    schema: Any, good: list[Any], bad: list[Any]
) -> None:
    """The rest of the schema is held, and no text that it allows is lost."""
    found, read = reader(schema)
    assert not found.complete
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    assert [value for value in good if not is_valid(value)] == []
    assert [value for value in good if read(json.dumps(value)) != -1] == []
    assert [value for value in bad if read(json.dumps(value)) == -1] == []
    assert [value for value in bad if is_valid(value)] == []
