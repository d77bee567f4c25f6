"""adapter/languages/exact_json.py: numbers are what is written, through reading and writing."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.languages.exact_json import dumps, loads, loads_decimals

NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,4})?", fullmatch=True
)


@given(NUMBERS)
def test_numbers_are_kept(digits: str) -> None:
    """What is read and written is the same number, of any size and length."""
    value = loads(digits)
    assert Decimal(dumps(value)) == Decimal(digits)
    assert isinstance(value, int | float) or Decimal(repr(float(digits))) != Decimal(digits)
    assert Decimal(str(loads_decimals(digits))) == Decimal(digits)


@pytest.mark.parametrize(
    "value",
    [None, True, 0.1, 1.0, -0.5e-7, 2**70, "\\udc00 5", '"\\"', ["é\x00"], {"1.5": [{}]}],
)
def test_all_else_is_json_as_ever(value: Any) -> None:
    """A value without long numbers is what Python's own reader and writer make of it."""
    assert dumps(value) == json.dumps(value)
    assert loads(json.dumps(value)) == value
    assert repr(loads(json.dumps(value))) == repr(json.loads(json.dumps(value)))


def test_whole_numbers_are_integers_to_calculate_with() -> None:
    """However they are written, as long as they can be."""
    assert [type(loads_decimals(text)) for text in ("1.0", "1e3", "0.5", "1e5000")] == [
        int,
        int,
        Decimal,
        Decimal,
    ]


def test_numbers_that_no_decimal_is() -> None:
    """An exponent beyond all bounds is read as Python reads it."""
    assert loads("1e-99999999999999999999") == 0
    assert loads_decimals("1e-99999999999999999999") == 0


def test_other_objects_are_refused() -> None:
    """As by Python's own writer."""
    with pytest.raises(TypeError, match="set is no JSON value"):
        dumps({1, 2})
