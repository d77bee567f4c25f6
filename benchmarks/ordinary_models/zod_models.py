"""Shapes whose schemas zod prints, and those that people write by hand beside them."""

from typing import Any

from benchmarks.ordinary_models.shape import Shape

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@"
    r"([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)
PASSWORD = r"^(?=.*[A-Z])(?=.*[a-z])(?=.*\d).{8,20}$"
UUID = (
    "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
    "|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"
)
DATE = (
    r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29"
    r"|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|(?:02)-(?:0[1-9]|1\d|2[0-8])))$"
)
_INT = {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}
_STRING = {"type": "string"}
_NULL = {"type": "null"}


def _object(properties: dict[str, Any], *optional: str, **more: Any) -> dict[str, Any]:
    """As z.object is printed."""
    return {
        "$schema": _DRAFT,
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


def _part(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), **more}


_POSTCODES = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "maxLength": 30},
        "country": {"enum": ["US", "NL"]},
        "postcode": {"type": "string"},
    },
    "required": ["street", "country", "postcode"],
    "if": {"properties": {"country": {"const": "US"}}},
    "then": {"properties": {"postcode": {"pattern": "^[0-9]{5}$"}}},
    "else": {"properties": {"postcode": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}},
    "additionalProperties": False,
}

_CONTACT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "email": {"type": "string", "maxLength": 30},
        "phone": {"type": "string", "pattern": "^[0-9 +]{6,14}$"},
    },
    "required": ["name"],
    "oneOf": [{"required": ["email"]}, {"required": ["phone"]}],
    "additionalProperties": False,
}

_CARD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "card": {"type": "integer", "minimum": 1000, "maximum": 9999},
        "billing": {"type": "string", "maxLength": 20},
    },
    "required": ["name"],
    "dependentRequired": {"card": ["billing"]},
    "additionalProperties": False,
}

_SCORES = {
    "type": "object",
    "propertyNames": {"type": "string", "enum": ["maths", "art", "music"]},
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 10},
}

_INTERSECTION = {
    "$schema": _DRAFT,
    "allOf": [
        _part({"id": _INT, "name": _STRING}),
        _part({"role": {"enum": ["admin", "user"]}}),
    ],
    "unevaluatedProperties": False,
}

_SIX = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": 10},
    "minItems": 6,
    "maxItems": 6,
    "uniqueItems": True,
}


def shapes() -> list[Shape]:
    """All of them."""
    return [*_zod(), *_by_hand()]


def _zod() -> list[Shape]:
    email = {"type": "string", "format": "email", "pattern": EMAIL}
    uuid = {"type": "string", "format": "uuid", "pattern": UUID}
    day = {"type": "string", "format": "date", "pattern": DATE}
    password = {"type": "string", "pattern": PASSWORD}
    go = _part({"action": {"type": "string", "const": "go"}, "place": {"enum": ["home", "shop"]}})
    say = _part({"action": {"type": "string", "const": "say"}, "text": _STRING})
    return [
        Shape(
            "zod: email",
            "Ann's address is ann@example.org:",
            _object({"email": email}),
            ("pattern",),
        ),
        Shape("zod: password", "A safe password:", _object({"password": password}), ("pattern",)),
        Shape("zod: uuid", "The order's number:", _object({"id": uuid}), ("pattern",)),
        Shape("zod: date", "Born in 1969:", _object({"born": day}), ("pattern",)),
        Shape(
            "zod: record over an enum",
            "Her marks in maths, art and music:",
            {"$schema": _DRAFT, **_SCORES},
            ("propertyNames",),
        ),
        Shape(
            "zod: full record over an enum",
            "Her marks in maths, art and music:",
            {"$schema": _DRAFT, **_SCORES, "required": ["maths", "art", "music"]},
            ("propertyNames",),
        ),
        Shape(
            "zod: record",
            "The price of each fruit:",
            _object(
                {
                    "prices": {
                        "type": "object",
                        "propertyNames": {"type": "string", "minLength": 2, "maxLength": 9},
                        "additionalProperties": {"type": "number"},
                    }
                }
            ),
            ("propertyNames",),
        ),
        Shape(
            "zod: intersection",
            "The first user as JSON:",
            _INTERSECTION,
            ("unevaluatedProperties",),
        ),
        Shape(
            "zod: union of actions",
            "What to do next, as JSON:",
            {"$schema": _DRAFT, "oneOf": [_closed(go), _closed(say)]},
        ),
        Shape(
            "zod: nullable and optional",
            "A book as JSON:",
            _object(
                {
                    "title": _STRING,
                    "year": {"anyOf": [_INT, _NULL]},
                    "genre": {"anyOf": [{"type": "string", "enum": ["novel", "poem"]}, _NULL]},
                    "pages": {"type": "integer", "exclusiveMinimum": 0, "maximum": 5000},
                },
                "pages",
            ),
        ),
        Shape(
            "zod: tuple with a rest",
            "A command and its numbers:",
            _object(
                {
                    "call": {
                        "type": "array",
                        "prefixItems": [{"type": "string", "enum": ["add", "mul"]}],
                        "items": {"type": "number"},
                        "minItems": 1,
                        "maxItems": 4,
                    }
                }
            ),
        ),
        Shape(
            "zod: literals",
            "A setting as JSON:",
            _object(
                {
                    "size": {"enum": [1, 2, 4, "auto", None]},
                    "version": {"type": "number", "const": 2},
                    "on": {"type": "boolean"},
                }
            ),
        ),
        Shape(
            "zod: catchall",
            "A person with hobbies as JSON:",
            _object(
                {"name": _STRING, "age": _INT}, "age", additionalProperties={"type": "boolean"}
            ),
        ),
        Shape(
            "zod: lazy categories",
            "Categories of a shop as JSON:",
            {
                "$schema": _DRAFT,
                "$ref": "#/$defs/category",
                "$defs": {
                    "category": _closed(
                        _part(
                            {
                                "name": {"type": "string", "maxLength": 12},
                                "subcategories": {
                                    "type": "array",
                                    "maxItems": 2,
                                    "items": {"$ref": "#/$defs/category"},
                                },
                            }
                        )
                    )
                },
            },
        ),
    ]


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False}


