"""outlines_core: a regular expression (which a JSON schema becomes) as an index over the tokens.

The index is built elsewhere, in a process that can be stopped, and comes here as a file; it is
read at 2 ms a megabyte under the interpreter's lock, so a large one is built again instead, which
holds up nobody.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import outlines_core

from adapter.guided.matcher import Mask, Matcher
from adapter.guided.program import Part
from adapter.guided.vocabulary import Vocabulary

LARGEST_FILE = 4 * 2**20

_LONGEST_ROLLBACK = 256  # tokens that speculative decoding may take back at once, and to spare

# outlines_core's automaton takes the first alternative that matches ("1|10" never gives 10), but
# for an anchored one, which matches at the end alone. It cannot start at an anchor, though: so each
# text starts with a NUL that the matcher takes before the first token.
_START = b"\0"


class OutlinesBackend:
    """Compiles for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = vocabulary.words
        self._start = len(vocabulary.tokens)  # an id that no mask has
        texts = {text: ids for text, ids in vocabulary.by_bytes.items() if b"\0" not in text}
        end = vocabulary.eos_token_ids[0]
        self._vocabulary = outlines_core.Vocabulary(end, {**texts, _START: [self._start]})
        self._last: tuple[str, outlines_core.Index] | None = None
        """What was prepared last, which is compiled next."""

    def compile(self, part: Part) -> Callable[[], Matcher]:
        """A maker of matchers.

        Raises:
            ValueError: outlines_core cannot read the expression, or nothing matches it.
        """
        last, self._last = self._last, None
        if last is not None and last[0] == part.text:
            index = last[1]
        else:
            index = _read(part.artifact) or self._build(part.text)
        return lambda: OutlinesMatcher(index, self._start, self._words)

    def prepare(self, regex: str, path: Path) -> None:
        """Compile a regular expression into a file, for a part's `artifact`.

        Raises:
            ValueError: as compile().
        """
        index = self._build(regex)
        self._last = regex, index
        _, (content,) = index.__reduce__()
        path.write_bytes(bytes(content))

    def _build(self, regex: str) -> outlines_core.Index:
        return outlines_core.Index(f"\\x00(?:{regex})$", self._vocabulary)


def _read(path: str | None) -> outlines_core.Index | None:
    try:
        file = Path(path or "")
        if path is None or file.stat().st_size > LARGEST_FILE:
            return None
        return outlines_core.Index.from_binary(file.read_bytes())
    except OSError:  # made on another machine, or left out of the cache since
        return None


class OutlinesMatcher:
    """outlines_core's state of one text."""

    def __init__(self, index: outlines_core.Index, start: int, words: int) -> None:
        self._guide = outlines_core.Guide(index, max_rollback=_LONGEST_ROLLBACK)
        self._guide.advance(start, return_tokens=False)
        self._allowed = np.zeros(words, np.int32)
        self._buffer = (self._allowed.ctypes.data, words, self._allowed.itemsize)

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next."""
        self._guide.write_mask_into(*self._buffer)
        np.bitwise_and(mask, self._allowed, out=mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed."""
        if not self._guide.accepts_tokens([token]):
            return False
        self._guide.advance(token, return_tokens=False)
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        self._guide.rollback_state(count)

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self._guide.is_finished())
