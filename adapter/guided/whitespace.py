"""Holds the whitespace between the tokens of a JSON text to a pattern, whoever writes the rest.

No library enforces a whitespace pattern exactly, and some none at all. So the libraries are asked
for JSON with any whitespace, and this automaton, which knows nothing of JSON but where its strings
are, holds each run of whitespace to the pattern. Both have to allow a token. It also holds each
escape in a string to one spelling.
"""

import numpy as np

from adapter.guided.matcher import Mask
from adapter.guided.program import Whitespace
from adapter.guided.token_trie import Table, TokenRuns

WHITESPACE_BYTES = b" \t\n\r"

LONGEST_RUN = 20
"""Whitespace characters in a row where the caller gave no pattern: a line break, some indentation,
and an end to a model that would print whitespace for ever."""

DEFAULT = Whitespace(
    moves=tuple(
        (state + 1,) * 4 if state < LONGEST_RUN else (-1,) * 4 for state in range(LONGEST_RUN + 1)
    ),
    accepts=(True,) * (LONGEST_RUN + 1),
)

# The automaton's first states; after them, for each state of the pattern, one behind an opening
# character and one behind any other.
_DEAD, _START, _STRING, _ESCAPE, _U, _U0, _U00, _U000, _U001, _RUNS = range(10)
_OPENS = b"{[:,"
_CLOSES = b"}]:,"


def automaton(whitespace: Whitespace) -> Table:
    """The next state for each state and byte."""
    count = len(whitespace.moves)
    table = np.zeros((_RUNS + 2 * count, 256), np.int32)
    table[_START] = [_outside(byte) for byte in range(256)]
    table[_START, list(WHITESPACE_BYTES)] = _DEAD
    table[_STRING] = _STRING
    table[_STRING, ord("\\")] = _ESCAPE
    table[_STRING, ord('"')] = _outside(ord("x"))
    # One spelling for each character: of a name written otherwise (`"\\u0061"` for `"a"`) a library
    # does not see that it is the name.
    table[_ESCAPE, list(b'"\\bfnrt')] = _STRING
    # Control characters that no letter stands for are spelled by number.
    table[_ESCAPE, ord("u")] = _U
    table[_U, ord("0")] = _U0
    table[_U0, ord("0")] = _U00
    table[_U00, list(b"01")] = _U000, _U001
    table[_U000, list(b"01234567bef")] = _STRING
    table[_U001, list(b"0123456789abcdef")] = _STRING
    for after_open in (True, False):
        for run in range(count):
            row = table[_run_state(run, after_open)]
            for byte in range(256):
                row[byte] = _step(whitespace, run, after_open, byte)
    return table


def _step(whitespace: Whitespace, run: int, after_open: bool, byte: int) -> int:
    """The state behind a byte that stands outside of strings."""
    if byte in WHITESPACE_BYTES:
        following = whitespace.moves[run][WHITESPACE_BYTES.index(byte)]
        return _DEAD if following < 0 else _run_state(following, after_open)
    # Inside a number or a word no whitespace is due; state 0 is the empty run.
    due = run > 0 or after_open or byte in _CLOSES
    return _DEAD if due and not whitespace.accepts[run] else _outside(byte)


def _outside(byte: int) -> int:
    """The state behind a byte that is no whitespace and starts no run."""
    return _STRING if byte == ord('"') else _run_state(0, byte in _OPENS)


def _run_state(run: int, after_open: bool) -> int:
    return _RUNS + 2 * run + after_open


class WhitespaceRuns:
    """A whitespace pattern over a vocabulary; its masks are shared by all texts."""

    def __init__(self, whitespace: Whitespace, runs: TokenRuns) -> None:
        self.runs = runs
        self.table = automaton(whitespace)
        # What can end a text: it is outside of strings, and no run of whitespace was begun.
        self.end = _run_state(0, False)
        self._masks: dict[int, Mask] = {}

    def mask(self, state: int) -> Mask:
        """The tokens that may come in a state."""
        mask = self._masks.get(state)
        if mask is None:
            mask = self._masks[state] = self.runs.mask(self.table, state)
        return mask

    def warm(self) -> None:
        """Make the masks of all states."""
        for state in range(_START, len(self.table)):
            self.mask(state)

    def after(self, state: int, token: int) -> int:
        """The state behind a token."""
        for byte in self.runs.texts[token]:
            state = int(self.table[state, byte])
        return state

    def matcher(self) -> "WhitespaceMatcher":
        """The state of a new text."""
        return WhitespaceMatcher(self)


class WhitespaceMatcher:
    """Where a text is between its whitespace and strings."""

    def __init__(self, pattern: WhitespaceRuns) -> None:
        self._pattern = pattern
        self._states = [_START]

    def narrow(self, mask: Mask) -> None:
        """Clear the tokens whose whitespace the pattern forbids."""
        np.bitwise_and(mask, self._pattern.mask(self._states[-1]), out=mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed."""
        state = self._pattern.after(self._states[-1], token)
        if state == _DEAD:
            return False
        self._states.append(state)
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        del self._states[len(self._states) - count :]

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return self._states[-1] == self._pattern.end
