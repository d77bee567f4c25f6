"""What the plain libraries let through, or cannot reach, that the constraint says otherwise.

Each row was seen on the library itself; test_faults.py sees it again, and that it does not happen
here. docs/guided-decoding.md shows the table.
"""

from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["held by the guard", "mended", "refused"]


@dataclass(frozen=True)
class Fault:
    """One fault of one library."""

    backend: str
    what: str
    """For people: what the library does."""
    schema: dict[str, Any]
    text: str
    """What it accepts wrongly; or, where `rejects`, what it rejects wrongly."""
    outcome: Outcome
    """What becomes of it here."""
    rejects: bool = False


FAULTS = [
    Fault(
        "xgrammar", "keywords without `type` are ignored", {"minimum": 5}, "3", "held by the guard"
    ),
    Fault(
        "xgrammar",
        "`multipleOf` of numbers is ignored",
        {"type": "number", "multipleOf": 5},
        "3",
        "held by the guard",
    ),
    Fault(
        "xgrammar",
        "siblings of `$ref` are ignored",
        {"$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"type": "integer"}}},
        "9",
        "held by the guard",
    ),
    Fault(
        "xgrammar",
        "an `allOf` of several is any value",
        {"allOf": [{"type": "integer"}, {"minimum": 5}]},
        '"a"',
        "held by the guard",
    ),
    Fault("xgrammar", "`not` is ignored", {"not": {"type": "string"}}, '"a"', "held by the guard"),
    Fault(
        "xgrammar",
        "`uniqueItems` without `type` is ignored",
        {"uniqueItems": True},
        "[1,1]",
        "refused",
    ),
    Fault(
        "xgrammar",
        "a length lets raw control characters into strings",
        {"type": "string", "minLength": 1},
        '"\t"',
        "held by the guard",
    ),
    Fault(
        "outlines",
        "`minimum` and `maximum` are ignored",
        {"type": "integer", "minimum": 10},
        "3",
        "held by the guard",
    ),
    Fault(
        "outlines",
        "`multipleOf` is ignored",
        {"type": "integer", "multipleOf": 5},
        "3",
        "held by the guard",
    ),
    Fault(
        "outlines",
        "a property of any value breaks its object apart",
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        "null",
        "mended",
    ),
    Fault(
        "outlines",
        "an alternative hides the longer one that it begins",
        {"enum": [1, 10]},
        "10",
        "mended",
        rejects=True,
    ),
    Fault(
        "outlines",
        "of `integer` or `number` only integers come",
        {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        "1.5",
        "mended",
        rejects=True,
    ),
    Fault(
        "outlines",
        "`patternProperties` are ignored",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "patternProperties": {"a": {"minimum": 5}},
        },
        '{"a":3}',
        "held by the guard",
    ),
    Fault(
        "lm-format-enforcer",
        "a comma may stand before the closing brace",
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        '{"a":1,}',
        "held by the guard",
    ),
    Fault(
        "lm-format-enforcer", "`2.e1` is a number", {"type": "number"}, "2.e1", "held by the guard"
    ),
    Fault(
        "lm-format-enforcer",
        "`1e5` is an integer",
        {"type": "integer"},
        "1e5",
        "held by the guard",
    ),
    Fault(
        "lm-format-enforcer",
        "`minimum` and `maximum` are ignored",
        {"type": "integer", "minimum": 10},
        "3",
        "held by the guard",
    ),
    Fault(
        "lm-format-enforcer",
        "`uniqueItems` is ignored",
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "[1,1]",
        "held by the guard",
    ),
    Fault(
        "lm-format-enforcer",
        "arrays are cut at 20 items",
        {"type": "array", "items": {"type": "integer"}},
        f"[{','.join('1' * 25)}]",
        "mended",
        rejects=True,
    ),
    Fault(
        "lm-format-enforcer",
        "a schema with a key named `self` cannot be read",
        {"type": "object", "properties": {"a": {"type": "integer"}}, "self": {}},
        '{"a":1}',
        "mended",
        rejects=True,
    ),
]
