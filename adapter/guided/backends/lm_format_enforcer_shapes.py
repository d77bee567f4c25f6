"""What lm-format-enforcer is told of a JSON schema: its structure, never narrower than it is.

Types, names, which of them are required, unions, references, enums. Where the library would be
narrower than the schema it is told less, and what it counts or compares (lengths, numbers of items,
bounds, patterns) it is not told at all: the guard that narrows before it is exact, and two matchers
that disagree would leave no token.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

from lmformatenforcer.external.jsonschemaobject import JsonSchemaObject

_MOST_CHOICES = 32  # of unions: each is one more parser for every character
_MOST_STRINGS = 1_000  # of an enum: each is looked at for every character
_MOST_SHAPES = 20_000


class Shapes:
    """A schema in the library's terms, never narrower than it is.

    Children are schemas that all hold; what is not understood is left out, and so is wide.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.written: set[str] = set()
        """Characters beyond ASCII in its names and enums."""
        self._known: dict[frozenset[frozenset[int]], Any] = {}
        self._kept: list[Any] = []

    def of(self, *choices: Sequence[Any]) -> Any:
        """The shape of what all schemas of one of these choices allow."""
        key = frozenset(frozenset(map(id, schemas)) for schemas in choices)
        if key not in self._known:
            if len(self._known) >= _MOST_SHAPES:
                raise ValueError("the schema is too large")
            self._kept.append(choices)
            # Known before it is made: a schema can hold itself.
            shape = self._known[key] = JsonSchemaObject()
            options = self._options([c for each in choices for c in self._choices(each, set())])
            made = options[0] if len(options) == 1 else JsonSchemaObject(anyOf=options)
            shape.__dict__.update(made.__dict__ if options else self.of([]).__dict__)
        return self._known[key]

    def _choices(self, schemas: Iterable[Any], seen: set[str]) -> list[list[dict[str, Any]]]:
        """Schemas without references and unions: in each choice, all hold."""
        plain: list[dict[str, Any]] = []
        unions: list[list[Any]] = []
        waiting = list(schemas)
        while waiting:
            schema = waiting.pop(0)
            if schema is False:
                return []
            if schema is True:
                continue
            if "$ref" in schema:
                if schema["$ref"] not in seen:
                    seen.add(schema["$ref"])
                    waiting.append(self._target(schema["$ref"]))
                continue
            plain.append(schema)
            waiting.extend(schema.get("allOf", ()))
            unions.extend(schema[union] for union in ("anyOf", "oneOf") if union in schema)
            values = _values(schema) or []
            unions.extend([] if _is_flat(values) else [[_schema_of(value) for value in values]])
        return self._product(plain, unions, seen)

    def _product(
        self, plain: list[dict[str, Any]], unions: list[list[Any]], seen: set[str]
    ) -> list[list[dict[str, Any]]]:
        choices = [plain]
        for union in unions:
            branches = [c for branch in union for c in self._choices([branch], set(seen))]
            if len(choices) * len(branches) <= _MOST_CHOICES:
                choices = [choice + branch for choice in choices for branch in branches]
        return choices

    def _target(self, ref: str) -> Any:
        if ref != "#" and not ref.startswith("#/"):
            raise ValueError(f"$ref {ref!r} is no path into the schema")
        found = self.root
        for part in unquote(ref).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name) if isinstance(found, list) else name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ValueError(f"$ref {ref!r} points nowhere") from None
        return found

    def _options(self, choices: list[list[dict[str, Any]]]) -> list[Any]:
        """One shape for each type, and one for each choice of an object."""
        types: set[str] = set()
        enum: list[Any] = []
        objects, arrays = [], []
        for choice in choices:
            values = next((v for v in map(_values, choice) if v and _is_flat(v)), None)
            if values is not None:
                enum += values
                continue
            allowed = set.intersection(set(_TYPES), *map(_types, choice))
            types |= allowed
            objects += [self._object(choice)] if "object" in allowed else []
            arrays += [choice] if "array" in allowed else []
        return objects + ([self._array(arrays)] if arrays else []) + self._scalars(types, enum)

    def _scalars(self, types: set[str], enum: list[Any]) -> list[Any]:
        numbers = [v for v in enum if isinstance(v, int | float) and not isinstance(v, bool)]
        strings = [self._quoted(v) for v in enum if isinstance(v, str)]
        shapes: list[dict[str, Any]] = []
        if "string" in types or len(strings) > _MOST_STRINGS:
            shapes.append({"type": "string"})
        elif strings:
            shapes.append({"type": "string", "enum": strings})
        if "number" in types or not all(map(_is_written_plainly, numbers)):
            shapes.append({"type": "number"})
        elif "integer" in types or len(numbers) > 64:
            shapes.append({"type": "integer"})
        elif numbers:
            shapes.append({"enum": numbers})
        shapes += [{"type": "boolean"}] * (
            "boolean" in types or any(v in enum for v in (True, False))
        )
        shapes += [{"type": "null"}] * ("null" in types or None in enum)
        return [JsonSchemaObject(**shape) for shape in shapes]

    def _array(self, choices: list[list[dict[str, Any]]]) -> Any:
        items = [
            [
                s["items"]
                for s in choice
                if "prefixItems" not in s and isinstance(s.get("items"), dict)
            ]
            for choice in choices
        ]
        shape = JsonSchemaObject(type="array")
        # The library cannot tell several kinds of arrays apart.
        shape.items = self.of(*items)
        return shape

    def _object(self, schemas: list[dict[str, Any]]) -> Any:
        shape = JsonSchemaObject(type="object", properties={})
        others = [_others(schema) for schema in schemas]
        is_open = not any(other is False for other in others)
        required = [name for schema in schemas for name in schema.get("required", ())]
        names = [name for schema in schemas for name in schema.get("properties", ())]
        for name in dict.fromkeys(names + required):
            values = [
                schema.get("properties", {}).get(name, other)
                for schema, other in zip(schemas, others, strict=True)
            ]
            if not any(value is False for value in values):
                shape.properties[self._quoted(name)] = self.of(values)
        shape.additionalProperties = is_open and self.of(others)
        # The library does not keep what was escaped in a name that may be any.
        shape.required = [
            quoted
            for quoted in map(self._quoted, required)
            if quoted in shape.properties and not (is_open and "\\" in quoted)
        ]
        return shape

    def _quoted(self, text: str) -> str:
        """As llguidance writes it, between the quotes."""
        self.written.update(character for character in text if character > "\x7f")
        return json.dumps(text, ensure_ascii=False)[1:-1]


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def _types(schema: dict[str, Any]) -> set[str]:
    types = schema.get("type", _TYPES)
    types = {types} if isinstance(types, str) else set(types)
    if not types <= set(_TYPES):
        raise ValueError(f"type {schema['type']!r} is unknown")
    return types | ({"integer"} if "number" in types else set())


def _others(schema: dict[str, Any]) -> Any:
    """The schema of a property that is not declared."""
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def _values(schema: dict[str, Any]) -> list[Any] | None:
    values: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return values


def _is_flat(values: list[Any]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)


def _is_written_plainly(number: float) -> bool:
    """Whether all libraries write it alike."""
    return isinstance(number, int) and abs(number) < 1 << 53


def _schema_of(value: Any) -> dict[str, Any]:
    """A schema that allows this value, and arrays of its items."""
    if isinstance(value, dict):
        properties = {name: {"const": each} for name, each in value.items()}
        closed = {"additionalProperties": False, "required": list(value)}
        return {"type": "object", "properties": properties, **closed}
    if isinstance(value, list):
        return {"type": "array", "items": {"enum": value}}
    return {"const": value}
