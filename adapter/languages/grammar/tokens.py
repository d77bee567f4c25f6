"""The tokens of both dialects.

Quantifiers that never give back (*+, ++) keep hostile texts linear.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from adapter.languages.grammar.rules import GrammarError

LARK_OPTIONS = frozenset({"no_forcing", "allow_initial_skip"})
"""What `%llguidance {...}` may set: these leave the text valid UTF-8 and the rules in force."""

_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
BLANKS = re.compile(r"\ufeff?(?:\s++|(?:\#|//)[^\n]*+)*+")
"""What may stand before the first definition, in either dialect."""

OPENING = re.compile(
    r"%[a-z]|[!?]*+[A-Za-z0-9_-]++\s*+(?:(?P<ebnf>::=)|::?|\.\s*+-?[0-9]|[\[{])", re.ASCII
)
"""A first definition or directive; the group ebnf tells the dialect."""

EBNF_TOKEN = re.compile(
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
LARK_TOKEN = re.compile(
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


class Token(NamedTuple):
    """A piece of the text; kind: a group of the dialect's pattern, or end."""

    kind: str
    text: str
    line: int


def match_at(
    pattern: re.Pattern[str], text: str, at: int, line: int | None = None
) -> re.Match[str]:
    """What a pattern finds at a place.

    Raises:
        GrammarError: it finds nothing.
    """
    found = pattern.match(text, at)
    if found is None:
        start = text[at]
        unclosed = {'"': "a literal", "[": "a class", "/": "a regular expression"}.get(start)
        what = f"{unclosed} is not closed" if unclosed else f"{start!r} has no meaning here"
        raise GrammarError(what, line)
    return found


def tokenize(text: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    """All tokens of a text, and three ends, so that a reader may look two ahead.

    Raises:
        GrammarError: something is not closed, or no token.
    """
    at, line = 0, 1
    while at < len(text):
        found = match_at(pattern, text, at, line)
        kind, piece, end = str(found.lastgroup), found.group(), found.end()
        if kind == "json":
            piece, end = _json_block(piece, text, end, line)
        if kind != "skip":
            yield Token(kind, piece, line)
        line += text.count("\n", at, end)
        at = end
    yield from [Token("end", "the end", line)] * 3


def _json_block(directive: str, text: str, at: int, line: int) -> tuple[str, int]:
    """A directive with its JSON, written anew so that what was checked is what runs; its end."""
    at = match_at(re.compile(r"\s*+"), text, at).end()
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
