"""What is said over the sockets between the server and the processes that compile."""

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

LOADED = (AUTO, OUTLINES, LM_FORMAT_ENFORCER, XGRAMMAR)
"""The order in which the libraries are loaded: the one that takes seconds last. A worker is asked
for by two bytes, its niceness and the place here of what it needs."""

WALL_FACTOR = 2
"""A job is ended when it has used its `seconds` of CPU time, or when so many times as long has
passed: on a busy machine it is not its own fault where it does not get on."""

Job = dict[str, Any]


def plan_job(constraint: Constraint, *, relaxed: bool, seconds: float) -> Job:
    """A job that plans a constraint. All answers have the CPU `seconds` that the job took.

    It is answered with {"program", "backend", "checked"}, or {"refused", "field"}.
    """
    fields = {name: getattr(constraint, name) for name in Constraint.__slots__}
    return {"task": "plan", "constraint": fields, "relaxed": relaxed, "seconds": seconds}


def constraint_of_job(job: Job) -> Constraint:
    """The constraint of a plan_job()."""
    fields = job["constraint"]
    return Constraint(**{**fields, "kind": Kind(fields["kind"])})


def check_job(schema: str, text: str, *, seconds: float) -> Job:
    """A job that validates a finished text, answered with {"fault"}: null where it is right."""
    return {"task": "check", "schema": schema, "text": text, "seconds": seconds}
