"""Where a JSON text stands, byte by byte: its open arrays and objects, and what is in them.

What is made here never changes, but for the logs that the places of one text share; what a log
holds beyond a place's own count was taken back, and is overwritten when the text goes on.
"""

import json
import re
from collections.abc import Hashable
from functools import cache
from typing import Any

from adapter.guided.program import Members, Shape

# What comes next. In the last four the text is inside a string.
VALUE, SCALAR, AFTER, KEY, COLON, IN_KEY, KEY_ESCAPE, IN_VALUE, VALUE_ESCAPE = range(9)

BLANKS = b" \t\n\r"
_QUOTE_OR_BACKSLASH = re.compile(rb'["\\]')
_NUMBER = re.compile(rb"(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$")
_NOTHING = Shape()


class Log:
    """The names or items of one object or array, in order."""

    __slots__ = ("alive", "beginnings", "dead", "places", "values")

    def __init__(self) -> None:
        self.dead: set[bytes] = set()
        """Beginnings of names that lead to names alone that are in it."""
        self.beginnings: tuple[int, set[bytes]] = (0, set())
        """Of the names that are in it, and how many these are."""
        self.alive = -1
        """With how many values it is known that another name can come."""
        self.values: list[Hashable] = []
        self.places: dict[Hashable, int] = {}

    def put(self, value: Hashable, count: int) -> None:
        """Write a value behind the first `count`; those that came later were taken back."""
        if len(self.values) > count:
            self.dead.clear()
            self.alive = -1
            self.beginnings = (0, set())
        for old in self.values[count:]:
            del self.places[old]
        del self.values[count:]
        self.places[value] = count
        self.values.append(value)


class Frame:
    """An open array or object."""

    __slots__ = ("child", "count", "index", "is_object", "log", "parent", "shape", "start")

    def __init__(
        self,
        parent: "Frame | None",
        is_object: bool,
        shape: int | None,
        start: int,
        log: Log,
    ) -> None:
        self.parent = parent
        self.is_object = is_object
        self.shape = shape
        self.start = start
        """Where it begins in the text."""
        self.log = log
        self.count = 0
        """How many values of the log are in it."""
        self.index = 0
        """How many items have ended."""
        self.child: int | None = None
        """The shape of the value that is due, or not yet ended."""

    def has(self, value: Hashable) -> bool:
        """Whether a name or an item is in it."""
        return self.log.places.get(value, self.count) < self.count

    def values(self) -> list[Hashable]:
        """The names or items in it."""
        return self.log.values[: self.count]

    def changed(self, count: int, index: int, child: int | None) -> "Frame":
        """The same one, a step on."""
        new = Frame(self.parent, self.is_object, self.shape, self.start, self.log)
        new.count, new.index, new.child = count, index, child
        return new


class Place:
    """Where a text stands."""

    __slots__ = ("frame", "length", "mode", "start")

    def __init__(self, mode: int, frame: Frame | None, start: int, length: int) -> None:
        self.mode = mode
        self.frame = frame
        self.start = start
        """Where the string or scalar begins that has not ended; a string's, behind its quote."""
        self.length = length
        """Of the text, in bytes."""


class Reader:
    """Reads the texts of a program."""

    def __init__(self, members: Members) -> None:
        self._shapes = members.shapes
        self._bounded = members.bounded_names
        self.has_bounds = members.bounded_names or any(
            shape.bounded_names or shape.bounded_items for shape in self._shapes
        )
        self.has_unique = any(shape.unique for shape in self._shapes)
        self._members = [dict(shape.members) for shape in self._shapes]
        self._of_name = cache(self._find_name) if self._shapes else None
        self._root = 0 if self._shapes else None

    def begin(self) -> Place:
        """The place of an empty text."""
        return Place(VALUE, None, 0, 0)

    def shape(self, frame: Frame) -> Shape:
        """What is known of an array or object."""
        return _NOTHING if frame.shape is None else self._shapes[frame.shape]

    def is_unique(self, frame: Frame | None) -> bool:
        """Whether it is an array whose items are held apart."""
        return frame is not None and not frame.is_object and self.shape(frame).unique

    def has_few_names(self, frame: Frame) -> bool:
        """Whether all names that may come next in it may be there already."""
        if not frame.is_object:
            return False
        return self._bounded if frame.shape is None else self.shape(frame).bounded_names

    def after(self, place: Place, token: bytes, text: bytearray) -> Place | None:
        """The place behind a token, None where it ends a name or an item that is there already.

        text: all bytes before; the token's are written behind them.
        """
        del text[place.length :]
        text += token
        return _Run(self, place, text).run(len(token))

    def child_of_name(self, frame: Frame, name: bytes) -> int | None:
        """The shape of a member's value."""
        if frame.shape is None or self._of_name is None:
            return None
        return self._of_name(frame.shape, name)

    def child_of_item(self, frame: Frame) -> int | None:
        """The shape of an item."""
        return self.shape(frame).items

    def root_or_child(self, frame: Frame | None) -> int | None:
        """The shape of the value that is due."""
        return self._root if frame is None else frame.child

    def _find_name(self, shape: int, spelt: bytes) -> int | None:
        name = json.loads(b'"' + spelt + b'"')
        return self._members[shape].get(name, self._shapes[shape].others)


