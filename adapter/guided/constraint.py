"""What a text has to satisfy, and who can be asked to hold it there."""

import re
from dataclasses import dataclass
from enum import StrEnum

MAX_TEXT = 2**20
"""Characters of a constraint: a schema or a grammar as text, all choices together."""


class Kind(StrEnum):
    """What a constraint is."""

    JSON = "json"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"


AUTO = "auto"
GUIDANCE = "guidance"
LM_FORMAT_ENFORCER = "lm-format-enforcer"
OUTLINES = "outlines"
XGRAMMAR = "xgrammar"

# An escaped NUL: the backslash before the u is not itself escaped.
_NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

BACKENDS = (AUTO, GUIDANCE, LM_FORMAT_ENFORCER, OUTLINES, XGRAMMAR)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a text has to satisfy."""

    field: str
    """The request's field, for messages."""
    kind: Kind
    text: str
    """The schema as JSON, the expression, the grammar, or the choices as a JSON list."""
    backend: str
    """One of BACKENDS: what the request named, or the server's default."""
    whitespace: str | None = None
    """A pattern for the whitespace between JSON tokens."""


def holds_nul(kind: Kind, text: str) -> bool:
    """Whether a constraint's text holds a NUL."""
    escaped = kind in (Kind.JSON, Kind.CHOICE) and _NUL_IN_JSON.search(text) is not None
    return escaped or "\0" in text
