"""Word boundaries, where two readings of what a word is have to agree.

Letters beyond ASCII are of a word in Python, and of none with re.ASCII and in JSON Schema.
"""

from functools import cache

from adapter.languages.characters import (
    ASCII_CLASSES,
    TEXT,
    Ranges,
    complement,
    intersection,
    unicode_classes,
    union,
)
from adapter.languages.regex.items import Ahead, Behind, Item, options, series
from adapter.languages.regex.tree import ANY_TEXT, EMPTY, Chars, choice, sequence

# What stands on a side: the end of the text, a word's character under both readings, under one
# reading, or under none.
_END, _WORD, _EITHER, _OTHER = range(4)
_PAIRS = frozenset((before, behind) for before in range(4) for behind in range(4))
_EMPTY_TEXT = frozenset({(_END, _END)})
_BOUNDARIES = frozenset(pair for side in (_END, _OTHER) for pair in ((_WORD, side), (side, _WORD)))
"""What is a boundary under both readings, before and behind."""

# The empty text has no place inside or outside a word in Python before 3.14.
_NO_BOUNDARIES = frozenset(
    {(_WORD, _WORD), (_EITHER, _EITHER), (_OTHER, _OTHER), (_END, _OTHER), (_OTHER, _END)}
)


@cache
def boundary(*, inner: bool, widest: bool) -> Item:
    r"""\b, or with inner \B, as it holds under both readings, or with widest under either."""
    if widest:
        pairs = _PAIRS - (_BOUNDARIES if inner else _NO_BOUNDARIES | _EMPTY_TEXT)
    else:
        pairs = _NO_BOUNDARIES if inner else _BOUNDARIES
    return options([_between(before, pairs) for before in range(4)])


def _between(before: int, pairs: frozenset[tuple[int, int]]) -> Item:
    behind = [side for side in range(4) if (before, side) in pairs]
    ranges = union(*(_characters(side) for side in behind if side != _END))
    ahead = choice(
        [
            *([EMPTY] if _END in behind else []),
            *([sequence([Chars(ranges), ANY_TEXT])] if ranges else []),
        ]
    )
    first = EMPTY if before == _END else sequence([ANY_TEXT, Chars(_characters(before))])
    return series([Behind(first), Ahead(ahead)])


def _characters(side: int) -> Ranges:
    ascii_word, word = ASCII_CLASSES["w"], unicode_classes()["w"]
    return {
        _END: (),
        _WORD: ascii_word,
        _EITHER: intersection(word, complement(ascii_word)),
        _OTHER: intersection(TEXT, complement(union(word, ascii_word))),
    }[side]
