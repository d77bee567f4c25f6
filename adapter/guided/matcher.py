"""What a constraint is while a text is made: a state that narrows the next token.

A Matcher is one library's state of one text. A Guide is what the engine holds: all matchers of a
constraint, each of which has to allow a token, and the one rule for the end of a text.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.int32]
"""One row of a token mask: bit i % 32 of word i // 32 is set where token i is allowed."""


class Matcher(Protocol):
    """One library's state of one text. Ends of text are never shown to it."""

    def narrow(self, mask: Mask) -> None:
        """Clear the bits of the tokens that may not come next.

        What becomes of the bits of ends of text and of tokens that are no text does not matter.

        Raises:
            Exception: the library failed; the text cannot go on.
        """

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed; the state is then unchanged."""

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""

    def can_end(self) -> bool:
        """Whether the text may end here."""


class Guide:
    """The constraint of one text, as the engine asks it.

    Raises nothing while a text is made: where a library fails, or no token can come next, the next
    token is refused, so that the engine ends the text with an error and never with less than was
    asked.
    """

    def __init__(
        self,
        matchers: Sequence[Matcher],
        eos_token_ids: Sequence[int],
        *,
        eos_last: bool = False,
        focus: Mask | None = None,
    ) -> None:
        """eos_last: an end of text is allowed only where nothing else is (ignore_eos).

        focus: the tokens that are asked about, ends of text too. Where none of them is allowed the
        mask has those that are.
        """
        self._matchers = matchers
        self._eos_token_ids = frozenset(eos_token_ids)
        self._eos_bits = [(token >> 5, _BITS[token & 31]) for token in sorted(self._eos_token_ids)]
        self._eos_last = eos_last
        self._focus = focus
        self._taken = 0
        self._seconds = 0.0
        self._ended_at: int | None = None
        self._failed: tuple[int, str] | None = None

    @property
    def ended(self) -> bool:
        """Whether an end of text was taken."""
        return self._ended_at is not None

    @property
    def failure(self) -> str | None:
        """Why no token can be taken any more, None where all is well."""
        return None if self._failed is None else self._failed[1]

    def fill(self, mask: Mask) -> None:
        """Set the bits of the tokens that may come next, and clear all others."""
        mask.fill(-1)
        can_end = False
        with self._watched():
            for matcher in self._matchers:
                matcher.narrow(mask)
            can_end = all(matcher.can_end() for matcher in self._matchers)
        if self._failed is not None:
            mask.fill(0)
            can_end = False
        for word, bit in self._eos_bits:
            mask[word] &= ~bit
        stuck = not mask.any()
        if stuck and not can_end:
            self._fail("no token can come next")
        # Where the text failed, an end keeps the sampler from a row without any token.
        if stuck or (can_end and not self._eos_last):
            for word, bit in self._eos_bits:
                mask[word] |= bit
        if self._focus is not None and (seen := mask & self._focus).any():
            mask[:] = seen

    def accept(self, tokens: Sequence[int]) -> bool:
        """Take tokens, False at the first that is not allowed; the state is then as before."""
        for taken, token in enumerate(tokens):
            if not self._take(token):
                self.rollback(taken)
                return False
        return True

    def valid_prefix(self, tokens: Sequence[int]) -> int:
        """How many of these tokens could be taken; nothing is changed."""
        taken = 0
        while taken < len(tokens) and not self.ended and self._take(tokens[taken]):
            taken += 1
        self.rollback(taken)
        return taken

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        before = self._taken if self._ended_at is None else self._ended_at
        self._taken -= count
        if count and self._taken < before:
            with self._watched():
                for matcher in self._matchers:
                    matcher.rollback(before - self._taken)
        if self._ended_at is not None and self._taken <= self._ended_at:
            self._ended_at = None
        if self._failed is not None and self._taken < self._failed[0]:
            self._failed = None

    def _take(self, token: int) -> bool:
        if self._failed is not None:
            return False
        # What comes after the end is nobody's text.
        if self._ended_at is None and not (
            self._end() if token in self._eos_token_ids else self._advance(token)
        ):
            return False
        self._taken += 1
        return True

    def _end(self) -> bool:
        if not all(matcher.can_end() for matcher in self._matchers):
            return False
        self._ended_at = self._taken
        return True

    def _advance(self, token: int) -> bool:
        with self._watched():
            for index, matcher in enumerate(self._matchers):
                if not matcher.advance(token):
                    for earlier in self._matchers[:index]:
                        earlier.rollback(1)
                    return False
        return self._failed is None

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Runs the libraries: what they raise is kept, and so is that they take too long.

        It is the engine's step: all texts wait for this one.
        """
        started = time.thread_time()
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of a Rust library is no Exception
            self._fail(f"{type(error).__name__}: {error}")
        self._seconds += time.thread_time() - started
        if self._seconds > _SECONDS + _SECONDS_A_TOKEN * self._taken:
            self._fail("it needs too much work for each token")

    def _fail(self, why: str) -> None:
        if self._failed is None:
            self._failed = (self._taken, why)


# CPU time that the libraries may take for a text: an ambiguous grammar needs more with each token.
_SECONDS = 1.0
_SECONDS_A_TOKEN = 0.02

_BITS = [np.array([1 << bit], np.uint32).view(np.int32)[0] for bit in range(32)]
