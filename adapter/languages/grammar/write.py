"""Writes a grammar so that llguidance and xgrammar read it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from adapter.languages.grammar.lexemes import lexemes, rules_beside
from adapter.languages.grammar.read import Dialect, dialect, read
from adapter.languages.grammar.read_ebnf import class_element
from adapter.languages.grammar.rules import Element, Rule, Rules, led_to


def as_lark(text: str, *, with_lexemes: bool = True) -> str:
    """The grammar in the Lark that llguidance reads, with the same language.

    Of an EBNF grammar, what `lexemes` finds becomes terminals; the rest is matched by characters.

    with_lexemes: without, all is matched by characters, which costs time and changes nothing else.

    Raises:
        GrammarError: the grammar cannot be read, uses what neither engine can honour exactly, or
            has a rule that derives no finite text.
    """
    rules = read(text)
    if not _is_ebnf(text):
        return "\n".join(map(_lark_line, rules.values())) + "\n"
    spelled = _spelled(rules)
    whole = lexemes(spelled) if with_lexemes else set()
    return "\n".join(_ebnf_in_lark(spelled, whole)) + "\n"


def as_ebnf(text: str) -> str | None:
    """An EBNF grammar as xgrammar reads it, with the same language; None for a Lark grammar.

    Raises:
        GrammarError: as as_lark does, for an EBNF grammar.
    """
    if not _is_ebnf(text):
        return None
    rules = read(text)
    names = _new_names(rules) | {"root": "root"}
    lines = [f"{names[name]} ::= {_body(rule, names)}" for name, rule in rules.items()]
    return "\n".join(lines) + "\n"


def _is_ebnf(text: str) -> bool:
    return dialect(text) is Dialect.EBNF


def _lark_line(rule: Rule) -> str:
    if rule.directive and rule.directive != "%ignore":
        return rule.directive
    return f"{rule.directive or f'{rule.name}{rule.options}:'} {_body(rule, {})}"


def _ebnf_in_lark(rules: Rules, whole: set[str]) -> Iterator[str]:
    """whole: the rules that become terminals."""
    low = _new_names(rules)
    upper = {name: new.upper() for name, new in low.items()}
    mixed = low | {name: upper[name] for name in whole}
    grammar = rules_beside(rules, whole)
    terminals = whole & ({part.text for rule in grammar for part in rule.names()} | {"root"})
    yield f"start: {mixed['root']}"
    for rule in grammar:
        yield f"{low[rule.name]}: {_body(rule, mixed, '/')}"
    for rule in led_to(rules, terminals, set()):
        yield f"{upper[rule.name]}: {_body(rule, upper, '/')}"


def _spelled(rules: Rules) -> Rules:
    """The rules with each literal a rule of its own, whose parts are characters."""
    spelled: Rules = {}
    for rule in rules.values():
        alternatives = [[_as_name(part) for part in parts] for parts in rule.alternatives]
        spelled[rule.name] = replace(rule, alternatives=alternatives)
        for part in rule.parts():
            if part.kind == "literal" and part.text not in spelled:
                chars = [class_element((char,), part.line) for char in part.chars]
                spelled[part.text] = Rule(part.text, part.line, alternatives=[chars])
    return spelled


def _as_name(part: Element) -> Element:
    if part.kind != "literal":
        return part
    return Element("name", part.text, part.line, part.low, part.high)


def _new_names(rules: Rules) -> dict[str, str]:
    """Names for the rules of an EBNF grammar that mean nothing else to an engine."""
    return {
        name: f"r_{re.sub('[^a-z0-9]', '_', name.lower())[:40]}_{index}"
        for index, name in enumerate(rules)
    }


def _body(rule: Rule, names: Mapping[str, str], slash: str = "") -> str:
    """The alternatives of a rule; slash: what stands on both sides of a class."""
    around = {"class": slash}

    def written(part: Element) -> str:
        text = names.get(part.text, part.text) if part.kind == "name" else part.text
        edge = around.get(part.kind, "")
        return f"{edge}{text}{edge}{part.times()}"

    return " | ".join(" ".join(map(written, parts)) or '""' for parts in rule.alternatives)
