"""Schemas that other servers were reported to hold wrongly are held, or refused."""

import json
from typing import Any

import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler
from adapter.guided.constraint import BACKENDS, Kind
from benchmarks.ordinary_models.pydantic_models import ANY_DECIMAL, DECIMAL_8_2
from benchmarks.ordinary_models.zod_models import EMAIL, PASSWORD
from tests.guided.reported import Row, check, is_refused, pairs


def closed(properties: dict[str, Any], *optional: str, **more: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"const": 1}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
    return schema


_DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
_UNION = {
    "type": "object",
    "properties": {"do": {"type": "string"}},
    "required": ["do"],
    "oneOf": [
        {
            "properties": {"do": {"const": "eat"}, "what": {"enum": ["pie", "jam"]}},
            "required": ["what"],
        },
        {"properties": {"do": {"const": "nap"}, "for": {"type": "integer"}}, "required": ["for"]},
    ],
}
_DEFS = {"Tone": {"enum": ["do", "re"]}, "with space": {"enum": ["do"]}, "a/b~c": {"enum": ["re"]}}
_ODD = ["price (£)", "x.y*", "", 'a "b"', "back\\slash", "tab\there", "Größe", "$ref?", "{a}|[b]"]

NAMES = [
    Row(
        "names by pattern keep their values",
        {
            "type": "object",
            "propertyNames": {"pattern": "^[k-m]{2,3}$"},
            "additionalProperties": _DIGIT,
            "minProperties": 1,
            "maxProperties": 2,
        },
        ['{"kl":3}', '{"kk":1,"mmm":9}'],
        ['{"kl":"3"}', '{"K":3}', "{}", '{"kl":10}', '{"kk":1,"kl":1,"km":1}', '{"kk":1,"kk":1}'],
    ),
    Row(
        "a pattern of names beside the name itself",
        closed(
            {"points": {"type": "integer", "multipleOf": 4}},
            patternProperties={"^points$": {"maximum": 20, "minimum": 0}},
        ),
        ['{"points":16}', '{"points":0}'],
        ['{"points":24}', '{"points":6}', '{"points":-4}', '{"other":4}'],
    ),
    Row(
        "odd names",
        closed({name: {"enum": [1]} for name in _ODD}),
        [json.dumps(dict.fromkeys(_ODD, 1), ensure_ascii=False)],
        ['{"price (£)":1}', json.dumps(dict.fromkeys(_ODD, 2), ensure_ascii=False)],
    ),
    Row(
        "names that are keywords",
        closed(
            {"$ref": {"enum": [1, 2]}, "type": {"const": "array"}, "required": {"type": "boolean"}}
        ),
        ['{"$ref":2,"type":"array","required":false}'],
        ["[]", '{"$ref":3,"type":"array","required":false}', '{"$ref":2}'],
    ),
    Row(
        "a declared name out of turn",
        {
            "type": "object",
            "properties": {"first": {"type": "string", "maxLength": 5}, "age": _DIGIT},
            "required": ["first", "age"],
        },
        ['{"age": 4, "first": "Al"}', '{"first": "Al", "age": 4}'],
        ['{"age": 4, "age": 4, "first": "Al"}', '{"age": 40, "first": "Al"}', '{"age": 4}'],
    ),
]

NUMBERS = [
    Row(
        "strictly between",
        closed({"p": {"type": "number", "exclusiveMinimum": 2, "exclusiveMaximum": 3}}),
        ['{"p":2.5}', '{"p":2.0001}'],
        ['{"p":2}', '{"p":3}', '{"p":2.0}', '{"p":3.00}'],
    ),
    Row(
        "between, the ends too",
        closed({"p": {"type": "number", "minimum": 1, "maximum": 4}}),
        ['{"p":1}', '{"p":4}', '{"p":3.5}'],
        ['{"p":4.7}', '{"p":0.99}', '{"p":4.0001}', '{"p":-2}'],
    ),
    Row(
        "one integer between",
        closed({"p": {"type": "integer", "exclusiveMinimum": -7, "exclusiveMaximum": -5}}),
        ['{"p":-6}'],
        ['{"p":-7}', '{"p":-5}', '{"p":6}'],
    ),
    Row(
        "as large as 64 bits without a sign",
        closed({"n": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}),
        [f'{{"n":{2**64 - 1}}}', '{"n":0}'],
        [f'{{"n":{2**64}}}', '{"n":-1}', f'{{"n":{10**30}}}'],
    ),
    Row(
        "a constant that no double is",
        closed({"n": {"const": 2**53 + 1}}),
        [f'{{"n":{2**53 + 1}}}'],
        [f'{{"n":{2**53}}}', f'{{"n":{2**53 + 2}}}'],
    ),
]

