"""Reads EBNF as xgrammar and llama.cpp (GBNF) write it."""

from adapter.languages.characters import CHARACTERS, Ranges, complement, intersection, union
from adapter.languages.escapes import bracketed, ebnf_escape, written
from adapter.languages.grammar.escapes import SYMBOL, symbol, unescaped
from adapter.languages.grammar.read_rules import Reader, special
from adapter.languages.grammar.rules import Element, GrammarError, Rule
from adapter.languages.grammar.tokens import EBNF_TOKEN, Token

_ESCAPES = {
    **{"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"},
    **{"0": "\0", "e": "\x1b"},
    **{mark: mark for mark in "\"'\\[]^-/$.*+?(){}|"},
}


class EbnfReader(Reader):
    """Reads `name ::= ...`."""

    pattern = EBNF_TOKEN

    def _statement(self) -> None:
        head = self._expect("head", None)
        name = head.text.removesuffix("::=").strip()
        self._body(self._add(Rule(name, head.line)))

    def _leaf(self, token: Token) -> Element:
        if token.kind == "name":
            return Element("name", token.text, token.line)
        if token.kind == "literal":
            return _literal(token)
        if token.kind == "class" or token.text == ".":
            return _class(token)
        raise special(token) if token.kind == "special" else self._unexpected(token)


def _literal(token: Token) -> Element:
    text = unescaped(token.text[1:-1], _ESCAPES, token.line)
    spelling = "".join(written(ord(char), ebnf_escape) for char in text)
    chars = tuple((ord(char), ord(char)) for char in text)
    return Element("literal", f'"{spelling}"', token.line, chars=chars)


def _class(token: Token) -> Element:
    """A class of characters; the dot is one too."""
    body = "^" if token.text == "." else token.text[1:-1]
    negated = body.startswith("^")
    named = union(_ranges(body[negated:], token.line))
    allowed = intersection(complement(named) if negated else named, CHARACTERS)
    if not allowed:
        raise GrammarError("a class allows no character", token.line)
    return class_element(allowed, token.line)


def class_element(chars: Ranges, line: int) -> Element:
    """A class of these characters."""
    return Element("class", bracketed(chars, ebnf_escape), line, chars=chars)


def _ranges(body: str, line: int) -> Ranges:
    found = list(SYMBOL.finditer(body))
    chars = [ord(symbol(match, _ESCAPES, line)) for match in found]
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(chars):
        wide = at + 2 < len(chars) and found[at + 1][0] == "-"
        first, last = chars[at], chars[at + 2 if wide else at]
        if first > last:
            raise GrammarError(f"a range of {body[:40]} ends before it starts", line)
        ranges.append((first, last))
        at += 3 if wide else 1
    return tuple(ranges)
