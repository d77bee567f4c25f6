"""The engine's side: loads programs, so that they become guides, off the scheduler's thread.

A program's parts are compiled again, or read from the index that came with them. Each library has
threads of its own, with a niceness towards the engine's; what is compiled is cached, and shared by
all texts of the same constraint.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from adapter.guided.backends.registry import LIBRARIES, Libraries, Maker
from adapter.guided.matcher import Guide
from adapter.guided.program import NO_FOCUS, Focus, Library, Part, Program
from adapter.guided.vocabulary import Vocabulary
from adapter.guided.whitespace import DEFAULT

# Threads for each library: one slow constraint does not keep the next one waiting.
_THREADS = 4

# Of all these threads: the engine's own come first.
_NICENESS = 10

_CACHE_BYTES = 2**29

T = TypeVar("T")


class ProgramLoader:
    """Loads programs for one engine."""

    def __init__(self, read_vocabulary: Callable[[], Vocabulary]) -> None:
        """read_vocabulary: called once, on a thread of this loader's."""
        self._read_vocabulary = read_vocabulary
        self._loading = threading.Lock()
        self._libraries: Libraries | None = None
        self._threads = {
            library: ThreadPoolExecutor(_THREADS, f"guided-{library}", initializer=_set_niceness)
            for library in LIBRARIES
        }
        self._cache = _MakerCache()

    def warm(self) -> None:
        """Load the tables of all libraries, in the background."""
        for library in LIBRARIES:
            self._threads[library].submit(self._libraries_with, library)

    def load(self, program: Program, focus: Focus = NO_FOCUS) -> "Future[Guide]":
        """The guide of a text, when all parts of its program are loaded."""
        guide: Future[Guide] = Future()
        makers = [self._cache.maker(part, self._start) for part in program.parts]
        library: Library = program.parts[-1].library if program.parts else "guidance"

        def make() -> None:
            _run(guide, self._threads[library], lambda: self._guide(program, focus, makers))

        # No thread waits: the last part that is ready goes on.
        left = iter(range(len(makers) - 1, -1, -1))

        def ready(_: "Future[Maker]") -> None:
            if next(left) == 0:
                make()

        for maker in makers:
            maker.add_done_callback(ready)
        if not makers:
            make()
        return guide

    def close(self) -> None:
        """End all threads; what they work on is finished first."""
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _libraries_with(self, library: Library) -> Libraries:
        with self._loading:
            if self._libraries is None:
                self._libraries = Libraries(self._read_vocabulary())
                self._libraries.whitespace_runs(DEFAULT).warm()
                self._libraries.member_tokens.warm()
            self._libraries.backend(library)
            return self._libraries

    def _guide(self, program: Program, focus: Focus, makers: "Sequence[Future[Maker]]") -> Guide:
        libraries = self._libraries_with(program.parts[-1].library if program.parts else "guidance")
        return libraries.guide(program, [maker.result() for maker in makers], focus)

    def _start(self, part: Part, maker: "Future[Maker]") -> None:
        _run(maker, self._threads[part.library], lambda: self._compile(part))

    def _compile(self, part: Part) -> Maker:
        return self._libraries_with(part.library).compile(part)


def _run(future: "Future[T]", thread: ThreadPoolExecutor, work: Callable[[], T]) -> None:
    """Do some work on a thread, for a future that others wait for already."""

    def finish() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # a panic of a Rust library is no Exception
            future.set_exception(error)

    try:
        thread.submit(finish)
    except RuntimeError as error:  # the engine is ending
        future.set_exception(error)


class _MakerCache:
    """What was compiled, the least used left out where it takes too much memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._entries: OrderedDict[Part, Future[Maker]] = OrderedDict()

    def maker(self, part: Part, start: Callable[[Part, "Future[Maker]"], None]) -> "Future[Maker]":
        """The maker of a part, which the first who asks starts to compile."""
        with self._lock:
            found = self._entries.get(part)
            if found is not None:
                self._entries.move_to_end(part)
                return found
            maker: Future[Maker] = Future()
            self._entries[part] = maker
            self._bytes += _weight(part)
            self._drop_oldest()
        maker.add_done_callback(lambda done: self._forget_failed(part, done))
        start(part, maker)
        return maker

    def _forget_failed(self, part: Part, maker: "Future[Maker]") -> None:
        if maker.exception() is None:
            return
        with self._lock:
            if self._entries.pop(part, None) is not None:
                self._bytes -= _weight(part)

    def _drop_oldest(self) -> None:
        while self._bytes > _CACHE_BYTES and len(self._entries) > 1:
            part, _ = self._entries.popitem(last=False)
            self._bytes -= _weight(part)


def _weight(part: Part) -> int:
    """About how many bytes a compiled part takes: an index is the size of its file, and masks and
    automata grow with the text."""
    masks = 2**22 if part.library == "lm-format-enforcer" else 2**16
    return masks + 64 * len(part.text) + part.artifact_bytes


def _set_niceness() -> None:
    """Give this thread a lower priority than the engine's; on Linux a thread has its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
