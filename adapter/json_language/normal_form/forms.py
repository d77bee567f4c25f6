"""What a value may be: for each type of JSON a list of alternatives, each a conjunction.

Inner values are named by their conditions, which are all to be met: so a form is finite, and is
made before what is inside it is looked at.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias, TypeVar

from adapter.json_language.normal_form.names import NO_NAMES, Names, either, listed
from adapter.languages.json_schema.numbers import Numbers
from adapter.languages.regex.tree import ANY_TEXT, Node, every

Condition: TypeAlias = tuple[int, bool]
"""A schema by its number, and whether it is to be met (True) or not to be met."""

Conditions: TypeAlias = frozenset[Condition]
"""All of them are to be met; the empty set is any value."""

ANYTHING: Conditions = frozenset()


@dataclass(frozen=True, slots=True)
class Count:
    """How many items, from some index on, meet conditions."""

    conditions: Conditions
    low: int = 1
    high: int | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Array:
    """One alternative of arrays."""

    prefix: tuple[Conditions, ...] = ()
    rest: Conditions | None = ANYTHING
    """Of the items behind the prefix; None: there are none."""
    low: int = 0
    high: int | None = None
    counts: frozenset[Count] = frozenset()
    unique: bool = False
    evaluated: int | None = 0
    """How many of the first items are evaluated, for unevaluatedItems; None: all."""
    evaluated_where: frozenset[Conditions] = frozenset()
    """Items that meet one of these are evaluated as well."""

    def meet(self, other: "Array") -> "Array":
        """What both allow."""
        if self == ANY_ARRAY:
            return other
        if other == ANY_ARRAY:
            return self
        pairs = zip_longest(self.prefix, other.prefix)
        ends = None if None in (self.evaluated, other.evaluated) else 0
        return Array(
            prefix=tuple(
                _item(self.rest if one is None else one) | _item(other.rest if two is None else two)
                for one, two in pairs
            ),
            rest=None if self.rest is None or other.rest is None else self.rest | other.rest,
            low=max(self.low, other.low),
            high=least(_most_items(self), _most_items(other)),
            counts=self.counts | other.counts,
            unique=self.unique or other.unique,
            evaluated=ends if ends is None else max(self.evaluated or 0, other.evaluated or 0),
            evaluated_where=self.evaluated_where | other.evaluated_where,
        )


def _item(conditions: Conditions | None) -> Conditions:
    # Behind an end there are no items; `high` says so.
    return ANYTHING if conditions is None else conditions


def _most_items(array: Array) -> int | None:
    return least(array.high, len(array.prefix) if array.rest is None else None)


def least(one: int | None, two: int | None) -> int | None:
    """The smaller of two bounds, None being no bound."""
    return two if one is None else one if two is None else min(one, two)


ANY_ARRAY = Array()


@dataclass(frozen=True, slots=True)
class Rule:
    """What the values of all members with such names have to meet; None: there are none."""

    names: Names
    conditions: Conditions | None


@dataclass(frozen=True, slots=True)
class Witness:
    """There is a member with such a name whose value meets these conditions."""

    names: Names
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Object:
    """One alternative of objects."""

    rules: frozenset[Rule] = frozenset()
    required: frozenset[str] = frozenset()
    witnesses: frozenset[Witness] = frozenset()
    low: int = 0
    high: int | None = None
    evaluated: Names = NO_NAMES
    order: tuple[str, ...] = ()
    """Declared names, in the order of the schema."""

    def meet(self, other: "Object") -> "Object":
        """What both allow."""
        if self == ANY_OBJECT:
            return other
        if other == ANY_OBJECT:
            return self
        return Object(
            self.rules | other.rules,
            self.required | other.required,
            self.witnesses | other.witnesses,
            max(self.low, other.low),
            least(self.high, other.high),
            either((self.evaluated, other.evaluated)),
            tuple(dict.fromkeys(self.order + other.order)),
        )


ANY_OBJECT = Object()


def without(name: str) -> Object:
    """Objects that have no such member."""
    return Object(rules=frozenset({Rule(listed(name), None)}))


@dataclass(frozen=True, slots=True)
class Form:
    """What a value may be."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Node, ...] = ()
    arrays: tuple[Array, ...] = ()
    objects: tuple[Object, ...] = ()

    @property
    def size(self) -> int:
        """How many alternatives it has."""
        return len(self.numbers) + len(self.strings) + len(self.arrays) + len(self.objects)

    def meet(self, other: "Form") -> "Form":
        """What both allow."""
        if self is ANY:
            return other
        if other is ANY:
            return self
        return Form(
            self.null and other.null,
            self.booleans & other.booleans,
            _numbers(self.numbers, other.numbers),
            _strings(self.strings, other.strings),
            _products(self.arrays, other.arrays),
            _products(self.objects, other.objects),
        )

    def join(self, other: "Form") -> "Form":
        """What either allows."""
        return Form(
            self.null or other.null,
            self.booleans | other.booleans,
            _joined(self.numbers, other.numbers, ANY_NUMBERS),
            _joined(self.strings, other.strings, ANY_STRINGS),
            # What is evaluated may differ: `absorbed` knows which one has the others in it.
            tuple(dict.fromkeys(self.arrays + other.arrays)),
            tuple(dict.fromkeys(self.objects + other.objects)),
        )


