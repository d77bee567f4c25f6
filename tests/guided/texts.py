"""A vocabulary of bytes and some longer tokens, and what a constraint makes of texts over it."""

from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from adapter.guided.matcher import Guide
from adapter.guided.vocabulary import Vocabulary

# Several characters, parts of characters, whitespace with what stands beside it, quotes in the
# midst.
_LONGER = [
    *(b"ab", b"hi", b"true", b"123", b"  ", b"\n  ", b"\xc3\xa9", b"\xe6\x97", b"\xf0\x9f\x98"),
    *(b'{"', b'":', b'",', b' "', b'": ', b'"}', b"]}", b'\\"', b'a" ', b", ", b" 1", b"ab ab"),
]
_TEXTS = [bytes([byte]) for byte in range(256)] + _LONGER

ENDS = (len(_TEXTS), len(_TEXTS) + 2)
"""Two ends of text, and between them a special token."""

VOCABULARY = Vocabulary((*_TEXTS, b"", b"", b""), ENDS, None)


def ids(text: str | bytes) -> list[int]:
    """A token for each byte."""
    return list(text.encode() if isinstance(text, str) else text)


def tokenized(text: str, random: Random) -> list[int]:
    """Any way to cut a text into tokens."""
    left = text.encode()
    found = []
    while left:
        fitting = [i for i, token in enumerate(_TEXTS) if left.startswith(token)]
        found.append(random.choice(fitting))
        left = left[len(_TEXTS[found[-1]]) :]
    return found


def text_of(tokens: list[int]) -> bytes:
    """The bytes of tokens."""
    return b"".join(VOCABULARY.tokens[token] for token in tokens)


def allowed(guide: Guide) -> set[int]:
    """The tokens that the mask allows next."""
    mask = np.zeros(VOCABULARY.words, np.int32)
    guide.fill(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def takes(guide: Guide, tokens: list[int], *, exact: bool = True) -> bool:
    """Whether a new text may be these tokens and then end; the guide is as before.

    What a mask allows is taken. exact: and nothing else; llguidance's masks have one token alone
    where the text has no choice, and what it takes may be cut in other ways.
    """
    taken = 0
    for token in [*tokens, ENDS[0]]:
        masked = token in allowed(guide)
        assert guide.failure is None, guide.failure
        took = guide.accept([token])
        assert took == masked if exact else took >= masked, VOCABULARY.tokens[token]
        if not took:
            break
        taken += 1
    guide.rollback(taken)
    return taken == len(tokens) + 1


def language(guide: Guide, longest: int = 60) -> set[bytes]:
    """All texts of a small language, found by trying each token that a mask allows."""
    found: set[bytes] = set()
    seen: set[bytes] = set()

    def look(text: bytes) -> None:
        assert len(text) <= longest, text
        seen.add(text)
        for token in allowed(guide):
            assert guide.failure is None, (text, guide.failure)
            assert guide.accept([token]), (text, token)
            if guide.ended:
                found.add(text)
            elif (following := text + VOCABULARY.tokens[token]) not in seen:
                look(following)
            guide.rollback(1)

    look(b"")
    return found


def written(guide: Guide, random: Random, liked: bytes = b"", steps: int = 200) -> bytes | None:
    """A text made from random tokens that the masks allow, None where it did not end in time.

    liked: bytes that are chosen more often than others.
    """
    text = b""
    for _ in range(steps):
        choices = sorted(allowed(guide))
        assert guide.failure is None, (text, guide.failure)
        assert choices, text
        ends = [token for token in choices if token in ENDS]
        preferred = [token for token in choices if token < 256 and token in liked]
        if ends and random.random() < 0.4:
            token = ends[0]
        elif preferred and random.random() < 0.8:
            token = random.choice(preferred)
        else:
            token = random.choice(choices)
        assert guide.accept([token]), (text, token)
        if guide.ended:
            return text
        text += VOCABULARY.tokens[token]
    return None


def several(make: Callable[[], Guide], count: int, liked: bytes = b"") -> Iterator[str]:
    """Texts that were finished, of so many tries, the same ones each time."""
    for seed in range(count):
        text = written(make(), Random(seed), liked)
        if text is not None:
            yield text.decode()
