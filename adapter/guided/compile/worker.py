"""What runs in the processes that compile: `python -m adapter.guided.compile.worker`.

One process of a server, the fork server, loads the libraries and their tables once, and is then
only forked: each worker is a copy that takes requests one after another over a socket of its own. A
worker that works longer than its request allows is ended by the kernel, whatever it is doing, and
with it all memory that the request took. When the server is gone, so are they: the sockets close.
"""

import contextlib
import gc
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
from adapter.guided.compile.compiler import ConstraintCompiler, Refused
from adapter.guided.compile.messages import (
    HEADER,
    LOAD_ORDER,
    READY,
    WALL_FACTOR,
    Message,
    encoded,
    requested_constraint,
)
from adapter.guided.compile.validation import text_fault
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.vocabulary import Vocabulary
from adapter.languages.json_schema.documents import METASCHEMAS, Documents, documents_in

# Memory that one request may take: outlines fills 85 MB a second while it builds an index.
_REQUEST_BYTES = 2 * 2**30


def serve(control: socket.socket, vocabulary: Path, folder: Path, documents: Documents) -> None:
    """Load the libraries, and start a worker for each socket that comes over `control`.

    folder: its own. documents: what schemas may refer to beside themselves.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel clears away ended workers
    compiler = ConstraintCompiler(Libraries(Vocabulary.load(vocabulary)), folder, documents)
    cold = list(LOAD_ORDER)
    while True:
        # What is not loaded yet is loaded between the requests for workers.
        control.settimeout(0.001 if cold else None)
        try:
            request, descriptors, _, _ = socket.recv_fds(control, 2, 1)
        except TimeoutError:
            _warm(compiler, cold.pop(0))
            continue
        if not request:  # the server is gone
            shutil.rmtree(folder, ignore_errors=True)
            return
        niceness, needed = request
        while LOAD_ORDER[needed] in cold:
            _warm(compiler, cold.pop(0))
        _start_worker(control, socket.socket(fileno=descriptors[0]), niceness, compiler)


def _warm(compiler: ConstraintCompiler, backend: str) -> None:
    """Load a library, and make what it makes once, so that no worker has to."""
    for kind, text in _WARM_UP.items():
        # One that is not installed, or broken, fails again in the worker that needs it, which says
        # so.
        with contextlib.suppress(Exception):
            compiler.compile(Constraint(kind, kind, text, backend), relaxed=True)


_WARM_UP = {
    Kind.REGEX: r"(?i:a)\w\W",
    Kind.JSON: '{"type": "object", "properties": {"a": {"type": "string"}}}',
    Kind.GRAMMAR: 'start: "a"',
}


def _start_worker(
    control: socket.socket, connection: socket.socket, niceness: int, compiler: ConstraintCompiler
) -> None:
    # A search for garbage in a worker leaves the libraries out, whose pages it would copy.
    gc.freeze()
    if os.fork():
        connection.close()
        return
    status = 1
    try:
        control.close()
        os.nice(niceness)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work(connection, compiler)
        status = 0
    finally:
        os._exit(status)  # nothing that the parent holds is closed or written twice


def work(connection: socket.socket, compiler: ConstraintCompiler) -> None:
    """Take requests until the other side closes."""
    tasks: dict[str, Callable[[Message], Message]] = {
        "compile": lambda request: _compile(compiler, request),
        "check": lambda request: _check(request, compiler.documents),
    }
    connection.sendall(READY)
    reader = connection.makefile("rb")
    while header := reader.read(HEADER.size):
        request = json.loads(reader.read(*HEADER.unpack(header)))
        started = time.process_time()
        # Without a handler a timer ends the process at once, inside any library's code.
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] * WALL_FACTOR)
        _bound_memory()
        answer = tasks[request["task"]](request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer["seconds"] = time.process_time() - started
        connection.sendall(encoded(answer))


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _REQUEST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _check(request: Message, documents: Documents) -> Message:
    return {"fault": text_fault(request["schema"], request["text"], documents)}


def _compile(compiler: ConstraintCompiler, request: Message) -> Message:
    constraint = requested_constraint(request)
    try:
        compiled = compiler.compile(
            constraint, relaxed=request["relaxed"], seconds=request["seconds"]
        )
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
        "program": compiled.program.dumps(),
        "backend": compiled.backend,
        "checked": compiled.checked,
    }


if __name__ == "__main__":
    number, vocabulary_path, own_folder, *others = sys.argv[1:]
    serve(
        socket.socket(fileno=int(number)),
        Path(vocabulary_path),
        Path(own_folder),
        documents_in(Path(others[0])) if others else METASCHEMAS,
    )
    os._exit(0)  # the server may be waiting, and torch takes seconds to leave
