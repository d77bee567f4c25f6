"""JSON with its numbers as they are written: what no binary fraction is, is a Decimal."""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

# Before a number that is written by its digits. No text that was read as UTF-8 holds it.
_MARK = "\udc00"
_LONGEST_INTEGER = 1000
"""Digits of a number that is made an integer where it is one."""
_MARKED = re.compile(r'"\\udc00([^"]*)"')


def loads(text: str | bytes, **hooks: Any) -> Any:
    """A JSON value; numbers that a float would change are Decimals.

    hooks: as those of json.loads.
    """
    return json.loads(text, parse_float=_number, **hooks)


def loads_decimals(text: str, **hooks: Any) -> Any:
    """The same with Decimals and integers alone, so that all of it can be calculated with exactly.

    hooks: as those of json.loads.
    """
    return json.loads(text, parse_float=_decimal, **hooks)


def dumps(value: Any) -> str:
    """A value that loads() gave, as JSON."""
    return _MARKED.sub(r"\1", json.dumps(value, default=_marked))


def _number(digits: str) -> float | Decimal:
    near = float(digits)
    try:
        exact = Decimal(digits)
    except InvalidOperation:  # an exponent that no Decimal has
        return near
    return near if exact == Decimal(repr(near)) else exact


def _decimal(digits: str) -> int | float | Decimal:
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        return float(digits)
    whole = abs(exact.adjusted()) < _LONGEST_INTEGER and exact == exact.to_integral_value()
    return int(exact) if whole else exact


def _marked(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value}"
    raise TypeError(f"{type(value).__name__} is no JSON value")
