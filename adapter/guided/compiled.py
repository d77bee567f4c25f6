"""The engine's side of compiling: programs become guides, off the scheduler's thread.

Each library has a thread of its own, which stands back for the engine's; what is compiled is kept
and shared by all texts of the same constraint.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from adapter.guided.blanks import DEFAULT
from adapter.guided.libraries import LIBRARIES, Libraries, Maker
from adapter.guided.matcher import Guide
from adapter.guided.program import Library, Part, Program
from adapter.guided.vocabulary import Vocabulary

_KEPT_PARTS = 256
_NICENESS = 10


class Compiler:
    """Compiles programs for one engine."""

    def __init__(self, read_vocabulary: Callable[[], Vocabulary]) -> None:
        """read_vocabulary: called once, on a thread of this compiler's."""
        self._read_vocabulary = read_vocabulary
        self._lock = threading.Lock()
        self._libraries: Libraries | None = None
        self._threads = {
            library: ThreadPoolExecutor(1, f"guided-{library}", initializer=_stand_back)
            for library in LIBRARIES
        }
        self._kept: OrderedDict[Part, Maker] = OrderedDict()

    def warm(self) -> None:
        """Load the tables of all libraries, in the background."""
        for library in LIBRARIES:
            self._threads[library].submit(self._load, library)

    def submit(self, program: Program) -> "Future[Guide]":
        """The guide of a new text, when it is compiled."""
        # The slowest part comes last, and its library's thread does them all.
        return self._threads[program.parts[-1].library].submit(self._guide, program)

    def close(self) -> None:
        """End all threads; what they work on is finished first."""
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _load(self, library: Library) -> None:
        with self._lock:
            if self._libraries is None:
                self._libraries = Libraries(self._read_vocabulary())
                self._libraries.blank_runs(DEFAULT).warm()
            self._libraries.backend(library)

    def _guide(self, program: Program) -> Guide:
        makers = [self._maker(part) for part in program.parts]
        assert self._libraries is not None
        return self._libraries.guide(program, makers)

    def _maker(self, part: Part) -> Maker:
        with self._lock:
            maker = self._kept.get(part)
            if maker is not None:
                self._kept.move_to_end(part)
                return maker
        self._load(part.library)
        assert self._libraries is not None
        maker = self._libraries.compile(part)
        with self._lock:
            self._kept[part] = maker
            while len(self._kept) > _KEPT_PARTS:
                self._kept.popitem(last=False)
        return maker


def _stand_back() -> None:
    """Give this thread a lower priority than the engine's; on Linux a thread has its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
