"""Walks where a model seldom goes: a strategy chooses among the tokens that a mask allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from adapter.guided.matcher import Guide
from benchmarks.guided_conformance.goals import Goals, Hints
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
    goals = Goals(hints or Hints(), random.randrange)
    for step in range(most):
        found = sorted(token for token in allowed(guide) if token < len(_TEXTS))
        if guide.failure is not None:
            return Walked(text, False, guide.failure)
        token = _next(found, strategy, random) if step < free else _ending(found, goals, random)
        if not guide.accept([token]):
            return Walked(text, False, f"token {_TEXTS[token]!r} of its own mask was refused")
        if guide.ended:
            return Walked(text, True)
        text += _TEXTS[token]
        goals.take(_TEXTS[token])
    return Walked(text, False)


def _next(found: Sequence[int], strategy: str, random: Random) -> int:
    tokens = [token for token in found if token not in ENDS]
    may_end = len(tokens) < len(found)
    if not tokens or (may_end and strategy not in PATIENT and random.random() < 0.4):
        return ENDS[0]
    return STRATEGIES[strategy](tokens, random)


_USEFUL = b"ab1A@:/.-\xc3\xa9"
"""What a pattern or a format may still need before a string can be closed."""


def _ending(found: Sequence[int], goals: Goals, random: Random) -> int:
    """An end where there may be one, else a byte on the way there."""
    tokens = [token for token in found if token not in ENDS]
    if len(tokens) < len(found):
        return ENDS[0]
    wanted = goals.closers()
    if not any(byte in tokens for byte in wanted):
        goals.aim()
    if goals.goal and goals.goal[0] in tokens:
        return goals.goal[0]
    wanted += _USEFUL if goals.in_string else b'":,'
    usable = [byte for byte in wanted if byte in tokens]
    if usable and random.random() < 0.875:
        return usable[0] if usable[0] not in _USEFUL else random.choice(usable)
    return STRATEGIES["shortest"](tokens, random)
