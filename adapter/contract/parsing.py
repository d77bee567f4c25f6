"""How a body becomes a CompletionV2Request, or a refusal that names the field."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from adapter.contract.request import CompletionV2Request, ResponseFormatJsonSchema
from adapter.contract.wording import expectation
from adapter.errors import InvalidRequest
from adapter.languages import exact_json


def parse_request(body: bytes) -> CompletionV2Request:
    """The request that a body holds.

    Raises:
        InvalidRequest: naming the field, or saying why the body is no JSON object.
    """
    try:
        # pydantic-core's parser also takes NaN and Infinity, which are no JSON.
        if b"NaN" in body or b"Infinity" in body:
            _strict_json(body)
        request = CompletionV2Request.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, body) from None
    return _with_exact_schemas(request, body)


def _with_exact_schemas(request: CompletionV2Request, body: bytes) -> CompletionV2Request:
    """The request with its schemas' numbers as they were written: pydantic-core makes floats."""
    asked = request.response_format
    inner = asked.json_schema.schema_ if isinstance(asked, ResponseFormatJsonSchema) else None
    if (request.guided_json is None and inner is None) or not _LONG_NUMBER.search(body):
        return request
    exact = exact_json.loads(body)
    fields: dict[str, Any] = {}
    if request.guided_json is not None:
        fields["guided_json"] = exact["guided_json"]
    if inner is not None:
        given = exact["response_format"]
        fields["response_format"] = ResponseFormatJsonSchema.model_validate(given)
    return request.model_copy(update=fields)


# A number that a float may change: of more than 15 digits, or with an exponent of three.
_LONG_NUMBER = re.compile(rb"\d[\d.]{15,}|\d[eE][-+]?\d{3}")


def _strict_json(body: bytes) -> Any:
    """The parsed body, by the slow parser that says most about what is wrong."""

    def no_constant(name: str) -> None:
        raise InvalidRequest(f"The body is not valid JSON: {name} is not a JSON value.")

    try:
        return json.loads(body, parse_constant=no_constant)
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid JSON: it is not UTF-8 text.") from None
    except RecursionError:
        raise _nested_too_deeply(_too_deep(body)) from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from None
    except ValueError:
        raise InvalidRequest("The body is not valid JSON: a number has too many digits.") from None


def _refusal(error: ValidationError, body: bytes) -> InvalidRequest:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    if faults[0]["type"] == "json_invalid":
        if (field := _too_deep(body)) is not None:
            return _nested_too_deeply(field)
        path = _lone_surrogate(_strict_json(body))
        if path is not None:
            return InvalidRequest(f"{path}: a lone surrogate is not Unicode text.", param=path)
        why = faults[0]["msg"].removeprefix("Invalid JSON: ")
        return InvalidRequest(f"The body is not valid JSON: {why}.")
    fault = _telling(faults)
    if not fault["loc"]:
        return InvalidRequest("The body must be a JSON object.")
    field = str(fault["loc"][0])
    path = _path(fault["loc"])
    if fault["type"] == "missing" and path == field:
        return InvalidRequest(f"{field} is required.", param=field, code="missing_required_field")
    return InvalidRequest(f"{path} is not valid: {field} must be {expectation(field)}.", param=path)


def _nested_too_deeply(field: str | None) -> InvalidRequest:
    name = field or "The body"
    return InvalidRequest(
        f"{name} is nested too deeply: {_DEEPEST - 1} levels can be read.", param=field or None
    )


def _too_deep(body: bytes) -> str | None:
    """The field in which a body is nested deeper than can be read; "" where that is in none.

    None where it is not so deep.
    """
    depth, key = 0, b""
    for found in _STRUCTURE.finditer(body):
        text, is_key = found["text"], found["colon"]
        if text is None:
            depth += 1 if found[0] in b"[{" else -1
            if depth > _DEEPEST:
                return key.decode("utf-8", "replace")[:200]
        elif depth == 1 and is_key:
            key = text[1:-1]
    return None


# Strings, each with the colon that makes it a key, and brackets.
_STRUCTURE = re.compile(rb'(?P<text>"(?:[^"\\]|\\.)*+")(?P<colon>\s*:)?|[\[{}\]]', re.DOTALL)

# Levels that pydantic-core's parser reads, the body's own among them.
_DEEPEST = 201


def _telling(faults: Sequence[ErrorDetails]) -> ErrorDetails:
    """Of a union's branches the one that got furthest, which says most about what was meant."""
    other_kinds = {fault["loc"][:-1] for fault in faults if fault["type"] == "literal_error"}
    meant = [fault for fault in faults if fault["loc"][:-1] not in other_kinds] or [
        fault for fault in faults if fault["type"] == "literal_error"
    ]
    return max(meant, key=_reach)


def _reach(fault: ErrorDetails) -> tuple[int, int, bool]:
    """How far a branch got: its depth, and how many items of a list it took."""
    steps = [part for part in fault["loc"] if isinstance(part, int) or part in _NESTED_KEYS]
    items = max((part for part in steps if isinstance(part, int)), default=0)
    return len(steps), items, fault["type"] == "missing"


def _path(location: tuple[int | str, ...]) -> str:
    """A field's path as people write it: `stop[4]`, `response_format.json_schema.name`."""
    path = str(location[0])
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in _NESTED_KEYS:  # the rest are names that pydantic gives a union's branches
            path += f".{part}"
    return path


_NESTED_KEYS = frozenset(
    ["include_usage", "type", "json_schema", "name", "description", "schema", "strict"]
)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _lone_surrogate(value: Any, path: str = "") -> str | None:
    """The path of the first string that holds half of a surrogate pair."""
    if isinstance(value, str):
        return path if _SURROGATE.search(value) else None
    if isinstance(value, Mapping):
        for key, item in value.items():
            shown = key.encode("utf-8", "backslashreplace").decode()
            inner = f"{path}.{shown}" if path else shown
            found = inner if _lone_surrogate(key, inner) else _lone_surrogate(item, inner)
            if found is not None:
                return found
    if isinstance(value, list):
        for index, item in enumerate(value):
            if (found := _lone_surrogate(item, f"{path}[{index}]")) is not None:
                return found
    return None
