"""How much of a schema's structure outlines_core is told: no more than it can index in time.

It makes one regular expression of a schema, so references stand as what they lead to, and one
automaton of that over the vocabulary: for each state it walks the tokens that may come. That costs
about 10 ms for a string, whose every state takes most of the tokens, and a tenth of a millisecond
for a character that is written. Where a part would cost too much, the library is told that from its
beginning on anything may come. So it is of objects and arrays of anything, and of objects that may
have names beside the declared ones, which the library would close.
"""

import json
from collections.abc import Iterable
from typing import Any

from outlines_core.json_schema import build_regex_from_schema

from adapter.guided.structure import ANY, structure_of

MILLISECONDS = 500.0
"""What building the index may take, by the estimate."""

MAX_DEPTH = 16
"""Levels of objects and arrays, and references on the way: an array writes its items twice."""

_TYPES = {"string": 10.0, "number": 5.0, "integer": 4.0, "boolean": 1.0, "null": 0.5}
_CHARACTER = 0.15
_MEMBER = 4.0
_PAIR = 0.15  # of members, where none is required: each is written behind each

_ANYTHING_COSTS = 10.0

_EXPONENT = "[eE][+-][0-9]+"  # as the library writes it, which leaves 1e5 out

_MARK = "\ue000"  # a character that no pattern escapes
_BEGINS = {"object": r"\{", "array": r"\[", "value": ""}


def _anything(kind: str) -> dict[str, Any]:
    return {"const": f"{_MARK}{kind}"}


_SCALARS = ("string", "number", "boolean", "null")
_ANY: dict[str, Any] = {
    "anyOf": [*({"type": name} for name in _SCALARS), _anything("object"), _anything("array")]
}
_ANY_COSTS = 30.0

Told = tuple[dict[str, Any], float]
"""A schema, and what it costs."""


def regex_of_schema(schema: Any, whitespace: str | None) -> str:
    """A regular expression of no less than a schema, for who has a guard beside it.

    whitespace: the one between JSON's tokens, `[ ]?` without.

    Raises:
        ValueError: outlines_core cannot express the schema.
    """
    regex = str(build_regex_from_schema(json.dumps(affordable(structure_of(schema))), whitespace))
    for kind, begin in _BEGINS.items():
        # No JSON has that character, so nobody comes to an end here: the guard does. NUL would
        # begin the whole expression once more, which is not anchored, and multiply the states.
        regex = regex.replace(f'"{_MARK}{kind}"', f"{begin}[^\\x00\\x01]*\\x01")
    return regex.replace(_EXPONENT, _EXPONENT.replace("[+-]", "[+-]?")).removesuffix("\\x01")


def affordable(schema: dict[str, Any], milliseconds: float = MILLISECONDS) -> dict[str, Any]:
    """A `structure_of` a schema without references, whose index costs no more than that."""
    return _Budgeted(schema.get("$defs", {})).told(schema, milliseconds, ())[0]


class _Budgeted:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def told(self, node: dict[str, Any], left: float, path: tuple[str, ...]) -> Told:
        """path: the references, and a "/" for each level, on the way here."""
        reference = node.get("$ref")
        if left < 1 or len(path) > MAX_DEPTH or reference in path:
            return self._anything(node)
        if reference is not None:
            return self.told(self._target(reference), left, (*path, reference))
        told = self._told(node, left, path)
        return self._anything(node) if told[1] > max(left, _ANYTHING_COSTS) else told

    def _target(self, reference: str) -> dict[str, Any]:
        target: dict[str, Any] = self._definitions[reference.rpartition("/")[2]]
        return target

    def _anything(self, node: dict[str, Any]) -> Told:
        """What begins like it, if that is known."""
        node = self._target(node["$ref"]) if "$ref" in node else node
        name = node.get("type")
        kind = name if name in _BEGINS else "value"
        return _anything(kind), _ANYTHING_COSTS

    def _told(self, node: dict[str, Any], left: float, path: tuple[str, ...]) -> Told:
        if "enum" in node:
            return _enum(node, left)
        if node == ANY:
            return _ANY, _ANY_COSTS
        if "anyOf" in node:
            options, cost = self._shared(node["anyOf"], left, path)
            return {"anyOf": options}, cost
        name = node.get("type", "string")
        if name == "object":
            return self._object(node, left, (*path, "/"))
        if name == "array":
            return self._array(node, left, (*path, "/"))
        return {"type": name}, _TYPES[name]

    def _object(self, node: dict[str, Any], left: float, path: tuple[str, ...]) -> Told:
        others = node.get("additionalProperties")
        if ("properties" in node) == (others is not None):
            return _anything("object"), _ANYTHING_COSTS
        if others is not None:
            value, cost = self.told(others, left / 2, path)
            return {"type": "object", "additionalProperties": value}, 2 * cost + _TYPES["string"]
        members = node["properties"]
        written = sum(_MEMBER + _CHARACTER * len(name) for name in members)
        if not node["required"]:
            written += _PAIR * len(members) ** 2
        values, cost = self._shared(members.values(), left - written, path)
        told = {"type": "object", "properties": dict(zip(members, values, strict=True))}
        return told | {"required": node["required"]}, written + cost

    def _array(self, node: dict[str, Any], left: float, path: tuple[str, ...]) -> Told:
        if "prefixItems" in node:
            first, cost = self._shared(node["prefixItems"], left, path)
            return {**node, "prefixItems": first, "items": False, "minItems": len(first)}, cost
        if "items" not in node:
            return _anything("array"), _ANYTHING_COSTS
        items, cost = self.told(node["items"], left / 2, path)
        return {"type": "array", "items": items}, 2 * cost

    def _shared(
        self, nodes: Iterable[dict[str, Any]], left: float, path: tuple[str, ...]
    ) -> tuple[list[dict[str, Any]], float]:
        """Several schemas, each with its share of what those before it have left."""
        waiting, told, total = list(nodes), [], 0.0
        for index, node in enumerate(waiting):
            share = (left - total) / (len(waiting) - index)
            one, cost = self.told(node, share, path)
            told.append(one)
            total += cost
        return told, total


def _enum(node: dict[str, Any], left: float) -> Told:
    values = node["enum"]
    cost = _CHARACTER * sum(len(str(value)) + 2 for value in values)
    if cost <= left:
        return {"enum": values}, cost
    all_text = all(isinstance(value, str) for value in values)
    return ({"type": "string"}, _TYPES["string"]) if all_text else (_ANY, _ANY_COSTS)