STRINGS = [
    Row(
        "a search with alternatives",
        closed({"v": {"type": "string", "pattern": "fig|kiwi", "maxLength": 9}}),
        ['{"v":"fig"}', '{"v":"a kiwi!"}'],
        ['{"v":"plum"}', '{"v":"a kiwi in the tree"}', '{"v":fig'],
    ),
    Row(
        "a decimal that may be a text",
        closed(
            {"price": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": ANY_DECIMAL}]}}
        ),
        ['{"price":1.5}', '{"price":"1.50"}', '{"price":"-3"}'],
        ['{"price":"-"}', '{"price":"one"}', '{"price":""}', '{"price":true}'],
    ),
    Row(
        "a decimal of so many digits",
        closed({"sum": {"type": "string", "pattern": DECIMAL_8_2}}),
        ['{"sum":"12.50"}'],
        ['{"sum":"-"}', '{"sum":""}', '{"sum":"."}', '{"sum":"+"}'],
    ),
    Row(
        "an e-mail address",
        closed({"mail": {"type": "string", "pattern": EMAIL}}),
        ['{"mail":"jo.x@example.org"}'],
        ['{"mail":".jo@example.org"}', '{"mail":"jo..x@example.org"}', '{"mail":"jo"}'],
    ),
    Row(
        "a password",
        closed({"key": {"type": "string", "pattern": PASSWORD}}),
        ['{"key":"abcDEF123"}'],
        ['{"key":"abcdef123"}', '{"key":"ABCDEF123"}', '{"key":"abcDEFxyz"}', '{"key":"aB3"}'],
    ),
    Row(
        "a needless escape",
        closed({"g": {"type": "string", "pattern": r"^well done\!$"}}),
        ['{"g":"well done!"}'],
        ['{"g":"well done"}', '{"g":"well done\\\\!"}'],
    ),
    Row(
        "long enough, and no longer than that",
        closed({"t": {"type": "string", "minLength": 200, "maxLength": 2000}}),
        [f'{{"t":"{"é" * 200}"}}', f'{{"t":"{"x" * 2000}"}}'],
        [f'{{"t":"{"é" * 199}"}}', f'{{"t":"{"x" * 2001}"}}'],
    ),
]

UNIONS = [
    Row(
        "one of two beside properties",
        _UNION,
        ['{"do":"eat","what":"jam"}', '{"do":"nap","for":3}'],
        [
            '{"do":"eat"}',
            '{"do":"run","for":3}',
            '{"do":"nap","what":"pie"}',
            '{"do":"nap","for":"x"}',
        ],
    ),
    Row(
        "at least one of two optional names",
        closed(
            {"key": {"enum": ["esc"]}, "held": {"enum": ["alt"]}, "n": _DIGIT},
            "held",
            "n",
            anyOf=[{"required": ["held"]}, {"required": ["n"]}],
        ),
        ['{"key":"esc","n":3}', '{"key":"esc","held":"alt"}', '{"key":"esc","held":"alt","n":0}'],
        ['{"key":"esc"}', '{"key":"tab","n":3}', "[1]", '{"n":3}'],
    ),
    Row(
        "references by escape",
        closed(
            {"a": {"$ref": "#/$defs/with%20space"}, "b": {"$ref": "#/$defs/a~1b~0c"}},
            **{"$defs": _DEFS},
        ),
        ['{"a":"do","b":"re"}'],
        ['{"a":"re","b":"re"}', '{"a":"do","b":"do"}', '{"a":1,"b":"re"}'],
    ),
]

ARRAYS = [
    Row(
        "a pair",
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"enum": ["oz", "lb"]}],
            "minItems": 2,
            "maxItems": 2,
        },
        ['[3,"oz"]'],
        ['["oz",3]', "[3]", '[3,"oz",1]', "[]"],
    ),
    Row(
        "items behind a prefix",
        {
            "type": "array",
            "prefixItems": [{"const": "v"}],
            "items": _DIGIT,
            "minItems": 3,
            "maxItems": 4,
        },
        ['["v",1,2]', '["v",1,2,3]'],
        ["[1,2,3]", '["v","v",1]', '["v",1]', '["v",1,2,3,4]'],
    ),
    Row(
        "a set of three",
        {"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": True, "minItems": 3},
        ['["z","x","y"]'],
        ['["x","y","x"]', '["x","y"]', '["x","y","z","x"]'],
    ),
]

