"""JSON schemas as Lark grammars for llguidance, which hold them exactly where they can be stated.

Blanks between the tokens of JSON are left to `%ignore`, and each character of a string has one
spelling. Names may come in any order, and declared ones once; that others come once, and items
of unbounded sets, is held beside the grammar.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.json_language.grammar.arrays import array_rules
from adapter.json_language.grammar.objects import object_rules
from adapter.json_language.grammar.places import Place, Places
from adapter.json_language.grammar.rules import Rules
from adapter.json_language.grammar.values import Values
from adapter.json_language.normal_form.forms import ANYTHING, Conditions, Form
from adapter.json_language.normal_form.normalise import Normaliser
from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.json_schema.numbers import Numbers
from adapter.languages.json_schema.schema import Schema, SchemaError
from adapter.languages.regex.json_text import json_string
from adapter.languages.regex.tree import ANY_TEXT, choice
from adapter.languages.regex.write import to_lark_terminal

_MOST_FORMS = 20_000
_MOST_VALUES = 4_000
_MOST_TEXT = 2**20


class TooLargeError(ValueError):
    """A schema whose grammar would be too large to be built."""


@dataclass(frozen=True, slots=True)
class Held:
    """A schema as a grammar."""

    lark: str
    complete: bool
    """Whether it allows no text that the schema forbids; else the finished one is to be checked."""
    places: tuple[Place, ...] = ()
    """Where items have to differ, which the grammar does not hold; none where nowhere."""


def held(schema: Schema) -> Held:
    """The grammar of a schema's texts.

    Raises:
        SchemaError: no finite text satisfies the schema, or it is none.
        TooLargeError: the grammar would be too large.
    """
    normaliser = Normaliser(schema, Budget(_MOST_FORMS))
    try:
        return _Writer(normaliser, schema).held()
    except (BudgetExceededError, RecursionError):
        raise TooLargeError("the schema is too large, or says too much at once") from None


class _Writer:
    def __init__(self, normaliser: Normaliser, schema: Schema) -> None:
        root = normaliser.schemas.conditions(schema)
        if root is None:
            raise SchemaError("no JSON text satisfies it")
        self._root = root
        self._normaliser = normaliser
        self._values = Values(normaliser, root, Budget(_MOST_VALUES))
        self._rules = Rules()

    def held(self) -> Held:
        if not self._values.ends(self._root):
            raise SchemaError("no finite JSON text satisfies it")
        self._rules.add("start", [self._rules.value(self._root)])
        written = set[Conditions]()
        while (conditions := self._rules.next_value()) is not None:
            if conditions not in written:
                written.add(conditions)
                name = self._rules.value(conditions)
                self._rules.add(name, list(self._alternatives(conditions)))
        text = self._rules.text()
        if len(text) > _MOST_TEXT:
            raise BudgetExceededError
        places = Places(self._values, self._root)
        if not places.matter and places.exact:
            return Held(text, self._normaliser.complete)
        return Held(text, self._normaliser.complete and places.exact, tuple(places.found))

    def _alternatives(self, conditions: Conditions) -> Iterator[str]:
        if conditions == ANYTHING:
            yield from self._anything()
            return
        value = self._values[conditions]
        yield from self._scalars(value.form)
        if value.text is not None:
            yield self._rules.terminal(to_lark_terminal(value.text))
        for array in filter(self._values.is_array, value.arrays):
            yield array_rules(array, self._values, self._rules)
        for members in filter(self._values.is_object, value.objects):
            yield object_rules(members, self._values, self._rules)

    def _scalars(self, form: Form) -> Iterator[str]:
        if form.null:
            yield '"null"'
        for flag in sorted(form.booleans):
            yield '"true"' if flag else '"false"'
        numbers = [each for each in form.numbers if not each.is_empty()]
        if numbers:
            yield self._rules.terminal(to_lark_terminal(choice(each.written() for each in numbers)))

    def _anything(self) -> Iterator[str]:
        string = self._rules.terminal(to_lark_terminal(json_string(ANY_TEXT)))
        number = self._rules.terminal(to_lark_terminal(Numbers().written()))
        value = self._rules.value(ANYTHING)
        yield from ('"null"', '"true"', '"false"', string, number)
        yield f'"[" ({value} ("," {value})*)? "]"'
        yield f'"{{" ({string} ":" {value} ("," {string} ":" {value})*)? "}}"'
