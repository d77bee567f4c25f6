"""From schemas to forms: conjunction, disjunction and negation are worked out.

Negation is pushed inwards until it is about types, bounds, names and counts (not-elimination,
arXiv 2104.14828), and what no value can meet is left out on the way (compare witness generation,
arXiv 2202.12849). A form may allow more than its schema where a keyword cannot be stated, or takes
too many alternatives; then `complete` is False.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import combinations
from math import inf
from typing import Any, TypeVar

from adapter.json_language.normal_form import items, members, scalars
from adapter.json_language.normal_form.forms import (
    ANY,
    NOTHING,
    Array,
    Condition,
    Conditions,
    Form,
    Object,
    Rule,
    absorbed,
    unnoted,
)
from adapter.json_language.normal_form.names import ALL_NAMES, Listed, other
from adapter.json_language.normal_form.schemas import NotHeldError, Schemas
from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.json_schema.schema import Schema, SchemaError
from adapter.languages.regex.language import Language
from adapter.languages.regex.tree import Node, PatternError, classes

T = TypeVar("T")

_MOST_ALTERNATIVES = 64
"""Of one type, in one form."""

_MOST_COMPARED = 512
"""Alternatives that are compared, each with each, to find those that are within others."""

_MOST_OF_ONE_OF = 3_000
"""Alternatives that are looked at to tell the branches of one oneOf apart."""

_MOST_TOGETHER = 5
"""Schemas of an anyOf whose evaluated names and items are told apart by who of them is met."""


class _TooManyError(NotHeldError):
    """There would be too many alternatives in one form."""


class Normaliser:
    """The forms of one document's schemas; each is made once."""

    def __init__(self, root: Schema, budget: Budget) -> None:
        """budget: of alternatives."""
        self.schemas = Schemas(root)
        self.complete = True
        """Whether all forms so far allow exactly what their schemas do."""
        self._budget = budget
        self._forms: dict[Conditions, Form] = {}
        self._made: dict[tuple[Condition, bool], Form] = {}
        self._making: dict[tuple[Condition, bool], int] = {}
        """Each with how many are made around it."""
        self._empty: dict[Conditions, bool] = {}
        self._rests_on = inf
        """The outermost of those being made that was taken for nothing since `_tracked`."""

    def form(self, conditions: Conditions) -> Form:
        """What meets all conditions.

        Raises:
            SchemaError: a keyword has no such value.
            BudgetExceededError: it is too large.
        """
        if conditions not in self._forms:
            parts = (self._of(condition, False) for condition in sorted(conditions))
            try:
                form, is_final = self._tracked(lambda: self._common(parts))
            except _TooManyError:
                self.complete = False
                form, is_final = ANY, True
            if not is_final:
                return form
            self._forms[conditions] = form
        return self._forms[conditions]

    def is_empty(self, conditions: Conditions) -> bool:
        """Whether surely no value meets them; recursion is not followed."""
        if conditions not in self._empty:
            self._empty[conditions] = False  # where it leads back to itself
            is_empty, is_final = self._tracked(lambda: self._has_none(self.form(conditions)))
            if not is_final:
                del self._empty[conditions]
                return is_empty
            self._empty[conditions] = is_empty
        return self._empty[conditions]

    def _has_none(self, form: Form) -> bool:
        return not (
            form.null
            or form.booleans
            or form.numbers
            or any(not _no_text(tree) for tree in form.strings)
            or any(map(self._is_possible_array, form.arrays))
            or any(map(self._is_possible, form.objects))
        )

    # --- one schema

    def _of(self, condition: Condition, noted: bool) -> Form:
        """noted: with what is evaluated, for unevaluatedProperties and unevaluatedItems."""
        key = condition, noted
        if key in self._made:
            return self._made[key]
        if key in self._making:  # a reference to itself, at the same place of the text
            self._rests_on = min(self._rests_on, self._making[key])
            return NOTHING
        form, is_final = self._tracked(lambda: self._make(condition, noted))
        if is_final:
            self._made[key] = form
        return form

    def _make(self, condition: Condition, noted: bool) -> Form:
        key = condition, noted
        self._making[key] = len(self._making)
        number, met = condition
        try:
            form = self._read(self.schemas[number], met, noted)
        finally:
            del self._making[key]
        return form if noted else unnoted(form)

    def _tracked(self, make: Callable[[], T]) -> tuple[T, bool]:
        """What is made, and whether it stays so: whether none that is being made around it was
        taken for nothing on the way."""
        before, self._rests_on = self._rests_on, inf
        is_final = False
        try:
            made = make()
            is_final = self._rests_on >= len(self._making)
        finally:
            self._rests_on = min(before, inf if is_final else self._rests_on)
        return made, is_final

    def _read(self, node: Mapping[str, Any], met: bool, noted: bool) -> Form:
        noted = noted or "unevaluatedProperties" in node or "unevaluatedItems" in node
        parts = self._parts(node, met, noted)
        if not met:
            return self._either(parts)
        form = self._common(parts)
        return self._without_unevaluated(node, form)

    def _parts(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        """What each keyword allows or, where the schema is not to be met, what breaks it."""
        for reads in (_SCALARS, _OBJECTS, _ARRAYS, _APPLICATORS):
            for keywords, read in reads:
                if any(keyword in node for keyword in keywords):
                    yield from self._tried(read, node, met, noted)
        if not met and ("unevaluatedProperties" in node or "unevaluatedItems" in node):
            self.complete = False
            yield ANY

    def _tried(self, read: "_Read", node: Mapping[str, Any], met: bool, noted: bool) -> list[Form]:
        try:
            return list(read(self, node, met, noted))
        except (NotHeldError, PatternError):
            self.complete = False
            return [_ALL_EVALUATED if noted else ANY]

    # --- several forms

    def _common(self, parts: Iterable[Form]) -> Form:
        form = ANY
        for part in parts:
            try:
                form = self._pruned(form.meet(part))
            except _TooManyError:  # what the others say still holds
                self.complete = False
                form = form.meet(_ALL_EVALUATED)
        return form

    def _either(self, parts: Iterable[Form]) -> Form:
        return self._pruned(reduce(Form.join, parts, NOTHING))

    def _pruned(self, form: Form) -> Form:
        """Without alternatives that are plainly empty, or within another one."""
        self._budget.spend(form.size)
        if len(form.arrays) > 1:
            form = replace(form, arrays=tuple(filter(self._is_possible_array, form.arrays)))
        if len(form.objects) > 1:
            form = replace(form, objects=tuple(filter(self._is_possible, form.objects)))
        if max(len(form.objects), len(form.arrays)) > _MOST_COMPARED:
            raise _TooManyError
        form = absorbed(form)
        if max(map(len, (form.objects, form.arrays, form.strings))) > _MOST_ALTERNATIVES:
            raise _TooManyError
        return form

    def _is_possible(self, one: Object) -> bool:
        if one.high is not None and max(len(one.required), one.low) > one.high:
            return False
        of_name = members.conditions_of(one)
        for name in one.required:
            needed = of_name(name)
            if needed is None or (len(needed) > 1 and self.is_empty(needed)):
                return False
        return all(
            not isinstance(witness.names, Listed)
            or any(of_name(name) is not None for name in witness.names.names)
            for witness in one.witnesses
        )

    def _is_possible_array(self, one: Array) -> bool:
        if one.high is not None and one.low > one.high:
            return False
        needed = one.prefix[: one.low]
        if one.rest is None and len(one.prefix) < one.low:
            return False
        return not any(len(each) > 1 and self.is_empty(each) for each in needed)

    # --- keywords that apply schemas to the same value

    def _schema(self, schema: Any, met: bool, noted: bool) -> Form:
        conditions = self.schemas.conditions(schema, met)
        if conditions is None:
            return NOTHING
        return self._common(self._of(condition, noted) for condition in conditions)

    def _all(self, schemas: list[Any], met: bool, noted: bool) -> Form:
        return self._common(self._schema(schema, met, noted) for schema in schemas)

    def _all_of(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        schemas = _schemas_of(node, "allOf")
        if met:
            yield self._all(schemas, True, noted)
        else:
            yield self._either(self._schema(schema, False, noted) for schema in schemas)

    def _any_of(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        schemas = _schemas_of(node, "anyOf")
        if not met:
            yield self._all(schemas, False, noted)
        elif noted and len(schemas) <= _MOST_TOGETHER:
            sizes = range(1, len(schemas) + 1)
            groups = (group for size in sizes for group in combinations(schemas, size))
            yield self._either(self._all(list(group), True, True) for group in groups)
        else:
            yield self._either(self._schema(schema, True, noted) for schema in schemas)

    def _one_of(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        schemas = _schemas_of(node, "oneOf")
        if met:
            yield self._exactly_one(schemas, node, noted)
        else:
            overlaps = self._overlaps(schemas, node)
            none = self._all(schemas, False, noted)
            pairs = [(i, j) for i, others in enumerate(overlaps) for j in others if i < j]
            both = [self._all([schemas[i], schemas[j]], True, noted) for i, j in pairs]
            yield self._either([none, *both])

    def _exactly_one(self, schemas: list[Any], node: Mapping[str, Any], noted: bool) -> Form:
        try:
            with self._within(_MOST_OF_ONE_OF):
                return self._either(self._told_apart(schemas, node, noted))
        except (BudgetExceededError, _TooManyError):
            self.complete = False
            return self._either(self._schema(schema, True, noted) for schema in schemas)

    def _told_apart(
        self, schemas: list[Any], node: Mapping[str, Any], noted: bool
    ) -> Iterator[Form]:
        """Each schema without what another one of them allows as well."""
        overlaps = self._overlaps(schemas, node)
        for i, schema in enumerate(schemas):
            others = (self._schema(schemas[j], False, False) for j in overlaps[i])
            yield self._common([self._schema(schema, True, noted), *others])

    @contextmanager
    def _within(self, most: int) -> Iterator[None]:
        """Spends no more than so much of what is left."""
        outer = self._budget
        inner = self._budget = Budget(min(most, outer.left))
        given = inner.left
        try:
            yield
        finally:
            self._budget = outer
            outer.spend(given - max(inner.left, 0))

    def _overlaps(self, schemas: list[Any], node: Mapping[str, Any]) -> list[list[int]]:
        """For each schema the others that a value of the node's type may satisfy as well."""
        typed = {"type": node["type"]} if "type" in node else True
        base = self.schemas.conditions(typed) or frozenset()
        conditions = [self.schemas.conditions(schema) for schema in schemas]
        overlaps: list[list[int]] = [[] for _ in schemas]
        for (i, one), (j, two) in combinations(enumerate(conditions), 2):
            if one is not None and two is not None and not self.is_empty(one | two | base):
                overlaps[i].append(j)
                overlaps[j].append(i)
        return overlaps

    def _not(self, node: Mapping[str, Any], met: bool, _noted: bool) -> Iterator[Form]:
        yield self._schema(node["not"], not met, False)

    def _if(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        then, otherwise = node.get("then", True), node.get("else", True)
        if not noted and then is True and otherwise is True:
            yield ANY if met else NOTHING
            return
        yield self._either(
            self._common([self._schema(node["if"], side, noted), self._schema(branch, met, noted)])
            for side, branch in ((True, then), (False, otherwise))
        )

    def _reference(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        yield self._schema(self.schemas.target(node["$ref"]), met, noted)

    def _unknown(self, _node: Mapping[str, Any], _met: bool, _noted: bool) -> Iterator[Form]:
        raise NotHeldError("a dynamic reference")

    # --- members and items

    def _property_names(self, node: Mapping[str, Any], met: bool, _noted: bool) -> Iterator[Form]:
        yield members.of_property_names(self._schema(node["propertyNames"], met, False), met)

    def _dependent_schemas(self, node: Mapping[str, Any], met: bool, noted: bool) -> Iterator[Form]:
        table = _dependent(node, "dependentSchemas", met)
        for name, schema in table.items():
            yield members.of_dependent_schema(name, self._schema(schema, met, noted), met)

    def _dependent_required(self, node: Mapping[str, Any], met: bool, _n: bool) -> Iterator[Form]:
        yield from members.of_dependent_required(_dependent(node, "dependentRequired", met), met)

    def _without_unevaluated(self, node: Mapping[str, Any], form: Form) -> Form:
        if "unevaluatedProperties" in node:
            conditions = self.schemas.conditions(node["unevaluatedProperties"])
            limited = [
                replace(one, rules=one.rules | {Rule(other(one.evaluated), conditions)})
                for one in form.objects
            ]
            full = members.objects(Object(evaluated=ALL_NAMES))
            form = self._pruned(replace(form, objects=tuple(limited)).meet(full))
        if "unevaluatedItems" in node:
            conditions = self.schemas.conditions(node["unevaluatedItems"])
            arrays = (items.unevaluated(one, conditions, self.schemas) for one in form.arrays)
            form = self._pruned(replace(form, arrays=tuple(a for each in arrays for a in each)))
        return form


# Where it is not known what a schema evaluates, nothing is refused for not being evaluated.
_ALL_EVALUATED = replace(
    ANY, arrays=(Array(evaluated=None),), objects=(Object(evaluated=ALL_NAMES),)
)


def _dependent(node: Mapping[str, Any], keyword: str, met: bool) -> dict[str, Any]:
    """What depends on each name, as `dependencies` of the drafts before 2019-09 says it too.

    Raises:
        NotHeldError: `dependencies` is not to be met, and later drafts do not know it.
    """
    if "dependencies" in node and not met:
        raise NotHeldError("not of dependencies")
    lists = keyword == "dependentRequired"
    older = node.get("dependencies", {}).items()
    return dict(node.get(keyword, {})) | {
        name: value for name, value in older if isinstance(value, list) == lists
    }


def _schemas_of(node: Mapping[str, Any], keyword: str) -> list[Any]:
    schemas = node[keyword]
    if not isinstance(schemas, list) or not schemas:
        raise SchemaError(f"{keyword} must be a list of schemas")
    return schemas


def _no_text(tree: Node) -> bool:
    # A language has no NUL, which a string of JSON that is given whole may have.
    if any(chars.ranges[0][0] == 0 for chars in classes(tree)):
        return False
    return Language(tree, Budget(20_000)).is_empty()


_Read = Callable[[Normaliser, Mapping[str, Any], bool, bool], Iterable[Form]]


def _plain(read: Callable[[Mapping[str, Any], bool], Form]) -> _Read:
    return lambda _own, node, met, _noted: [read(node, met)]


def _several(read: Callable[[Mapping[str, Any], bool], Iterable[Form]]) -> _Read:
    return lambda _own, node, met, _noted: read(node, met)


def _applying(read: Callable[[Mapping[str, Any], Schemas, bool], Form]) -> _Read:
    return lambda _own, node, met, _noted: [read(node, _own.schemas, met)]


_SCALARS: list[tuple[tuple[str, ...], _Read]] = [
    (("type",), _plain(scalars.of_type)),
    (("const",), lambda own, node, met, _: [scalars.of_values([node["const"]], own.schemas, met)]),
    (("enum",), lambda own, node, met, _: [scalars.of_values(node["enum"], own.schemas, met)]),
    (
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        _several(scalars.of_bounds),
    ),
    (("multipleOf",), _plain(scalars.of_multiple)),
    (("pattern",), _plain(scalars.of_pattern)),
    (("minLength",), _plain(scalars.of_min_length)),
    (("maxLength",), _plain(scalars.of_max_length)),
    (("format",), _plain(scalars.of_format)),
]
_OBJECTS: list[tuple[tuple[str, ...], _Read]] = [
    (members.MEMBERS, _applying(members.of_members)),
    (("required",), _plain(members.of_required)),
    (("minProperties", "maxProperties"), _several(members.of_counts)),
    (("propertyNames",), Normaliser._property_names),
    (("dependentRequired", "dependencies"), Normaliser._dependent_required),
    (("dependentSchemas", "dependencies"), Normaliser._dependent_schemas),
]
_ARRAYS: list[tuple[tuple[str, ...], _Read]] = [
    (items.ITEMS, _applying(items.of_items)),
    (("minItems", "maxItems"), _several(items.of_counts)),
    (("contains",), _applying(items.of_contains)),
    (("uniqueItems",), _plain(items.of_unique)),
]
_APPLICATORS: list[tuple[tuple[str, ...], _Read]] = [
    (("$ref",), Normaliser._reference),
    (("$dynamicRef", "$recursiveRef"), Normaliser._unknown),
    (("allOf",), Normaliser._all_of),
    (("anyOf",), Normaliser._any_of),
    (("oneOf",), Normaliser._one_of),
    (("not",), Normaliser._not),
    (("if",), Normaliser._if),
]
