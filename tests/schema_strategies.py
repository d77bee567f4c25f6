"""Bodies made from a JSON schema, and near-misses of them.

Own code rather than hypothesis-jsonschema: that one (0.23) fails with today's hypothesis on
objects, and takes seconds to build its strategies.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
Strategy = st.SearchStrategy[Any]

# Every sort of JSON value, and the ones that JSON Schema and Python see differently.
STRANGERS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    1.0,
    0.5,
    -0.5,
    2**31,
    2**64,
    -(2**63) - 1,
    1e30,
    "",
    "1",
    "true",
    "text",
    "é\u2028😀",
    [],
    [1],
    [True],
    ["a"],
    [1.0],
    ["a", 1],
    [[1, 2]],
    [[]],
    [[1], []],
    [[[1]]],
    [None],
    {},
    {"a": 1},
    {"a": "x"},
    {"type": "text"},
    {"type": "json_object", "x": None},
    {"type": "json_schema"},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": None}},
    {"type": "json_schema", "json_schema": {"name": 1}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": []}},
    {"include_usage": 1},
]


def valid(schema: Schema, definitions: Schema) -> Strategy:
    """Values that a schema accepts; of JSON Schema's keywords those that the contract uses."""
    if "$ref" in schema:
        return valid(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return st.one_of([valid(branch, definitions) for branch in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    return _TYPES[schema["type"]](schema, definitions)


def _integers(schema: Schema, _definitions: Schema) -> Strategy:
    low, high = schema.get("minimum"), schema.get("maximum")
    bounded = st.integers(None if low is None else int(low), None if high is None else int(high))
    edges = [edge for edge in (low, high) if edge is not None]
    # The bounds in the schema are floats, so these are the whole numbers written with a point.
    return st.one_of(bounded, st.sampled_from(edges)) if edges else bounded


def _numbers(schema: Schema, definitions: Schema) -> Strategy:
    low, high = schema.get("minimum"), schema.get("maximum")
    floats = st.floats(low, high, allow_nan=False, allow_infinity=False)
    small = {"minimum": -1000 if low is None else low, "maximum": 1000 if high is None else high}
    return st.one_of(floats, _integers(small, definitions))


def _arrays(schema: Schema, definitions: Schema) -> Strategy:
    items = valid(schema["items"], definitions)
    return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 4))


def _objects(schema: Schema, definitions: Schema) -> Strategy:
    extra = schema.get("additionalProperties", True)
    if not schema.get("properties"):
        values = st.sampled_from(STRANGERS) if extra is True else valid(extra, definitions)
        return st.dictionaries(st.text(max_size=3), values, max_size=3)
    properties = {name: valid(s, definitions) for name, s in schema["properties"].items()}
    required = {name: properties.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=properties)


_TYPES: dict[str, Callable[[Schema, Schema], Strategy]] = {
    "integer": _integers,
    "number": _numbers,
    "array": _arrays,
    "object": _objects,
    "boolean": lambda _schema, _definitions: st.booleans(),
    "string": lambda _schema, _definitions: st.text(max_size=6),
    "null": lambda _schema, _definitions: st.none(),
}


def bodies(schema: Schema, *, faults: int) -> Strategy:
    """Bodies with a few of the schema's properties, of which `faults` were then made worse."""
    properties = {
        name: valid(schema["properties"][name], schema["$defs"])
        for name in sorted(schema["properties"])
    }
    return _bodies(properties, schema["required"], faults)


@st.composite
def _bodies(
    draw: st.DrawFn, properties: dict[str, Strategy], required: list[str], faults: int
) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(list(properties)), unique=True, max_size=6))
    body = {name: draw(properties[name]) for name in sorted({*chosen, *required})}
    for _ in range(faults):
        name = draw(st.sampled_from([*properties, *required, "extra"]))
        fault = draw(st.sampled_from(["drop", "replace", "replace", "bound", "wrap"]))
        if fault == "drop":
            body.pop(name, None)
        elif fault == "replace":
            body[name] = draw(st.sampled_from(STRANGERS))
        elif fault == "bound":
            body[name] = draw(st.sampled_from([-3, -2, -1, 0, 1, 2, 3, 5, 6, 20, 21, 128, 129]))
            body[name] += draw(st.sampled_from([0, 0.0, 0.5]))
        elif name in body:
            body[name] = [body[name]]
    return body
