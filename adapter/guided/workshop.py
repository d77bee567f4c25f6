"""The processes that compile constraints: `python -m adapter.guided.workshop`.

One process of a server loads the libraries and their tables once, and is then only forked: each
worker is a copy that takes jobs one after another over a socket of its own. A worker that works
longer than its job allows is ended by the kernel, whatever it is doing, and with it all memory that
the job took. When the server is gone, so are they: the sockets close.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapter.guided.jobs import HEADER, READY, Job, constraint_of_job
from adapter.guided.libraries import LIBRARIES, Libraries
from adapter.guided.pattern import parse
from adapter.guided.plan import Planner, Refused
from adapter.guided.validation import text_fault
from adapter.guided.vocabulary import Vocabulary

# Memory that one job may take: outlines fills 85 MB a second while it builds an index.
_JOB_BYTES = 2 * 2**30


def serve(control: socket.socket, vocabulary_path: Path, folder: Path) -> None:
    """Load the libraries, and start a worker for each socket that comes over `control`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel clears away ended workers
    parse("a")  # makes its tables of characters
    libraries = Libraries(Vocabulary.load(vocabulary_path))
    planner = Planner(libraries, folder)
    waiting = list(LIBRARIES)
    while True:
        # Between requests the libraries are loaded, so that the first one finds them there.
        control.settimeout(0.01 if waiting else None)
        try:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        except TimeoutError:
            _load(libraries, waiting.pop(0))
            continue
        if not message:  # the server is gone
            shutil.rmtree(folder, ignore_errors=True)
            return
        _start_worker(control, socket.socket(fileno=descriptors[0]), message[0], planner)


def _load(libraries: Libraries, library: Any) -> None:
    # One that is not installed, or broken, fails again in the worker that needs it, which says so.
    with contextlib.suppress(Exception):
        libraries.backend(library)


def _start_worker(
    control: socket.socket, connection: socket.socket, niceness: int, planner: Planner
) -> None:
    if os.fork():
        connection.close()
        return
    status = 1
    try:
        control.close()
        os.nice(niceness)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work(connection, planner)
        status = 0
    finally:
        os._exit(status)  # nothing that the parent holds is closed or written twice


def work(connection: socket.socket, planner: Planner) -> None:
    """Take jobs until the other side closes."""
    tasks: dict[str, Callable[[Job], Job]] = {
        "plan": lambda job: _plan(planner, job),
        "check": lambda job: {"fault": text_fault(json.loads(job["schema"]), job["text"])},
    }
    connection.sendall(READY)
    reader = connection.makefile("rb")
    while header := reader.read(HEADER.size):
        job = json.loads(reader.read(*HEADER.unpack(header)))
        # Without a handler the alarm ends the process at once, inside any library's code.
        signal.setitimer(signal.ITIMER_REAL, job["seconds"])
        _bound_memory()
        answer = tasks[job["task"]](job)
        signal.setitimer(signal.ITIMER_REAL, 0)
        content = json.dumps(answer).encode()
        connection.sendall(HEADER.pack(len(content)) + content)


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _JOB_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _plan(planner: Planner, job: Job) -> Job:
    constraint = constraint_of_job(job)
    try:
        plan = planner.plan(constraint, relaxed=job["relaxed"])
    except Refused as refused:
        return {"refused": refused.message, "field": refused.field}
    except ImportError as error:
        return {"refused": f"{constraint.backend} is not installed here: {error}"}
    except (MemoryError, RecursionError):
        return {"refused": f"{constraint.field} is too large or too deep to be compiled."}
    return {
        "program": plan.program.dumps(),
        "backend": plan.backend,
        "checked": plan.checked,
    }


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]))
    os._exit(0)  # the server may be waiting, and torch takes seconds to leave
