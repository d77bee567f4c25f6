"""Walks where a model seldom goes: a strategy chooses among the tokens that a mask allows."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from adapter.guided.matcher import Guide
from tests.guided.texts import ENDS, VOCABULARY, allowed

_TEXTS = VOCABULARY.tokens
_DIGITS = frozenset(b"0123456789.eE+-")
_OPENERS = frozenset(b"{[(")
_ESCAPES = frozenset(b'\\u"')

Strategy = Callable[[Sequence[int], Random], int]
"""The next token, of sorted ones that are no ends of text."""


def _those(good: Callable[[bytes], bool], tokens: Sequence[int], random: Random) -> int:
    """Of tokens that are good, where there are any."""
    return random.choice([token for token in tokens if good(_TEXTS[token])] or tokens)


def _ordinary(text: bytes) -> bool:
    return text.isascii() and text.isalnum()


def _rare(text: bytes) -> bool:
    return not text.isascii() or text in (b"<", b"|", b"_", b"\x7f", b"~")


STRATEGIES: dict[str, Strategy] = {
    "random": lambda tokens, random: random.choice(tokens),
    "least likely": lambda tokens, random: _those(_rare, tokens, random),
    "longest": lambda tokens, random: max(tokens, key=lambda t: (len(_TEXTS[t]), random.random())),
    "shortest": lambda tokens, random: min(tokens, key=lambda t: (len(_TEXTS[t]), random.random())),
    "escapes": lambda tokens, random: _those(lambda text: text[0] in _ESCAPES, tokens, random),
    "digits": lambda tokens, random: _those(lambda text: text[0] in _DIGITS, tokens, random),
    "deeper": lambda tokens, random: _those(lambda text: text[0] in _OPENERS, tokens, random),
    "ordinary": lambda tokens, random: _those(_ordinary, tokens, random),
}
PATIENT = frozenset({"escapes", "digits", "deeper", "longest"})
"""Those that end a text only where nothing else can come, as long as they walk freely."""


@dataclass(frozen=True)
class Walked:
    """Where a walk came to."""

    text: bytes
    ended: bool
    fault: str | None = None
    """Why it could not go on."""


@dataclass(frozen=True)
class Hints:
    """What a text of a schema may have to hold before it can end, as JSON."""

    names: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, schema: Any) -> "Hints":
        """Its names and its fixed values, wherever they stand."""
        names: dict[bytes, None] = {}
        values: dict[bytes, None] = {}
        waiting = [schema]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                listed = [node.get(name) for name in ("required", "enum")]
                required, fixed = [each if isinstance(each, list) else [] for each in listed]
                names |= dict.fromkeys(map(_as_json, required))
                unwanted = node.get("not")
                declared = unwanted.get("properties") if isinstance(unwanted, dict) else None
                names |= dict.fromkeys(map(_as_json, declared or ()))
                needed = node.get("dependentRequired")
                for listed in needed.values() if isinstance(needed, dict) else ():
                    names |= dict.fromkeys(map(_as_json, listed))
                values |= dict.fromkeys(map(_as_json, fixed))
                if "const" in node:
                    values[_as_json(node["const"])] = None
                waiting += node.values()
            elif isinstance(node, list):
                waiting += node
        return cls(tuple(names), tuple(values))


def _as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def walk(
    guide: Guide,
    strategy: str,
    random: Random,
    hints: Hints | None = None,
    *,
    free: int = 40,
    most: int = 600,
) -> Walked:
    """A walk that goes freely for some tokens, and then to an end by the shortest way it sees."""
    text = b""
    closing = _Closing(hints or Hints(), random)
    for step in range(most):
        found = sorted(token for token in allowed(guide) if token < len(_TEXTS))
        if guide.failure is not None:
            return Walked(text, False, guide.failure)
        token = _next(found, strategy, random) if step < free else closing.next(found)
        if not guide.accept([token]):
            return Walked(text, False, f"token {_TEXTS[token]!r} of its own mask was refused")
        if guide.ended:
            return Walked(text, True)
        text += _TEXTS[token]
        closing.take(_TEXTS[token])
    return Walked(text, False)


def _next(found: Sequence[int], strategy: str, random: Random) -> int:
    tokens = [token for token in found if token not in ENDS]
    may_end = len(tokens) < len(found)
    if not tokens or (may_end and strategy not in PATIENT and random.random() < 0.4):
        return ENDS[0]
    return STRATEGIES[strategy](tokens, random)


_USEFUL = b"ab1A@:/.-\xc3\xa9"
"""What a pattern or a format may still need before a string can be closed."""


@dataclass
class _Place:
    """Where a JSON text stands."""

    open: bytes = b""
    in_string: bool = False
    escaped: bool = False
    last: int = 0
    """The last byte outside strings that is no blank."""

    def take(self, byte: int) -> None:
        if self.in_string:
            self.in_string = self.escaped or byte != ord('"')
            self.escaped = not self.escaped and byte == ord("\\")
            return
        if byte in b"{[":
            self.open += bytes([byte])
        elif byte in b"}]":
            self.open = self.open[:-1]
        if byte not in b" \t\n\r":
            self.last = byte
        self.in_string = byte == ord('"')

    def begins(self) -> str:
        """What may begin here: a name, a value, or nothing."""
        if self.in_string or (self.last and self.last not in b"{[,:"):
            return ""
        return "name" if self.open.endswith(b"{") and self.last != ord(":") else "value"


@dataclass
class _Closing:
    """Goes to an end, byte by byte."""

    hints: Hints
    random: Random
    place: _Place = field(default_factory=_Place)
    goal: bytes = b""
    """What is left of the name or value that is being written."""
    left: dict[str, list[bytes]] = field(default_factory=dict)

    def take(self, text: bytes) -> None:
        """Take what was written."""
        for byte in text:
            self.place.take(byte)
        self.goal = self.goal[len(text) :] if self.goal.startswith(text) else b""

    def next(self, found: Sequence[int]) -> int:
        """An end where there may be one, else a byte on the way there."""
        tokens = [token for token in found if token not in ENDS]
        if len(tokens) < len(found):
            return ENDS[0]
        place = self.place
        wanted = b'"' if place.in_string else b"}])"
        if (begins := place.begins()) and not any(byte in tokens for byte in wanted):
            self.goal = self._chosen(begins)
        if self.goal and self.goal[0] in tokens:
            return self.goal[0]
        wanted += _USEFUL if place.in_string else b'":,'
        usable = [byte for byte in wanted if byte in tokens]
        if usable and self.random.random() < 0.875:
            return usable[0] if usable[0] not in _USEFUL else self.random.choice(usable)
        return STRATEGIES["shortest"](tokens, self.random)

    def _chosen(self, begins: str) -> bytes:
        """One of the hints, each in its turn, every other time."""
        hints = self.hints.names if begins == "name" else self.hints.values
        if not hints or self.random.random() < 0.4:
            return b""
        left = self.left.get(begins) or list(hints)
        goal = left.pop(self.random.randrange(len(left)))
        self.left[begins] = left
        return goal
