"""Languages of strings as the JSON texts that spell them, each in one way."""

from functools import cache, lru_cache
from operator import is_

from adapter.languages.characters import TEXT, complement, intersection, only
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


def is_spelled(text: str) -> bool:
    """Whether a text has a spelling."""
    return all(char >= " " or char in ESCAPES for char in text)


def json_string(node: Node) -> Node:
    """The JSON text, quotes included, of what a tree matches.

    `"`, `\\`, \\b, \\f, \\n, \\r and \\t are spelled by a letter behind a backslash; other control
    characters have no spelling, and texts that have them are left out; all else stands for itself.
    """
    quote = Chars(only('"'))
    return sequence([quote, json_content(node), quote])


def json_content(node: Node) -> Node:
    """As `json_string`, without the quotes."""
    match node:
        case Not(inner):
            return every([_any_content(), negation(json_content(inner))])
        case All(parts):
            return _common(parts)
        case Repeat(inner, low, high):
            content = json_content(inner)
            return node if content is inner else repeat(content, low, high)
        case Sequence(parts):
            spelled = [*map(json_content, parts)]
            return node if _are_same(spelled, parts) else sequence(spelled)
        case Choice(options):
            spelled = [*map(json_content, options)]
            return node if _are_same(spelled, options) else choice(spelled)
        case Chars():
            return _escaped(node) or node


def _are_same(spelled: list[Node], nodes: tuple[Node, ...]) -> bool:
    """Whether all stand for themselves, as most texts do."""
    return all(map(is_, spelled, nodes))


def _common(parts: tuple[Node, ...]) -> Node:
    # What a complement would be told of JSON's content, the other parts say.
    beside = [part for part in parts if not isinstance(part, Not)] or [ANY_TEXT]
    without = [part.node for part in parts if isinstance(part, Not)]
    return every([*map(json_content, beside), *(negation(json_content(each)) for each in without)])


@lru_cache(4096)
def _escaped(chars: Chars) -> Node | None:
    """None where they stand for themselves."""
    plain = counted(intersection(chars.ranges, _PLAIN), 1, 1)
    letters = [letter for char, letter in ESCAPES.items() if intersection(chars.ranges, only(char))]
    if not letters:
        return None if plain == chars else plain
    return choice([plain, sequence([Chars(only("\\")), Chars(only("".join(letters)))])])


@cache
def _any_content() -> Node:
    return json_content(ANY_TEXT)
