"""From a request to its one constraint, before any library is asked."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from adapter.contract.request import CompletionV2Request
from adapter.errors import InvalidRequest, NotSupported

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


def constraint_of(request: CompletionV2Request, default_backend: str) -> Constraint | None:
    """The constraint of a request, None where it has none.

    Raises:
        InvalidRequest: two constraints, or one that no text could be.
        NotSupported: an unknown backend, or a combination that cannot be honoured.
    """
    backend = _backend(request) or default_backend
    given = list(_given(request))
    if len(given) > 1:
        names = " and ".join(field for field, _, _ in given[:2])
        raise InvalidRequest(
            f"{names} cannot be combined: a request has one constraint at most.", param=given[1][0]
        )
    if not given:
        _refuse_whitespace(request, "there is none")
        return None
    field, kind, text = given[0]
    if kind not in (Kind.JSON, Kind.JSON_OBJECT):
        _refuse_whitespace(request, f"{field} is none")
    _check_text(field, kind, text)
    if request.use_beam_search:
        raise NotSupported(
            f"{field} and use_beam_search cannot be combined: the engine cannot hold a constraint "
            "over beams that part and join.",
            param=field,
        )
    if kind is Kind.GRAMMAR and backend == LM_FORMAT_ENFORCER:
        raise NotSupported(
            f"guided_decoding_backend {LM_FORMAT_ENFORCER} has no grammars, so it cannot do "
            "guided_grammar: leave it out, or name guidance, xgrammar or outlines.",
            param="guided_decoding_backend",
        )
    return Constraint(field, kind, text, backend, request.guided_whitespace_pattern)


def _given(request: CompletionV2Request) -> "list[tuple[str, Kind, str]]":
    """The constraints that a request holds: field, kind and text."""
    found: list[tuple[str, Kind, str]] = []
    if request.guided_json is not None:
        found.append(("guided_json", Kind.JSON, json.dumps(request.guided_json)))
    if request.guided_regex is not None:
        found.append(("guided_regex", Kind.REGEX, request.guided_regex))
    if request.guided_choice is not None:
        if not request.guided_choice:
            raise InvalidRequest("guided_choice must not be an empty list.", param="guided_choice")
        found.append(("guided_choice", Kind.CHOICE, json.dumps(request.guided_choice)))
    if request.guided_grammar is not None:
        found.append(("guided_grammar", Kind.GRAMMAR, request.guided_grammar))
    if (response_format := _response_format(request)) is not None:
        found.append(("response_format", *response_format))
    return found


def _response_format(request: CompletionV2Request) -> tuple[Kind, str] | None:
    asked = request.response_format
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object" or asked.json_schema.schema_ is None:
        return Kind.JSON_OBJECT, '{"type": "object"}'
    return Kind.JSON, json.dumps(asked.json_schema.schema_.model_extra or {})


def _backend(request: CompletionV2Request) -> str | None:
    name = request.guided_decoding_backend
    if name is not None and name not in BACKENDS:
        raise NotSupported(
            f"guided_decoding_backend must be one of {', '.join(BACKENDS)}, not {name[:100]!r}.",
            param="guided_decoding_backend",
        )
    return name


def _refuse_whitespace(request: CompletionV2Request, why: str) -> None:
    if request.guided_whitespace_pattern is not None:
        raise NotSupported(
            "guided_whitespace_pattern has a meaning with a JSON constraint only (guided_json or a "
            f"JSON response_format), and {why}.",
            param="guided_whitespace_pattern",
        )


def _check_text(field: str, kind: Kind, text: str) -> None:
    if len(text) > MAX_TEXT:
        raise InvalidRequest(
            f"{field} is too large: {len(text)} characters as text, and {MAX_TEXT} are allowed.",
            param=field,
        )
    # NUL ends strings in the C libraries behind grammars.
    in_json = kind in (Kind.JSON, Kind.CHOICE) and _NUL_IN_JSON.search(text)
    if "\0" in text or in_json:
        raise InvalidRequest(f"{field} must not hold a NUL character.", param=field)
