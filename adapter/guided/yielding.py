"""A library that narrows beside a guard, and gives way where the two do not meet.

A text has to be allowed by both. Both may allow a token after which they have nothing in common any
more: their masks are of the next token alone. So from where a library leaves the guard no way on,
or fails, or has worked too long, the guard goes on alone. A guard whose own language has no dead
ends then has none with the library either, and what is made satisfies the guard in any case.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from adapter.guided.matcher import Mask, Matcher
from adapter.guided.token_trie import TokenRuns

# CPU time for a text, well below what ends one (matcher.Guide).
_SECONDS = 0.4
_SECONDS_A_TOKEN = 0.01

T = TypeVar("T")


class YieldingMatcher:
    """A library's state of one text, which comes after those of the guards.

    What was in its mask is taken, and so is what comes without one: drafted tokens that were taken
    back, say, whose masks were made when the library was set aside already.
    """

    def __init__(self, library: Matcher, guards: Sequence[Matcher], tokens: TokenRuns) -> None:
        """guards: the matchers before it, whose narrowed mask it is given."""
        self._library = library
        self._guards = guards
        self._tokens = tokens
        self._taken = 0
        self._mask: Mask | None = None
        """What may come next, where that was asked."""
        self._aside_at: int | None = None
        """How many tokens the library has taken, where it is set aside."""
        self._is_lost = False
        """Set aside for the rest of the text: it failed, or is too slow."""
        self._seconds = 0.0

    @property
    def aside(self) -> bool:
        """Whether the library is set aside."""
        return self._aside_at is not None

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next, but never all of it."""
        self._mask = None
        if self.aside:
            return
        narrowed = mask.copy()
        self._asked(lambda: self._library.narrow(narrowed))
        if self.aside:
            return
        if self._is_stuck(mask, narrowed):
            self._set_aside()
        else:
            self._mask = narrowed
            np.copyto(mask, narrowed)

    def advance(self, token: int) -> bool:
        """Take the next token, False where the library forbids it, and so did its mask."""
        if not self.aside and not self._asked(lambda: self._library.advance(token)):
            if not self.aside and self._mask is not None and not _is_set(self._mask, token):
                return False
            self._set_aside()
        self._mask = None
        self._taken += 1
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        self._taken -= count
        self._mask = None
        if self._is_lost:
            return
        known = self._taken + count if self._aside_at is None else self._aside_at
        if self._taken <= known:
            self._aside_at = None
        if self._taken < known:
            self._asked(lambda: self._library.rollback(known - self._taken))

    def can_end(self) -> bool:
        """Whether the text may end here, as far as the last mask went; the guards know anyway."""
        if self.aside or self._mask is None:
            return True
        return self._library_ends()

    def _is_stuck(self, before: Mask, after: Mask) -> bool:
        """Whether nothing is left to go on with, or blanks alone, which is no way on."""
        words = before & ~self._tokens.textless
        solid = words & ~self._tokens.blank
        if solid.any():
            return not (solid & after).any() and not (self._guards_end() and self._library_ends())
        if self._guards_end():
            return not self._library_ends()
        return not (words & after).any()

    def _guards_end(self) -> bool:
        return all(guard.can_end() for guard in self._guards)

    def _library_ends(self) -> bool:
        return bool(self._asked(self._library.can_end)) or self.aside

    def _asked(self, question: Callable[[], T]) -> T | None:
        """What the library answers; None where it fails, and it is then set aside for good."""
        started = time.thread_time()
        try:
            return question()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic of a Rust library is no Exception
            self._lose()
            return None
        finally:
            self._seconds += time.thread_time() - started
            if self._seconds > _SECONDS + _SECONDS_A_TOKEN * self._taken:
                self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        self._set_aside()

    def _set_aside(self) -> None:
        if self._aside_at is None:
            self._aside_at = self._taken


def _is_set(mask: Mask, token: int) -> bool:
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)
