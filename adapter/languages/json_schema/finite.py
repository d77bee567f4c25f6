"""What of a JSON schema can be finished: where its references recurse, and where they end."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from adapter.languages.fixed_point import settle
from adapter.languages.json_schema.references import is_local, resolve
from adapter.languages.json_schema.schema import Schema, SchemaError, as_schema, rewrite, walk


def finite(schema: Schema, nodes: Sequence[dict[str, Any]]) -> Schema:
    """The schema with `false` for each reference that only an endless text would satisfy.

    A library follows such a reference into a text without an end, or into a dead one.

    Raises:
        SchemaError: no finite text satisfies the whole.
    """
    targets = _targets(schema, nodes)
    if not targets:
        return schema
    can = _Finite(targets)
    if not can.end(schema):
        raise SchemaError("no finite JSON text satisfies it: its $ref leads back to itself.")
    endless = {name for name in targets if name not in can.ends}
    if not endless:
        return schema
    return as_schema(rewrite(schema, lambda node: False if node.get("$ref") in endless else node))


def _targets(schema: Schema, nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each local reference stands for, those that are only found behind others included."""
    targets: dict[str, Any] = {}
    waiting = list(nodes)
    while waiting:
        name = waiting.pop().get("$ref")
        if is_local(name) and name not in targets:
            targets[name] = resolve(name, schema)
            waiting += walk(targets[name])
    return targets


class _Finite:
    """Which references a finite text can satisfy: the least fixed point over all of them."""

    def __init__(self, targets: dict[str, Any]) -> None:
        self._targets = targets
        self.ends = set[str]()
        settle(targets, self._inside, lambda name: self.end(targets[name]), self.ends)

    def _inside(self, name: str) -> list[str]:
        """The references in what a reference stands for."""
        found = (node.get("$ref") for node in walk(self._targets[name]))
        return [reference for reference in found if reference in self._targets]

    def end(self, node: Any) -> bool:
        """Whether some finite text satisfies a schema, as far as its references tell."""
        if not isinstance(node, dict):
            return node is not False
        if "const" in node or "enum" in node:
            return True
        reference = node.get("$ref")
        return (
            (reference not in self._targets or reference in self.ends)
            and all(map(self.end, _listed(node, "allOf")))
            and all(
                any(map(self.end, options))
                for name in ("anyOf", "oneOf")
                if (options := _listed(node, name))
            )
            and self._type_ends(node)
        )

    def _type_ends(self, node: dict[str, Any]) -> bool:
        types = node.get("type", "null")
        named = set(types) if isinstance(types, list) else {types}
        return bool(
            named - {"object", "array"}
            or ("object" in named and self._object_ends(node))
            or ("array" in named and self._array_ends(node))
        )

    def _object_ends(self, node: dict[str, Any]) -> bool:
        required = [name for name in _listed(node, "required") if isinstance(name, str)]
        if not all(self.end(value) for name in required for value in _values_of(node, name)):
            return False
        needed = node.get("minProperties", 0)
        if not isinstance(needed, int | float) or self.end(node.get("additionalProperties", True)):
            return True
        others = [name for name in _table(node, "properties") if name not in required]
        free = sum(all(map(self.end, _values_of(node, name))) for name in others)
        return len(required) + free >= needed or bool(_table(node, "patternProperties"))

    def _array_ends(self, node: dict[str, Any]) -> bool:
        needed = node.get("minItems", 0)
        if not isinstance(needed, int | float) or needed < 1:
            return True
        first, rest = _listed(node, "prefixItems"), node.get("items", True)
        if isinstance(rest, list):  # as drafts before 2020-12 write it
            first, rest = rest, node.get("additionalItems", True)
        if not all(map(self.end, first[: int(needed)])):
            return False
        return needed <= len(first) or self.end(rest)


def _values_of(node: dict[str, Any], name: str) -> list[Any]:
    """The schemas of a property, as far as they can be told."""
    declared = _table(node, "properties")
    found = [declared[name]] if name in declared else []
    for pattern, schema in _table(node, "patternProperties").items():
        with suppress(re.error):
            found += [schema] if re.search(pattern, name) else []
    return found or [node.get("additionalProperties", True)]


def _table(node: dict[str, Any], name: str) -> dict[str, Any]:
    value = node.get(name)
    return value if isinstance(value, dict) else {}


def _listed(node: dict[str, Any], name: str) -> list[Any]:
    value = node.get(name)
    return value if isinstance(value, list) else []
