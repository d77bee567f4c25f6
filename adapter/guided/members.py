"""Keeps the names of each object of a JSON text apart, and the items of arrays that want it.

No library holds either: to a grammar the names of an object are as many as there are, and it
remembers none. A token in which a name (an item) would end that is there already is cleared, and so
is one behind which only such names could end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.guided.json_place import IN_KEY, KEY_ESCAPE, SCALAR, Frame, Place, Reader, scalar
from adapter.guided.matcher import Mask, Matcher
from adapter.guided.member_ends import NameEnds, Probe
from adapter.guided.member_tokens import Group, MemberTokens, start_of
from adapter.guided.program import Members


class MemberMatcher:
    """The names and items of a text so far."""

    def __init__(
        self, tokens: MemberTokens, members: Members, others: Sequence[Matcher] = ()
    ) -> None:
        """others: what else holds the text, and says which names may come."""
        self._tokens = tokens
        self._reader = Reader(members)
        self._text = bytearray()
        self._places = [self._reader.begin()]
        self._known: tuple[Frame | None, int, list[Group]] = (None, -1, [])
        """The frame and start of the last suspects, and these."""
        self._ends = NameEnds(tokens, self._reader, Probe(tokens, others))

    def narrow(self, mask: Mask) -> None:
        """Clear the tokens that repeat a name or an item, or lead where all would."""
        place = self._places[-1]
        frame = place.frame
        if place.mode >= IN_KEY and frame is not None:
            self._narrow_string(place, frame, mask)
        elif place.mode == SCALAR and frame is not None and self._reader.is_unique(frame):
            self._narrow_number(place, frame, mask)
        refused = [
            token
            for group in self._suspects(place)
            for token in group.allowed(mask)
            if self._reader.after(place, self._tokens.texts[token], self._text) is None
        ]
        if refused:
            Group(refused).clear(mask)
        if self._reader.has_bounds:
            self._ends.narrow(place, self._text, mask)

    def _narrow_string(self, place: Place, frame: Frame, mask: Mask) -> None:
        is_name = place.mode in (IN_KEY, KEY_ESCAPE)
        if not frame.count or not (is_name or self._reader.is_unique(frame)):
            return
        begun = bytes(self._text[place.start : place.length])
        closing = self._tokens.closing[start_of(place.mode)]
        for value in frame.values():
            if isinstance(value, bytes) and value.startswith(begun):
                group = closing.get(value[len(begun) :] + b'"')
                if group is not None:
                    group.clear(mask)

    def _narrow_number(self, place: Place, frame: Frame, mask: Mask) -> None:
        begun = bytes(self._text[place.start : place.length])
        for end, group in self._tokens.number_ends.items():
            if frame.has(scalar(begun + end)):
                group.clear(mask)

    def _suspects(self, place: Place) -> list[Group]:
        """The tokens that hold a name or an item as a whole that is there already, somewhere."""
        start = start_of(place.mode)
        frame, known, groups = self._known
        if frame is not place.frame or known != start:
            groups = self._find_suspects(place.frame, start)
            self._known = (place.frame, start, groups)
        return groups

    def _find_suspects(self, frame: Frame | None, start: int) -> list[Group]:
        index = self._tokens.indexes[start]
        groups = [index.many_names]
        if self._reader.has_unique:
            groups.append(index.many_items)
        while frame is not None:
            if frame.count:
                groups += (
                    _common(index.names, frame) if frame.is_object else _common(index.items, frame)
                )
            frame = frame.parent
        return [group for group in groups if len(group.ids)]

    def advance(self, token: int) -> bool:
        """Take the next token, False where it repeats a name or an item."""
        place = self._reader.after(self._places[-1], self._tokens.texts[token], self._text)
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


def _common(groups: Mapping[Any, Group], frame: Frame) -> list[Group]:
    """The groups of the values that are in an object or array."""
    if len(groups) < frame.count:
        return [group for value, group in groups.items() if frame.has(value)]
    return [groups[value] for value in frame.values() if value in groups]
