"""Writes a regular expression in the dialects of the libraries."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby

from adapter.languages.characters import SURROGATES, Ranges, complement, single, union
from adapter.languages.escapes import (
    Escape,
    bracketed,
    ebnf_escape,
    python_escape,
    rust_escape,
    written,
)
from adapter.languages.regex.tree import (
    ANY_TEXT,
    All,
    Chars,
    Choice,
    Node,
    Not,
    Repeat,
    Sequence,
    is_plain,
)
from adapter.languages.regex.unroll import unrolled


def to_rust(node: Node) -> str:
    """For Rust's regex-syntax (llguidance, outlines_core), unanchored; ASCII."""
    return _write(node, _RUST)


def to_lark_terminal(node: Node) -> str:
    """What stands on the right side of a terminal in a Lark grammar of llguidance; ASCII.

    What has no intersection and no complement inside is one regular expression.
    """
    if is_plain(node):
        return f"/{to_rust(node)}/"
    match node:
        case Sequence(parts):
            runs = [(plain, list(run)) for plain, run in groupby(parts, is_plain)]
            texts = [
                [to_lark_terminal(Sequence(tuple(run)))] if plain else map(_lark_atom, run)
                for plain, run in runs
            ]
            return " ".join(chain.from_iterable(texts))
        case Choice(options):
            plain = tuple(filter(is_plain, options))
            others = [option for option in options if not is_plain(option)]
            return " | ".join(map(_lark_atom, [*([Choice(plain)] if plain else []), *others]))
        case Repeat(inner, low, high):
            return _lark_atom(inner) + quantifier(low, high)
        case All(parts):
            return _lark_common(parts)
        case Not():
            return _lark_common((node,))
        case Chars():  # which is plain
            raise AssertionError


def _lark_common(parts: tuple[Node, ...]) -> str:
    """Joined by &. A complement alone would match what is no text, too."""
    bounded = any(not isinstance(part, Not) for part in parts)
    texts = [
        f"~{_lark_atom(part.node)}" if isinstance(part, Not) else _lark_atom(part)
        for part in (parts if bounded else (ANY_TEXT, *parts))
    ]
    return " & ".join(texts)


def _lark_atom(node: Node) -> str:
    text = to_lark_terminal(node)
    return text if is_plain(node) else f"({text})"


def to_lark(node: Node) -> str:
    """What stands between the slashes of a Lark grammar, for llguidance and xgrammar alike."""
    return _write(unrolled(node), _LARK)


def to_python(node: Node) -> str:
    """For re.fullmatch and interegular.

    interegular knows no \\u, so characters beyond U+00FF stand as they are. A surrogate, which no
    text has, may match.
    """
    return _write(node, _PYTHON)


def to_ebnf(node: Node) -> str:
    """A grammar for xgrammar; ASCII."""
    return f"root ::= {_write(unrolled(node), _EBNF)}\n"


# How each dialect writes a class.


@lru_cache(4096)
def _chars(escape: Escape, ranges: Ranges) -> str:
    point = single(ranges)
    return bracketed(ranges, escape) if point is None else written(point, escape)


def _python_chars(ranges: Ranges) -> str:
    if sum(high - low + 1 for low, high in ranges) < 0x80000:
        return _chars(python_escape, ranges)
    # interegular makes a list of what stands here: name the smaller half.
    return bracketed(complement(union(ranges, SURROGATES)), python_escape, "^")


def _ebnf_chars(ranges: Ranges) -> str:
    text = _chars(ebnf_escape, ranges)
    return f'"{text}"' if single(ranges) is not None else text


def _ebnf_join(parts: list[str]) -> str:
    """Literals in a row become one; what is repeated or in brackets does not end with a quote."""
    runs = groupby(parts, lambda part: part.endswith('"'))
    return " ".join(
        f'"{"".join(part[1:-1] for part in run)}"' if literal else " ".join(run)
        for literal, run in runs
    )


@dataclass(frozen=True, slots=True)
class _Dialect:
    chars: Callable[[Ranges], str]
    join: Callable[[list[str]], str] = "".join
    bar: str = "|"
    group: str = "(?:{})"
    empty: str = "(?:)"


_RUST = _Dialect(partial(_chars, rust_escape))
_LARK = _Dialect(partial(_chars, ebnf_escape))
_PYTHON = _Dialect(_python_chars)
_EBNF = _Dialect(_ebnf_chars, _ebnf_join, " | ", "({})", '""')


# What they have in common.


def _write(node: Node, dialect: _Dialect) -> str:
    match node:
        case Chars(ranges):
            return dialect.chars(ranges)
        case Sequence(parts):
            texts = [
                dialect.chars(part.ranges)
                if isinstance(part, Chars)
                else _grouped(part, dialect, (Choice,))
                for part in parts
            ]
            return dialect.join(texts) or dialect.empty
        case Choice(options):
            return dialect.bar.join([_write(option, dialect) for option in options])
        case Repeat(inner, low, high):
            atom = _grouped(inner, dialect, (Sequence, Choice, Repeat))
            return atom + quantifier(low, high)
        case All() | Not():
            raise TypeError("a regular expression has no intersection and no complement")


def _grouped(node: Node, dialect: _Dialect, kinds: tuple[type[Node], ...]) -> str:
    text = _write(node, dialect)
    return dialect.group.format(text) if isinstance(node, kinds) else text


_SHORT_QUANTIFIERS = {(1, 1): "", (0, None): "*", (1, None): "+", (0, 1): "?"}


def quantifier(low: int, high: int | None) -> str:
    """low to high times, as all engines read it; nothing where it is once."""
    if (low, high) in _SHORT_QUANTIFIERS:
        return _SHORT_QUANTIFIERS[low, high]
    if low == high:
        return f"{{{low}}}"
    return f"{{{low},{'' if high is None else high}}}"
