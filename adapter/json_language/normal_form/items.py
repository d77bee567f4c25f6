"""Keywords about the items of arrays."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from adapter.json_language.normal_form.forms import (
    ANY,
    ANYTHING,
    NOTHING,
    Array,
    Conditions,
    Count,
    Form,
)
from adapter.json_language.normal_form.scalars import Keywords, count_of, item_at
from adapter.json_language.normal_form.schemas import NotHeldError, Schemas
from adapter.languages.json_schema.schema import SchemaError

ITEMS = ("prefixItems", "items", "additionalItems")


def arrays(*alternatives: Array) -> Form:
    """Any value, where an array has to be one of these."""
    return replace(ANY, arrays=alternatives)


def only_arrays(*alternatives: Array) -> Form:
    """These arrays, and no other values."""
    return replace(NOTHING, arrays=alternatives)


def _parts(node: Keywords) -> tuple[list[Any], Any, bool]:
    """The schemas of the first items and of the others, and whether the others are spoken of."""
    first, rest = node.get("prefixItems", []), node.get("items")
    if isinstance(rest, list):  # as drafts before 2020-12 write it
        first, rest = rest, node.get("additionalItems")
    if not isinstance(first, list):
        raise SchemaError("prefixItems must be a list of schemas")
    return first, True if rest is None else rest, rest is not None


def of_items(node: Keywords, schemas: Schemas, met: bool) -> Form:
    """prefixItems and items, or items as a list and additionalItems."""
    first, rest, spoken = _parts(node)
    if not met:
        return only_arrays(*_broken(first, rest, schemas))
    prefix = [schemas.conditions(schema) for schema in first]
    if None in prefix:
        end = prefix.index(None)
        prefix, rest = prefix[:end], False
    return arrays(
        Array(
            tuple(conditions for conditions in prefix if conditions is not None),
            schemas.conditions(rest),
            evaluated=None if spoken else len(first),
        )
    )


def _broken(first: list[Any], rest: Any, schemas: Schemas) -> Iterable[Array]:
    for index, schema in enumerate(first):
        conditions = schemas.conditions(schema, met=False)
        if conditions is not None:
            yield item_at(index, conditions)
    conditions = schemas.conditions(rest, met=False)
    if conditions is not None:
        yield Array(counts=frozenset({Count(conditions, start=len(first))}))


def of_counts(node: Keywords, met: bool) -> Iterable[Form]:
    """minItems and maxItems."""
    if "minItems" in node:
        low = count_of(node, "minItems")
        few = [Array(high=low - 1)] if low else []
        yield arrays(Array(low=low)) if met else only_arrays(*few)
    if "maxItems" in node:
        high = count_of(node, "maxItems")
        yield arrays(Array(high=high)) if met else only_arrays(Array(low=high + 1))


def of_contains(node: Keywords, schemas: Schemas, met: bool) -> Form:
    """contains with minContains and maxContains."""
    low = count_of(node, "minContains") if "minContains" in node else 1
    high = count_of(node, "maxContains") if "maxContains" in node else None
    wanted = schemas.conditions(node["contains"])
    if wanted is None:
        return (
            arrays(*([] if low else [Array()])) if met else only_arrays(*([Array()] if low else []))
        )
    if not met:
        return only_arrays(*_miscounted(wanted, low, high))
    if low == 0 and high is None:
        return arrays(Array(evaluated_where=frozenset({wanted})))
    count = Count(wanted, low, high)
    return arrays(Array(counts=frozenset({count}), evaluated_where=frozenset({wanted})))


def _miscounted(wanted: Conditions, low: int, high: int | None) -> Iterable[Array]:
    if low:
        yield Array(counts=frozenset({Count(wanted, 0, low - 1)}))
    if high is not None:
        yield Array(counts=frozenset({Count(wanted, high + 1)}))


def of_unique(node: Keywords, met: bool) -> Form:
    """uniqueItems."""
    if not node["uniqueItems"]:
        return ANY if met else NOTHING
    if not met:
        raise NotHeldError("not of uniqueItems")
    return arrays(Array(unique=True))


def unevaluated(array: Array, conditions: Conditions | None, schemas: Schemas) -> Iterable[Array]:
    """An alternative whose items that nothing evaluated meet conditions (None: there are none)."""
    if array.evaluated is None:
        return [array]
    if array.evaluated_where and conditions != ANYTHING:
        conditions = _either([*array.evaluated_where, conditions], schemas)
    limit = Array((ANYTHING,) * array.evaluated, conditions, evaluated=None)
    return [array.meet(limit)]


def _either(parts: list[Conditions | None], schemas: Schemas) -> Conditions:
    unmet = [schemas.unmet(part) for part in parts if part is not None]
    every = frozenset[Any]().union(*(part for part in unmet if part is not None))
    if None in unmet:
        return ANYTHING
    one = schemas.unmet(every)
    assert one is not None
    return one
