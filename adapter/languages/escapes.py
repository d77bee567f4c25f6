"""Characters and classes written so that no dialect sees more in them than they are."""

from collections.abc import Callable

from adapter.languages.characters import Ranges

Escape = Callable[[int], str]
"""Writes a code point by its number."""


def written(point: int, escape: Escape) -> str:
    """A character: itself where no dialect sees more in it."""
    char = chr(point)
    return char if char.isascii() and char.isalnum() else escape(point)


def bracketed(ranges: Ranges, escape: Escape, negation: str = "") -> str:
    """A class; negation: what stands behind the opening bracket."""
    inner = ["-".join(written(point, escape) for point in dict.fromkeys(pair)) for pair in ranges]
    return f"[{negation}{''.join(inner)}]"


def rust_escape(point: int) -> str:
    """As Rust's regex-syntax reads it."""
    return f"\\x{{{point:x}}}"


def python_escape(point: int) -> str:
    """As Python and interegular read it: the latter knows no \\u."""
    return f"\\x{point:02x}" if point < 0x100 else chr(point)


def ebnf_escape(point: int) -> str:
    """As xgrammar and Lark's regular expressions read it, in literals and in classes."""
    # All digits are written: xgrammar reads as many behind \x as there are.
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
