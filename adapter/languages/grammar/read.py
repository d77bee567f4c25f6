"""Which dialect a grammar is written in, and its rules."""

from enum import Enum

from adapter.languages.grammar.check import checked
from adapter.languages.grammar.read_ebnf import EbnfReader
from adapter.languages.grammar.read_lark import LarkReader
from adapter.languages.grammar.rules import GrammarError, Rules
from adapter.languages.grammar.tokens import BLANKS, OPENING, match_at


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
    start = match_at(BLANKS, text, 0).end()
    if start == len(text):
        raise GrammarError("the grammar is empty")
    opening = OPENING.match(text, start)
    if opening is None:
        line = text.count("\n", 0, start) + 1
        raise GrammarError("neither an EBNF rule (name ::= ...) nor a Lark one (name: ...)", line)
    return Dialect.EBNF if opening["ebnf"] else Dialect.LARK


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise GrammarError("the grammar holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise GrammarError("the grammar holds half a surrogate pair") from None


def read(text: str) -> Rules:
    """The rules that a text can come to.

    Raises:
        GrammarError: the grammar cannot be read, uses what neither engine can honour exactly, or
            has a rule that derives no finite text.
    """
    if dialect(text) is Dialect.LARK:
        return checked(LarkReader(text).rules(), "start")
    return checked(EbnfReader(text).rules(), "root")
