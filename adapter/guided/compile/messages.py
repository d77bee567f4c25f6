"""What is said over the sockets between the server and the processes that compile."""

import json
import struct
from typing import Any

from adapter.guided.constraint import (
    AUTO,
    LM_FORMAT_ENFORCER,
    OUTLINES,
    XGRAMMAR,
    Constraint,
    Kind,
)

HEADER = struct.Struct("!I")
"""Before each message: its length in bytes. A message is JSON."""

READY = b"+"
"""What a worker says first."""

LOAD_ORDER = (AUTO, OUTLINES, LM_FORMAT_ENFORCER, XGRAMMAR)
"""The order in which the libraries are loaded: the one that takes seconds last."""

WALL_FACTOR = 2
"""A request is ended when it has used its `seconds` of CPU time, or when so many times as long has
passed: on a busy machine it is not its own fault where it does not get on."""

Message = dict[str, Any]


def encoded(message: Message) -> bytes:
    """The message as it is sent, behind its header."""
    content = json.dumps(message).encode()
    return HEADER.pack(len(content)) + content


def worker_request(niceness: int, backend: str) -> bytes:
    """What the fork server is asked for a worker with: two bytes, the niceness and what it needs.

    backend: the library that has to be loaded; any other name stands for "auto".
    """
    return bytes([niceness, LOAD_ORDER.index(backend if backend in LOAD_ORDER else AUTO)])


def compile_request(constraint: Constraint, *, relaxed: bool, seconds: float) -> Message:
    """Asks for a constraint's program. All answers have the CPU `seconds` that they took.

    It is answered with {"program", "backend", "checked"}, or {"refused", "field"}.
    """
    fields = {name: getattr(constraint, name) for name in Constraint.__slots__}
    return {"task": "compile", "constraint": fields, "relaxed": relaxed, "seconds": seconds}


def requested_constraint(request: Message) -> Constraint:
    """The constraint of a compile_request()."""
    fields = request["constraint"]
    return Constraint(**{**fields, "kind": Kind(fields["kind"])})


def check_request(schema: str, text: str, *, seconds: float) -> Message:
    """Asks whether a finished text is valid, answered with {"fault"}: null where it is."""
    return {"task": "check", "schema": schema, "text": text, "seconds": seconds}
