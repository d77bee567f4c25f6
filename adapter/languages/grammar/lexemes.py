"""guided_grammar: what its text means, checked, and put so that llguidance and xgrammar read it.

Two dialects come in: GBNF, which xgrammar calls EBNF (`root ::= ...`), and Lark (`start: ...`).
Both are read into the same flat rules: each group becomes a rule of its own, so nothing here
recurses, and brackets may nest deeper than the 29 that llguidance takes.
"""

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from operator import or_
from typing import NamedTuple

from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import PatternError
from adapter.languages.regex.write import to_lark

MAX_NESTING = 200
MAX_REPEAT = 1_000_000
# llguidance numbers symbols in 16 bits.
MAX_RULES = 20_000
# llguidance follows references on the machine's stack: 5000 in a row kill the process.
MAX_CHAIN = 1000

# What may be spent on finding the lexemes of an EBNF grammar: a tenth of a second or two.
LEXEME_STEPS = 100_000
MAX_LEXEME_DEPTH = 60

LARK_COMMON = frozenset(
    {
        *("DIGIT", "HEXDIGIT", "INT", "SIGNED_INT", "DECIMAL", "_EXP", "FLOAT", "SIGNED_FLOAT"),
        *("NUMBER", "SIGNED_NUMBER", "ESCAPED_STRING", "LCASE_LETTER", "UCASE_LETTER", "LETTER"),
        *("WORD", "CNAME", "WS_INLINE", "WS", "CR", "LF", "NEWLINE", "SH_COMMENT", "CPP_COMMENT"),
        *("C_COMMENT", "SQL_COMMENT"),
    }
)
"""What `%import common.X` can name: Lark's own library, as both engines hold it."""

LARK_OPTIONS = frozenset({"no_forcing", "allow_initial_skip"})
"""What `%llguidance {...}` may set: these leave the text valid UTF-8 and the rules in force."""


