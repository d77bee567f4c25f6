"""Least fixed points: what holds because what it rests on holds."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def settle(
    waiting: Iterable[T],
    inside: Callable[[T], Iterable[T]],
    holds: Callable[[T], bool],
    held: set[T],
) -> None:
    """Add to `held` each of those waiting that holds, given those held already.

    inside: what it may rest on; it is asked about again when one of these comes to hold.
    """
    asked = list(waiting)
    around: dict[T, list[T]] = {}
    for each in asked:
        for inner in inside(each):
            around.setdefault(inner, []).append(each)
    queue, queued = deque(asked), set(asked)
    while queue:
        each = queue.popleft()
        queued.discard(each)
        if each not in held and holds(each):
            held.add(each)
            for outer in around.get(each, ()):
                if outer not in held and outer not in queued:
                    queue.append(outer)
                    queued.add(outer)
