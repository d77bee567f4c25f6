"""Schemas of every kind of keyword, and of every pair of two that speak of one type."""

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

_SMALL = {"type": "integer", "minimum": 0, "maximum": 9}

OBJECTS: dict[str, dict[str, Any]] = {
    "properties": {"properties": {"a": _SMALL, "b": {"type": "boolean"}, "": {"type": "null"}}},
    "required": {"required": ["a", "c"]},
    "closed": {"additionalProperties": False},
    "additional": {"additionalProperties": {"enum": ["x", 1, None]}},
    "patternProperties": {"patternProperties": {"^c": _SMALL, "b$": {"type": "boolean"}}},
    "propertyNames enum": {"propertyNames": {"enum": ["a", "b", "c", "d"]}},
    "propertyNames pattern": {"propertyNames": {"pattern": "^[a-d]{1,3}$"}},
    "minProperties": {"minProperties": 2},
    "maxProperties": {"maxProperties": 2},
    "dependentRequired": {"dependentRequired": {"a": ["b"], "d": ["c"]}},
    "dependentSchemas": {"dependentSchemas": {"b": {"properties": {"a": {"const": 1}}}}},
    "if": {"if": {"required": ["b"]}, "then": {"required": ["d"]}, "else": {"maxProperties": 3}},
    "not": {"not": {"required": ["b", "d"]}},
    "oneOf": {"oneOf": [{"required": ["b"]}, {"required": ["d"]}]},
    "unevaluated": {
        "allOf": [{"properties": {"a": True, "c": True}}],
        "unevaluatedProperties": False,
    },
}
ARRAYS: dict[str, dict[str, Any]] = {
    "items": {"items": _SMALL},
    "prefixItems": {"prefixItems": [{"const": "v"}, {"type": "boolean"}]},
    "minItems": {"minItems": 2},
    "maxItems": {"maxItems": 3},
    "uniqueItems": {"uniqueItems": True},
    "contains": {"contains": {"const": 7}},
    "counted contains": {"contains": {"enum": [True, 3]}, "minContains": 2, "maxContains": 2},
    "not": {"not": {"contains": {"const": 0}}},
    "unevaluated": {"allOf": [{"prefixItems": [True, True]}], "unevaluatedItems": False},
}
STRINGS: dict[str, dict[str, Any]] = {
    "minLength": {"minLength": 3},
    "maxLength": {"maxLength": 5},
    "pattern": {"pattern": "^[a-f<|]+$"},
    "search": {"pattern": "ab|é"},
    "look-ahead": {"pattern": "^(?=.*[A-Z])(?=.*[0-9]).{2,6}$"},
    "look-behind": {"pattern": r"^(?:(?!-)[a-c-]{1,3}(?<!-)(?:\.|$))+$"},
    "word boundary": {"pattern": r"^(?:\b\w|\B.){1,6}$"},
    "not enum": {"not": {"enum": ["abc", "", "ab", "<|im_start|>"]}},
    "not pattern": {"not": {"pattern": "b"}},
    "enum": {"enum": ["abc", "Ab1", "<|im_end|>", '"', "\\", "é"]},
}
NUMBERS: dict[str, dict[str, Any]] = {
    "minimum": {"minimum": -2.5},
    "maximum": {"maximum": 30},
    "exclusive": {"exclusiveMinimum": 0, "exclusiveMaximum": 25},
    "multipleOf": {"multipleOf": 5},
    "multipleOf 0.01": {"multipleOf": 0.01},
    "not": {"not": {"const": 5}},
    "oneOf": {"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]},
    "enum": {"enum": [0, 5, 10.5, 15, -1, 1e20]},
}
OTHERS: dict[str, Any] = {
    "true": True,
    "empty": {},
    "const 1e20": {"const": 1e20},
    "const beyond 2**53": {"const": 9007199254740993},
    "64-bit bounds": {"type": "integer", "minimum": 2**63 - 2, "maximum": 2**64},
    "beyond 64 bits": {"type": "integer", "minimum": 10**25, "maximum": 10**25 + 7},
    "special token": {"const": "<|im_start|>"},
    "tuple of const": {
        "prefixItems": [{"const": [1]}, {"const": {"a": 1}}],
        "items": False,
        "minItems": 1,
    },
    "oneOf beside properties": {
        "properties": {"action": {"type": "string"}},
        "required": ["action"],
        "oneOf": [
            {
                "properties": {"action": {"const": "go"}, "place": {"enum": ["home", "shop"]}},
                "required": ["place"],
            },
            {
                "properties": {
                    "action": {"const": "say"},
                    "text": {"type": "string", "maxLength": 4},
                },
                "required": ["text"],
            },
        ],
    },
    "multipleOf through patternProperties": {
        "type": "object",
        "properties": {"score": {"type": "integer", "multipleOf": 5}},
        "patternProperties": {"^score$": {"type": "integer", "maximum": 50}},
        "required": ["score"],
        "additionalProperties": False,
    },
    "word boundaries in names": {
        "type": "object",
        "patternProperties": {r"\bab\b": {"type": "boolean"}, "^(?!b)": {"type": "null"}},
        "additionalProperties": {"type": "integer"},
    },
    "tree": {
        "type": "object",
        "properties": {"n": _SMALL, "left": {"$ref": "#"}, "right": {"$ref": "#"}},
        "required": ["n"],
        "additionalProperties": False,
    },
    "recursive list": {
        "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]
    },
    "recursive not": {
        "type": "object",
        "properties": {
            "v": _SMALL,
            "next": {"allOf": [{"$ref": "#"}, {"not": {"properties": {"v": {"const": 0}}}}]},
        },
        "required": ["v"],
        "additionalProperties": False,
    },
    "anyOf": {
        "anyOf": [
            {"type": "integer"},
            {"type": "string", "maxLength": 2},
            {"type": "array", "items": {"type": "null"}},
        ]
    },
    "allOf": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 12}, {"multipleOf": 4}]},
    "types": {"type": ["integer", "null", "boolean", "array"], "maxItems": 1},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
    "time": {"type": "string", "format": "time"},
    "email": {"type": "string", "format": "email"},
    "uri": {"type": "string", "format": "uri"},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "escaped names": {
        "type": "object",
        "properties": {
            'a"b': {"const": 1},
            "c\\d": {"const": 2},
            "e\tf": {"const": 3},
            "ü": {"const": 4},
        },
        "required": ['a"b', "c\\d", "e\tf", "ü"],
        "additionalProperties": False,
    },
    "unsatisfiable branch": {
        "anyOf": [
            {"type": "string", "minLength": 5, "maxLength": 2},
            {"type": "integer", "minimum": 3, "maximum": 3},
        ]
    },
}

