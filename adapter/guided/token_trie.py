"""The tokens of a vocabulary as a tree of their bytes, so that an automaton reads all at once."""

import numpy as np
import numpy.typing as npt

from adapter.guided.matcher import Mask
from adapter.guided.vocabulary import Vocabulary

Table = npt.NDArray[np.int32]
"""An automaton over bytes: the next state for each state and byte, 0 the dead one."""

_Ints = npt.NDArray[np.int32]
_Bools = npt.NDArray[np.bool_]


class TokenRuns:
    """All tokens of a vocabulary, to be run through a byte automaton at once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.texts = vocabulary.tokens
        self.words = vocabulary.words
        self._lengths = np.fromiter(map(len, self.texts), np.int32, len(self.texts))
        self._offsets = np.cumsum(self._lengths) - self._lengths
        self._bytes = np.frombuffer(b"".join(self.texts) + b"\0", np.uint8)
        self.first = self._bytes[self._offsets]
        # Padding of the last word counts as tokens, too.
        self.textless = ~self.pack(self._lengths > 0)
        blank = np.isin(self._bytes, np.frombuffer(b" \t\n\r", np.uint8))
        self.blank = self.pack(~self._any(~blank)) & ~self.textless
        """The tokens of blanks alone."""
        # All of it at once: a first mask in the engine's step is too late.
        self.json_text = self._json_text()
        """The tokens that are a JSON string's text: characters, the last perhaps unfinished."""
        self._levels, self._places = self._trie()

    def pack(self, chosen: _Bools) -> Mask:
        """One truth for each token, as a mask."""
        packed = np.zeros(self.words * 4, np.uint8)
        bits = np.packbits(chosen, bitorder="little")
        packed[: len(bits)] = bits
        return packed.view(np.int32)

    def _json_text(self) -> Mask:
        data = self._bytes
        special = (data < 0x20) | (data == ord('"')) | (data == ord("\\"))
        plain = (self._lengths > 0) & ~self._any(special)
        for index in np.flatnonzero(plain & self._any(data >= 0x80)).tolist():
            plain[index] = _is_text(self.texts[index])
        return self.pack(plain)

    def _any(self, marked: _Bools) -> _Bools:
        """Whether a token has a marked byte."""
        counts = np.concatenate([[0], np.cumsum(marked)])
        found: _Bools = counts[self._offsets + self._lengths] > counts[self._offsets]
        return found

    def _trie(self) -> tuple[list[tuple[_Ints, _Ints]], _Ints]:
        """A tree of the tokens: parents and bytes of each level, and the place of each token.

        Parents are counted in the level above, places over all levels, the root's being 0.
        """
        places = np.zeros(len(self.texts), np.int32)
        node, base = places.copy(), 1
        levels: list[tuple[_Ints, _Ints]] = []
        alive = np.flatnonzero(self._lengths)
        while len(alive):
            data = self._bytes[self._offsets[alive] + len(levels)]
            found, node_of = np.unique((node[alive] << 8) + data, return_inverse=True)
            levels.append(((found >> 8).astype(np.int32), (found & 255).astype(np.int32)))
            node[alive] = node_of
            places[alive] = base + node_of
            base += len(found)
            alive = alive[self._lengths[alive] > len(levels)]
        return levels, places

    def mask(self, table: Table, state: int) -> Mask:
        """The tokens that lead from a state to another than 0, the dead one."""
        flat, reached = table.reshape(-1), [np.array([state], np.int32)]
        for parents, data in self._levels:
            reached.append(flat[(reached[-1][parents] << 8) + data])
        return self.pack(np.concatenate(reached)[self._places] != 0) & ~self.textless


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.reason == UNFINISHED
    return True


UNFINISHED = "unexpected end of data"
"""How Python says that bytes end inside a character."""
