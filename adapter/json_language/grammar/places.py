"""Where in a text items have to differ, as far as the text alone tells where it stands.

A grammar remembers no items. So the places of arrays whose items differ, and those that lead to
them, are told apart here, merged over all alternatives, for a state beside the grammar.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from adapter.json_language.grammar.items import Counted
from adapter.json_language.grammar.values import Value, Values
from adapter.json_language.normal_form.forms import ANYTHING, Array, Conditions
from adapter.languages.regex.language import is_finite

_MOST_PLACES = 500


@dataclass(slots=True)
class Place:
    """What may be at a place; places below are indices, None where nothing is known of them."""

    members: dict[str, int | None] = field(default_factory=dict)
    others: int | None = None
    """Of members with other names."""
    prefix: list[int | None] = field(default_factory=list)
    items: int | None = None
    unique: bool = False
    """No two items are equal."""
    containers: bool = False
    """Items may be arrays or objects."""
    bounded_names: bool = False
    """There are finitely many names of the others."""
    bounded_items: bool = False
    """There are finitely many items that are neither arrays nor objects."""


class Places:
    """The places of a text, the root's first."""

    def __init__(self, values: Values, root: Conditions) -> None:
        self._values = values
        self._numbers: dict[frozenset[Conditions], int] = {}
        self.found: list[Place] = []
        self.exact = True
        """Whether the state can hold all items apart that have to differ."""
        self._wanting = {each for each in values if self._differ(values[each])}
        self._waiting: list[tuple[Place, frozenset[Conditions]]] = []
        """Places that are not filled yet: one inside the other they may be many."""
        self._place({root})
        while self._waiting:
            place, at = self._waiting.pop()
            self._fill(place, [values[each] for each in at])
        # One that is nowhere here is at a place where anything may be, or one too many.
        self.exact &= self._wanting <= frozenset[Conditions]().union(*self._numbers)

    @property
    def matter(self) -> bool:
        """Whether there is an array whose items differ, or so few names that all may be used up."""
        return any(place.unique or place.bounded_names for place in self.found)

    def _differ(self, value: Value) -> bool:
        """Whether it has an array whose items have to differ, and have no bit each."""
        return any(
            isinstance(one, Array) and one.unique and self._values.distinct(one) is None
            for one in value.arrays
        )

    def _place(self, conditions: Iterable[Conditions]) -> int | None:
        at = frozenset(each for each in conditions if self._values.ends(each))
        if not at or ANYTHING in at or len(self.found) >= _MOST_PLACES:
            return None
        if at not in self._numbers:
            self._numbers[at] = len(self.found)
            self.found.append(place := Place())
            self._waiting.append((place, at))
        return self._numbers[at]

    def _fill(self, place: Place, values: list[Value]) -> None:
        objects = [one for value in values for one in value.objects if self._values.is_object(one)]
        names: dict[str, set[Conditions]] = {}
        others: set[Conditions] = set()
        for one in objects:
            for member in one.named:
                names.setdefault(member.name, set()).add(member.value)
            for each in one.others:
                others.add(each.value)
                place.bounded_names |= each.bounded
        for one in objects:  # what one declares is among the others of another
            told = {member.name for member in one.named}
            for name, values_of in names.items():
                if name not in told:
                    values_of.update(each.value for each in one.others)
        place.members = {name: self._place(found) for name, found in names.items()}
        place.others = self._place(others)
        self._fill_items(place, values)

    def _fill_items(self, place: Place, values: list[Value]) -> None:
        found = [one for value in values for one in value.arrays if self._values.is_array(one)]
        items: set[Conditions] = set()
        for one in found:
            if isinstance(one, Counted):
                items |= {item for moves in one.moves.values() for item, _ in moves}
            else:
                items |= {*one.prefix, *(() if one.rest is None else (one.rest,))}
        wanted = any(map(self._differ, values))
        place.unique = wanted and all(isinstance(one, Array) and one.unique for one in found)
        place.items = self._place(items)
        if wanted:
            self._look_at_items(place, items)
            self.exact &= place.unique and not place.containers

    def _look_at_items(self, place: Place, items: set[Conditions]) -> None:
        for item in filter(self._values.ends, items):
            if item == ANYTHING:
                place.containers = True
                continue
            value = self._values[item]
            place.containers |= bool(value.arrays or value.objects)
            numbers = any(None not in (one.minimum, one.maximum) for one in value.form.numbers)
            place.bounded_items |= value.text is not None and is_finite(value.text)
            place.bounded_items |= numbers
