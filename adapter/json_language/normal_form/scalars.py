"""Keywords about types, numbers and strings, and about values given whole."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any

from adapter.json_language.normal_form.forms import (
    ANY,
    BOTH,
    NOTHING,
    Array,
    Condition,
    Form,
    Object,
    Rule,
    Witness,
    without,
)
from adapter.json_language.normal_form.names import listed, other
from adapter.json_language.normal_form.schemas import NotHeldError, Schemas
from adapter.languages.characters import TEXT
from adapter.languages.json_schema.formats import format_tree
from adapter.languages.json_schema.numbers import Numbers
from adapter.languages.json_schema.schema import SchemaError
from adapter.languages.regex.choices import choices
from adapter.languages.regex.parse import search_tree
from adapter.languages.regex.tree import Node, counted, negation

Keywords = Mapping[str, Any]

# Types.

_TYPES = {
    "array": replace(NOTHING, arrays=ANY.arrays),
    "boolean": replace(NOTHING, booleans=BOTH),
    "integer": replace(NOTHING, numbers=(Numbers(integer=True),)),
    "null": replace(NOTHING, null=True),
    "number": replace(NOTHING, numbers=ANY.numbers),
    "object": replace(NOTHING, objects=ANY.objects),
    "string": replace(NOTHING, strings=ANY.strings),
}


def of_type(node: Keywords, met: bool) -> Form:
    """`type`, as a word or as several."""
    given = node["type"]
    names = set(given if isinstance(given, list) else [given])
    if unknown := [name for name in names if name not in _TYPES]:
        raise SchemaError(f"unknown type {unknown[0]!r:.100}")
    if met:
        return reduce(Form.join, (_TYPES[name] for name in sorted(names)), NOTHING)
    left = reduce(
        Form.join, (_TYPES[name] for name in sorted(_TYPES.keys() - names - {"integer"})), NOTHING
    )
    if "number" in names:
        return replace(left, numbers=())
    return replace(left, numbers=(Numbers(integer=False),)) if "integer" in names else left


# Values given whole: const and enum.


def of_values(values: Iterable[Any], schemas: Schemas, met: bool) -> Form:
    """Exactly these values, or all but these."""
    every = list(values)
    texts = [value for value in every if isinstance(value, str)]
    others = [value for value in every if not isinstance(value, str)]
    form = replace(NOTHING, strings=(choices(texts),)) if texts else NOTHING
    if met:
        return _in_pairs(Form.join, form, [_only(value, schemas) for value in others])
    left = replace(ANY, strings=(negation(choices(texts)),)) if texts else ANY
    return _in_pairs(Form.meet, left, [_all_but(value, schemas) for value in others])


def _in_pairs(both: Callable[[Form, Form], Form], first: Form, forms: list[Form]) -> Form:
    """As reduce(), but pairs first: one after the other is slow for thousands of values."""
    while len(forms) > 1:
        pairs = zip(forms[::2], forms[1::2], strict=False)
        forms = [*(both(one, two) for one, two in pairs), *(forms[-1:] if len(forms) % 2 else ())]
    return both(first, forms[0]) if forms else first


def _only(value: Any, schemas: Schemas) -> Form:
    match value:
        case None:
            return _TYPES["null"]
        case bool():
            return replace(NOTHING, booleans=frozenset({value}))
        case int() | float() | Decimal():
            return replace(NOTHING, numbers=(_exactly(value),))
        case list():
            return replace(NOTHING, arrays=(_array(value, schemas),))
        case dict():
            return replace(NOTHING, objects=(_object(value, schemas),))
    raise SchemaError(f"no JSON value: {value!r:.100}")


def _all_but(value: Any, schemas: Schemas) -> Form:
    match value:
        case None:
            return replace(ANY, null=False)
        case bool():
            return replace(ANY, booleans=BOTH - {value})
        case int() | float() | Decimal():
            return replace(ANY, numbers=(Numbers(excluded=frozenset({_exact(value)})),))
        case list():
            return replace(ANY, arrays=tuple(_other_arrays(value, schemas)))
        case dict():
            return replace(ANY, objects=tuple(_other_objects(value, schemas)))
    raise SchemaError(f"no JSON value: {value!r:.100}")


def _const(value: Any, schemas: Schemas, met: bool = True) -> frozenset[Condition]:
    conditions = schemas.conditions({"const": value}, met)
    assert conditions is not None
    return conditions


def _array(values: list[Any], schemas: Schemas) -> Array:
    prefix = tuple(_const(value, schemas) for value in values)
    return Array(prefix, None, len(values), len(values), evaluated=None)


def _other_arrays(values: list[Any], schemas: Schemas) -> Iterable[Array]:
    if values:
        yield Array(high=len(values) - 1)
    yield Array(low=len(values) + 1)
    for index, value in enumerate(values):
        yield item_at(index, _const(value, schemas, met=False))


def item_at(index: int, conditions: frozenset[Condition]) -> Array:
    """Arrays with an item at a place that meets conditions."""
    return Array((frozenset(),) * index + (conditions,), low=index + 1)


def _object(members: dict[str, Any], schemas: Schemas) -> Object:
    rules = {Rule(listed(name), _const(value, schemas)) for name, value in members.items()}
    return Object(
        frozenset({*rules, Rule(other(listed(*members)), None)}),
        required=frozenset(members),
        order=tuple(members),
    )


def _other_objects(members: dict[str, Any], schemas: Schemas) -> Iterable[Object]:
    yield Object(witnesses=frozenset({Witness(other(listed(*members)), frozenset())}))
    for name, value in members.items():
        yield without(name)
        different = Rule(listed(name), _const(value, schemas, met=False))
        yield Object(rules=frozenset({different}), required=frozenset({name}))


# Numbers.


def _exact(value: Any) -> Decimal:
    return _finite(Decimal(str(value)) if isinstance(value, float) else Decimal(value))


def _exactly(value: Any) -> Numbers:
    return Numbers(minimum=_exact(value), maximum=_exact(value))


def _numbers(numbers: Numbers, met: bool) -> Form:
    """What meets a keyword on numbers, or the numbers that break it."""
    return replace(ANY if met else NOTHING, numbers=(numbers,))


def of_bounds(node: Keywords, met: bool) -> Iterable[Form]:
    """minimum, maximum and their exclusive forms, those of draft 4 (a boolean beside) too."""
    for name, exclusive, below in (
        ("minimum", "exclusiveMinimum", True),
        ("maximum", "exclusiveMaximum", False),
    ):
        strict = node.get(exclusive)
        bounds = [(node[name], strict is True)] if name in node else []
        if strict is not None and not isinstance(strict, bool):
            bounds.append((strict, True))
        for bound, is_strict in bounds:
            yield _numbers(_bounded(_number(name, bound), is_strict == met, below == met), met)


def _bounded(bound: Decimal, strict: bool, is_minimum: bool) -> Numbers:
    if is_minimum:
        return Numbers(minimum=bound, exclusive_minimum=strict)
    return Numbers(maximum=bound, exclusive_maximum=strict)


def of_multiple(node: Keywords, met: bool) -> Form:
    """multipleOf."""
    step = _number("multipleOf", node["multipleOf"])
    if step <= 0:
        raise SchemaError("multipleOf must be above 0")
    return _numbers(
        Numbers(multiples=frozenset({step})) if met else Numbers(not_multiples=frozenset({step})),
        met,
    )


def _number(name: str, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise SchemaError(f"{name} must be a number")
    return _exact(value)


def _finite(value: Decimal) -> Decimal:
    """A number that Python's JSON reader could tell: what is beyond a float is infinite there.

    Raises:
        NotHeldError: it is none.
    """
    if not value.is_finite():
        raise NotHeldError("a number beyond all others")
    return value


# Strings.


def count_of(node: Keywords, name: str) -> int:
    """The value of a keyword that counts.

    Raises:
        SchemaError: it is no whole number from 0.
    """
    value = node[name]
    if isinstance(value, float | Decimal) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SchemaError(f"{name} must be a whole number from 0")
    return value


def _strings(tree: Node, met: bool) -> Form:
    """What meets a keyword on strings, or the strings that break it."""
    if met:
        return replace(ANY, strings=(tree,))
    return replace(NOTHING, strings=(negation(tree),))


def of_pattern(node: Keywords, met: bool) -> Form:
    """pattern: found anywhere in the string."""
    if not isinstance(node["pattern"], str):
        raise SchemaError("pattern must be a string")
    return _strings(search_tree(node["pattern"], widest=not met), met)


def of_min_length(node: Keywords, met: bool) -> Form:
    """minLength, in characters."""
    return _strings(counted(TEXT, count_of(node, "minLength"), None), met)


def of_max_length(node: Keywords, met: bool) -> Form:
    """maxLength, in characters."""
    return _strings(counted(TEXT, 0, count_of(node, "maxLength")), met)


def of_format(node: Keywords, met: bool) -> Form:
    """format, where its texts are known; else a note, which every value meets."""
    name = node["format"]
    tree = format_tree(name) if isinstance(name, str) else None
    if tree is None:
        return ANY if met else NOTHING
    if not met:  # a validator may take more for it than the tree has
        raise NotHeldError("not of format")
    return _strings(tree, met)