class GrammarError(ValueError):
    """The grammar cannot be used; the message is for the caller who wrote it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")


class Dialect(Enum):
    """How a grammar is written."""

    LARK = "lark"
    EBNF = "ebnf"


def dialect(text: str) -> Dialect:
    """How a grammar is written, by its first definition or directive.

    Raises:
        GrammarError: the grammar is empty, neither kind, or holds what no text can.
    """
    _check_characters(text)
    start = _match(_BLANKS, text, 0).end()
    if start == len(text):
        raise GrammarError("the grammar is empty")
    opening = _OPENING.match(text, start)
    if opening is None:
        line = text.count("\n", 0, start) + 1
        raise GrammarError("neither an EBNF rule (name ::= ...) nor a Lark one (name: ...)", line)
    return Dialect.EBNF if opening["ebnf"] else Dialect.LARK


def as_lark(text: str) -> str:
    """The grammar in the Lark that llguidance reads, with the same language.

    llguidance cuts a text into lexemes, takes the longest one and never reconsiders. Of an EBNF
    grammar, only what that cannot change is made a lexeme; the rest is matched by characters.

    Raises:
        GrammarError: the grammar cannot be read, uses what neither engine can honour exactly, or
            has a rule that derives no finite text.
    """
    rules = _read(text)
    if dialect(text) is Dialect.EBNF:
        return "\n".join(_lark_of_ebnf(_spelled(rules))) + "\n"
    return "\n".join(map(_lark_line, rules.values())) + "\n"


def as_ebnf(text: str) -> str | None:
    """An EBNF grammar as xgrammar reads it, with the same language; None for a Lark grammar.

    Raises:
        GrammarError: as as_lark does, for an EBNF grammar.
    """
    if dialect(text) is Dialect.LARK:
        return None
    rules = _read(text)
    names = _new_names(rules) | {"root": "root"}
    lines = [f"{names[name]} ::= {_body(rule, names)}" for name, rule in rules.items()]
    return "\n".join(lines) + "\n"


def _read(text: str) -> dict[str, "_Rule"]:
    kind = dialect(text)
    reader = _LarkReader(text) if kind is Dialect.LARK else _EbnfReader(text)
    return _checked(reader.rules(), "start" if kind is Dialect.LARK else "root")


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise GrammarError("the grammar holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise GrammarError("the grammar holds half a surrogate pair") from None


# --- Tokens. Quantifiers that never give back (*+, ++) keep hostile texts linear.

_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_BLANKS = re.compile(r"\ufeff?(?:\s++|(?:\#|//)[^\n]*+)*+")
_OPENING = re.compile(
    r"%[a-z]|[!?]*+[A-Za-z0-9_-]++\s*+(?:(?P<ebnf>::=)|::?|\.\s*+-?[0-9]|[\[{])", re.ASCII
)
_EBNF_TOKEN = re.compile(
    rf"""(?P<skip>\s++|\#[^\n]*+)
    |(?P<head>[A-Za-z0-9_-]++\s*+::=)
    |(?P<name>[A-Za-z0-9_-]++)
    |(?P<literal>{_STRING})
    |(?P<class>\[[^\]\\\n]*+(?:\\.[^\]\\\n]*+)*+\])
    |(?P<repeat>[*+?]|\{{[0-9,\s]*+\}})
    |(?P<op>[|().])
    |(?P<special>!?<[^<>\s]++>)""",
    re.ASCII | re.VERBOSE,
)
_LARK_TOKEN = re.compile(
    rf"""(?P<skip>[ \t]++|\\[ ]*+\n|(?:\#|//)[^\n]*+)
    |(?P<newline>\n)
    |(?P<json>%(?:json|regex|llguidance)\b)
    |(?P<directive>%\w++)
    |(?P<name>[A-Za-z_](?:\w|-(?!>))*+)
    |(?P<literal>{_STRING}i?)
    |(?P<regex>/[^/\\]*+(?:\\[\s\S][^/\\]*+)*+/[imslux]*+)
    |(?P<repeat>[*+?]|\{{[0-9,\s]*+\}})
    |(?P<number>-?[0-9]++)
    |(?P<op>->|\.\.|::|[:|()\[\]~.,{{}}&!=])
    |(?P<special>@[\w-]++|<[^<>\s]++>)""",
    re.ASCII | re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _match(pattern: re.Pattern[str], text: str, at: int, line: int | None = None) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        start = text[at]
        unclosed = {'"': "a literal", "[": "a class", "/": "a regular expression"}.get(start)
        what = f"{unclosed} is not closed" if unclosed else f"{start!r} has no meaning here"
        raise GrammarError(what, line)
    return found


def _tokens(text: str, pattern: re.Pattern[str]) -> Iterator[_Token]:
    """All tokens of a text, and three ends, so that a reader may look two ahead."""
    at, line = 0, 1
    while at < len(text):
        found = _match(pattern, text, at, line)
        kind, piece, end = str(found.lastgroup), found.group(), found.end()
        if kind == "json":
            piece, end = _json_block(piece, text, end, line)
        if kind != "skip":
            yield _Token(kind, piece, line)
        line += text.count("\n", at, end)
        at = end
    yield from [_Token("end", "the end", line)] * 3


def _json_block(directive: str, text: str, at: int, line: int) -> tuple[str, int]:
    """A directive with its JSON, written anew so that what was checked is what runs; its end."""
    at = _match(re.compile(r"\s*+"), text, at).end()
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
        written = json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")
    except (ValueError, RecursionError):
        raise GrammarError(f"{directive} is not followed by JSON that can be read", line) from None
    if not isinstance(value, dict):
        raise GrammarError(f"{directive} is not followed by a JSON object", line)
    _check_json(directive, value, line)
    return f"{directive} {written}", end


def _check_json(directive: str, value: dict[str, object], line: int) -> None:
    unknown = sorted(value.keys() - LARK_OPTIONS) if directive == "%llguidance" else []
    if unknown:
        raise GrammarError(f"%llguidance cannot set {unknown[0]!r} here", line)
    pending: list[object] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if "x-guidance" in part:
                raise GrammarError(f"{directive} cannot hold x-guidance: it ends checks", line)
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)


# --- Rules.


@dataclass(slots=True)
class _Element:
    """One part of a sequence, low to high times (None: any number)."""

    kind: str
    """name; literal and class of EBNF, as both engines read them; lark, as it is."""
    text: str
    line: int
    low: int = 1
    high: int | None = 1
    chars: tuple[tuple[int, int], ...] = ()
    """What a literal holds, one by one, or a class allows: ranges, ends included."""

    def times(self) -> str:
        """Its quantifier, as all engines read it."""
        usual = {(1, 1): "", (0, 1): "?", (0, None): "*", (1, None): "+"}
        braces = f"{{{self.low},{'' if self.high is None else self.high}}}"
        return usual.get((self.low, self.high), braces)


@dataclass(slots=True)
class _Rule:
    name: str
    line: int
    is_terminal: bool = False
    closer: str = ""
    """The bracket that ends a group."""
    options: str = ""
    directive: str = ""
    """What stands in Lark instead of a definition: %ignore, or a whole line."""
    alternatives: list[list[_Element]] = field(default_factory=lambda: [[]])

    def names(self) -> Iterator[_Element]:
        """The references of all alternatives, in order."""
        return (part for parts in self.alternatives for part in parts if part.kind == "name")


class _Reader:
    """Reads rules from tokens; the dialects differ in statements and leaves."""

    pattern: re.Pattern[str]

    def __init__(self, text: str) -> None:
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self._tokens = list(_tokens(text, self.pattern))
        self._at = 0
        self._rules: dict[str, _Rule] = {}
        self._taken = {token.text for token in self._tokens if token.kind == "name"} | {
            token.text.removesuffix("::=").strip() for token in self._tokens if token.kind == "head"
        }
        self._groups = 0

    def rules(self) -> dict[str, _Rule]:
        """All rules by name, groups and directives among them.

        Raises:
            GrammarError: the text is not of this dialect, or uses what cannot be honoured.
        """
        while self._now.kind != "end":
            self._statement()
        return self._rules

    def _statement(self) -> None:
        raise NotImplementedError

    def _leaf(self, token: _Token) -> _Element:
        raise NotImplementedError

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_if(self, *texts: str) -> bool:
        found = self._now.kind in ("op", "repeat") and self._now.text in texts
        self._at += found
        return found

    def _expect(self, kind: str, text: str | None = None) -> _Token:
        token = self._take()
        if token.kind != kind or text not in (None, token.text):
            raise self._unexpected(token, text or f"a {kind}")
        return token

    def _unexpected(self, token: _Token, wanted: str | None = None) -> GrammarError:
        shown = {"newline": "the end of the line", "end": "the end"}.get(token.kind, token.text)
        instead = f", where {wanted} should stand" if wanted else ""
        return GrammarError(f"{shown[:40]} is out of place{instead}", token.line)

    def _add(self, rule: _Rule) -> _Rule:
        if rule.name in self._rules:
            raise GrammarError(f"{rule.name} is defined twice", rule.line)
        if len(self._rules) == MAX_RULES:
            raise GrammarError(f"more than {MAX_RULES} rules and groups", rule.line)
        self._rules[rule.name] = rule
        return rule

    def _body(self, rule: _Rule) -> None:
        """What a rule derives; the open groups are a stack, innermost last."""
        stack = [rule]
        while self._now.kind not in ("head", "newline", "end"):
            self._step(stack, self._take())
        if len(stack) > 1:
            raise GrammarError("a bracket is not closed", stack[-1].line)

    def _step(self, stack: list[_Rule], token: _Token) -> None:
        mark = token.text if token.kind == "op" else ""
        sequence = stack[-1].alternatives[-1]
        if mark in ("(", "["):
            stack.append(self._group(stack, token))
        elif mark == "|":
            stack[-1].alternatives.append([])
        elif mark in ("&", "~"):
            sequence.append(_Element("lark", mark, token.line))
        elif mark == "->":
            self._expect("name")
        elif mark in (")", "]"):
            group = self._close(stack, token)
            self._append(stack, _Element("name", group.name, group.line))
        else:
            self._append(stack, self._leaf(token))

    def _append(self, stack: list[_Rule], part: _Element) -> None:
        part.low, part.high = self._times()
        if part.high != 0:
            stack[-1].alternatives[-1].append(part)

    def _group(self, stack: list[_Rule], token: _Token) -> _Rule:
        if len(stack) > MAX_NESTING:
            raise GrammarError(f"more than {MAX_NESTING} brackets within each other", token.line)
        around = stack[-1]
        before = around.alternatives[-1][-1:]
        # llguidance takes what is lazy or negated for one terminal, and all in it with it.
        whole = around.is_terminal or bool(around.options or (before and before[0].text == "~"))
        closer = ")" if token.text == "(" else "]"
        return self._add(_Rule(self._group_name(whole), token.line, whole, closer))

    def _group_name(self, upper: bool) -> str:
        while True:
            self._groups += 1
            name = f"{'GROUP' if upper else 'group'}-{self._groups}"
            if name not in self._taken:
                return name

    def _close(self, stack: list[_Rule], token: _Token) -> _Rule:
        if stack[-1].closer != token.text:
            raise GrammarError(f"{token.text} closes nothing", token.line)
        if token.text == "]":
            stack[-1].alternatives.append([])
        return stack.pop()

    def _times(self) -> tuple[int, int | None]:
        """How often the element before stands: its quantifier, if it has one."""
        if self._now.text == "~" and self._tokens[self._at + 1].kind == "number":
            return self._tilde_times()
        if self._now.kind != "repeat":
            return 1, 1
        token = self._take()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        return simple.get(token.text) or _braces(token)

    def _tilde_times(self) -> tuple[int, int | None]:
        line = self._take().line
        low = self._take().text
        high = self._expect("number").text if self._take_if("..") else low
        return _bounds(low, high, line)


def _braces(token: _Token) -> tuple[int, int | None]:
    low, *rest = (bound.strip() for bound in token.text[1:-1].split(","))
    high = rest[0] if rest else low
    if len(rest) > 1 or not (low or high):
        raise GrammarError(f"{token.text[:40]} is no repetition", token.line)
    return _bounds(low or "0", high, token.line)


def _bounds(low: str, high: str, line: int) -> tuple[int, int | None]:
    if not all(bound.isdecimal() and len(bound) < 10 for bound in (low, high or "0")):
        raise GrammarError("a repetition has bounds that cannot be read", line)
    least, most = int(low), int(high) if high else None
    if max(least, most or 0) > MAX_REPEAT:
        raise GrammarError(f"a repetition of more than {MAX_REPEAT}", line)
    if most is not None and most < least:
        raise GrammarError("a repetition ends below its start", line)
    return least, most


class _EbnfReader(_Reader):
    pattern = _EBNF_TOKEN

    def _statement(self) -> None:
        head = self._expect("head", None)
        name = head.text.removesuffix("::=").strip()
        self._body(self._add(_Rule(name, head.line)))

    def _leaf(self, token: _Token) -> _Element:
        if token.kind == "name":
            return _Element("name", token.text, token.line)
        if token.kind == "literal":
            return _ebnf_literal(token)
        if token.kind == "class" or token.text == ".":
            return _ebnf_class(token)
        raise _special(token) if token.kind == "special" else self._unexpected(token)


class _LarkReader(_Reader):
    pattern = _LARK_TOKEN

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

    def _option(self, token: _Token) -> None:
        # Empty, it only says whose dialect this is, and xgrammar does not know it.
        if token.text != "%llguidance {}":
            self._add(_Rule(f"%{self._at}", token.line, directive=token.text))

    def _directive(self, token: _Token) -> None:
        if token.text == "%ignore":
            rule = _Rule(f"%{self._at}", token.line, True, directive="%ignore")
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

    def _listed(self) -> list[_Token]:
        names = [self._expect("name")]
        while self._take_if(","):
            names.append(self._expect("name"))
        self._expect("op", ")")
        return names

    def _import_one(self, name: _Token, alias: _Token) -> None:
        if name.text not in LARK_COMMON:
            raise GrammarError(f"common.{name.text} is not in Lark's common library", name.line)
        line = f"%import common.{name.text} -> {alias.text}"
        self._add(_Rule(alias.text, name.line, _is_terminal(alias), directive=line))

    def _definition(self) -> None:
        while self._take_if("?", "!"):
            pass
        name = self._expect("name")
        rule = self._add(_Rule(name.text, name.line, _is_terminal(name)))
        if self._now.text in ("{", "::"):
            raise GrammarError(f"{name.text} has parameters: templates cannot be used", name.line)
        if self._take_if("."):
            self._expect("number")
        if self._take_if("["):
            self._options(rule)
        self._expect("op", ":")
        self._body(rule)

    def _options(self, rule: _Rule) -> None:
        option = self._expect("name")
        if option.text != "lazy" or rule.is_terminal:
            raise GrammarError(f"{rule.name} cannot have the option {option.text}", option.line)
        self._expect("op", "]")
        rule.options = "[lazy]"

    def _leaf(self, token: _Token) -> _Element:
        if token.kind == "name":
            return self._reference(token)
        if token.kind == "literal":
            return _Element("lark", self._literal(token), token.line)
        if token.kind == "regex":
            return _Element("lark", _lark_regex(token), token.line)
        if token.kind == "json" and token.text.startswith("%json"):
            raise GrammarError("%json cannot be used: ask with guided_json", token.line)
        if token.kind in ("directive", "json"):
            raise GrammarError(f"{token.text} is not supported", token.line)
        raise _special(token) if token.kind == "special" else self._unexpected(token)

    def _reference(self, token: _Token) -> _Element:
        if self._now.text in ("{", "::"):
            raise GrammarError(f"{token.text} has arguments: templates cannot be used", token.line)
        _is_terminal(token)
        return _Element("name", token.text, token.line)

    def _literal(self, token: _Token) -> str:
        """A string, or a range of two, with the escapes of JSON, which llguidance reads."""
        first = _lark_string(token)
        if not self._take_if(".."):
            return first
        last = _lark_string(self._expect("literal"))
        if any(len(json.loads(end)) != 1 for end in (first, last) if end.endswith('"')):
            raise GrammarError("a range has ends that are not one character", token.line)
        return f"{first}..{last}"


def _lark_regex(token: _Token) -> str:
    """A regular expression in a form that the engines read alike.

    Raises:
        GrammarError: it has what they read differently, or not at all.
    """
    body, _, flags = token.text[1:].rpartition("/")
    body = body.replace("\\/", "/")
    try:
        return f"/{to_lark(parse(f'(?{flags}:{body})' if flags else body))}/"
    except PatternError as error:
        raise GrammarError(f"{token.text[:40]}: {error}", token.line) from None


def _without_idle_newlines(tokens: list[_Token]) -> list[_Token]:
    """Keep the newlines that end a statement: a line that begins with | goes on."""
    kept: list[_Token] = []
    for token in tokens:
        if kept and kept[-1].kind == "newline" and token.text in ("\n", "|"):
            kept.pop()
        kept.append(token)
    return kept


def _is_terminal(name: _Token) -> bool:
    if not re.fullmatch(r"_?(?:[a-z][a-z0-9_-]*|[A-Z][A-Z0-9_-]*)", name.text):
        raise GrammarError(f"{name.text} is neither a rule nor a TERMINAL", name.line)
    return name.text.lstrip("_")[0].isupper()


def _special(token: _Token) -> GrammarError:
    what = "other grammars" if token.text.startswith("@") else "special tokens"
    return GrammarError(f"{token.text[:40]}: {what} cannot be used", token.line)


# --- Characters.

_SYMBOL = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|[^\\]", re.DOTALL
)
# Lark reads \/ and \b as two characters, llguidance as one: such escapes are refused.
_LARK_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "\\": "\\", '"': '"'}
_EBNF_ESCAPES = {
    **{"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"},
    **{"0": "\0", "e": "\x1b"},
    **{mark: mark for mark in "\"'\\[]^-/$.*+?(){}|"},
}


def _symbol(found: re.Match[str], escapes: dict[str, str], line: int) -> str:
    """The character that a plain or escaped one stands for."""
    digits, escaped = found[1] or found[2] or found[3], found[4]
    if digits and int(digits, 16) <= 0x10FFFF:
        return chr(int(digits, 16))
    if digits or (escaped is not None and escaped not in escapes):
        raise GrammarError(f"the escape {found[0]} has no agreed meaning", line)
    return escapes[escaped] if escaped is not None else found[0]


def _unescaped(text: str, escapes: dict[str, str], line: int) -> str:
    plain = "".join(_symbol(found, escapes, line) for found in _SYMBOL.finditer(text))
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise GrammarError("an escape stands for half a surrogate pair", line) from None


def _lark_string(token: _Token) -> str:
    body, flag = token.text.removesuffix("i")[1:-1], "i" if token.text.endswith("i") else ""
    text = _unescaped(body, _LARK_ESCAPES, token.line)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f") + flag


def _escaped(code: int) -> str:
    """A character as xgrammar and regular expressions read it, in literals and in classes."""
    if code < 128 and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _ebnf_literal(token: _Token) -> _Element:
    text = _unescaped(token.text[1:-1], _EBNF_ESCAPES, token.line)
    written = f'"{"".join(_escaped(ord(char)) for char in text)}"'
    chars = tuple((ord(char), ord(char)) for char in text)
    return _Element("literal", written, token.line, chars=chars)


def _ebnf_class(token: _Token) -> _Element:
    """A class of characters; the dot is one too."""
    body = "^" if token.text == "." else token.text[1:-1]
    negated = body.startswith("^")
    outside = _others(_ranges(body[negated:], token.line))
    allowed = outside if negated else _others(outside)
    if not allowed:
        raise GrammarError("a class allows no character", token.line)
    return _Element("class", _written_class(allowed), token.line, chars=tuple(allowed))


def _ranges(body: str, line: int) -> list[tuple[int, int]]:
    found = list(_SYMBOL.finditer(body))
    chars = [ord(_symbol(match, _EBNF_ESCAPES, line)) for match in found]
    ranges, at = [], 0
    while at < len(chars):
        wide = at + 2 < len(chars) and found[at + 1][0] == "-"
        first, last = chars[at], chars[at + 2 if wide else at]
        if first > last:
            raise GrammarError(f"a range of {body[:40]} ends before it starts", line)
        ranges.append((first, last))
        at += 3 if wide else 1
    return ranges


def _others(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The characters outside of ranges, in order. Surrogates are none."""
    others, start = [], 0
    for first, last in sorted([*ranges, (0xD800, 0xDFFF), (0x110000, 0x110000)]):
        if start < first:
            others.append((start, first - 1))
        start = max(start, last + 1)
    return others


def _written_class(ranges: Iterable[tuple[int, int]]) -> str:
    parts = (
        _escaped(first) if first == last else f"{_escaped(first)}-{_escaped(last)}"
        for first, last in ranges
    )
    return f"[{''.join(parts)}]"


# --- Checks.


def _checked(rules: dict[str, _Rule], start: str) -> dict[str, _Rule]:
    """The rules that a text can come to."""
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


def _check_circles(rules: dict[str, _Rule]) -> None:
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


def _only_name(rule: _Rule) -> str | None:
    """The rule that this one is no more than."""
    sequences = [[part for part in parts if part.text != '""'] for parts in rule.alternatives]
    is_one = len(sequences) == 1 and len(sequences[0]) == 1
    return sequences[0][0].text if is_one and sequences[0][0].kind == "name" else None


def _check_names(rule: _Rule, rules: dict[str, _Rule]) -> None:
    for part in rule.names():
        if part.text not in rules:
            raise GrammarError(f"{part.text} is not defined", part.line)
        if (rule.is_terminal or rule.options) and not rules[part.text].is_terminal:
            raise GrammarError(f"the rule {part.text} cannot stand in a terminal", part.line)


def _reached(rules: dict[str, _Rule], roots: list[str]) -> set[str]:
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


def _fruitful(rules: dict[str, _Rule]) -> set[str]:
    """The rules that derive a finite text."""
    return _settled(
        (rule.name, {part.text for part in parts if part.kind == "name" and part.low > 0})
        for rule in rules.values()
        for parts in rule.alternatives
    )


def _regular(rules: dict[str, _Rule]) -> set[str]:
    """The rules in which nothing recurses."""
    return _settled((rule.name, {part.text for part in rule.names()}) for rule in rules.values())


def _settled(entries: Iterable[tuple[str, set[str]]]) -> set[str]:
    """The names with an entry all of whose needs are such names."""
    settled: set[str] = set()
    ready: list[str] = []
    missing: list[int] = []
    users: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, needs in entries:
        for need in needs:
            users[need].append((len(missing), name))
        missing.append(len(needs))
        ready += [] if needs else [name]
    while ready:
        name = ready.pop()
        uses = [] if name in settled else users[name]
        settled.add(name)
        for entry, user in uses:
            missing[entry] -= 1
            ready += [] if missing[entry] else [user]
    return settled


# --- Lexemes: what of an EBNF grammar llguidance may match whole.


class _TooLarge(Exception):
    """The grammar would take too long to look through."""


def _spelled(rules: dict[str, _Rule]) -> dict[str, _Rule]:
    """The rules with each literal a rule of its own, whose parts are characters."""
    spelled: dict[str, _Rule] = {}
    for rule in rules.values():
        alternatives = [[_as_name(part) for part in parts] for parts in rule.alternatives]
        spelled[rule.name] = replace(rule, alternatives=alternatives)
        for part in (part for parts in rule.alternatives for part in parts):
            if part.kind == "literal" and part.text not in spelled:
                chars = [_character(code, part.line) for code, _ in part.chars]
                spelled[part.text] = _Rule(part.text, part.line, alternatives=[chars])
    return spelled


def _as_name(part: _Element) -> _Element:
    if part.kind != "literal":
        return part
    return _Element("name", part.text, part.line, part.low, part.high)


def _character(code: int, line: int) -> _Element:
    return _Element("class", _written_class([(code, code)]), line, chars=((code, code),))


def _lexemes(rules: dict[str, _Rule]) -> set[str]:
    """The rules of spelled ones that llguidance may match whole, with no text lost.

    A text is lost where one lexeme is complete, what may follow it comes next, and another lexeme
    goes on with just that: llguidance then takes the longer one. Such a longer one is taken apart.
    """
    whole = _regular(rules)
    budget = _Budget(LEXEME_STEPS)
    try:
        while "root" not in whole and (greedy := _Lexer(rules, whole, budget).greedy()):
            whole -= greedy
    except _TooLarge:
        return set()
    return whole


class _Budget:
    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooLarge


class _Alphabet:
    """Sets of characters as bits, one for each stretch that no range divides."""

    def __init__(self, parts: Iterable[_Element]) -> None:
        ends = {end for part in parts for first, last in part.chars for end in (first, last + 1)}
        self._starts = sorted(ends)
        self._sets: dict[str, int] = {}

    def bits(self, part: _Element) -> int:
        """The bits of a class."""
        if part.text not in self._sets:
            ranges = ((self._at(first), self._at(last + 1)) for first, last in part.chars)
            self._sets[part.text] = sum((1 << end) - (1 << start) for start, end in ranges)
        return self._sets[part.text]

    def _at(self, code: int) -> int:
        return bisect_left(self._starts, code)


class _Automaton:
    """States and moves of all lexemes, each lexeme a part of its own."""

    def __init__(self, rules: dict[str, _Rule], alphabet: _Alphabet, budget: _Budget) -> None:
        self._rules, self._alphabet, self._budget = rules, alphabet, budget
        self._free: list[list[int]] = []
        self.moves: list[list[tuple[int, int]]] = []
        """From each state: the characters and the state that they lead to."""
        self.owner: list[int] = []
        """The lexeme of each state."""

    def add(self, part: _Element, lexeme: int) -> tuple[int, int]:
        """The first and the last state of a new lexeme."""
        self._lexeme = lexeme
        start = self._new()
        return start, self._once(part, start, 0)

    def reach(self, states: Iterable[int]) -> frozenset[int]:
        """States with those that they lead to without a character."""
        reached: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state not in reached:
                reached.add(state)
                pending += self._free[state]
        self._budget.spend(len(reached))
        return frozenset(reached)

    def _new(self) -> int:
        self._budget.spend()
        self._free.append([])
        self.moves.append([])
        self.owner.append(self._lexeme)
        return len(self.owner) - 1

    def _once(self, part: _Element, at: int, depth: int) -> int:
        end = self._new()
        if part.kind == "class":
            self.moves[at].append((self._alphabet.bits(part), end))
            return end
        if depth > MAX_LEXEME_DEPTH:
            raise _TooLarge
        for parts in self._rules[part.text].alternatives:
            last = at
            for inner in parts:
                last = self._repeated(inner, last, depth + 1)
            self._free[last].append(end)
        return end

    def _repeated(self, part: _Element, at: int, depth: int) -> int:
        for _ in range(part.low):
            at = self._once(part, at, depth)
        if part.high is None:
            return self._looped(part, at, depth)
        ends = [at]
        for _ in range(part.high - part.low):
            ends.append(self._once(part, ends[-1], depth))
        return self._joined(ends)

    def _looped(self, part: _Element, at: int, depth: int) -> int:
        loop = self._joined([at])
        self._free[self._once(part, loop, depth)].append(loop)
        return loop

    def _joined(self, ends: list[int]) -> int:
        joined = self._new()
        for end in ends:
            self._free[end].append(joined)
        return joined


class _Lexer:
    """What llguidance's lexer meets, where the rules in whole are lexemes, and single characters.

    Sets of lexemes are bits, in the order in which they were found.
    """

    def __init__(self, rules: dict[str, _Rule], whole: set[str], budget: _Budget) -> None:
        self._rules, self._whole, self._budget = rules, whole, budget
        self._grammar = _grammar_rules(rules, whole)
        every = [part for rule in rules.values() for parts in rule.alternatives for part in parts]
        self._automaton = _Automaton(rules, _Alphabet(every), budget)
        self._lexemes: dict[str, int] = {}
        self._bounds: list[tuple[int, int]] = []
        self._first: defaultdict[str, int] = defaultdict(int)
        self._follow: defaultdict[str, int] = defaultdict(int)
        self._empty: set[str] = set()
        self._find_lexemes()
        while self._grow_first():
            pass
        while self._grow_follow():
            pass

    def greedy(self) -> set[str]:
        """The lexemes that would be taken where a shorter one should have been."""
        found: set[str] = set()
        pending, seen = [self._first["root"]], set()
        while pending:
            allowed = pending.pop()
            if allowed not in seen:
                seen.add(allowed)
                for states in self._runs(allowed):
                    done = self._complete(states)
                    pending.append(self._after(done))
                    found |= self._clash(states, done)
        return found

    def _find_lexemes(self) -> None:
        for part in self._parts():
            if part.text not in self._lexemes and not self._is_rule(part):
                lexeme = len(self._lexemes)
                self._lexemes[part.text] = lexeme
                start, end = self._automaton.add(part, lexeme)
                self._bounds.append((start, end))
                self._first[part.text] = 1 << lexeme
                if end in self._automaton.reach([start]):
                    self._empty.add(part.text)

    def _is_rule(self, part: _Element) -> bool:
        return part.kind == "name" and part.text not in self._whole

    def _parts(self) -> Iterator[_Element]:
        return (part for rule in self._grammar for parts in rule.alternatives for part in parts)

    def _may_be_empty(self, part: _Element) -> bool:
        return part.low == 0 or part.text in self._empty

    def _grow_first(self) -> bool:
        """One more round of what each rule may begin with; whether anything was new."""
        before = sum(map(int.bit_count, self._first.values())), len(self._empty)
        for rule in self._grammar:
            for parts in rule.alternatives:
                self._budget.spend(len(parts) + 1)
                stop = next((at for at, p in enumerate(parts) if not self._may_be_empty(p)), None)
                for part in parts[: None if stop is None else stop + 1]:
                    self._first[rule.name] |= self._first[part.text]
                if stop is None:
                    self._empty.add(rule.name)
        return before != (sum(map(int.bit_count, self._first.values())), len(self._empty))

    def _grow_follow(self) -> bool:
        """One more round of what may come after each part; whether anything was new."""
        before = sum(map(int.bit_count, self._follow.values()))
        for rule in self._grammar:
            for parts in rule.alternatives:
                self._budget.spend(len(parts) + 1)
                after = self._follow[rule.name]
                for part in reversed(parts):
                    first = self._first[part.text]
                    self._follow[part.text] |= after | (first if part.high != 1 else 0)
                    after = first | (after if self._may_be_empty(part) else 0)
        return before != sum(map(int.bit_count, self._follow.values()))

    def _runs(self, allowed: int) -> Iterator[frozenset[int]]:
        """All sets of states that characters lead to from the start of some lexemes."""
        start = self._automaton.reach(self._bounds[lexeme][0] for lexeme in _bits(allowed))
        pending, seen = [start], {start}
        while pending:
            for targets in self._moves(pending.pop()):
                states = self._automaton.reach(targets)
                if states not in seen:
                    seen.add(states)
                    pending.append(states)
                    yield states

    def _moves(self, states: frozenset[int]) -> set[frozenset[int]]:
        """Where each character leads from a set of states."""
        moves = [move for state in states for move in self._automaton.moves[state]]
        stretches: dict[int, frozenset[int]] = {-1: frozenset()}
        for chars, target in moves:
            self._budget.spend(len(stretches))
            parts = [(bits, held) for bits, held in stretches.items() if bits & ~chars]
            inside = [(bits & chars, held | {target}) for bits, held in stretches.items()]
            stretches = {bits & ~chars: held for bits, held in parts}
            stretches |= {bits: held for bits, held in inside if bits}
        return set(stretches.values()) - {frozenset()}

    def _complete(self, states: frozenset[int]) -> list[int]:
        owners = {self._automaton.owner[state] for state in states}
        return [lexeme for lexeme in owners if self._bounds[lexeme][1] in states]

    def _after(self, lexemes: Iterable[int]) -> int:
        names = list(self._lexemes)
        return reduce(or_, (self._follow[names[lexeme]] for lexeme in lexemes), 0)

    def _clash(self, states: frozenset[int], done: list[int]) -> set[str]:
        """The lexemes that go on with what may follow those that are complete."""
        names = list(self._lexemes)
        following = reduce(or_, map(self._first_chars, _bits(self._after(done))), 0)
        moves = self._automaton.moves
        going = {state for state in states if any(chars & following for chars, _ in moves[state])}
        return {names[self._automaton.owner[state]] for state in going}

    def _first_chars(self, lexeme: int) -> int:
        states = self._automaton.reach([self._bounds[lexeme][0]])
        return reduce(or_, (c for state in states for c, _ in self._automaton.moves[state]), 0)


def _bits(number: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1


def _grammar_rules(rules: dict[str, _Rule], whole: set[str]) -> list[_Rule]:
    """The rules that stay rules: those that root leads to, not by way of a lexeme."""
    return _led_to(rules, {"root"} - whole, whole)


def _led_to(rules: dict[str, _Rule], roots: set[str], without: set[str]) -> list[_Rule]:
    found: dict[str, _Rule] = {}
    pending = sorted(roots)
    while pending:
        name = pending.pop()
        if name not in found and name not in without:
            found[name] = rules[name]
            pending += [part.text for part in rules[name].names()]
    return list(found.values())


# --- Output.


def _lark_of_ebnf(rules: dict[str, _Rule]) -> Iterator[str]:
    whole = _lexemes(rules)
    low = _new_names(rules)
    upper = {name: new.upper() for name, new in low.items()}
    mixed = low | {name: upper[name] for name in whole}
    grammar = _grammar_rules(rules, whole)
    lexemes = {part.text for rule in grammar for part in rule.names()} | {"root"}
    yield f"start: {mixed['root']}"
    for rule in grammar:
        yield f"{low[rule.name]}: {_body(rule, mixed, '/')}"
    for rule in _led_to(rules, lexemes & whole, set()):
        yield f"{upper[rule.name]}: {_body(rule, upper, '/')}"


def _new_names(rules: dict[str, _Rule]) -> dict[str, str]:
    """Names for the rules of an EBNF grammar that mean nothing else to an engine."""
    return {
        name: f"r_{re.sub('[^a-z0-9]', '_', name.lower())[:40]}_{index}"
        for index, name in enumerate(rules)
    }


def _body(rule: _Rule, names: dict[str, str], slash: str = "") -> str:
    """The alternatives of a rule; slash: what stands on both sides of a class."""
    around = {"class": slash}

    def written(part: _Element) -> str:
        text = names.get(part.text, part.text) if part.kind == "name" else part.text
        edge = around.get(part.kind, "")
        return f"{edge}{text}{edge}{part.times()}"

    return " | ".join(" ".join(map(written, parts)) or '""' for parts in rule.alternatives)


def _lark_line(rule: _Rule) -> str:
    if rule.directive and rule.directive != "%ignore":
        return rule.directive
    return f"{rule.directive or f'{rule.name}{rule.options}:'} {_body(rule, {})}"
