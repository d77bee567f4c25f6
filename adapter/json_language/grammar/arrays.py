"""Alternatives of arrays as rules."""

from adapter.json_language.grammar.conditions import TRUE, when
from adapter.json_language.grammar.items import Counted, State, item_at
from adapter.json_language.grammar.rules import Rules
from adapter.json_language.grammar.values import Values
from adapter.json_language.normal_form.forms import Array
from adapter.languages.regex.write import quantifier


def array_rules(array: Array | Counted, values: Values, rules: Rules) -> str:
    """The name of the rule of an array that there is."""
    if isinstance(array, Counted):
        return _counted(array.within(values.ends), rules)
    if array.unique and array.high not in (0, 1):
        distinct = values.distinct(array)
        if distinct is not None:
            return _distinct(distinct, array, rules)
    name = rules.new()
    rules.add(name, [f'"[" {_items(array, values, rules)} "]"'])
    return name


def _items(array: Array, values: Values, rules: Rules) -> str:
    """The first items one inside the other, then the others."""
    most = values.most_items(array, max(len(array.prefix) + 1, array.low))
    count = min(len(array.prefix), most)
    text = ""
    rest = array.rest
    if most > count and rest is not None and values.ends(rest):
        low = max(array.low - count, 0)
        high = None if array.high is None else array.high - count
        text = _repeated(rules.value(rest), low, high, behind=count > 0)
    for index in reversed(range(count)):
        item = item_at(array, index)
        assert item is not None
        comma = '"," ' if index else ""
        text = f"{comma}{rules.value(item)} {text}".strip()
        if index >= array.low:
            text = f"({text})?"
    return text


def _repeated(item: str, low: int, high: int | None, *, behind: bool) -> str:
    """Items, behind others or not."""
    if high == 0:
        return ""
    if behind:
        return f'("," {item}){quantifier(low, high)}'
    if high == 1:
        return item if low else f"{item}?"
    more = f'("," {item}){quantifier(max(low - 1, 0), None if high is None else high - 1)}'
    return f"{item} {more}" if low else f"({item} {more})?"


def _counted(array: Counted, rules: Rules) -> str:
    """A rule for each state."""
    names: dict[State, str] = {state: rules.new() for state in array.moves}
    top = rules.new()
    firsts = [f"{rules.value(item)} {names[target]}" for item, target in array.moves[array.start]]
    if array.start in array.ends:
        firsts.append('"]"')
    rules.add(top, [f'"[" ({" | ".join(firsts)})'])
    for state, moves in array.moves.items():
        lines = [f'"," {rules.value(item)} {names[target]}' for item, target in moves]
        rules.add(names[state], [*lines, *(['"]"'] if state in array.ends else [])])
    return top


def _distinct(texts: list[str], array: Array, rules: Rules) -> str:
    """Different ones of a few values: a bit for each."""
    top, items, tail = rules.new(), rules.new(), rules.new()
    bits = f"[0:{len(texts)}]"
    most = len(texts) if array.high is None else min(array.high, len(texts))
    rules.add(top, [*([] if array.low else ['"[" "]"']), f'"[" {items}::0'])
    choices = [
        f"{rules.terminal(text)} {tail}::set_bit({bit}) %if bit_clear({bit})"
        for bit, text in enumerate(texts)
    ]
    rules.add(f"{items}::_", choices)
    end = TRUE if array.low < 2 else f"bit_count_ge({bits}, {array.low})"
    more = f"bit_count_lt({bits}, {most})"
    rules.add(f"{tail}::_", [f'"]"{when(end)}', f'"," {items}::_{when(more)}'])
    return top
