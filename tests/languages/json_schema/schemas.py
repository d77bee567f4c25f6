"""Schemas, read or refused."""

import json
from typing import Any

import pytest

from adapter.languages.json_schema.read import read_schema
from adapter.languages.json_schema.schema import Schema, SchemaError


def read(schema: Any) -> Schema:
    return read_schema(json.dumps(schema))


def fault(schema: Any) -> str:
    """Why a schema is refused."""
    with pytest.raises(SchemaError) as caught:
        read(schema)
    return str(caught.value)


def holder(name: str, schema: Any) -> Any:
    """An object with one required property, described under $defs by that name."""
    return {"type": "object", "properties": {name: schema}, "required": [name]}
