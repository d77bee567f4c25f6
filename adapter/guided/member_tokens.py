"""The tokens in which a name or an item of a JSON text ends, found by what they write of it."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from adapter.guided.json_place import IN_KEY, KEY_ESCAPE, VALUE_ESCAPE, WORDS, scalar
from adapter.guided.matcher import Mask
from adapter.guided.vocabulary import Vocabulary

_Key = TypeVar("_Key", bound=Hashable)

# Where a token begins: outside of strings, in one, or behind a backslash in one.
OUTSIDE, INSIDE, ESCAPED = range(3)

_REST = {
    INSIDE: re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL),
    ESCAPED: re.compile(rb'.(?:[^"\\]|\\.)*"', re.DOTALL),
}
_PIECE = re.compile(
    rb'"((?:[^"\\]|\\.)*)(?P<end>"|$|\\$)|[{}\[\],:]|[^ \t\n\r{}\[\],:"]+', re.DOTALL
)
_NUMBER_END = re.compile(rb"[-+0-9.eE]*(?=[, \]\t\n\r])")


def start_of(mode: int) -> int:
    """Where tokens begin in a mode of a place."""
    if mode < IN_KEY:
        return OUTSIDE
    return ESCAPED if mode in (KEY_ESCAPE, VALUE_ESCAPE) else INSIDE


class Group:
    """Some tokens."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = np.array(ids, np.int64)
        self.words, places = np.unique(self.ids >> 5, return_inverse=True)
        bits = np.zeros(len(self.words), np.uint32)
        np.bitwise_or.at(bits, places, np.uint32(1) << (self.ids & 31).astype(np.uint32))
        self._keep = (~bits).view(np.int32)

    def clear(self, mask: Mask) -> None:
        """Take them out of a mask."""
        mask[self.words] &= self._keep

    def allowed(self, mask: Mask) -> list[int]:
        """Those that a mask has."""
        if not len(self.ids):
            return []
        found: list[int] = self.ids[(mask[self.ids >> 5] >> (self.ids & 31)) & 1 == 1].tolist()
        return found


class Index:
    """The tokens that begin in one way."""

    def __init__(self) -> None:
        self.names: dict[bytes, Group] = {}
        """By a name that is in them as a whole."""
        self.items: dict[Hashable, Group] = {}
        """By an item that is in them as a whole."""
        self.many_names = Group([])
        """Those in which several names end, the last of them in there as a whole."""
        self.many_items = Group([])
        self.opening: dict[int, dict[bytes, Group]] = {}
        """By how many arrays and objects they leave, then by what they write of the name that is
        due next."""


class MemberTokens:
    """A vocabulary's tokens; shared by all texts."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.texts = vocabulary.tokens
        self.words = vocabulary.words
        self.by_bytes = vocabulary.by_bytes

    def warm(self) -> None:
        """Make all tables: in the engine's step there is no time for it."""
        _ = self.indexes, self.closing, self.number_ends, self.first

    @cached_property
    def first(self) -> Mask:
        """The first byte of each token, 256 where it is no text."""
        return np.fromiter((text[0] if text else 256 for text in self.texts), np.int32)

    @cached_property
    def closing(self) -> dict[int, dict[bytes, Group]]:
        """The tokens that end the string in which they begin, by what they write of it."""
        found: dict[int, dict[bytes, list[int]]] = {each: defaultdict(list) for each in _REST}
        for token, text in enumerate(self.texts):
            if b'"' in text:
                for start, pattern in _REST.items():
                    if match := pattern.match(text):
                        found[start][match.group()].append(token)
        return {start: _grouped(ids) for start, ids in found.items()}

    @cached_property
    def number_ends(self) -> dict[bytes, Group]:
        """The tokens that end the number in which they begin, by what they write of it."""
        found: dict[bytes, list[int]] = defaultdict(list)
        for token, text in enumerate(self.texts):
            if match := _NUMBER_END.match(text):
                found[match.group()].append(token)
        return _grouped(found)

    @cached_property
    def indexes(self) -> tuple[Index, Index, Index]:
        """One for each way to begin."""
        return (self._index(OUTSIDE), self._index(INSIDE), self._index(ESCAPED))

    def _index(self, start: int) -> Index:
        names: dict[bytes, list[int]] = defaultdict(list)
        items: dict[Hashable, list[int]] = defaultdict(list)
        opening: dict[int, dict[bytes, list[int]]] = defaultdict(lambda: defaultdict(list))
        many_names: list[int] = []
        many_items: list[int] = []
        for token, text in enumerate(self.texts):
            if not text or (start != OUTSIDE and b'"' not in text):
                continue
            pieces = _Pieces(text, start)
            own_names, own_items = list(pieces.names()), list(pieces.items())
            for name in own_names:
                names[name].append(token)
            for item in own_items:
                items[item].append(token)
            if own_names and len(own_names) + (start != OUTSIDE) > 1:
                many_names.append(token)
            if own_items and len(own_items) + (start != OUTSIDE) > 1:
                many_items.append(token)
            if (due := pieces.due()) is not None:
                opening[due[0]][due[1]].append(token)
        index = Index()
        index.names, index.items = _grouped(names), _grouped(items)
        index.many_names, index.many_items = Group(many_names), Group(many_items)
        index.opening = {left: _grouped(ids) for left, ids in opening.items()}
        return index


def _grouped(ids: dict[_Key, list[int]]) -> dict[_Key, Group]:
    return {key: Group(tokens) for key, tokens in ids.items()}


class _Pieces:
    """The strings, scalars and signs of a token, the first of which may be the rest of a string."""

    def __init__(self, text: bytes, start: int) -> None:
        self._text = text
        match = _REST[start].match(text) if start != OUTSIDE else None
        self._rest = match is not None
        if start != OUTSIDE and match is None:
            self._pieces: list[re.Match[bytes]] = []
        else:
            self._pieces = list(_PIECE.finditer(text, match.end() if match else 0))

    def names(self) -> Iterator[bytes]:
        """The strings that may be names as a whole."""
        for at, piece in enumerate(self._pieces):
            if piece["end"] == b'"' and self._before(at) in b",{" and self._after(at) in b":":
                yield piece[1]

    def items(self) -> Iterator[Hashable]:
        """The strings and scalars that may be items as a whole; words by their first byte."""
        for at, piece in enumerate(self._pieces):
            if self._before(at) not in b",[":
                continue
            if piece["end"] == b'"' and self._after(at) in b",]":
                yield piece[1]
            elif (first := piece.group()[0]) in WORDS:
                yield WORDS[first]
            elif first in b"-0123456789" and piece.end() < len(self._text):
                yield scalar(piece.group())

    def due(self) -> tuple[int, bytes] | None:
        """Where a name is due at the token's end, or not yet ended: how many arrays and objects
        were left before, and what there is of it; of those that the token opens there is none."""
        depth = least = 0
        last: tuple[int, bytes] | None = None
        for at, piece in enumerate(self._pieces):
            sign, last = piece.group(), None
            depth += (sign in (b"{", b"[")) - (sign in (b"}", b"]"))
            least = min(least, depth)
            if depth > least:
                continue
            if sign == b",":
                last = (-depth, b"")
            elif piece["end"] not in (None, b'"') and self._before(at) in b",":
                last = (-depth, self._text[piece.start() + 1 :])
        return last

    def _before(self, at: int) -> bytes:
        """The piece before one; nothing at a token's start."""
        return self._pieces[at - 1].group() if at else (b'"' if self._rest else b"")

    def _after(self, at: int) -> bytes:
        return self._pieces[at + 1].group() if at + 1 < len(self._pieces) else b""
