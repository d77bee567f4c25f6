"""What is wrong with a grammar as a whole: names, recursion, rules without an end."""

from collections.abc import Collection

from adapter.languages.grammar.rules import GrammarError, Rule, Rules, settled

# llguidance follows references on the machine's stack: 5000 in a row kill the process.
MAX_CHAIN = 1000


def checked(rules: Rules, start: str) -> Rules:
    """The rules that a text can come to.

    Raises:
        GrammarError: a name is not defined, or a rule cannot be honoured.
    """
    if start not in rules:
        raise GrammarError(f"the grammar has no rule {start}")
    for rule in rules.values():
        _check_names(rule, rules)
    reached = _reached(rules, [start, *(name for name in rules if name.startswith("%"))])
    left = {name: rule for name, rule in rules.items() if name in reached}
    fruitful = _fruitful(left)
    for rule in [left[start], *left.values()]:
        if rule.name not in fruitful and not rule.closer:
            raise GrammarError(f"{rule.name} derives no finite text", rule.line)
    _check_circles(left)
    return left


def _check_circles(rules: Rules) -> None:
    """Refuse a rule that is only itself, if by way of others: xgrammar crashes at x ::= x{2}."""
    straight: set[str] = set()
    for rule in rules.values():
        path: set[str] = set()
        name: str | None = rule.name
        while name is not None and name not in straight:
            if name in path:
                raise GrammarError(f"{rule.name} leads to nothing but itself", rule.line)
            path.add(name)
            name = _only_name(rules[name])
        straight |= path


def _only_name(rule: Rule) -> str | None:
    """The rule that this one is no more than."""
    sequences = [[part for part in parts if part.text != '""'] for parts in rule.alternatives]
    is_one = len(sequences) == 1 and len(sequences[0]) == 1
    return sequences[0][0].text if is_one and sequences[0][0].kind == "name" else None


def _check_names(rule: Rule, rules: Rules) -> None:
    for part in rule.names():
        if part.text not in rules:
            raise GrammarError(f"{part.text} is not defined", part.line)
        if (rule.is_terminal or rule.options) and not rules[part.text].is_terminal:
            raise GrammarError(f"the rule {part.text} cannot stand in a terminal", part.line)


def _reached(rules: Rules, roots: list[str]) -> set[str]:
    """What roots lead to, in the order in which llguidance goes there."""
    reached = set(roots)
    for root in roots:
        path = {root: rules[root].names()}
        while path:
            part = next(path[next(reversed(path))], None)
            if part is None:
                path.popitem()
            elif part.text in path and rules[part.text].is_terminal:
                raise GrammarError(f"the terminal {part.text} holds itself", part.line)
            elif part.text not in reached:
                reached.add(part.text)
                path[part.text] = rules[part.text].names()
                if len(path) > MAX_CHAIN:
                    raise GrammarError(f"more than {MAX_CHAIN} rules lead one to the next")
    return reached


def _fruitful(rules: Rules) -> Collection[str]:
    """The rules that derive a finite text."""
    return settled(
        (rule.name, {part.text for part in parts if part.kind == "name" and part.low > 0})
        for rule in rules.values()
        for parts in rule.alternatives
    )
