"""JSON Schema validation by the jsonschema library: of a schema, and of a finished text."""

import re
from decimal import localcontext
from typing import Any

import referencing
import referencing.exceptions
from jsonschema import Draft7Validator, Draft202012Validator, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from adapter.errors import one_line
from adapter.languages.exact_json import loads_decimals
from adapter.languages.json_schema.documents import METASCHEMAS, Documents
from adapter.languages.json_schema.schema import Schema, walk

# A text that is not JSON, numbers that cannot be divided, references and patterns that cannot be
# read.
_UNTELLABLE = (
    ValueError,
    ArithmeticError,
    AttributeError,
    TypeError,
    RecursionError,
    re.error,
    referencing.exceptions.Unresolvable,
)


def _validator_class(schema: Schema) -> type[Validator]:
    """The draft that the schema names, else the latest that reads it."""
    if isinstance(schema, dict) and not isinstance(schema.get("$schema"), str | None):
        raise ValueError("$schema must be a string")
    lists = any(isinstance(node.get("items"), list) for node in walk(schema))
    default = Draft7Validator if lists else Draft202012Validator
    found: type[Validator] = validator_for(schema, default=default)
    return found


def schema_fault(schema: Schema) -> str | None:
    """What makes it no JSON schema, None where it is one."""
    try:
        # Patterns are ECMAScript's, which Python need not be able to read.
        _validator_class(schema).check_schema(schema, format_checker=None)
    except SchemaError as error:
        return f"at {error.json_path}: {one_line(error.message)}"
    except _UNTELLABLE as error:
        return one_line(str(error))
    return None


def check_fault(schema: Schema) -> str | None:
    """Why no text could be validated: a pattern that Python cannot read. None where one can."""
    for node in walk(schema):
        for pattern in (node.get("pattern", ""), *(node.get("patternProperties") or ())):
            try:
                re.compile(pattern)
            except re.error as error:
                return f"pattern {pattern[:100]!r} cannot be checked: {error}"
    return None


def text_fault(schema: str, text: str, documents: Documents = METASCHEMAS) -> str | None:
    """Why a finished text is not what a schema, as JSON, asks for, None where it is.

    Numbers are what is written: as binary fractions 5.02 is no multiple of 0.01.
    Nothing is ever fetched: a reference to what is not among the documents is a fault.
    """
    try:
        value = loads_decimals(text, parse_constant=_no_constant)
        asked = loads_decimals(schema)
        with localcontext(prec=1000):
            _validator_class(asked)(asked, registry=documents).validate(value)
    except ValidationError as error:
        return f"at {error.json_path}: {one_line(error.message)}"
    except _UNTELLABLE as error:
        return one_line(str(error))
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
