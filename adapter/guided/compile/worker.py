"""The processes that compile constraints: `python -m adapter.guided.compile.worker`.

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
import time
from collections.abc import Callable
from pathlib import Path

from adapter.errors import one_line
from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import Planner, Refused
from adapter.guided.compile.messages import (
    HEADER,
    LOADED,
    READY,
    WALL_FACTOR,
    Job,
    constraint_of_job,
)
from adapter.guided.compile.validation import text_fault
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.vocabulary import Vocabulary

# Memory that one job may take: outlines fills 85 MB a second while it builds an index.
_JOB_BYTES = 2 * 2**30


def serve(control: socket.socket, vocabulary_path: Path, folder: Path) -> None:
    """Load the libraries, and start a worker for each socket that comes over `control`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel clears away ended workers
    planner = Planner(Libraries(Vocabulary.load(vocabulary_path)), folder)
    cold = list(LOADED)
    while True:
        # What is not loaded yet is loaded between the requests for workers.
        control.settimeout(0.001 if cold else None)
        try:
            message, descriptors, _, _ = socket.recv_fds(control, 2, 1)
        except TimeoutError:
            _warm(planner, cold.pop(0))
            continue
        if not message:  # the server is gone
            shutil.rmtree(folder, ignore_errors=True)
            return
        niceness, needed = message
        while LOADED[needed] in cold:
            _warm(planner, cold.pop(0))
        _start_worker(control, socket.socket(fileno=descriptors[0]), niceness, planner)


def _warm(planner: Planner, backend: str) -> None:
    """Load a library, and make what it makes once, so that no worker has to."""
    for kind, text in _FIRST.items():
        # One that is not installed, or broken, fails again in the worker that needs it, which says
        # so.
        with contextlib.suppress(Exception):
            planner.plan(Constraint(kind, kind, text, backend), relaxed=True)


_FIRST = {
    Kind.REGEX: r"(?i:a)\w\W",
    Kind.JSON: '{"type": "object", "properties": {"a": {"type": "string"}}}',
    Kind.GRAMMAR: 'start: "a"',
}


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
        started = time.process_time()
        # Without a handler a timer ends the process at once, inside any library's code.
        signal.setitimer(signal.ITIMER_PROF, job["seconds"])
        signal.setitimer(signal.ITIMER_REAL, job["seconds"] * WALL_FACTOR)
        _bound_memory()
        answer = tasks[job["task"]](job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer["seconds"] = time.process_time() - started
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
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}", 200)
        return {"refused": f"{constraint.field} cannot be read by {constraint.backend}: {why}."}
    return {
        "program": plan.program.dumps(),
        "backend": plan.backend,
        "checked": plan.checked,
    }


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]))
    os._exit(0)  # the server may be waiting, and torch takes seconds to leave
