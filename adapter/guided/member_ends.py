"""Keeps an object from a comma, or the beginning of a name, behind which no new name is left.

Names may be few: `^[ab]$` has two. Which may come is asked of those that hold the schema: they take
the bytes of a beginning, say what follows, and take them back.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from adapter.guided.json_place import BLANKS, IN_KEY, KEY_ESCAPE, Frame, Place, Reader
from adapter.guided.matcher import Mask, Matcher
from adapter.guided.member_tokens import Group, MemberTokens, start_of

# Questions for one mask, each some 50 microseconds: it is the engine's step.
_MOST_QUESTIONS = 300
_LONGEST_BLANKS = 32


class Probe:
    """Asks those that hold a text what may follow it."""

    def __init__(self, tokens: MemberTokens, matchers: Sequence[Matcher]) -> None:
        self._tokens = tokens
        self._matchers = matchers

    def following(self, more: bytes) -> set[int] | None:
        """The bytes that may come behind some more bytes, None where these may not come.

        Raises:
            Exception: as Matcher.narrow.
        """
        found = [self._tokens.by_bytes.get(bytes([byte])) for byte in more]
        if None in found:  # a vocabulary that cannot spell it
            return None
        taken: list[tuple[Matcher, int]] = []
        try:
            for matcher in self._matchers:
                taken.append((matcher, 0))
                for count, ids in enumerate(found, 1):
                    if not matcher.advance((ids or [0])[0]):
                        return None
                    taken[-1] = (matcher, count)
            mask = np.full(self._tokens.words, -1, np.int32)
            for matcher in self._matchers:
                matcher.narrow(mask)
        finally:
            for matcher, count in taken:
                matcher.rollback(count)
        return self._first_bytes(mask)

    def _first_bytes(self, mask: Mask) -> set[int]:
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(self._tokens.first)]
        seen = np.bincount(self._tokens.first[bits.view(np.bool_)], minlength=257)
        return set(np.flatnonzero(seen[:256]).tolist())


class NameEnds:
    """Clears what leads to names alone that are there already, where they may be few."""

    def __init__(self, tokens: MemberTokens, reader: Reader, probe: Probe) -> None:
        self._tokens = tokens
        self._reader = reader
        self._probe = probe

    def narrow(self, place: Place, text: bytearray, mask: Mask) -> None:
        """Clear the tokens behind which no name can end that is new."""
        index = self._tokens.indexes[start_of(place.mode)]
        for left, frame in enumerate(_frames(place.frame)):
            if not frame.count or not self._reader.has_few_names(frame):
                continue
            if left == 0 and place.mode in (IN_KEY, KEY_ESCAPE):
                self._narrow_name(frame, bytes(text[place.start : place.length]), mask)
            elif groups := index.opening.get(left):
                self._narrow_opening(frame, groups, mask)

    def _narrow_name(self, frame: Frame, begun: bytes, mask: Mask) -> None:
        """Inside a name: tokens that are more of it."""
        search = _Search(self._probe, frame, begun, b"")
        for beginning in _beginnings(frame):
            if len(beginning) > len(begun) and beginning.startswith(begun):
                ids = self._tokens.by_bytes.get(beginning[len(begun) :], ())
                group = Group(ids)
                if group.allowed(mask) and search.is_dead(beginning):
                    group.clear(mask)

    def _narrow_opening(self, frame: Frame, groups: Mapping[bytes, Group], mask: Mask) -> None:
        """Elsewhere: tokens up to a comma or quote, or further into a name."""
        beginnings = _beginnings(frame)
        may_come = {}
        for begun, group in groups.items():
            if (not begun or begun in beginnings) and (ids := group.allowed(mask)):
                may_come[begun] = ids
        for begun, ids in may_come.items():
            if not begun and frame.log.alive == frame.count:
                continue
            lead = self._lead(self._tokens.texts[ids[0]], begun)
            if lead is None:
                continue
            if _Search(self._probe, frame, b"", lead).is_dead(begun):
                for each in groups.values() if not begun else [groups[begun]]:
                    each.clear(mask)
            elif not begun:
                frame.log.alive = frame.count

    def _lead(self, token: bytes, begun: bytes) -> bytes | None:
        """What a token writes before the name that it begins, up to the quote."""
        if begun:
            return token[: len(token) - len(begun)]
        head = token.rstrip(BLANKS)
        head = head.removesuffix(b'"')
        for _ in range(_LONGEST_BLANKS):
            following = self._probe.following(head)
            if following is None:
                return None
            if ord('"') in following:
                return head + b'"'
            blanks = following.intersection(BLANKS)
            if not blanks:
                return None
            head += bytes([min(blanks)])
        return None


class _Search:
    """Looks for a new name behind the beginnings of old ones."""

    def __init__(self, probe: Probe, frame: Frame, begun: bytes, lead: bytes) -> None:
        """begun: what the text has of the name; lead: what comes before the rest of it."""
        self._probe = probe
        self._frame = frame
        self._begun = len(begun)
        self._lead = lead
        self._beginnings = _beginnings(frame)
        self._left = _MOST_QUESTIONS

    def is_dead(self, beginning: bytes) -> bool:
        """Whether all names with a beginning are there already."""
        dead = self._frame.log.dead
        if beginning not in dead and self._left:
            self._left -= 1
            following = self._probe.following(self._lead + beginning[self._begun :])
            if following is not None and self._are_old(beginning, following):
                dead.add(beginning)
        return beginning in dead

    def _are_old(self, beginning: bytes, following: set[int]) -> bool:
        if not _is_escape(beginning) and ord('"') in following:
            if not self._frame.has(beginning):
                return False
            following.discard(ord('"'))
        longer = [beginning + bytes([byte]) for byte in following]
        return all(each in self._beginnings for each in longer) and all(map(self.is_dead, longer))


def _beginnings(frame: Frame) -> set[bytes]:
    """All beginnings of the names that are in an object."""
    log = frame.log
    if log.beginnings[0] != frame.count:
        names = [name for name in frame.values() if isinstance(name, bytes)]
        found = {name[:end] for name in names for end in range(len(name) + 1)}
        log.beginnings = (frame.count, found)
    return log.beginnings[1]


def _is_escape(beginning: bytes) -> bool:
    """Whether the next character is escaped."""
    return (len(beginning) - len(beginning.rstrip(b"\\"))) % 2 == 1


def _frames(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.parent
