"""Alternatives of objects as rules: names in any order, told by a bit each."""

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.json_language.grammar.conditions import TRUE, Tally, any_of, both, when
from adapter.json_language.grammar.members import Member, Members, Others
from adapter.json_language.grammar.rules import Rules
from adapter.json_language.grammar.values import Values
from adapter.json_language.normal_form.forms import Conditions
from adapter.languages.budget import BudgetExceededError

_BITS = 64
_MOST_COUNTED = 10_000


def object_rules(members: Members, values: Values, rules: Rules) -> str:
    """The name of the rule of an object that there is."""
    layout = _layout(members, values)
    return _in_order(layout, rules) if layout.bits > _BITS else _in_any_order(layout, rules)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The members that there can be, and where their bits are."""

    members: list[Member]
    """Those that are named, in the order of the schema."""
    needed: list[Member]
    witnesses: list[tuple[Others, Conditions]]
    optional: list[Member]
    others: list[Others]
    floor: int
    """How many members there have to be beside those that are needed."""
    limit: int | None
    """How many there may be."""

    @property
    def first(self) -> int:
        """How many are needed: their bits are the first ones."""
        return len(self.needed) + len(self.witnesses)

    @property
    def counter(self) -> tuple[int, int] | None:
        """The bits that count the others, where they have to be counted."""
        if not self.others or (self.limit is None and self.floor <= 0):
            return None
        start = self.first + len(self.optional)
        return start, start + max(self.floor, self.limit or 0, 1).bit_length()

    @property
    def bits(self) -> int:
        """How many bits there are."""
        return self.first + len(self.optional) if self.counter is None else self.counter[1]

    def tally(self) -> Tally:
        """Of the members beside those that are needed."""
        return Tally((self.first, self.first + len(self.optional)), self.counter)

    def end(self) -> str:
        """When the object may end."""
        needed = f"is_ones([0:{self.first}])" if self.first else TRUE
        return both((needed, self.tally().at_least(self.floor) if self.floor > 0 else TRUE))

    def more(self) -> str:
        """When a member that is not needed may come."""
        limit = self.limit
        if limit is None or (not self.others and limit >= len(self.optional)):
            return TRUE
        return self.tally().below(limit)

    def goes_on(self) -> str:
        """When another member can come: else a comma would lead nowhere."""
        more = self.more()
        if self.others and more == TRUE:
            return TRUE
        last = self.first + len(self.optional)
        ways = [f"not(is_ones([0:{self.first}]))"] if self.first else []
        if self.optional:
            ways.append(both((f"not(is_ones([{self.first}:{last}]))", more)))
        return any_of([*ways, *([more] if self.others else [])])


def _layout(members: Members, values: Values) -> _Layout:
    possible = [member for member in members.named if values.ends(member.value)]
    needed = [member for member in possible if member.required]
    witnesses = [(each, witness) for each in members.others for witness in each.witnesses]
    first = len(needed) + len(witnesses)
    limit = None if members.high is None else members.high - first
    if max(limit or 0, members.low) > _MOST_COUNTED:
        raise BudgetExceededError
    full = limit == 0
    return _Layout(
        needed if full else possible,
        needed,
        witnesses,
        [] if full else [member for member in possible if not member.required],
        [] if full else [each for each in members.others if values.ends(each.value)],
        members.low - first,
        limit,
    )


def _named(member: Member, rules: Rules) -> str:
    return f'{rules.key(member.name)} ":" {rules.value(member.value)}'


def _other(others: Others, value: Conditions, rules: Rules) -> str:
    return f'{rules.names(others.names)} ":" {rules.value(value)}'


def _in_any_order(layout: _Layout, rules: Rules) -> str:
    top, member, tail = rules.new(), rules.new(), rules.new()
    end, more = layout.end(), layout.more()
    empty = not layout.first and layout.floor <= 0
    lines = list(_choices(layout, tail, more, rules))
    starts = ['"{" "}"'] if empty else []
    rules.add(top, [*starts, *([f'"{{" {member}::0'] if lines else [])])
    if lines:
        rules.add(f"{member}::_", lines)
        rules.add(f"{tail}::_", [f'"}}"{when(end)}', f'"," {member}::_{when(layout.goes_on())}'])
    return top


def _choices(layout: _Layout, tail: str, more: str, rules: Rules) -> Iterator[str]:
    """The members that may come, each with the bits behind it."""
    bit = 0
    for needed in layout.needed:
        yield f"{_named(needed, rules)} {tail}::set_bit({bit}) %if bit_clear({bit})"
        bit += 1
    for others, witness in layout.witnesses:
        text = _other(others, others.value | witness, rules)
        yield f"{text} {tail}::set_bit({bit}) %if bit_clear({bit})"
        bit += 1
    for optional in layout.optional:
        condition = both((f"bit_clear({bit})", more))
        yield f"{_named(optional, rules)} {tail}::set_bit({bit}){when(condition)}"
        bit += 1
    counter = layout.counter
    step = "_" if counter is None else f"incr([{counter[0]}:{counter[1]}])"
    for others in layout.others:
        yield f"{_other(others, others.value, rules)} {tail}::{step}{when(more)}"


def _in_order(layout: _Layout, rules: Rules) -> str:
    """Where there are more names than bits: in the order of the schema, then the others."""
    if layout.witnesses or layout.floor > 0 or layout.more() != TRUE:
        raise BudgetExceededError
    others = [_other(each, each.value, rules) for each in layout.others]
    one = f"({' | '.join(others)})"
    behind = f'("," {one})* "}}"' if others else '"}"'
    first = f'{one} {behind} | "}}"' if others else '"}"'
    for member in reversed(layout.members):
        text = _named(member, rules)
        new_first, new_behind = rules.new(), rules.new()
        rules.add(new_behind, [f'"," {text} {behind}', *([] if member.required else [behind])])
        rules.add(new_first, [f"{text} {behind}", *([] if member.required else [first])])
        first, behind = new_first, new_behind
    top = rules.new()
    rules.add(top, [f'"{{" {first}'])
    return top