Part = TypeVar("Part", Array, Object, Numbers)
Item = TypeVar("Item", bound=Hashable)


def _joined(
    one: tuple[Item, ...], two: tuple[Item, ...], everything: tuple[Item, ...]
) -> tuple[Item, ...]:
    if not one or not two:
        return one or two
    return everything if everything in (one, two) else tuple(dict.fromkeys(one + two))


def _products(one: tuple[Part, ...], two: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(dict.fromkeys(a.meet(b) for a in one for b in two))


def unnoted(form: Form) -> Form:
    """The form without what is evaluated, which only the schemas around it may ask for."""
    return replace(
        form,
        arrays=tuple(
            replace(one, evaluated=0, evaluated_where=frozenset())
            if one.evaluated != 0 or one.evaluated_where
            else one
            for one in form.arrays
        ),
        objects=tuple(
            replace(one, evaluated=NO_NAMES) if one.evaluated != NO_NAMES else one
            for one in form.objects
        ),
    )


def absorbed(form: Form) -> Form:
    """The form without the alternatives that another one allows as well."""
    if len(form.objects) < 2 and len(form.arrays) < 2:
        return form
    return replace(
        form,
        arrays=_widest(form.arrays, _array_within),
        objects=_widest(form.objects, _object_within),
    )


def _widest(items: tuple[Item, ...], within: Callable[[Item, Item], bool]) -> tuple[Item, ...]:
    kept: list[Item] = []
    for item in items:
        if not any(within(item, other) for other in kept):
            kept = [other for other in kept if not within(other, item)]
            kept.append(item)
    return tuple(kept)


def _object_within(one: Object, two: Object) -> bool:
    """Whether the second plainly allows all that the first does."""
    return (
        two.rules <= one.rules
        and two.required <= one.required
        and two.witnesses <= one.witnesses
        and two.low <= one.low
        and least(one.high, two.high) == one.high
        and one.evaluated == two.evaluated
    )


def _array_within(one: Array, two: Array) -> bool:
    """Whether the second plainly allows all that the first does."""
    return (
        two.prefix == one.prefix
        and two.rest == one.rest
        and two.counts <= one.counts
        and two.unique <= one.unique
        and two.low <= one.low
        and least(one.high, two.high) == one.high
        and (one.evaluated, one.evaluated_where) == (two.evaluated, two.evaluated_where)
    )


def _numbers(one: tuple[Numbers, ...], two: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
    return tuple(both for both in _products(one, two) if not both.is_empty())


def _strings(one: tuple[Node, ...], two: tuple[Node, ...]) -> tuple[Node, ...]:
    if one == ANY_STRINGS:
        return two
    if two == ANY_STRINGS:
        return one
    return tuple(dict.fromkeys(every((a, b)) for a in one for b in two))


ANY_NUMBERS = (Numbers(),)
ANY_STRINGS = (ANY_TEXT,)
ANY_ARRAYS = (ANY_ARRAY,)
ANY_OBJECTS = (ANY_OBJECT,)
BOTH = frozenset({False, True})

NOTHING = Form()
ANY = Form(True, BOTH, ANY_NUMBERS, ANY_STRINGS, ANY_ARRAYS, ANY_OBJECTS)
