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

# Threads for each library: one slow constraint does not keep the next one waiting. All threads
# stand back for the engine's own.
_THREADS = 4
_NICENESS = 10

_KEPT_BYTES = 2**29


class Compiler:
    """Compiles programs for one engine."""

    def __init__(self, read_vocabulary: Callable[[], Vocabulary]) -> None:
        """read_vocabulary: called once, on a thread of this compiler's."""
        self._read_vocabulary = read_vocabulary
        self._loading = threading.Lock()
        self._libraries: Libraries | None = None
        self._threads = {
            library: ThreadPoolExecutor(_THREADS, f"guided-{library}", initializer=_stand_back)
            for library in LIBRARIES
        }
        self._kept = _Makers()

    def warm(self) -> None:
        """Load the tables of all libraries, in the background."""
        for library in LIBRARIES:
            self._threads[library].submit(self._load, library)

    def submit(self, program: Program) -> "Future[Guide]":
        """The guide of a new text, when it is compiled."""
        # The slowest part comes last, and its library's threads do them all.
        return self._threads[program.parts[-1].library].submit(self._guide, program)

    def close(self) -> None:
        """End all threads; what they work on is finished first."""
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _load(self, library: Library) -> Libraries:
        with self._loading:
            if self._libraries is None:
                self._libraries = Libraries(self._read_vocabulary())
                self._libraries.blank_runs(DEFAULT).warm()
            self._libraries.backend(library)
            return self._libraries

    def _guide(self, program: Program) -> Guide:
        makers = [self._kept.maker(part, self._compile) for part in program.parts]
        return self._load(program.parts[-1].library).guide(program, makers)

    def _compile(self, part: Part) -> Maker:
        return self._load(part.library).compile(part)


class _Makers:
    """What was compiled, the least used left out where it takes too much memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._entries: OrderedDict[Part, Future[Maker]] = OrderedDict()

    def maker(self, part: Part, compile_part: Callable[[Part], Maker]) -> Maker:
        """The maker of a part, compiled by the first who asks; others wait for it."""
        with self._lock:
            found = self._entries.get(part)
            if found is None:
                mine: Future[Maker] = Future()
                self._entries[part] = mine
                self._bytes += _weight(part)
                self._drop_oldest()
            else:
                self._entries.move_to_end(part)
        if found is not None:
            return found.result()
        try:
            mine.set_result(compile_part(part))
        except Exception as error:
            mine.set_exception(error)
            with self._lock:
                if self._entries.pop(part, None) is not None:
                    self._bytes -= _weight(part)
        return mine.result()

    def _drop_oldest(self) -> None:
        while self._bytes > _KEPT_BYTES and len(self._entries) > 1:
            part, _ = self._entries.popitem(last=False)
            self._bytes -= _weight(part)


def _weight(part: Part) -> int:
    """About how many bytes a compiled part takes: an index is the size of its file, and masks and
    automata grow with the text."""
    return 2**16 + 64 * len(part.text) + part.artifact_bytes


def _stand_back() -> None:
    """Give this thread a lower priority than the engine's; on Linux a thread has its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
