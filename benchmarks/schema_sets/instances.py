"""Instances of a schema, drawn at random from what it says, and told apart by jsonschema."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema.validators import Draft202012Validator, validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

from adapter.languages.json_schema.references import resolve
from adapter.languages.json_schema.schema import SchemaError

_TRIES = 40
_DEEPEST = 6
_MOST_PROPERTIES = 5
_LONGEST = 4000
"""Characters of an instance as JSON."""

_FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:30:00Z",
    "email": "ada@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "regex": "a+",
    "time": "12:30:00Z",
    "uri": "https://example.org/a",
    "uri-reference": "a/b",
    "uuid": "12345678-1234-4234-8234-123456789abc",
}
# One of these is meant to fit most patterns of the real world.
_TEXTS = ("a", "name", "1", "1.0.0", "v1", "a-b", "a/b", "A", "0x1F", "#fff", "*", "1.2", "10s")
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_HINTS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "multipleOf"),
}


def validator_of(schema: Any) -> Any:
    """jsonschema's class for the schema's draft, the latest where it names none that is known."""
    return validator_for(schema, default=Draft202012Validator)


class _NoValueError(Exception):
    """Nothing that the schema allows was found."""


class Instances:
    """Draws instances of one schema."""

    def __init__(self, schema: Any, seed: str) -> None:
        self._schema = schema
        self._random = random.Random(seed)
        kind = validator_of(schema)
        # A registry of its own, which fetches nothing.
        self._validator = kind(schema, registry=REGISTRY)
        self._with_formats = kind(schema, registry=REGISTRY, format_checker=kind.FORMAT_CHECKER)

    def draw(self, count: int) -> tuple[list[Any], list[Any]]:
        """At most so many different valid instances, and so many invalid ones.

        One that a format alone makes invalid is neither.
        """
        valid: dict[str, Any] = {}
        invalid: dict[str, Any] = {}
        try:
            for value in self._candidates(valid):
                text = json.dumps(value)
                if len(text) > _LONGEST:
                    continue
                if not self._validator.is_valid(value):
                    invalid[text] = value
                elif self._with_formats.is_valid(value):
                    valid[text] = value
        except (Unresolvable, RecursionError, re.error):
            return [], []  # the validator cannot say
        return list(valid.values())[:count], list(invalid.values())[:count]

    def _candidates(self, valid: dict[str, Any]) -> Iterator[Any]:
        """Values meant to be valid, and changed ones of those that are."""
        for _ in range(_TRIES):
            try:
                yield self._value(self._schema, 0)
            except (_NoValueError, RecursionError):
                continue
        for value in list(valid.values()):
            for _ in range(_TRIES // 4):
                yield self._changed(value)

    def _value(self, schema: Any, depth: int) -> Any:
        if schema is False or depth > 3 * _DEEPEST:
            raise _NoValueError
        if not isinstance(schema, dict):
            return self._random.choice(_TEXTS)
        schema = self._plain(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._random.choice(schema["enum"])
        known = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())]
        if known and self._random.random() < 0.5:
            return self._random.choice(known)
        make: Callable[[dict[str, Any], int], Any] = getattr(self, f"_{self._type(schema)}")
        return make(schema, depth)

    def _plain(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """The schema with its references and one branch of each choice merged into it."""
        merged = dict(schema)
        for _ in range(_DEEPEST):
            more = [*merged.pop("allOf", ())]
            for name in ("anyOf", "oneOf"):
                if branches := merged.pop(name, None):
                    more.append(self._random.choice(branches))
            if reference := merged.pop("$ref", None):
                more.append(self._resolved(reference))
            if not more:
                break
            for part in more:
                merged = _merged(merged, part)
        return merged

    def _resolved(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise _NoValueError
        try:
            return resolve(reference, self._schema)
        except SchemaError as error:
            raise _NoValueError from error

    def _type(self, schema: dict[str, Any]) -> str:
        named = schema.get("type")
        if isinstance(named, list):
            return str(self._random.choice(named))
        if named is not None:
            return str(named)
        hinted = [kind for kind, words in _HINTS.items() if any(word in schema for word in words)]
        return self._random.choice(hinted or _TYPES)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = list(schema.get("required") or ())
        names = dict.fromkeys(required)
        if depth < _DEEPEST:
            optional = [name for name in properties if name not in names]
            most = min(len(optional), _MOST_PROPERTIES)
            names |= dict.fromkeys(self._random.sample(optional, self._random.randint(0, most)))
        found = {}
        for name in names:
            try:
                found[name] = self._value(properties.get(name, True), depth + 1)
            except _NoValueError:
                if name in required:
                    raise
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        extra = self._random.randint(0, 2) if depth < _DEEPEST else 0
        count = min(least + extra, schema.get("maxItems", least + extra))
        listed, items = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(items, list):
            listed, items = items, schema.get("additionalItems", True)
        kinds = [listed[place] if place < len(listed) else items for place in range(count)]
        return [self._value(kind, depth + 1) for kind in kinds]

    def _string(self, schema: dict[str, Any], depth: int) -> str:
        if (text := _FORMATS.get(schema.get("format", ""))) is not None:
            return text
        least = schema.get("minLength", 0)
        most = schema.get("maxLength", max(least, 20))
        texts = [text.ljust(least, "a")[:most] for text in _TEXTS]
        pattern = schema.get("pattern")
        fitting = [text for text in texts if pattern is None or re.search(pattern, text)]
        if not fitting:
            raise _NoValueError
        return self._random.choice(fitting)

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        return self._integer(schema, depth) + self._random.choice((0, 0, 0.5))

    def _integer(self, schema: dict[str, Any], depth: int) -> int:
        low = int(schema.get("minimum", min(0, int(schema.get("maximum", 0)))))
        high = int(schema.get("maximum", low + 100))
        step = int(schema.get("multipleOf", 1)) or 1
        return step * -(-self._random.randint(low, max(low, high)) // step)

    def _boolean(self, schema: dict[str, Any], depth: int) -> bool:
        return self._random.random() < 0.5

    def _null(self, schema: dict[str, Any], depth: int) -> None:
        return None

    def _changed(self, value: Any) -> Any:
        """The value with one thing in it removed, added or replaced."""
        inside = self._random.random() < 0.6
        if isinstance(value, dict) and value and inside:
            name = self._random.choice(list(value))
            return value | {name: self._changed(value[name])}
        if isinstance(value, list) and value and inside:
            place = self._random.randrange(len(value))
            return [*value[:place], self._changed(value[place]), *value[place + 1 :]]
        if isinstance(value, dict) and self._random.random() < 0.7:
            if value and self._random.random() < 0.6:
                left_out = self._random.choice(list(value))
                return {name: kept for name, kept in value.items() if name != left_out}
            return value | {"unknown": 1}
        return self._random.choice([None, True, -1, 0.5, "", "?", [], {}])


def _merged(schema: dict[str, Any], part: Any) -> dict[str, Any]:
    """Both together, as far as they can be: names and requirements added up, else the part's."""
    if not isinstance(part, dict):
        if part is False:
            raise _NoValueError
        return schema
    merged = schema | part
    if "properties" in schema and "properties" in part:
        merged["properties"] = schema["properties"] | part["properties"]
    if isinstance(schema.get("required"), list) and isinstance(part.get("required"), list):
        merged["required"] = list(dict.fromkeys([*schema["required"], *part["required"]]))
    return merged
