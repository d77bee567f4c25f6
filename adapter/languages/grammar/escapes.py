"""Escapes of the dialects: only what all readers of a grammar agree on."""

import re
from collections.abc import Mapping

from adapter.languages.grammar.rules import GrammarError

SYMBOL = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|[^\\]", re.DOTALL
)


def symbol(found: re.Match[str], escapes: Mapping[str, str], line: int) -> str:
    """The character that a plain or escaped one stands for.

    Raises:
        GrammarError: readers differ in what that is.
    """
    digits, escaped = found[1] or found[2] or found[3], found[4]
    if digits and int(digits, 16) <= 0x10FFFF:
        return chr(int(digits, 16))
    if digits or (escaped is not None and escaped not in escapes):
        raise GrammarError(f"the escape {found[0]} has no agreed meaning", line)
    return escapes[escaped] if escaped is not None else found[0]


def unescaped(text: str, escapes: Mapping[str, str], line: int) -> str:
    """A literal's text.

    Raises:
        GrammarError: it has an escape that readers differ in, or half a surrogate pair.
    """
    plain = "".join(symbol(found, escapes, line) for found in SYMBOL.finditer(text))
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise GrammarError("an escape stands for half a surrogate pair", line) from None
