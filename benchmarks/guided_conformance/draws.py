"""Texts drawn at random from the masks of a guide."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adapter.guided.matcher import Mask
from benchmarks.guided_conformance.walks import AnyGuide, Words, has_bit, timed_fill

LONGEST_DRAW = 300
END_SHARE = 0.5
CLOSE_SHARE = 0.9


class Place(NamedTuple):
    """Where a JSON text stands."""

    in_string: bool = False
    escaped: bool = False

    def after(self, text: bytes) -> "Place":
        """Where it stands after more of it."""
        in_string, escaped = self
        for byte in text:
            if escaped:
                escaped = False
            elif byte == ord('"'):
                in_string = not in_string
            else:
                escaped = in_string and byte == ord("\\")
        return Place(in_string, escaped)


@dataclass(slots=True)
class Draw:
    """A text drawn at random from the masks."""

    content: bytes
    finished: bool = False
    dead: str | None = None


class Drawer:
    """Draws texts for one vocabulary."""

    def __init__(self, texts: Sequence[bytes], end: int) -> None:
        self._texts = texts
        self._end = end
        words = Words(texts)
        self._inside = [token for token in [words.one(b'"')] if token is not None]
        self._outside = [
            token for text in b'}]":,' if (token := words.one(bytes([text]))) is not None
        ]

    def draw(
        self,
        guide: AnyGuide,
        mask: Mask,
        times: list[float],
        *,
        hurry: int,
        generator: np.random.Generator,
    ) -> Draw:
        """A random text; after `hurry` tokens it closes what it can."""
        drawn = Draw(b"")
        place = Place()
        for taken in range(LONGEST_DRAW):
            timed_fill(guide, mask, times)
            if guide.failure is not None:
                drawn.dead = guide.failure
                return drawn
            token = self._next(mask, place, taken >= hurry, generator)
            if not guide.accept([token]):
                drawn.dead = f"token {token} of its own mask was refused"
                return drawn
            if token == self._end:
                drawn.finished = True
                return drawn
            drawn.content += self._texts[token]
            place = place.after(self._texts[token])
        return drawn

    def _next(self, mask: Mask, place: Place, hurry: bool, generator: np.random.Generator) -> int:
        if has_bit(mask, self._end) and generator.random() < END_SHARE:
            return self._end
        if hurry and generator.random() < CLOSE_SHARE:
            for token in self._inside if place.in_string else self._outside:
                if has_bit(mask, token):
                    return token
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        return int(generator.choice(allowed))
