"""Schemas by number: those of one document, and those made of them."""

from collections.abc import Mapping
from typing import Any

from adapter.json_language.normal_form.forms import ANYTHING, Conditions
from adapter.languages.json_schema.references import is_local, resolve
from adapter.languages.json_schema.schema import Schema, SchemaError, walk

_NOTES = frozenset(
    (
        "$comment",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    )
)


class NotHeldError(Exception):
    """What this form cannot state, in words: the finished text has to be checked for it."""


class Schemas:
    """The schemas of a document, each with a number: the same one for what reads the same."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._numbers: dict[Any, int] = {}
        self._schemas: list[Mapping[str, Any]] = []
        self._is_based = any(
            "$id" in node or "id" in node for node in walk(root) if node is not root
        )

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        return self._schemas[number]

    def conditions(self, schema: Any, met: bool = True) -> Conditions | None:
        """What a value has to meet to satisfy a schema, or not to; None where none can.

        Raises:
            SchemaError: it is no schema.
        """
        if not isinstance(schema, Mapping | bool):
            raise SchemaError(f"a schema must be an object or a boolean, not {schema!r:.100}")
        if isinstance(schema, bool) or not (schema.keys() - _NOTES):
            return ANYTHING if (schema is not False) == met else None
        return frozenset({(self._number(schema), met)})

    def unmet(self, conditions: Conditions) -> Conditions | None:
        """What meets not all of some conditions; None where every value meets them."""
        if not conditions:
            return None
        if len(conditions) == 1:
            ((number, met),) = conditions
            return frozenset({(number, not met)})
        parts = [
            self._schemas[number] if met else {"not": self._schemas[number]}
            for number, met in sorted(conditions)
        ]
        return self.conditions({"allOf": parts}, met=False)

    def target(self, reference: Any) -> Any:
        """What a reference stands for, and where that is but a reference, what that stands for.

        Raises:
            SchemaError: it leads to nothing.
            NotHeldError: it is of a kind that is not followed.
        """
        known = set[str]()
        while reference not in known:
            target = self._resolved(reference)
            if not isinstance(target, Mapping) or target.keys() != {"$ref"}:
                return target
            known.add(reference)
            reference = target["$ref"]
        return False

    def _resolved(self, reference: Any) -> Any:
        if not isinstance(reference, str):
            raise SchemaError("$ref must be a string")
        if is_local(reference) and not self._is_based:
            return resolve(reference, self._root)
        raise NotHeldError(f"$ref {reference[:100]}")

    def _number(self, schema: Mapping[str, Any]) -> int:
        key = _key(schema)
        if key not in self._numbers:
            self._numbers[key] = len(self._schemas)
            self._schemas.append(schema)
        return self._numbers[key]


def _key(schema: Mapping[str, Any]) -> Any:
    """The same for schemas that read the same, where that is quickly seen."""
    fields = [(name, value) for name, value in schema.items() if name not in _NOTES]
    flat = all(isinstance(value, str | int) for _, value in fields)
    if not flat:
        return id(schema)
    return tuple(sorted((name, type(value).__name__, value) for name, value in fields))
