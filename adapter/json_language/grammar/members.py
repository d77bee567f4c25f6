"""An alternative of objects, its members told one by one."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, product

from adapter.json_language.normal_form.forms import ANYTHING, Condition, Conditions, Object, Witness
from adapter.json_language.normal_form.names import (
    Listed,
    Matching,
    has,
    has_region,
    mentioned,
    patterns,
    region_tree,
)
from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.regex.language import is_finite, words
from adapter.languages.regex.tree import ANY_TEXT, Node

_MOST_PATTERNS = 5
_MOST_LISTED = 40
"""Names of a pattern that are told one by one, where it has no more of them."""
_MOST_WORK = 20_000
"""Terms and moves of a question about the names of a pattern."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of one name, which comes at most once."""

    name: str
    value: Conditions
    required: bool


@dataclass(frozen=True, slots=True)
class Others:
    """Members whose names are in a language, and none of those told one by one."""

    names: Node
    value: Conditions
    witnesses: tuple[Conditions, ...] = ()
    """For each of these there is such a member whose value meets them as well."""
    bounded: bool = False
    """There are finitely many such names."""


@dataclass(frozen=True, slots=True)
class Members:
    """Which members an object has, and how many."""

    named: tuple[Member, ...]
    others: tuple[Others, ...]
    low: int
    high: int | None


ANY_MEMBERS = Members((), (Others(ANY_TEXT, ANYTHING),), 0, None)


class Regions:
    """The sets of names that no object tells one by one; objects that say the same share them."""

    def __init__(self) -> None:
        self._trees: dict[tuple[tuple[Matching, ...], ...], dict[tuple[str, ...], Node]] = {}

    def tree(
        self, inside: tuple[Matching, ...], outside: tuple[Matching, ...], taken: tuple[str, ...]
    ) -> Node:
        """The names that match all of some patterns and none of others, and are not taken."""
        trees = self._trees.setdefault((inside, outside), {})
        if taken not in trees:
            trees[taken] = region_tree(inside, outside, taken)
        return trees[taken]


def resolved(one: Object, regions: Regions) -> Iterator[Members]:
    """The alternatives of an object, its witnesses found places.

    Raises:
        BudgetExceededError: there are too many.
    """
    view = _View(one, regions)
    places = [list(view.places(witness)) for witness in one.witnesses]
    for found in product(*places):
        members = view.members([place for place in found if place is not None])
        if members is not None:
            yield members


_Place = tuple[str | int, Conditions]
"""The name of a member, or the number of a region, and what the value meets besides."""


class _View:
    """An object's names: each that is mentioned, and the regions of all others."""

    def __init__(self, one: Object, regions: Regions) -> None:
        self._one = one
        self._shared = regions
        sets = [rule.names for rule in one.rules] + [each.names for each in one.witnesses]
        used = set(chain(one.required, *map(mentioned, sets)))
        self._names = [name for name in one.order if name in used]
        self._names += sorted(used - set(self._names))
        found = dict.fromkeys(chain.from_iterable(map(patterns, sets)))
        if len(found) > _MOST_PATTERNS:
            raise BudgetExceededError
        self._regions: list[tuple[frozenset[Matching], Node, bool]] = []
        self._part(list(found))
        self._values = self._named_values()

    def _part(self, found: list[Matching]) -> None:
        """Tell the regions apart; a small one is told name by name."""
        taken = tuple(self._names)
        for size in range(len(found) + 1):
            for group in combinations(found, size):
                inside = frozenset(group)
                outside = tuple(each for each in found if each not in inside)
                # Without the names that are told already: one less or more changes nothing.
                whole = self._shared.tree(group, outside, ())
                bounded = bool(found) and _is_finite(whole)
                few = _other_words(whole, taken) if bounded else None
                if few is None:
                    tree = self._shared.tree(group, outside, taken)
                    self._regions.append((inside, tree, bounded))
                else:
                    self._names += few

    def _named_values(self) -> dict[str, Conditions | None]:
        """What each name's value has to meet; None where there is no such member."""
        found: dict[str, list[Conditions | None]] = {name: [] for name in self._names}
        for rule in self._one.rules:
            # Most rules are of one name: they are not asked about all the others.
            listed = rule.names.names if isinstance(rule.names, Listed) else None
            for name in self._names if listed is None else listed:
                if listed is not None or has(rule.names, name):
                    found[name].append(rule.conditions)
        return {name: _union(parts) for name, parts in found.items()}

    def _other(self, inside: frozenset[Matching]) -> Conditions | None:
        rules = self._one.rules
        return _union(rule.conditions for rule in rules if has_region(rule.names, inside))

    def places(self, witness: Witness) -> Iterator[_Place | None]:
        """Where a witness may be; None where the object has it anyway."""
        for name in self._names:
            value = self._values[name]
            has_it = value is not None and witness.conditions <= value
            if has_it and name in self._one.required and has(witness.names, name):
                yield None
                return
        for name in self._names:
            if self._values[name] is not None and has(witness.names, name):
                yield name, witness.conditions
        for number, (inside, _, _) in enumerate(self._regions):
            if has_region(witness.names, inside) and self._other(inside) is not None:
                yield number, witness.conditions

    def members(self, places: list[_Place]) -> Members | None:
        """With witnesses at these places; None where a required member cannot be."""
        at: dict[str | int, list[Conditions]] = {}
        for place, conditions in places:
            at.setdefault(place, []).append(conditions)
        named = []
        for name in self._names:
            required = name in self._one.required or name in at
            value = self._values[name]
            if value is None and required:
                return None
            if value is not None:
                named.append(Member(name, value.union(*at.get(name, ())), required))
        others = []
        for number, (inside, tree, bounded) in enumerate(self._regions):
            value = self._other(inside)
            if value is not None:
                others.append(Others(tree, value, tuple(at.get(number, ())), bounded))
        return Members(tuple(named), tuple(others), self._one.low, self._one.high)


def _union(parts: Iterable[Conditions | None]) -> Conditions | None:
    found = list(parts)
    if None in found:
        return None
    return frozenset[Condition]().union(*(part for part in found if part is not None))


@lru_cache(256)
def _is_finite(tree: Node) -> bool:
    return is_finite(tree, Budget(_MOST_WORK))


def _other_words(tree: Node, taken: Collection[str]) -> list[str] | None:
    """The words of a finite language that are not taken, where they are few."""
    found = words(tree, _MOST_LISTED + len(taken), Budget(_MOST_WORK))
    if found is None:
        return None
    others = [word for word in found if word not in taken]
    return others if len(others) <= _MOST_LISTED else None
