"""Fixed texts to choose from, as a regular expression."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby, takewhile

from adapter.languages.characters import CHARACTERS, intersection, only
from adapter.languages.regex.tree import (
    ANY_TEXT,
    EMPTY,
    Chars,
    Node,
    PatternError,
    Sequence,
    choice,
    sequence,
)

# A level of the trie makes up to three nodes: sequence, choice, and the repeat of an optional one.
_TRIE_DEPTH = 30


def choices(texts: Iterable[str]) -> Node:
    """Exactly these texts, which share the prefixes that they have in common.

    Raises:
        PatternError: there are none, or one has a character that no generated text has.
    """
    ordered = sorted(set(texts))
    if not ordered:
        raise PatternError("there are no texts to choose from")
    return _trie(ordered, 0, 0)


def beginnings(texts: Iterable[str], length: int) -> Node:
    """Texts without NUL, of which those that are longer begin so and go on in any way."""
    every = set(texts)
    short = [text for text in every if len(text) <= length]
    longer = {text[:length] for text in every if len(text) > length}
    options = [choices(short)] if short else []
    return choice([*options, sequence([choices(longer), ANY_TEXT])] if longer else options)


@lru_cache(4096)
def _char(char: str) -> Node:
    ranges = intersection(only(char), CHARACTERS)
    if not ranges:
        raise PatternError("texts with surrogates are not supported")
    return Chars(ranges)


def _literal(text: str) -> Node:
    return _char(text) if len(text) == 1 else Sequence(tuple(map(_char, text)))


def _trie(texts: list[str], start: int, depth: int) -> Node:
    """The rests behind `start` of sorted texts, which are the same up to there."""
    if depth == _TRIE_DEPTH:
        return choice([_literal(text[start:]) for text in texts])
    # In a sorted list, what the first and the last have in common, all have.
    both = zip(texts[0][start:], texts[-1][start:], strict=False)
    fork = start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    prefix = _literal(texts[0][start:fork])
    if len(texts) == 1:
        return prefix
    branches = groupby(texts, lambda text: text[fork : fork + 1])
    options = [_trie(list(group), fork, depth + 1) if char else EMPTY for char, group in branches]
    return sequence([prefix, choice(options)])