def _by_hand() -> list[Shape]:
    small = {"type": "integer", "minimum": 0, "maximum": 9}
    return [
        Shape("if over a const", "1 Dam Square, Amsterdam:", _POSTCODES, ("if", "then", "else")),
        Shape("oneOf of two required", "Ann's e-mail is ann@x.org:", _CONTACT, ("oneOf",)),
        Shape("dependentRequired", "Bob pays by card 1234:", _CARD, ("dependentRequired",)),
        Shape("six different integers", "Six different numbers:", _SIX, ("uniqueItems",)),
        Shape(
            "set of literals",
            "The days I work:",
            {
                "type": "array",
                "items": {"enum": ["mon", "tue", "wed", "thu", "fri"]},
                "uniqueItems": True,
                "minItems": 2,
            },
            ("uniqueItems",),
        ),
        Shape(
            "names by pattern",
            "Counts by code, as JSON:",
            {
                "type": "object",
                "propertyNames": {"pattern": "^[a-z]{2,4}$"},
                "additionalProperties": small,
                "minProperties": 1,
                "maxProperties": 3,
            },
            ("propertyNames", "minProperties"),
        ),
        Shape(
            "contains",
            "A list of fruits that has an apple:",
            {
                "type": "array",
                "items": {"enum": ["apple", "pear", "plum"]},
                "contains": {"const": "apple"},
                "maxItems": 4,
            },
            ("contains",),
        ),
        Shape(
            "contains at most",
            "Votes, with one or two yes:",
            {
                "type": "array",
                "items": {"enum": ["yes", "no"]},
                "contains": {"const": "yes"},
                "minContains": 1,
                "maxContains": 2,
                "maxItems": 6,
            },
            ("contains", "minContains", "maxContains"),
        ),
        Shape(
            "not an enum",
            "A user name as JSON:",
            _object(
                {"user": {"type": "string", "maxLength": 12, "not": {"enum": ["admin", "root"]}}}
            ),
            ("not",),
        ),
        Shape(
            "not both",
            "A discount as JSON:",
            {
                "type": "object",
                "properties": {"percent": small, "amount": small, "code": {"enum": ["A", "B"]}},
                "required": ["code"],
                "not": {"required": ["percent", "amount"]},
                "additionalProperties": False,
            },
            ("not",),
        ),
        Shape(
            "overlapping oneOf",
            "A number that three or five divides:",
            _object(
                {
                    "n": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 40,
                        "oneOf": [{"multipleOf": 3}, {"multipleOf": 5}],
                    }
                }
            ),
            ("oneOf",),
        ),
        Shape(
            "some of the optional names",
            "How to reach Tom, as JSON:",
            {
                "type": "object",
                "properties": {
                    "phone": {"type": "string", "maxLength": 12},
                    "mail": {"type": "string", "maxLength": 16},
                    "post": {"type": "string", "maxLength": 16},
                },
                "minProperties": 2,
                "additionalProperties": False,
            },
            ("minProperties",),
        ),
        Shape(
            "patternProperties beside properties",
            "A form as JSON:",
            {
                "type": "object",
                "properties": {"id": small},
                "patternProperties": {"^s_": {"type": "string", "maxLength": 10}, "^n_": small},
                "required": ["id"],
                "additionalProperties": False,
            },
            ("patternProperties",),
        ),
        Shape(
            "dependentSchemas",
            "A delivery as JSON:",
            {
                "type": "object",
                "properties": {
                    "gift": {"type": "boolean"},
                    "note": {"type": "string", "maxLength": 20},
                },
                "dependentSchemas": {"gift": {"required": ["note"]}},
                "additionalProperties": False,
            },
            ("dependentSchemas",),
        ),
        Shape(
            "anyOf beside properties",
            "A key press as JSON:",
            _object(
                {"key": {"enum": ["up", "down"]}, "mod": {"enum": ["ctrl"]}, "n": small},
                "mod",
                "n",
                anyOf=[{"required": ["mod"]}, {"required": ["n"]}],
            ),
            ("anyOf",),
        ),
        Shape(
            "different records",
            "Three countries and their capitals:",
            {
                "type": "array",
                "items": _closed(
                    _part(
                        {
                            "country": {"type": "string", "maxLength": 12},
                            "capital": {"type": "string", "maxLength": 12},
                        }
                    )
                ),
                "uniqueItems": True,
                "minItems": 2,
                "maxItems": 3,
            },
            ("uniqueItems",),
        ),
        Shape(
            "steps of money",
            "The price is 12.34:",
            _object({"price": {"type": "number", "minimum": 0, "maximum": 50, "multipleOf": 0.01}}),
            ("multipleOf",),
        ),
    ]
