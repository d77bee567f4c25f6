"""A shape: a schema as a library prints it, with a prompt that it fits."""

from typing import Any, NamedTuple

MAX_TOKENS = 400


class Shape(NamedTuple):
    """A schema that people ask for."""

    name: str
    prompt: str
    schema: dict[str, Any]
    keywords: tuple[str, ...] = ()
    """What makes it hard to hold; without them it is the base that costs are compared with."""
    max_tokens: int = MAX_TOKENS

    def base(self) -> dict[str, Any] | None:
        """The schema without its keywords; None where it has none."""
        return without(self.schema, self.keywords) if self.keywords else None


_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples", "required", "dependentRequired"})


def without(schema: Any, keywords: tuple[str, ...]) -> Any:
    """A schema without some keywords, wherever they stand."""
    if isinstance(schema, list):
        return [without(each, keywords) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left = {}
    for key, value in schema.items():
        if key in keywords:
            continue
        if key in _NAMED and isinstance(value, dict):
            left[key] = {name: without(each, keywords) for name, each in value.items()}
        else:
            left[key] = value if key in _VALUES else without(value, keywords)
    return left
