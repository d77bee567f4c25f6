"""What is wrong with a finished text, as validators that nobody here wrote say it."""

import json
from decimal import Decimal, localcontext
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema_specifications import REGISTRY

from benchmarks.guided_conformance.outcomes import repeats_a_name

REPEATED = "a name twice in one object"
_EXPONENT = 400
"""Of numbers that are read exactly."""


def fault_of(schema: Any, text: str) -> str | None:
    """Why a text is not what the schema asks for; None where it is.

    Numbers are read as they are written: binary fractions would make 5.02 no multiple of 0.01.
    """
    try:
        value = json.loads(text, parse_float=_number, parse_constant=_no_constant)
    except ValueError as error:
        return f"not JSON: {error}"
    if repeats_a_name(text.encode()):
        return REPEATED
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    try:
        with localcontext(prec=1000):
            Draft202012Validator(exact, registry=REGISTRY).validate(value)
    except ValidationError as error:
        return f"at {error.json_path}: {' '.join(error.message.split())}"
    return None


def _number(text: str) -> int | Decimal | float:
    exponent = text.lower().partition("e")[2] or "0"
    if abs(int(exponent)) >= _EXPONENT:
        return float(text)
    exact = Decimal(text)
    # jsonschema takes a float that is whole for an integer, but no Decimal.
    return int(exact) if exact == exact.to_integral_value() else exact


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
