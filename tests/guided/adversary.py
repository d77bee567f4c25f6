"""Walks where a model seldom goes: a strategy chooses among the tokens that a mask allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from adapter.guided.matcher import Guide
from benchmarks.guided_conformance.walks import Place
from tests.guided.texts import ENDS, VOCABULARY, allowed

_TEXTS = VOCABULARY.tokens
_DIGITS = frozenset(b"0123456789.eE+-")
_OPENERS = frozenset(b"{[(")
_ESCAPES = frozenset(b'\\u"')
_OUTSIDE = b'}])":,'
_INSIDE = b'"'
_USEFUL = b"ab1A@:/.-"
"""What a pattern or a format may still need before a string can be closed."""

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


def walk(guide: Guide, strategy: str, random: Random, free: int = 40, most: int = 500) -> Walked:
    """A walk that goes freely for some tokens, and then to an end by the shortest way it sees."""
    text = b""
    place = Place()
    for step in range(most):
        found = sorted(token for token in allowed(guide) if token < len(_TEXTS))
        if guide.failure is not None:
            return Walked(text, False, guide.failure)
        token = _next(found, strategy if step < free else None, place, random)
        if not guide.accept([token]):
            return Walked(text, False, f"token {_TEXTS[token]!r} of its own mask was refused")
        if guide.ended:
            return Walked(text, True)
        text += _TEXTS[token]
        place = place.after(_TEXTS[token])
    return Walked(text, False)


def _next(found: Sequence[int], strategy: str | None, place: Place, random: Random) -> int:
    tokens = [token for token in found if token not in ENDS]
    may_end = len(tokens) < len(found)
    eager = strategy is None or (strategy not in PATIENT and random.random() < 0.4)
    if not tokens or (may_end and eager):
        return ENDS[0]
    if strategy is None:
        return _closing(tokens, place, random)
    return STRATEGIES[strategy](tokens, random)


def _closing(tokens: Sequence[int], place: Place, random: Random) -> int:
    """A byte that closes something, seven times of eight, where there is one."""
    closers = [byte for byte in (_INSIDE if place.in_string else _OUTSIDE) if byte in tokens]
    if closers and random.random() < 0.875:
        return closers[0]
    useful = [byte for byte in _USEFUL if byte in tokens]
    if place.in_string and useful:
        return random.choice(useful)
    return STRATEGIES["shortest"](tokens, random)
