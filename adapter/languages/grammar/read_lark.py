"""Reads Lark, with what llguidance adds to it and can be honoured."""

import json
import re

from adapter.languages.grammar.escapes import unescaped
from adapter.languages.grammar.read_rules import Reader, special
from adapter.languages.grammar.rules import Element, GrammarError, Rule
from adapter.languages.grammar.tokens import LARK_TOKEN, Token
from adapter.languages.regex.parse import parse_part
from adapter.languages.regex.tree import PatternError
from adapter.languages.regex.write import to_lark

LARK_COMMON = frozenset(
    {
        *("DIGIT", "HEXDIGIT", "INT", "SIGNED_INT", "DECIMAL", "_EXP", "FLOAT", "SIGNED_FLOAT"),
        *("NUMBER", "SIGNED_NUMBER", "ESCAPED_STRING", "LCASE_LETTER", "UCASE_LETTER", "LETTER"),
        *("WORD", "CNAME", "WS_INLINE", "WS", "CR", "LF", "NEWLINE", "SH_COMMENT", "CPP_COMMENT"),
        *("C_COMMENT", "SQL_COMMENT"),
    }
)
"""What `%import common.X` can name: Lark's own library, as both engines hold it."""

# Lark reads \/ and \b as two characters, llguidance as one: such escapes are refused.
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "\\": "\\", '"': '"'}


class LarkReader(Reader):
    """Reads `name: ...`, `%ignore`, and `%import` of the common library."""

    pattern = LARK_TOKEN

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._tokens = _without_idle_newlines(self._tokens)

    def _statement(self) -> None:
        token = self._now
        if token.kind == "newline":
            self._take()
        elif token.kind == "json" and token.text.startswith("%llguidance "):
            self._option(self._take())
        elif token.kind == "directive":
            self._directive(self._take())
        else:
            self._definition()

    def _option(self, token: Token) -> None:
        # Empty, it only says whose dialect this is, and xgrammar does not know it.
        if token.text != "%llguidance {}":
            self._add(Rule(f"%{self._at}", token.line, directive=token.text))

    def _directive(self, token: Token) -> None:
        if token.text == "%ignore":
            rule = Rule(f"%{self._at}", token.line, True, directive="%ignore")
            self._body(self._add(rule))
        elif token.text == "%import":
            self._import()
        else:
            raise GrammarError(f"{token.text} is not supported", token.line)

    def _import(self) -> None:
        library = self._expect("name")
        if library.text != "common" or self._now.text not in (".", "("):
            raise GrammarError("%import reaches Lark's common library only", library.line)
        if self._take_if("("):
            for name in self._listed():
                self._import_one(name, name)
            return
        self._take()
        name = self._expect("name")
        self._import_one(name, self._expect("name") if self._take_if("->") else name)

    def _listed(self) -> list[Token]:
        names = [self._expect("name")]
        while self._take_if(","):
            names.append(self._expect("name"))
        self._expect("op", ")")
        return names

    def _import_one(self, name: Token, alias: Token) -> None:
        if name.text not in LARK_COMMON:
            raise GrammarError(f"common.{name.text} is not in Lark's common library", name.line)
        line = f"%import common.{name.text} -> {alias.text}"
        self._add(Rule(alias.text, name.line, _is_terminal(alias), directive=line))

    def _definition(self) -> None:
        while self._take_if("?", "!"):
            pass
        name = self._expect("name")
        rule = self._add(Rule(name.text, name.line, _is_terminal(name)))
        if self._now.text in ("{", "::"):
            raise GrammarError(f"{name.text} has parameters: templates cannot be used", name.line)
        if self._take_if("."):
            self._expect("number")
        if self._take_if("["):
            self._options(rule)
        self._expect("op", ":")
        self._body(rule)

    def _options(self, rule: Rule) -> None:
        option = self._expect("name")
        if option.text != "lazy" or rule.is_terminal:
            raise GrammarError(f"{rule.name} cannot have the option {option.text}", option.line)
        self._expect("op", "]")
        rule.options = "[lazy]"

    def _leaf(self, token: Token) -> Element:
        if token.kind == "name":
            return self._reference(token)
        if token.kind == "literal":
            return Element("lark", self._literal(token), token.line)
        if token.kind == "regex":
            return Element("lark", _regex(token), token.line)
        if token.kind == "json" and token.text.startswith("%json"):
            raise GrammarError("%json cannot be used: ask with guided_json", token.line)
        if token.kind in ("directive", "json"):
            raise GrammarError(f"{token.text} is not supported", token.line)
        raise special(token) if token.kind == "special" else self._unexpected(token)

    def _reference(self, token: Token) -> Element:
        if self._now.text in ("{", "::"):
            raise GrammarError(f"{token.text} has arguments: templates cannot be used", token.line)
        _is_terminal(token)
        return Element("name", token.text, token.line)

    def _literal(self, token: Token) -> str:
        """A string, or a range of two, with the escapes of JSON, which llguidance reads."""
        first = _string(token)
        if not self._take_if(".."):
            return first
        last = _string(self._expect("literal"))
        if any(len(json.loads(end)) != 1 for end in (first, last) if end.endswith('"')):
            raise GrammarError("a range has ends that are not one character", token.line)
        return f"{first}..{last}"


def _regex(token: Token) -> str:
    """A regular expression in a form that the engines read alike.

    Raises:
        GrammarError: it has what they read differently, or not at all.
    """
    body, _, flags = token.text[1:].rpartition("/")
    body = body.replace("\\/", "/")
    try:
        return f"/{to_lark(parse_part(f'(?{flags}:{body})' if flags else body))}/"
    except PatternError as error:
        raise GrammarError(f"{token.text[:40]}: {error}", token.line) from None


def _without_idle_newlines(tokens: list[Token]) -> list[Token]:
    """Keep the newlines that end a statement: a line that begins with | goes on."""
    kept: list[Token] = []
    for token in tokens:
        if kept and kept[-1].kind == "newline" and token.text in ("\n", "|"):
            kept.pop()
        kept.append(token)
    return kept


def _is_terminal(name: Token) -> bool:
    if not re.fullmatch(r"_?(?:[a-z][a-z0-9_-]*|[A-Z][A-Z0-9_-]*)", name.text):
        raise GrammarError(f"{name.text} is neither a rule nor a TERMINAL", name.line)
    return name.text.lstrip("_")[0].isupper()


def _string(token: Token) -> str:
    body, flag = token.text.removesuffix("i")[1:-1], "i" if token.text.endswith("i") else ""
    text = unescaped(body, _ESCAPES, token.line)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f") + flag
