"""What is inside a value, and which values there are at all: an endless one is none."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from adapter.json_language.grammar.items import Counted, counted, item_at
from adapter.json_language.grammar.members import ANY_MEMBERS, Members, Regions, resolved
from adapter.json_language.normal_form.forms import ANYTHING, Array, Conditions, Form, Object
from adapter.json_language.normal_form.normalise import Normaliser
from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.fixed_point import settle
from adapter.languages.json_schema.number_texts import number_text
from adapter.languages.regex.choices import choices
from adapter.languages.regex.json_text import json_string
from adapter.languages.regex.language import Language
from adapter.languages.regex.tree import NOTHING, Node, choice, is_plain
from adapter.languages.regex.write import to_lark_terminal

_MOST_DISTINCT = 60
"""Values of which each has a bit, in an array of different ones."""


@dataclass(slots=True)
class Value:
    """A value's alternatives, those of arrays and objects as they are written."""

    form: Form
    text: Node | None
    """The JSON texts of its strings."""
    arrays: list[Array | Counted]
    objects: list[Members]


class Values:
    """All values inside a document's, found and told whether they end."""

    def __init__(self, normaliser: Normaliser, root: Conditions, budget: Budget) -> None:
        """budget: of values.

        Raises:
            BudgetExceededError: there are too many, or one has too many alternatives.
            SchemaError: a keyword has no such value.
        """
        self._normaliser = normaliser
        self._found: dict[Conditions, Value] = {}
        self._few: dict[Conditions, list[str] | None] = {}
        self._regions = Regions()
        waiting = [root]
        while waiting:
            conditions = waiting.pop()
            if conditions != ANYTHING and conditions not in self._found:
                budget.spend()
                self._found[conditions] = value = self._value(normaliser.form(conditions))
                waiting += _inside(value)
        self._ending = {
            conditions for conditions, value in self._found.items() if _is_scalar(value)
        }
        left = [each for each in self._found if each not in self._ending]
        settle(left, lambda each: _inside(self._found[each]), self._has_end, self._ending)

    def __iter__(self) -> Iterator[Conditions]:
        """All that there are but any value."""
        return iter(self._found)

    def __getitem__(self, conditions: Conditions) -> Value:
        return self._found[conditions]

    def ends(self, conditions: Conditions) -> bool:
        """Whether some finite text meets them."""
        return conditions == ANYTHING or conditions in self._ending

    def _value(self, form: Form) -> Value:
        return Value(
            form,
            _text(form.strings),
            [self._array(array) for array in form.arrays],
            [members for one in form.objects for members in self._members(one)],
        )

    def _members(self, one: Object) -> Iterable[Members]:
        try:
            return list(resolved(one, self._regions))
        except BudgetExceededError:
            self._normaliser.complete = False
            return [ANY_MEMBERS]

    def _array(self, array: Array) -> Array | Counted:
        if not array.counts:
            return array
        if array.unique:
            self._normaliser.complete = False
        try:
            return counted(array, self._normaliser.schemas.unmet)
        except BudgetExceededError:
            self._normaliser.complete = False
            return replace(array, counts=frozenset())

    def _has_end(self, conditions: Conditions) -> bool:
        value = self._found[conditions]
        return any(map(self.is_array, value.arrays)) or any(map(self.is_object, value.objects))

    def is_array(self, array: Array | Counted) -> bool:
        """Whether there is such an array."""
        if isinstance(array, Counted):
            kept = array.within(self.ends)
            return kept.start in kept.moves
        if array.unique and (distinct := self.distinct(array)) is not None:
            return array.low <= min(len(distinct), array.low if array.high is None else array.high)
        return array.low <= self.most_items(array, array.low)

    def most_items(self, array: Array, enough: int) -> int:
        """How many items there can be, at most `enough` or so."""
        for index in range(min(len(array.prefix) + 1, enough)):
            item = item_at(array, index)
            if item is None or not self.ends(item):
                return index
        return enough if array.high is None else min(array.high, enough)

    def distinct(self, array: Array) -> list[str] | None:
        """The texts of all items that an array can have, where they are few, and all alike."""
        if array.prefix or array.rest is None or array.rest == ANYTHING:
            return None
        if array.rest not in self._few:
            self._few[array.rest] = self._texts(self._found[array.rest])
        return self._few[array.rest]

    @staticmethod
    def _texts(value: Value) -> list[str] | None:
        form = value.form
        if value.arrays or value.objects:
            return None
        numbers = [each.values(_MOST_DISTINCT) for each in form.numbers]
        words = [] if value.text is None else Language(value.text).words(_MOST_DISTINCT)
        if words is None or None in numbers:
            return None
        texts = ["null"] if form.null else []
        texts += ["true" if flag else "false" for flag in sorted(form.booleans)]
        values = sorted({number for each in numbers if each is not None for number in each})
        expressions = [to_lark_terminal(choices([text])) for text in (*texts, *words)]
        expressions += [to_lark_terminal(number_text([number])) for number in values]
        return expressions if len(expressions) <= _MOST_DISTINCT else None

    def is_object(self, members: Members) -> bool:
        """Whether there is such an object."""
        needed = [member for member in members.named if member.required]
        witnesses = [each.value | witness for each in members.others for witness in each.witnesses]
        if not all(self.ends(member.value) for member in needed):
            return False
        if not all(map(self.ends, witnesses)):
            return False
        least = len(needed) + len(witnesses)
        if members.high is not None and max(least, members.low) > members.high:
            return False
        free = sum(self.ends(member.value) for member in members.named if not member.required)
        more = any(self.ends(each.value) for each in members.others)
        return more or least + free >= members.low


def _is_scalar(value: Value) -> bool:
    form = value.form
    numbers = any(not numbers.is_empty() for numbers in form.numbers)
    return form.null or bool(form.booleans) or numbers or value.text is not None


def _text(strings: tuple[Node, ...]) -> Node | None:
    """The JSON texts of strings, None where there are none."""
    texts = [text for text in map(json_string, strings) if not _has_none(text)]
    return choice(texts) if texts else None


@cache
def _has_none(text: Node) -> bool:
    return text == NOTHING or (not is_plain(text) and Language(text).is_empty())


def _inside(value: Value) -> Iterator[Conditions]:
    for array in value.arrays:
        if isinstance(array, Counted):
            yield from (item for moves in array.moves.values() for item, _ in moves)
        else:
            yield from array.prefix
            yield from () if array.rest is None else (array.rest,)
    for members in value.objects:
        yield from (member.value for member in members.named)
        for each in members.others:
            yield each.value
            yield from (each.value | witness for witness in each.witnesses)
