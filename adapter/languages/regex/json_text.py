"""Languages of strings as the JSON texts that spell them, each in one way."""

from collections.abc import Callable
from functools import lru_cache
from operator import is_

from adapter.languages.characters import TEXT, complement, intersection, only
from adapter.languages.regex.choices import choices
from adapter.languages.regex.tree import (
    ANY_TEXT,
    All,
    Chars,
    Choice,
    Node,
    Not,
    Repeat,
    Sequence,
    choice,
    classes,
    counted,
    every,
    negation,
    repeat,
    sequence,
)

ESCAPES = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""The letter behind the backslash, of the characters that have no other spelling."""

_UNSPELLED = ((0x00, 0x1F),)
_PLAIN = intersection(TEXT, complement((*_UNSPELLED, *only('"'), *only("\\"))))
_NUMBERED = intersection(_UNSPELLED, complement(only("".join(ESCAPES))))
"""Control characters that are spelled by their number."""
_MANY = 0x1000
"""Characters of a class that says no more of the control characters in it than that they may be."""


def json_string(node: Node) -> Node:
    """The JSON text, quotes included, of what a tree matches.

    `"`, `\\`, \\b, \\f, \\n, \\r and \\t are spelled by a letter behind a backslash. The other
    control characters are spelled by number, as \\u001f, where the tree names one of them, and
    else left out. All else stands for itself.
    """
    quote = Chars(only('"'))
    # The least character first: few classes have to be looked at.
    controls = (each for each in classes(node) if each.ranges[0][0] < ord(" "))
    content = _numbered if any(map(_names_control, controls)) else _plain
    return sequence([quote, _content(node, content), quote])


def _content(node: Node, escaped: "_Escaped") -> Node:
    def of(inner: Node) -> Node:
        return _content(inner, escaped)

    match node:
        case Not(inner):
            return every([of(ANY_TEXT), negation(of(inner))])
        case All(parts):
            return _common(parts, of)
        case Repeat(inner, low, high):
            content = of(inner)
            return node if content is inner else repeat(content, low, high)
        case Sequence(parts):
            spelled = [
                (escaped(part) or part) if isinstance(part, Chars) else of(part) for part in parts
            ]
            return node if _are_same(spelled, parts) else sequence(spelled)
        case Choice(options):
            spelled = [*map(of, options)]
            return node if _are_same(spelled, options) else choice(spelled)
        case Chars():
            return escaped(node) or node


def _are_same(spelled: list[Node], nodes: tuple[Node, ...]) -> bool:
    """Whether all stand for themselves, as most texts do."""
    return all(map(is_, spelled, nodes))


def _common(parts: tuple[Node, ...], of: Callable[[Node], Node]) -> Node:
    # What a complement would be told of JSON's content, the other parts say.
    beside = [part for part in parts if not isinstance(part, Not)] or [ANY_TEXT]
    without = [part.node for part in parts if isinstance(part, Not)]
    return every([*map(of, beside), *(negation(of(each)) for each in without)])


_Escaped = Callable[[Chars], Node | None]
"""How a class is spelled; None where its characters stand for themselves."""


@lru_cache(4096)
def _names_control(chars: Chars) -> bool:
    few = sum(high - low + 1 for low, high in chars.ranges) <= _MANY
    return few and bool(intersection(chars.ranges, _NUMBERED))


@lru_cache(4096)
def _plain(chars: Chars) -> Node | None:
    plain = counted(intersection(chars.ranges, _PLAIN), 1, 1)
    letters = [letter for char, letter in ESCAPES.items() if intersection(chars.ranges, only(char))]
    if not letters:
        return None if plain == chars else plain
    return choice([plain, sequence([Chars(only("\\")), Chars(only("".join(letters)))])])


@lru_cache(4096)
def _numbered(chars: Chars) -> Node | None:
    numbers = [
        f"\\u{point:04x}"
        for low, high in intersection(chars.ranges, _NUMBERED)
        for point in range(low, high + 1)
    ]
    return choice([_plain(chars) or chars, choices(numbers)]) if numbers else _plain(chars)
