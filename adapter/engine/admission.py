"""Work that was admitted goes on, however full the engine has become meanwhile.

vLLM asks whether there is room whenever it gets a request of the engine's (check_admission). A beam
search is many of them, one after another, and so is a text that is made again: what has begun is
not to be cut off in its midst by callers that came later.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ADMITTED = ContextVar("admitted", default=False)


def is_admitted() -> bool:
    """Whether what is given to the engine now belongs to work that it has let in."""
    return _ADMITTED.get()


@contextmanager
def admission(*, admitted: bool) -> Iterator[None]:
    """Give to the engine what belongs to admitted work, or what is to be asked for."""
    before = _ADMITTED.set(admitted)
    try:
        yield
    finally:
        _ADMITTED.reset(before)
