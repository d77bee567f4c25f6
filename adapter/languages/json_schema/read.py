"""Reads a caller's JSON schema: what is wrong with it, and what no text could satisfy.

Only what holds for every library: malformed references, endless recursion, keys that would switch
a library's checks off. What one library cannot do is its own to say.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any] | bool

MAX_DEPTH = 64
"""Levels of nesting; deeper ones overflow the libraries' stacks."""

# Keywords whose value is a schema, a list of schemas, or an object of schemas (JSON Schema draft
# 2020-12 and the drafts before it).
_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LIST = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_TABLE = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)

# llguidance's own options inside a schema: with them a caller, or whoever wrote the schema, could
# switch its checks off.
_OPTIONS = "x-guidance"


# An escaped control character that has no short form: the backslash is not itself escaped.
_CONTROL = re.compile(r"(?<!\\)(?:\\\\)*\\u00(?:0[0-7bef]|1[0-9a-f])", re.IGNORECASE)


class SchemaError(ValueError):
    """A schema that no library is given; the message is for the caller."""


def read_schema(text: str) -> Schema:
    """The schema, checked, with what can never be finished taken out.

    Raises:
        SchemaError: it is not a schema, or no finite text satisfies it.
    """
    schema = json.loads(text)
    if _CONTROL.search(text):
        raise SchemaError("it holds a control character that only an escape by number could write.")
    if not isinstance(schema, dict | bool):
        raise SchemaError("the schema must be an object.")
    if isinstance(schema, dict) and not isinstance(schema.get("$schema"), str | None):
        raise SchemaError("$schema must be a string.")
    if _depth(schema) > MAX_DEPTH:
        raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH} levels.")
    schema = _as_schema(rewrite(_with_short_references(schema), _plain))
    nodes = list(walk(schema))
    based = any("$id" in node or "id" in node for node in nodes if node is not schema)
    for node in nodes:
        if _OPTIONS in node:
            raise SchemaError(
                f'the key "{_OPTIONS}" is no part of JSON Schema and could switch checks off: '
                "remove it."
            )
        if "$ref" in node:
            _check_reference(node["$ref"], schema, based)
    return schema if based else _finite(schema, nodes)


_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_NOTES = frozenset(
    (
        "$comment",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    )
)


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    """The same schema as the libraries read it best: counts as integers, a $ref without notes."""
    counts = {
        name: int(node[name])
        for name in _COUNTS
        if isinstance(node.get(name), float) and node[name].is_integer()
    }
    if "$ref" in node:
        node = {name: value for name, value in node.items() if name not in _NOTES}
    return node | counts


def _with_short_references(schema: Schema) -> Schema:
    """References by the schema's own `$id`, which stand for `#`, written so."""
    own = schema.get("$id") if isinstance(schema, dict) else None
    if not isinstance(own, str) or not own.rstrip("#"):
        return schema
    base = own.rstrip("#")

    def change(node: dict[str, Any]) -> dict[str, Any]:
        name = node.get("$ref")
        if isinstance(name, str) and name.partition("#")[0] == base:
            return node | {"$ref": "#" + name.partition("#")[2]}
        return node

    return _as_schema(rewrite(schema, change))


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object that stands where a schema stands, the schema itself first."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += children(node)


def children(node: dict[str, Any]) -> Iterator[Any]:
    """The schemas directly inside a schema."""
    for name in _ONE:
        if isinstance(node.get(name), dict):
            yield node[name]
    for name in _LIST:
        if isinstance(node.get(name), list):
            yield from node[name]
    for name in _TABLE:
        if isinstance(node.get(name), dict):
            yield from node[name].values()


def rewrite(schema: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """A copy where every schema object was passed through `change`, the outer one first."""
    if not isinstance(schema, dict):
        return schema
    node = change(schema)
    if not isinstance(node, dict):
        return node
    node = dict(node)
    for name in _ONE:
        if isinstance(node.get(name), dict):
            node[name] = rewrite(node[name], change)
    for name in _LIST:
        if isinstance(node.get(name), list):
            node[name] = [rewrite(item, change) for item in node[name]]
    for name in _TABLE:
        if isinstance(node.get(name), dict):
            node[name] = {key: rewrite(item, change) for key, item in node[name].items()}
    return node


def without_formats(schema: Schema, known: Callable[[str], bool]) -> Schema:
    """Leave out the formats that a library does not know, as a validator would."""

    def change(node: dict[str, Any]) -> dict[str, Any]:
        name = node.get("format")
        if not isinstance(name, str) or known(name):
            return node
        return {key: value for key, value in node.items() if key != "format"}

    return _as_schema(rewrite(schema, change))


def _as_schema(value: Any) -> Schema:
    assert isinstance(value, dict | bool)
    return value


def _depth(value: Any) -> int:
    deepest = 0
    waiting = [(value, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        if depth > MAX_DEPTH:
            break
        inner = node.values() if isinstance(node, dict) else node
        if isinstance(node, dict | list):
            waiting += [(item, depth + 1) for item in inner]
    return deepest


# --- references ---------------------------------------------------------------------------------


def _check_reference(reference: Any, root: Schema, based: bool) -> None:
    """Refuse a reference that leads nowhere, or out of the schema: nothing is ever fetched.

    based: there is an `$id` inside, which changes what references count from; the libraries judge.
    """
    if not isinstance(reference, str):
        raise SchemaError("$ref must be a string.")
    if reference.startswith("#"):
        if reference[1:2] in ("", "/") and not based:
            resolve(reference, root)
    elif not based and not (isinstance(root, dict) and ("$id" in root or "id" in root)):
        raise SchemaError(
            f'$ref "{reference[:200]}" leads out of the schema, and nothing is fetched: put what '
            "it stands for under $defs."
        )


def resolve(reference: str, root: Schema) -> Any:
    """What a local reference (`#`, `#/$defs/name`) stands for.

    Raises:
        SchemaError: there is nothing at that place.
    """
    node: Any = root
    for part in reference.lstrip("#").split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(key)] if isinstance(node, list) and key.isdigit() else node[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaError(f'$ref "{reference[:200]}" leads to nothing.') from None
    return node


# --- what can be finished -----------------------------------------------------------------------


def _finite(schema: Schema, nodes: Sequence[dict[str, Any]]) -> Schema:
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
    endless = {name for name in targets if not can.ends[name]}
    if not endless:
        return schema
    return _as_schema(rewrite(schema, lambda node: False if node.get("$ref") in endless else node))


def _targets(schema: Schema, nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each local reference stands for, those that are only found behind others included."""
    targets: dict[str, Any] = {}
    waiting = list(nodes)
    while waiting:
        name = waiting.pop().get("$ref")
        if isinstance(name, str) and _is_local(name) and name not in targets:
            targets[name] = resolve(name, schema)
            waiting += walk(targets[name])
    return targets


def _is_local(reference: str) -> bool:
    return reference == "#" or reference.startswith("#/")


class _Finite:
    """Which references a finite text can satisfy: the least fixed point over all of them."""

    def __init__(self, targets: dict[str, Any]) -> None:
        self.ends = dict.fromkeys(targets, False)
        changed = True
        while changed:
            changed = False
            for name, target in targets.items():
                if not self.ends[name] and self.end(target):
                    self.ends[name] = changed = True

    def end(self, node: Any) -> bool:
        """Whether some finite text satisfies a schema, as far as its references tell."""
        if not isinstance(node, dict):
            return node is not False
        if "const" in node or "enum" in node:
            return True
        return (
            self.ends.get(node.get("$ref", ""), True)
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
