"""What runs in a process that reads bodies: `python -m adapter.reading.worker`.

Parsing holds Python's lock until it is done, so that no thread could do it beside the event loop.
A body that takes too long, or too much memory, ends the process and nobody else.
"""

import gc
import os
import pickle
import resource
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from adapter.errors import InvalidRequest
from adapter.planning.facts import ServerFacts
from adapter.reading.messages import CPU_SECONDS, HEADER, WALL_FACTOR, Answer, packed
from adapter.reading.read import read

_NICENESS = 2
"""Towards the engine's threads."""
_BODY_BYTES = 4 * 2**30
"""Memory that one body may take: 16 MiB of empty lists take half of it."""


def work(requests: BinaryIO, answers: BinaryIO) -> None:
    """Take the server's facts, then bodies, until the other side closes."""
    facts: ServerFacts = pickle.loads(_message(requests) or b"")
    while (body := _message(requests)) is not None:
        # Without a handler a timer ends the process at once, whatever it is doing.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, CPU_SECONDS * WALL_FACTOR)
        content = packed(_answer(body, facts))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(HEADER.pack(len(content)))
        answers.write(content)
        answers.flush()
        del body, content
        gc.collect()


def _answer(body: bytes, facts: ServerFacts) -> Answer:
    try:
        return read(body, facts)
    except InvalidRequest as refused:
        return refused.with_traceback(None)


def _message(stream: BinaryIO) -> bytes | None:
    """The next message; None at the end."""
    header = stream.read(HEADER.size)
    return stream.read(*HEADER.unpack(header)) if len(header) == HEADER.size else None


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _BODY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    os.nice(_NICENESS)
    gc.disable()  # what a body holds has no circles, and looking for some takes most of the time
    _bound_memory()
    work(sys.stdin.buffer, sys.stdout.buffer)
