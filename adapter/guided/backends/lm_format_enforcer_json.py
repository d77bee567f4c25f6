"""JSON by lm-format-enforcer's own parser, as it is, beside a guard that holds the schema exactly.

The library's own enforcer looks at all tokens and keeps every beginning of every text; here the
parser is asked about what the guard still allows, and about no more than a bounded number a mask.
It runs inside a YieldingMatcher, which sets it aside where it is stuck, fails or takes long.
"""

import json
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from lmformatenforcer import CharacterLevelParserConfig, JsonSchemaParser

from adapter.guided.backends.lm_format_enforcer_regex import MOST_MASKS
from adapter.guided.matcher import Mask
from adapter.guided.structure import structure_of
from adapter.guided.token_trie import UNFINISHED, TokenRuns

_MOST_STATES = 2_000  # some 20 Python objects each, and more with references
_MOST_CHECKS = 250  # tokens of one mask; up to 50 microseconds each: it is the engine's step
_SECONDS = 0.2  # CPU time of one mask

_BLANKS = frozenset(" \t\n\r")
_DIGITS = frozenset("0123456789")


class _State:
    """The library's parser at one place of a text; shared by texts, so it never changes."""

    __slots__ = ("characters", "digits", "free", "next", "parser")

    def __init__(self, parser: Any, digits: int = 0) -> None:
        """digits: how many were just taken."""
        self.parser = parser
        self.digits = digits
        self.characters = frozenset(parser.get_allowed_characters())
        self.free = parser.shortcut_key() is not None  # in a string that may be any
        self.next: dict[str, _State | None] = {}


class JsonStructure:
    """A JSON schema over a vocabulary."""

    def __init__(self, tokens: TokenRuns, schema: Any) -> None:
        """Raises Exception where the library cannot read the schema."""
        self.tokens = tokens
        self.lock = threading.Lock()  # the library's parsers of one schema share a variable
        written = set(json.dumps(schema, ensure_ascii=False))
        # Characters that the schema does not write are all alike.
        self._other = next(c for c in map(chr, range(0xE000, 0xF000)) if c not in written)
        self._alphabet = {*map(chr, range(0x20, 0x7F)), self._other}
        self._alphabet |= {character for character in written if character > "\x7f"}
        config = CharacterLevelParserConfig(
            alphabet="".join(sorted(self._alphabet)),
            max_consecutive_whitespaces=1 << 62,  # blanks are held beside it
            force_json_field_order=False,
            max_json_array_length=0,
        )
        self._masks: dict[_State, tuple[Mask, Mask]] = {}
        self._states = 0
        self.start = _State(JsonSchemaParser(structure_of(schema, plainly=True), config))

    def matcher(self) -> "JsonMatcher":
        """The state of a new text."""
        return JsonMatcher(self)

    def narrowed(self, state: _State, mask: Mask) -> Mask:
        """A mask without the tokens that the parser does not take.

        Raises:
            TimeoutError: it took too long.
        """
        known = self._masks.get(state)
        if known is not None and np.array_equal(known[0], mask):
            return known[1]
        narrowed: Mask = mask & self._look(state, mask, time.thread_time() + _SECONDS)
        if len(self._masks) >= MOST_MASKS // 2:
            self._masks.clear()
        self._masks[state] = (mask.copy(), narrowed)
        return narrowed

    def _look(self, state: _State, mask: Mask, until: float) -> Mask:
        tokens = self.tokens
        allowed = tokens.json_text.copy() if state.free else np.zeros_like(mask)
        ids = _ids(mask & ~tokens.textless & ~allowed)
        first = np.zeros(256, np.bool_)
        first[[ord(character) for character in state.characters if character < "\x80"]] = True
        first[0x80:] = _beyond_ascii(state)
        likely = ids[first[tokens.first[ids]]]
        _set(allowed, likely[_MOST_CHECKS:])  # left to the guard
        taken = []
        for token in likely[:_MOST_CHECKS].tolist():
            if time.thread_time() > until:
                raise TimeoutError
            if self.after(state, tokens.texts[token]) is not None:
                taken.append(token)
        _set(allowed, np.array(taken, np.int64))
        return allowed

    def after(self, state: _State, text: bytes) -> tuple[_State, bytes] | None:
        """The state after some bytes, and those of an unfinished character; None: not allowed."""
        pending = b""
        try:
            characters = text.decode()
        except UnicodeDecodeError as error:
            if error.reason != UNFINISHED:
                return None
            characters, pending = text[: error.start].decode(), text[error.start :]
        for character in characters:
            following = self._step(state, character)
            if following is None:
                return None
            state = following
        return None if pending and not _beyond_ascii(state) else (state, pending)

    def _step(self, state: _State, character: str) -> _State | None:
        # What is in a string that may be any, and how long a number is, changes nothing.
        if state.free and character not in '"\\':
            return state
        if character in _DIGITS and state.characters >= _DIGITS:
            if state.digits == 2:
                return state
            character = "0" if character == "0" else "1"
        elif character in _BLANKS and state.characters >= _BLANKS:
            character = " "
        elif character not in self._alphabet:
            character = self._other
        if character not in state.characters:
            return None
        if character not in state.next:
            state.next[character] = self._new(state, character)
        return state.next[character]

    def _new(self, state: _State, character: str) -> _State:
        if self._states >= _MOST_STATES:
            self.start.next.clear()
            self._masks.clear()
            self._states = 0
        self._states += 1
        digits = state.digits + 1 if character in _DIGITS else 0
        new = _State(state.parser.add_character(character), digits)
        if character == " " and new.characters >= _BLANKS:
            new.next[" "] = new
        return new


class JsonMatcher:
    """The library's state of one text, after those of the guards."""

    def __init__(self, structure: JsonStructure) -> None:
        self._structure = structure
        self._places = [(structure.start, b"")]
        """States, and the bytes of an unfinished character."""

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next.

        Raises:
            Exception: the library failed, or took too long.
        """
        state, pending = self._places[-1]
        if not pending:
            with self._structure.lock:
                np.copyto(mask, self._structure.narrowed(state, mask))

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed.

        Raises:
            Exception: the library failed.
        """
        state, pending = self._places[-1]
        with self._structure.lock:
            place = self._structure.after(state, pending + self._structure.tokens.texts[token])
        if place is None:
            return False
        self._places.append(place)
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        del self._places[len(self._places) - count :]

    def can_end(self) -> bool:
        """Whether the text may end here: the guard knows."""
        return True


def _beyond_ascii(state: _State) -> bool:
    return state.free or max(state.characters, default="") > "\x7f"


def _set(mask: Mask, ids: npt.NDArray[np.int64]) -> None:
    """Set the bits of these tokens."""
    numbers = ids.astype(np.uint32)
    np.bitwise_or.at(mask.view(np.uint32), numbers >> 5, np.uint32(1) << (numbers & 31))


def _ids(mask: Mask) -> npt.NDArray[np.int64]:
    """The tokens of a mask, quickly where they are few."""
    words = np.flatnonzero(mask)
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").view(np.bool_)
    found: npt.NDArray[np.int64] = (words[:, None] * 32 + np.arange(32)).reshape(-1)[bits]
    return found
