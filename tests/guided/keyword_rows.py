"""A schema for each keyword, and for what of it is special: the rows of a table in the docs."""

from typing import Any, NamedTuple

_DRAFT = "https://json-schema.org/draft/"


class Row(NamedTuple):
    """One row."""

    what: str
    schema: Any


ROWS = (
    Row("`type`", {"type": ["integer", "null"]}),
    Row("`const`", {"const": {"a": [1, "b"]}}),
    Row("`enum`", {"enum": ["a", 1, None, [2]]}),
    Row("`allOf`", {"allOf": [{"required": ["a"]}, {"maxProperties": 2}]}),
    Row("`anyOf`", {"anyOf": [{"type": "integer"}, {"maxLength": 3}]}),
    Row("`oneOf`, overlapping", {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    Row("`not`", {"not": {"required": ["a"], "properties": {"a": {"const": 1}}}}),
    Row(
        "`if`, `then`, `else`",
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 1}},
    ),
    Row("`$ref`, recursive", {"type": "object", "additionalProperties": {"$ref": "#"}}),
    Row(
        "`$ref` by `$id` and `$anchor`",
        {
            "$ref": "b.json#x",
            "$defs": {"b": {"$id": "b.json", "not": {"$anchor": "x", "type": "null"}}},
        },
    ),
    Row(
        "`$dynamicRef`",
        {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}, "type": ["array", "null"]},
    ),
    Row(
        "`$recursiveRef`",
        {
            "$schema": f"{_DRAFT}2019-09/schema",
            "items": {"$recursiveRef": "#"},
            "type": ["array", "null"],
        },
    ),
    Row("`$ref` to a metaschema", {"$ref": f"{_DRAFT}2020-12/schema"}),
    Row("`$ref` to a document elsewhere", {"$ref": "http://example.com/a.json"}),
    Row(
        "`minimum`, `exclusiveMaximum`, of any size",
        {"type": "integer", "minimum": 10**25, "exclusiveMaximum": 10**25 + 7},
    ),
    Row("`multipleOf` of 2s and 5s", {"type": "number", "multipleOf": 0.25}),
    Row("`multipleOf` of others", {"type": "integer", "multipleOf": 21}),
    Row("`not` of `multipleOf`", {"type": "integer", "not": {"multipleOf": 5}}),
    Row("`not` of other `multipleOf`", {"type": "integer", "not": {"multipleOf": 21}}),
    Row("`minLength`, `maxLength`", {"type": "string", "minLength": 2, "maxLength": 65536}),
    Row("`pattern`", {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}),
    Row("`pattern`, look-ahead", {"pattern": "^(?=.*[A-Z])(?!.*x).{4,}$"}),
    Row("`pattern`, look-behind", {"pattern": "(?<=a)b(?<!c)"}),
    Row("`pattern`, word boundaries", {"pattern": r"\bab\b"}),
    Row("`pattern`, back-reference", {"pattern": r"^(a|b)\1$"}),
    Row("`not` of `pattern`", {"type": "string", "not": {"pattern": "^[ab]"}}),
    Row(r"`not` of `pattern` with `\w`", {"type": "string", "not": {"pattern": r"^\w"}}),
    *(
        Row(f"`format` {name}", {"type": "string", "format": name})
        for name in (
            "date-time",
            "date",
            "time",
            "duration",
            "email",
            "hostname",
            "ipv4",
            "ipv6",
            "uuid",
            "uri",
        )
    ),
    Row("`not` of `format`", {"type": "string", "not": {"format": "date"}}),
    Row(
        "`properties`, `required`, `additionalProperties`",
        {"properties": {"a": {}, "b": {}}, "required": ["b"], "additionalProperties": False},
    ),
    Row(
        "`patternProperties` beside `properties`",
        {"properties": {"ab": {"minimum": 1}}, "patternProperties": {"^a": {"type": "integer"}}},
    ),
    Row("`propertyNames`", {"propertyNames": {"enum": ["a", "b"]}}),
    Row("`minProperties`, `maxProperties`", {"minProperties": 2, "maxProperties": 3}),
    Row("`dependentRequired`", {"dependentRequired": {"a": ["b"]}}),
    Row("`dependentSchemas`", {"dependentSchemas": {"a": {"maxProperties": 2}}}),
    Row("`dependencies`", {"dependencies": {"a": ["b"], "c": {"maxProperties": 2}}}),
    Row(
        "`unevaluatedProperties`",
        {"anyOf": [{"properties": {"a": {}}}, {"required": ["b"]}], "unevaluatedProperties": False},
    ),
    Row("`not` of `unevaluatedProperties`", {"not": {"unevaluatedProperties": False}}),
    Row(
        "`prefixItems`, `items`, `minItems`, `maxItems`",
        {"prefixItems": [{"const": 1}], "items": {"type": "string"}, "minItems": 1, "maxItems": 9},
    ),
    Row("`contains`", {"type": "array", "contains": {"const": 1}}),
    Row(
        "`minContains`, `maxContains`",
        {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3},
    ),
    Row("`unevaluatedItems`", {"allOf": [{"prefixItems": [{}]}], "unevaluatedItems": False}),
    Row(
        "`uniqueItems` of strings, numbers, words",
        {"type": "array", "items": {"type": ["string", "number", "null"]}, "uniqueItems": True},
    ),
    Row(
        "`uniqueItems` of objects or arrays",
        {"type": "array", "items": {"type": "object"}, "uniqueItems": True},
    ),
    Row("`not` of `uniqueItems`", {"type": "array", "not": {"uniqueItems": True}}),
)
