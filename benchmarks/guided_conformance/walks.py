"""Texts under the masks of a guide: how far they come, and where they might have ended."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapter.guided.matcher import Mask


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
