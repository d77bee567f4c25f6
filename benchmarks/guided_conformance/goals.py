"""The way of a JSON text to its end: where it stands, and which name or value it still needs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_BLANKS = b" \t\n\r"
_VALUES = (b"0", b"6", b"1", b"true", b"null", b'""', b"[]", b"{}")
"""What an array may wait for, beside the values that a schema names."""


@dataclass(frozen=True)
class Hints:
    """What a text of a schema may have to hold before it can end, as JSON."""

    names: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, schema: Any) -> "Hints":
        """Its names that are asked for and its fixed values, wherever they stand."""
        names: dict[bytes, None] = {}
        values: dict[bytes, None] = {}
        waiting = [schema]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                names |= dict.fromkeys(map(_as_json, _asked_for(node)))
                fixed = _list(node.get("enum")) + ([node["const"]] if "const" in node else [])
                values |= dict.fromkeys(map(_as_json, fixed))
                waiting += node.values()
            elif isinstance(node, list):
                waiting += node
        return cls(tuple(names), tuple(values))


def _asked_for(node: dict[str, Any]) -> list[Any]:
    """Names that a schema object asks for: itself, where others are, or by what is not."""
    needed = node.get("dependentRequired")
    unwanted = node.get("not")
    declared = unwanted.get("properties") if isinstance(unwanted, dict) else None
    return [
        *_list(node.get("required")),
        *(name for each in (needed.values() if isinstance(needed, dict) else ()) for name in each),
        *(declared if isinstance(declared, dict) else ()),
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


@dataclass
class Goals:
    """Follows a text, and says what it is to go on with."""

    hints: Hints
    choose: Callable[[int], int]
    """A random number below another."""
    goal: bytes = b""
    """What is left of the name or value that is being written."""
    in_string: bool = False
    _open: bytes = b""
    _escaped: bool = False
    _last: int = 0
    """The last byte outside strings that is no blank."""
    _left: dict[str, list[bytes]] = field(default_factory=dict)

    def take(self, text: bytes) -> None:
        """Take what was written."""
        for byte in text:
            self._take(byte)
        self.goal = self.goal[len(text) :] if self.goal.startswith(text) else b""

    def _take(self, byte: int) -> None:
        if self.in_string:
            self.in_string = self._escaped or byte != ord('"')
            self._escaped = not self._escaped and byte == ord("\\")
            return
        if byte in b"{[":
            self._open += bytes([byte])
        elif byte in b"}]":
            self._open = self._open[:-1]
        if byte not in _BLANKS:
            self._last = byte
        self.in_string = byte == ord('"')

    def closers(self) -> bytes:
        """The bytes that close what is open."""
        return b'"' if self.in_string else b"}])"

    def aim(self) -> None:
        """Where a name or value begins, choose the one to write: each in its turn, mostly."""
        if self.in_string or (self._last and self._last not in b"{[,:"):
            return
        kind = "name" if self._open.endswith(b"{") and self._last != ord(":") else "value"
        self.goal = self._chosen(kind) if self.choose(5) > 1 else b""

    def _chosen(self, kind: str) -> bytes:
        values: Sequence[bytes] = self.hints.values if self.choose(3) else _VALUES
        hints = self.hints.names if kind == "name" else values
        if not hints:
            return b""
        if values is _VALUES and kind == "value":
            return _VALUES[self.choose(len(_VALUES))]
        left = self._left.get(kind) or list(hints)
        goal = left.pop(self.choose(len(left)))
        self._left[kind] = left
        return goal
