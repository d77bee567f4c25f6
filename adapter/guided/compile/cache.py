"""What became of constraints, bounded by bytes."""

import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from adapter.guided.constraint import Constraint
from adapter.guided.program import Part

T = TypeVar("T")

# Bytes of an entry beside its texts and files.
_ENTRY_BYTES = 500


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    outcome: T
    size: int
    until: float
    """Of time.monotonic()."""
    files: tuple[str, ...]


class ConstraintCache(Generic[T]):
    """The outcome of each constraint; the least recently used goes where there are too many bytes.

    With an outcome go the files of its parts that no other outcome shares.
    """

    def __init__(self, limit: int) -> None:
        """limit: bytes; a single outcome may be larger."""
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[Constraint, _Entry[T]] = OrderedDict()
        self._users: Counter[str] = Counter()
        """How many entries have a file."""

    def get(self, constraint: Constraint) -> T | None:
        """What became of a constraint, None where that is not known any more."""
        entry = self._entries.get(constraint)
        if entry is None:
            return None
        if entry.until < time.monotonic():
            self._drop(constraint)
            return None
        self._entries.move_to_end(constraint)
        return entry.outcome

    def put(
        self,
        constraint: Constraint,
        outcome: T,
        size: int,
        *,
        parts: Sequence[Part] = (),
        seconds: float = float("inf"),
    ) -> None:
        """Keep an outcome of so many bytes, beside those of its parts' files, for so long."""
        size += _ENTRY_BYTES + len(constraint.text) + sum(part.artifact_bytes for part in parts)
        files = tuple(part.artifact for part in parts if part.artifact is not None)
        self._entries[constraint] = _Entry(outcome, size, time.monotonic() + seconds, files)
        self._users.update(files)
        self._bytes += size
        while self._bytes > self._limit and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _drop(self, constraint: Constraint) -> None:
        entry = self._entries.pop(constraint)
        self._bytes -= entry.size
        for file in entry.files:
            self._users[file] -= 1
            if not self._users[file]:
                del self._users[file]
                Path(file).unlink(missing_ok=True)