class _Run:
    """A token on its way through a text."""

    def __init__(self, reader: Reader, place: Place, text: bytearray) -> None:
        self._reader = reader
        self._text = text
        self._mode = place.mode
        self._frame = place.frame
        self._start = place.start
        self._at = place.length
        self._refused = False

    def run(self, length: int) -> Place | None:
        end = self._at + length
        while self._at < end:
            if self._mode >= IN_KEY:
                self._in_string()
            else:
                self._outside(self._text[self._at])
                self._at += 1
            if self._refused:
                return None
        return Place(self._mode, self._frame, self._start, end)

    def _in_string(self) -> None:
        if self._mode in (KEY_ESCAPE, VALUE_ESCAPE):
            self._mode -= 1
            self._at += 1
            return
        found = _QUOTE_OR_BACKSLASH.search(self._text, self._at)
        if found is None:
            self._at = len(self._text)
            return
        self._at = found.end()
        if found.group() == b"\\":
            self._mode += 1
            return
        spelt = bytes(self._text[self._start : self._at - 1])
        if self._mode == IN_KEY:
            self._name(spelt)
        else:
            self._value(spelt)

    def _name(self, name: bytes) -> None:
        frame = self._frame
        if frame is None or frame.has(name):
            self._refused = True
            return
        frame.log.put(name, frame.count)
        child = self._reader.child_of_name(frame, name)
        self._frame = frame.changed(frame.count + 1, 0, child)
        self._mode = COLON

    def _value(self, item: Hashable) -> None:
        """A string, number or word has ended."""
        self._mode = AFTER
        frame = self._frame
        if frame is None or not self._reader.is_unique(frame):
            return
        if frame.has(item):
            self._refused = True
            return
        frame.log.put(item, frame.count)
        self._frame = frame.changed(frame.count + 1, frame.index, frame.child)

    def _outside(self, byte: int) -> None:
        if self._mode == SCALAR:
            if byte not in b",]} \t\n\r":
                return
            self._value(scalar(bytes(self._text[self._start : self._at])))
        if byte in BLANKS:
            return
        if byte == ord('"'):
            self._mode = IN_KEY if self._mode == KEY else IN_VALUE
            self._start = self._at + 1
        elif byte in b"{[":
            self._open(byte == ord("{"))
        elif byte in b"}]":
            self._close()
        elif byte == ord(","):
            self._comma()
        elif byte == ord(":"):
            self._mode = VALUE
        else:
            self._scalar(byte)

    def _scalar(self, byte: int) -> None:
        self._mode, self._start = SCALAR, self._at
        # A word is known by its first letter: no way leads from there but to its end.
        word = WORDS.get(byte)
        if word is not None and self._reader.is_unique(self._frame):
            self._refused = self._frame is not None and self._frame.has(word)

    def _open(self, is_object: bool) -> None:
        shape = self._reader.root_or_child(self._frame)
        self._frame = Frame(self._frame, is_object, shape, self._at, Log())
        self._mode = KEY if is_object else VALUE
        if not is_object:
            self._frame.child = self._reader.child_of_item(self._frame)

    def _comma(self) -> None:
        frame = self._frame
        self._mode = VALUE
        if frame is None:
            return
        if frame.is_object:
            self._mode = KEY
            return
        index = frame.index + 1
        self._frame = frame.changed(frame.count, index, self._reader.child_of_item(frame))

    def _close(self) -> None:
        self._mode = AFTER
        inner = self._frame
        if inner is None:
            return
        self._frame = frame = inner.parent
        if frame is not None and self._reader.is_unique(frame):
            item = container(bytes(self._text[inner.start : self._at + 1]))
            if not frame.has(item):
                frame.log.put(item, frame.count)
                self._frame = frame.changed(frame.count + 1, frame.index, frame.child)


WORDS = {word[0]: (word,) for word in (b"true", b"false", b"null")}
"""The items that are words, by their first byte; as strings are their own bytes, these are not."""


def scalar(spelt: bytes) -> Hashable:
    """A number or word as an item: equal for equal values."""
    match = _NUMBER.match(spelt)
    if match is None:
        return (spelt,)
    sign, whole, fraction, exponent = match.groups()
    digits = (whole + (fraction or b"")).lstrip(b"0")
    if not digits:
        return ("number", b"", 0)
    kept = digits.rstrip(b"0")
    try:
        power = int(exponent or 0) - len(fraction or b"") + len(digits) - len(kept)
    except ValueError:  # Python reads no number that is so long
        return (spelt,)
    return ("number", sign + kept, power)


def container(spelt: bytes) -> Hashable:
    """An array or object as an item: equal for equal values."""
    try:
        return _frozen(json.loads(spelt, parse_int=_Number, parse_float=_Number))
    except (ValueError, RecursionError):
        return (spelt,)


class _Number(str):
    """A number as it is written."""


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return ("object", frozenset((name, _frozen(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return ("array", *map(_frozen, value))
    if isinstance(value, _Number):
        return scalar(value.encode())
    return value if isinstance(value, str) else ("word", value)
