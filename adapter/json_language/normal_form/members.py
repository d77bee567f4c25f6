"""Keywords about the members of objects."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from adapter.json_language.normal_form.forms import (
    ANY,
    ANYTHING,
    NOTHING,
    Condition,
    Conditions,
    Form,
    Object,
    Rule,
    Witness,
    without,
)
from adapter.json_language.normal_form.names import (
    ALL_NAMES,
    NO_NAMES,
    Listed,
    Matching,
    Names,
    either,
    has,
    listed,
    other,
)
from adapter.json_language.normal_form.scalars import Keywords, count_of
from adapter.json_language.normal_form.schemas import NotHeldError, Schemas
from adapter.languages.json_schema.schema import SchemaError
from adapter.languages.regex.parse import search_tree
from adapter.languages.regex.tree import choice

MEMBERS = ("properties", "patternProperties", "additionalProperties")


def objects(*alternatives: Object) -> Form:
    """Any value, where an object has to be one of these."""
    return replace(ANY, objects=alternatives)


def only_objects(*alternatives: Object) -> Form:
    """These objects, and no other values."""
    return replace(NOTHING, objects=alternatives)


def _table(node: Keywords, name: str) -> Mapping[str, Any]:
    value = node.get(name, {})
    if not isinstance(value, Mapping):
        raise SchemaError(f"{name} must be an object")
    return value


def _named(node: Keywords, *, widest: bool) -> Iterable[tuple[Names, Any]]:
    """Each set of names that is spoken of, and the schema of its members' values.

    widest: of a pattern, the names that any reader takes for matched; else those that all do.
    """
    for name, schema in _table(node, "properties").items():
        yield listed(name), schema
    for pattern, schema in _table(node, "patternProperties").items():
        yield Matching(search_tree(pattern, widest=widest)), schema


def _rules(node: Keywords, met: bool) -> Iterable[tuple[Names, Any]]:
    """The schemas of all names; a name that readers differ on has those of both readings."""
    yield from _named(node, widest=met)
    if "additionalProperties" in node:
        yield other(_spoken(node, widest=not met)), node["additionalProperties"]


def _spoken(node: Keywords, *, widest: bool) -> Names:
    return either(names for names, _ in _named(node, widest=widest))


def of_members(node: Keywords, schemas: Schemas, met: bool) -> Form:
    """properties, patternProperties and additionalProperties, which speak of one another."""
    rules = list(_rules(node, met))
    if met:
        made = (Rule(names, schemas.conditions(schema)) for names, schema in rules)
        everything = "additionalProperties" in node
        return objects(
            Object(
                frozenset(rule for rule in made if rule.conditions != ANYTHING),
                evaluated=ALL_NAMES if everything else _spoken(node, widest=False),
                order=tuple(_table(node, "properties")),
            )
        )
    broken = ((names, schemas.conditions(schema, met=False)) for names, schema in rules)
    return only_objects(
        *(
            Object(witnesses=frozenset({Witness(names, conditions)}))
            for names, conditions in broken
            if conditions is not None and names != NO_NAMES
        )
    )


def names_of(value: Any, keyword: str) -> list[str]:
    """A list of names.

    Raises:
        SchemaError: it is none.
    """
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SchemaError(f"{keyword} must be a list of strings")
    return value


def of_required(node: Keywords, met: bool) -> Form:
    """required."""
    if node["required"] is False or node["required"] is True:  # of draft 3, beside a property
        raise NotHeldError("required as a boolean")
    names = names_of(node["required"], "required")
    if met:
        return objects(Object(required=frozenset(names), order=tuple(names)))
    return only_objects(*map(without, names))


def of_counts(node: Keywords, met: bool) -> Iterable[Form]:
    """minProperties and maxProperties."""
    if "minProperties" in node:
        low = count_of(node, "minProperties")
        yield objects(Object(low=low)) if met else only_objects(*_at_most(low - 1))
    if "maxProperties" in node:
        high = count_of(node, "maxProperties")
        yield objects(Object(high=high)) if met else only_objects(Object(low=high + 1))


def _at_most(high: int) -> list[Object]:
    return [Object(high=high)] if high >= 0 else []


def of_property_names(names: Form, met: bool) -> Form:
    """propertyNames; names: what its schema allows, or (met is False) does not: strings count."""
    named = Matching(choice(names.strings)) if names.strings else NO_NAMES
    if met:
        return objects(Object(rules=frozenset({Rule(other(named), None)})))
    return only_objects(Object(witnesses=frozenset({Witness(named, ANYTHING)})))


def of_dependent_required(table: Mapping[str, Any], met: bool) -> Iterable[Form]:
    """dependentRequired, a form for each name that others depend on."""
    for name, value in table.items():
        needed = names_of(value, "dependentRequired")
        if met:
            both = Object(required=frozenset({name, *needed}))
            yield objects(without(name), both) if needed else ANY
        else:
            has = Object(required=frozenset({name}))
            yield only_objects(*(has.meet(without(each)) for each in needed if each != name))


def of_dependent_schema(name: str, then: Form, met: bool) -> Form:
    """dependentSchemas for one name; then: what its schema allows, or (met is False) does not."""
    has = only_objects(Object(required=frozenset({name})))
    there = has.meet(then)
    return replace(ANY, objects=()).join(only_objects(without(name))).join(there) if met else there


def conditions_of(one: Object) -> Callable[[str], Conditions | None]:
    """What a member's value has to meet; None where there is no such member."""
    by_name: dict[str, list[Conditions | None]] = {}
    others: list[Rule] = []
    for rule in one.rules:
        if isinstance(rule.names, Listed):  # as most rules, which are not asked about each name
            for name in rule.names.names:
                by_name.setdefault(name, []).append(rule.conditions)
        else:
            others.append(rule)

    def of_name(name: str) -> Conditions | None:
        found = by_name.get(name, []) + [
            each.conditions for each in others if has(each.names, name)
        ]
        if None in found:
            return None
        return frozenset[Condition]().union(*(each for each in found if each is not None))

    return of_name