_TYPES = {"object": OBJECTS, "array": ARRAYS, "string": STRINGS, "number": NUMBERS}


def keyword_schemas() -> Iterator[tuple[str, Any]]:
    """Each with a name; many pairs no text satisfies."""
    yield from OTHERS.items()
    for name, kinds in _TYPES.items():
        for kind, schema in kinds.items():
            yield f"{name}: {kind}", {"type": name, **schema}
        for (one, first), (two, second) in combinations(kinds.items(), 2):
            if not first.keys() & second.keys():
                yield f"{name}: {one} + {two}", {"type": name, **first, **second}


PATTERNS = (
    r"[a-z]{2,4}",
    r"(a|b)*abb",
    r"<\|im_start\|>[ab]{2}<\|im_end\|>",
    r"\d{4}-(0[1-9]|1[0-2])",
    r"[^\W\d]{1,3}é?",
    r"(yes|no|maybe)( (sir|madam))?!",
    r"[ぁ-ゟ]{1,3}",
    r"(?i:abc){1,2}\n",
    r"a?b?c?",
    r"(?=.*[A-Z])[A-Za-z]{2,4}",
    r"(?!admin$)[a-n]{1,5}",
    r"(?:a|b(?=a)){1,6}",
    r"[a-c ]{2,6}(?<!\w)!",
    r"(?:\b[ab]{1,2}\b ?){1,2}",
    r'"(?>[^"\\a-z]++|\\.)*+"',
)
GRAMMARS = (
    'root ::= "[" item ("," item){0,3} "]"\nitem ::= [0-9]+ | root',
    'root ::= root "a" | "b"',
    'root ::= stem "ed."\nstem ::= "list" | "listen"',
    'root ::= [ab]+ "b!"',
    'root ::= "<|im_start|>" [a-z]{2} "<|im_end|>"',
    'start: KEY "=" (NUMBER | STRING)\nKEY: /[a-z]{1,4}/\n'
    'NUMBER: /[0-9]{1,3}/\nSTRING: /"[^"]{0,4}"/',
    'start: expr\nexpr: term (("+" | "-") term)*\nterm: /[0-9]{1,2}/ | "(" expr ")"',
)
CHOICES = (
    ["yes", "no"],
    ["a", "ab", "abc"],
    ["<|im_start|>", "<|im_end|>x"],
    ["是的，当然", "不是"],
    ["", "x"],
)
WHITESPACE = (None, "", " ", r"[ \n]?", r"\s{1,2}")


def as_text(schema: Any) -> str:
    """As a request carries it."""
    return json.dumps(schema, ensure_ascii=False)