VALUES = [
    Row(
        f"the constant {json.dumps(value)}",
        {"const": value},
        [json.dumps(value)],
        ["1", '"a"', "[]"],
    )
    for value in (False, None, '"', "\\", {"a": [1, "b"]}, 2.5, "")
] + [
    Row(
        "a constant with all that is escaped", {"const": "a\\b/\té😀"}, ['"a\\\\b/\\té😀"'], ['"a"']
    ),
    Row("a constant with an exponent", {"const": 1e20}, ["100000000000000000000"], ["1", "1e2"]),
    Row("deeply nested", nested(12), ["[" * 12 + "1" + "]" * 12], ["[" * 12 + "2" + "]" * 12, "1"]),
    Row(
        "a special token's name",
        {"const": "<|im_start|>"},
        ['"<|im_start|>"'],
        ['""', '"im_start"'],
    ),
]

_CAR = closed({"brand": {"type": "string", "maxLength": 5}, "kind": {"enum": ["van", "bus"]}})
BLANKS = [
    Row(
        "one blank",
        _CAR,
        ['{ "brand" : "Kia" , "kind" : "van" }'],
        [
            '{"brand":  "Kia","kind":"van"}',
            '{\n"brand":"Kia","kind":"van"}',
            '{{ "brand" : "Kia" , "kind" : "van" }',
        ],
        " ",
    ),
    Row(
        "a blank or none",
        _CAR,
        ['{"brand": "Kia","kind":"bus"}'],
        [
            '{"brand":  "Kia","kind":"bus"}',
            '{"brand":\v"Kia","kind":"bus"}',
            '{"brand":\u00a0"Kia","kind":"bus"}',
        ],
        r"\s{0,1}",
    ),
]

ROWS = [*NAMES, *NUMBERS, *STRINGS, *UNIONS, *ARRAYS, *VALUES, *BLANKS]


@pytest.mark.parametrize(("row", "backend"), pairs(ROWS))
def test_a_reported_schema_is_held(
    libraries: Libraries, compiler: ConstraintCompiler, row: Row, backend: str
) -> None:
    """Masks let the good texts through under auto, and the bad ones nowhere."""
    check(libraries, compiler, row, backend)


REFUSED = {
    "a reference out of the document": closed({"c": {"$ref": "/$defs/Tone"}}, **{"$defs": _DEFS}),
    "an anchor that is nowhere": closed({"c": {"$ref": "#nowhere"}}, **{"$defs": _DEFS}),
    "a name that is not escaped": closed({"c": {"$ref": "#/$defs/a/b~c"}}, **{"$defs": _DEFS}),
    "more different items than there are": closed(
        {"bits": {"type": "array", "items": {"enum": [0, 1]}, "uniqueItems": True, "minItems": 3}}
    ),
    "an enum of nothing": {"enum": []},
    "bounds that cross": {"type": "integer", "minimum": 4, "maximum": 3},
    "a name that may not be": {
        "required": ["ab"],
        "propertyNames": {"maxLength": 1},
        "type": "object",
    },
    "everything not": {"not": {}},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_text_is_refused(compiler: ConstraintCompiler, what: str, backend: str) -> None:
    """Before the first token, naming the field."""
    message = is_refused(compiler, Kind.JSON, json.dumps(REFUSED[what]), backend)
    assert "the field" in message


# outlines' expression doubles with each level: the server stops it.
@pytest.mark.parametrize("backend", ["auto", "guidance", "xgrammar", "lm-format-enforcer"])
def test_what_people_nest_is_held(
    libraries: Libraries, compiler: ConstraintCompiler, backend: str
) -> None:
    """Generated schemas go 50 levels down."""
    good, bad = ("[" * 50 + digit + "]" * 50 for digit in "12")
    check(libraries, compiler, Row("", nested(50), [good], [bad, "1"]), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("depth", [120, 400])
def test_what_is_nested_too_deeply_is_refused_as_that(
    compiler: ConstraintCompiler, depth: int, backend: str
) -> None:
    """Nothing breaks: the field and the nesting are in the message."""
    text = '{"type":"array","items":' * depth + '{"const":1}' + "}" * depth
    message = is_refused(compiler, Kind.JSON, text, backend)
    assert "the field" in message
    assert "nested" in message
