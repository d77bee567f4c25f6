"""Texts under the masks of a guide: given ones walked through, and ones drawn at random."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from adapter.guided.matcher import Mask
from benchmarks.guided_conformance.goals import Goals, Hints


class Words:
    """The tokens by their bytes."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """texts: the bytes of each id, empty where it has none."""
        self._ids = {text: token for token, text in reversed(list(enumerate(texts))) if text}
        self._longest = max(map(len, self._ids), default=0)

    def at(self, text: bytes, start: int) -> Iterator[int]:
        """The tokens that a text may go on with, the longest first."""
        for end in range(min(start + self._longest, len(text)), start, -1):
            token = self._ids.get(text[start:end])
            if token is not None:
                yield token

    def one(self, text: bytes) -> int | None:
        """The token of a text."""
        return self._ids.get(text)


class AnyGuide(Protocol):
    """What is asked of a Guide."""

    @property
    def failure(self) -> str | None: ...

    def fill(self, mask: Mask) -> None: ...

    def accept(self, tokens: Sequence[int]) -> bool: ...


@dataclass(slots=True)
class Walk:
    """How far a text came under the masks."""

    accepted: bool = False
    early: list[bytes] = field(default_factory=list)
    """The beginnings where the text might have ended."""
    reached: int = 0
    """Bytes that were allowed."""
    dead: str | None = None
    """Why no token at all could come next."""


def has_bit(mask: Mask, token: int) -> bool:
    """Whether a mask allows a token."""
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def timed_fill(guide: AnyGuide, mask: Mask, times: list[float]) -> None:
    """Fill a mask, and note the microseconds of CPU: other work on the machine is not counted."""
    started = time.thread_time_ns()
    guide.fill(mask)
    times.append((time.thread_time_ns() - started) / 1000)


class Walker:
    """Takes texts under the masks of one vocabulary."""

    def __init__(self, texts: Sequence[bytes], end: int) -> None:
        self._texts = texts
        self._end = end
        self._words = Words(texts)

    def walk(self, guide: AnyGuide, text: bytes, mask: Mask, times: list[float]) -> Walk:
        """Take a text and its end, as long as the masks allow it.

        Each step takes the longest token that is allowed: where only one text can follow,
        llguidance allows the tokens that its tokenizer would make of it, and no others.
        """
        result = Walk()
        while result.dead is None:
            timed_fill(guide, mask, times)
            result.dead = guide.failure
            done = result.reached == len(text)
            may_end = guide.failure is None and has_bit(mask, self._end)
            if may_end and not done:
                result.early.append(text[: result.reached])
            choices = [self._end] if done else self._words.at(text, result.reached)
            token = next((token for token in choices if has_bit(mask, token)), None)
            if token is None or result.dead is not None:
                break
            if not guide.accept([token]):
                result.dead = f"token {token} of its own mask was refused"
            elif done:
                result.accepted = True
                break
            else:
                result.reached += len(self._texts[token])
        return result


LONGEST_DRAW = 300
"""Tokens, before a draw takes every way to its end that it is given."""
LONGEST_ENDING = 1500
"""Tokens that it may then take: one that needs more is said to come to no end."""
END_SHARE = 0.5
CLOSE_SHARE = 0.9


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
        self._words = words = Words(texts)
        self._inside = [token for token in [words.one(b'"')] if token is not None]
        self._bytes = {
            byte: token for byte in range(128) if (token := words.one(bytes([byte]))) is not None
        }
        marks = b"!#$%&'()*+,-./:;<=>?@[]^_`{|}~ 0123456789"
        self._marks = [self._bytes[byte] for byte in marks if byte in self._bytes]
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
        hints: Hints | None = None,
    ) -> Draw:
        """A random text; after `hurry` tokens it closes what it can, and in the end only that.

        hints: what it may have to hold, for it to end.
        """
        drawn = Draw(b"")
        goals = Goals(hints or Hints(), lambda below: int(generator.integers(below)))
        for taken in range(LONGEST_DRAW + LONGEST_ENDING):
            timed_fill(guide, mask, times)
            if guide.failure is not None:
                drawn.dead = guide.failure
                return drawn
            close = CLOSE_SHARE * (taken >= hurry)
            if taken >= LONGEST_DRAW:
                token = self._ending(mask, goals, generator)
            else:
                token = self._next(mask, goals.in_string, close, generator)
            if not guide.accept([token]):
                drawn.dead = f"token {token} of its own mask was refused"
                return drawn
            if token == self._end:
                drawn.finished = True
                return drawn
            drawn.content += self._texts[token]
            goals.take(self._texts[token])
        return drawn

    def _ending(self, mask: Mask, goals: Goals, generator: np.random.Generator) -> int:
        """The token by which a text comes to its end the soonest."""
        if has_bit(mask, self._end):
            return self._end
        closers = [self._bytes[byte] for byte in goals.closers() if byte in self._bytes]
        if not any(has_bit(mask, token) for token in closers):
            goals.aim()
        if goals.goal:
            for token in self._words.at(goals.goal, 0):
                if has_bit(mask, token):
                    return token
        return self._next(mask, goals.in_string, CLOSE_SHARE, generator, useful=True)

    def _next(
        self,
        mask: Mask,
        in_string: bool,
        close: float,
        generator: np.random.Generator,
        *,
        useful: bool = False,
    ) -> int:
        """close: how likely it takes a token that closes something, where there is one.

        useful: mostly a mark or a digit inside a string, which is what a pattern often waits for.
        """
        if has_bit(mask, self._end) and generator.random() < END_SHARE:
            return self._end
        if close and generator.random() < close:
            for token in self._inside if in_string else self._outside:
                if has_bit(mask, token):
                    return token
        if useful and in_string and generator.random() < END_SHARE:
            marks = [token for token in self._marks if has_bit(mask, token)]
            if marks:
                return int(generator.choice(marks))
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        return int(generator.choice(allowed))
