"""adapter/contract/request.py accepts what the schema accepts, and names what it refuses."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import ValidationError

from adapter.contract.parsing import parse_request
from adapter.contract.request import CompletionV2Request, unknown_fields
from adapter.contract.wording import request_json_schema
from adapter.errors import InvalidRequest
from tests.schema_strategies import STRANGERS, bodies

SCHEMA = json.loads(
    (Path(__file__).parents[1] / "data" / "completion-v2-request.schema.json").read_text("utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
OPTIONAL = sorted(set(SCHEMA["properties"]) - set(SCHEMA["required"]))
MINIMAL = {"model": "m", "prompt": "x"}

quick = settings(
    max_examples=500,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def parse(**fields: Any) -> CompletionV2Request:
    return parse_request(json.dumps(MINIMAL | fields).encode())


def refusal(body: bytes | dict[str, Any]) -> InvalidRequest:
    """The error that a body is refused with."""
    with pytest.raises(InvalidRequest) as caught:
        parse_request(body if isinstance(body, bytes) else json.dumps(body).encode())
    return caught.value


def accepts(body: Any) -> bool:
    try:
        parse_request(json.dumps(body).encode())
    except InvalidRequest:
        return False
    return True


def schema_accepts(body: Any) -> bool:
    """The contract's schema, but for the one thing that is accepted beyond it."""
    if isinstance(body, dict) and body.get("stop") == []:
        body = body | {"stop": None}
    valid: bool = VALIDATOR.is_valid(body)
    return valid


# --- the schema ---------------------------------------------------------------------------------


def test_generated_schema_is_the_contracts() -> None:
    """The schema made from the model is the contract's own, but for its title and dialect."""
    contract = {key: SCHEMA[key] for key in SCHEMA if key not in ("$schema", "title")}
    assert request_json_schema() == contract


def test_accepts_what_the_schema_describes() -> None:
    """Every body made from the contract's schema is accepted, and each field is in some."""
    fields: Counter[str] = Counter()

    @quick
    @given(bodies(SCHEMA, faults=0))
    def accepted(body: dict[str, Any]) -> None:
        assert VALIDATOR.is_valid(body)
        assert accepts(body), body
        fields.update(body.keys())

    accepted()
    assert all(fields[name] >= 5 for name in SCHEMA["properties"]), fields


def test_agrees_with_the_schema_on_near_misses() -> None:
    """A body with faults is accepted exactly when the schema accepts it: of all a third or more,
    and as many are not."""
    outcomes: Counter[bool] = Counter()

    @quick
    @given(bodies(SCHEMA, faults=2))
    def agrees(body: dict[str, Any]) -> None:
        outcomes[accepts(body)] += 1
        assert accepts(body) == schema_accepts(body), body

    agrees()
    assert min(outcomes[True], outcomes[False]) >= outcomes.total() / 3, outcomes


@pytest.mark.parametrize("name", sorted(SCHEMA["properties"]))
def test_agrees_with_the_schema_on_each_sort_of_value(name: str) -> None:
    """Each field takes each sort of JSON value exactly when the schema does: some, and not all."""
    asked = [MINIMAL | {name: value} for value in STRANGERS]
    assert [body for body in asked if accepts(body) != schema_accepts(body)] == []
    assert 3 <= sum(map(accepts, asked)) <= len(asked) / 2


@pytest.mark.parametrize("name", OPTIONAL)
def test_null_equals_absent(name: str) -> None:
    """null in an optional field gives the same request as leaving it out."""
    assert dict(parse(**{name: None})) == dict(parse())


def test_defaults_are_the_contracts() -> None:
    """An absent field has the contract's default, or is None where it has none."""
    request = parse()
    expected = {name: SCHEMA["properties"][name].get("default") for name in OPTIONAL}
    assert {name: getattr(request, name) for name in OPTIONAL} == expected


def test_whole_floats_become_integers() -> None:
    """1.0 is an integer in JSON Schema, and an int from there on."""
    request = parse(n=2.0, prompt=[5.0], logit_bias={"7": -3.0}, seed=1e3)
    assert (request.n, request.prompt, request.logit_bias) == (2, [5], {"7": -3})
    assert request.seed == 1000
    assert isinstance(request.prompt, list)
    assert [type(value) for value in (request.n, request.prompt[0])] == [int, int]


@pytest.mark.parametrize(
    ("given_stop", "parsed"),
    [([], []), ("", ""), ("a", "a"), (["a", ""], ["a", ""]), (None, None)],
    ids=["empty list", "empty string", "string", "list", "null"],
)
def test_stop_forms(given_stop: Any, parsed: Any) -> None:
    """stop takes null, a string, a list and, beyond the schema, an empty list."""
    assert parse(stop=given_stop).stop == parsed


def test_last_of_two_equal_keys_counts() -> None:
    """Of two equal keys the last one counts, as in Python's json."""
    assert parse_request(b'{"model":"m","prompt":"x","n":1,"n":2}').n == 2


def test_parsed_request_cannot_be_changed() -> None:
    """Nothing can assign to a parsed request."""
    request = parse()
    with pytest.raises(ValueError, match="frozen"):
        request.n = 2


# --- refusals -----------------------------------------------------------------------------------

REFUSED = [
    pytest.param({"prompt": "x"}, "model", "model is required", id="no model"),
    pytest.param({"model": "m"}, "prompt", "prompt is required", id="no prompt"),
    pytest.param(MINIMAL | {"model": None}, "model", "a string", id="model null"),
    pytest.param(MINIMAL | {"n": 0}, "n", "an integer from 1 to 128", id="n too small"),
    pytest.param(MINIMAL | {"n": 129}, "n", "an integer from 1 to 128", id="n too large"),
    pytest.param(MINIMAL | {"n": True}, "n", "an integer from 1 to 128", id="n true"),
    pytest.param(MINIMAL | {"n": "1"}, "n", "an integer from 1 to 128", id="n string"),
    pytest.param(MINIMAL | {"n": 1.5}, "n", "an integer from 1 to 128", id="n half"),
    pytest.param(MINIMAL | {"best_of": -1}, "best_of", "from 0 to 20", id="best_of -1"),
    pytest.param(MINIMAL | {"best_of": 21}, "best_of", "from 0 to 20", id="best_of 21"),
    pytest.param(MINIMAL | {"logprobs": 6}, "logprobs", "from 0 to 5", id="logprobs 6"),
    pytest.param(MINIMAL | {"logprobs": True}, "logprobs", "from 0 to 5", id="logprobs true"),
    pytest.param(MINIMAL | {"max_tokens": -1}, "max_tokens", "at least 0", id="max_tokens -1"),
    pytest.param(MINIMAL | {"top_k": -2}, "top_k", "at least -1", id="top_k -2"),
    pytest.param(MINIMAL | {"top_k": 1.5}, "top_k", "an integer", id="top_k half"),
    pytest.param(MINIMAL | {"temperature": 2.1}, "temperature", "from 0 to 2", id="too hot"),
    pytest.param(MINIMAL | {"temperature": -0.1}, "temperature", "from 0 to 2", id="too cold"),
    pytest.param(MINIMAL | {"top_p": 1.1}, "top_p", "from 0 to 1", id="top_p 1.1"),
    pytest.param(MINIMAL | {"top_p": -0.1}, "top_p", "from 0 to 1", id="top_p -0.1"),
    pytest.param(
        MINIMAL | {"frequency_penalty": 2.1},
        "frequency_penalty",
        "from -2 to 2",
        id="frequency_penalty 2.1",
    ),
    pytest.param(
        MINIMAL | {"presence_penalty": -2.1},
        "presence_penalty",
        "from -2 to 2",
        id="presence_penalty -2.1",
    ),
    pytest.param(MINIMAL | {"stop": list("abcde")}, "stop", "at most 4 strings", id="5 stops"),
    pytest.param(MINIMAL | {"stop": ["a", 1]}, "stop[1]", "at most 4 strings", id="stop item"),
    pytest.param(MINIMAL | {"stream": "x"}, "stream", "a boolean", id="stream string"),
    pytest.param(MINIMAL | {"early_stopping": "never"}, "early_stopping", "a boolean", id="early"),
    pytest.param(MINIMAL | {"guided_json": "{}"}, "guided_json", "an object", id="json string"),
    pytest.param(
        MINIMAL | {"guided_choice": ["a", 1]},
        "guided_choice[1]",
        "a list of strings",
        id="choice item",
    ),
    pytest.param(
        MINIMAL | {"logit_bias": {"5": 0.5}}, "logit_bias", "values are integers", id="half a bias"
    ),
    pytest.param(
        MINIMAL | {"stop_token_ids": [1, "2"]},
        "stop_token_ids[1]",
        "a list of integers",
        id="stop token",
    ),
    pytest.param(
        MINIMAL | {"stream_options": {"include_usage": 1}},
        "stream_options.include_usage",
        "include_usage is a boolean",
        id="usage 1",
    ),
    pytest.param(
        MINIMAL | {"response_format": {"type": "xml"}},
        "response_format.type",
        "text, json_object or json_schema",
        id="format",
    ),
    pytest.param(
        MINIMAL | {"response_format": {"type": "json_schema", "json_schema": {"name": 1}}},
        "response_format.json_schema.name",
        '"name"',
        id="schema name",
    ),
    pytest.param(
        MINIMAL | {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.name",
        '"name"',
        id="no schema name",
    ),
    pytest.param(MINIMAL | {"prompt": [[]]}, "prompt[0]", "non-empty", id="empty ids"),
    pytest.param(MINIMAL | {"prompt": ["ok", [5, 6]]}, "prompt", "a list of strings", id="mixed"),
    pytest.param(MINIMAL | {"prompt": [[1], [2, "x"]]}, "prompt[1][1]", "token ids", id="id x"),
    pytest.param(MINIMAL | {"prompt": {"a": 1}}, "prompt", "a string", id="prompt object"),
]


@pytest.mark.parametrize(("body", "param", "words"), REFUSED)
def test_refusal_names_the_field(body: dict[str, Any], param: str, words: str) -> None:
    """A refusal names the field and the place in it, and says what the field must be."""
    error = refusal(body)
    assert (error.status, error.kind) == (400, "invalid_request_error")
    assert error.param is not None
    assert error.param.startswith(param)
    assert words in error.message
    assert error.message.startswith(error.param)
    assert "\n" not in error.message


def test_missing_field_has_its_own_code() -> None:
    """A required field that is missing is told apart by the error's code."""
    assert refusal({"model": "m"}).code == "missing_required_field"
    assert refusal(MINIMAL | {"n": 0}).code == "invalid_value"


# What a refusal calls the types of JSON Schema.
TYPES = {"integer": "integer|token id", "array": "list"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema
    while "$ref" in found:
        found = SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]
    return found


def to_be_said(schema: dict[str, Any]) -> Iterator[str]:
    """Regular expressions that words about a schema match: its types, constants, required keys."""
    schema = resolved(schema)
    for branch in schema.get("anyOf", ()):
        yield from to_be_said(branch)
    if "const" in schema or "type" in schema:
        yield schema.get("const") or TYPES.get(schema["type"], schema["type"])
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from to_be_said(inner)
    for key in schema.get("required", ()):
        value = resolved(schema["properties"][key])
        yield from [f'"{key}"', *(to_be_said(value) if value["type"] == "object" else ())]
        yield from [value["const"]] if "const" in value else ()


def bounds(schema: dict[str, Any]) -> Iterator[float]:
    """The numbers that bound a field's value, or the length of a list in it."""
    schema = resolved(schema)
    for branch in schema.get("anyOf", ()):
        yield from bounds(branch)
    yield from (schema[key] for key in ("minimum", "maximum", "maxItems") if key in schema)


@pytest.mark.parametrize("name", sorted(SCHEMA["properties"]))
def test_refusal_says_what_the_schema_says(name: str) -> None:
    """A refusal names every type, constant and required key that the field's schema has, and its
    bounds and no other number; null where it is taken and nowhere else."""
    schema = SCHEMA["properties"][name]
    wrong = next(value for value in ([[[1]]], 7) if not accepts(MINIMAL | {name: value}))
    error = refusal(MINIMAL | {name: wrong})
    assert error.param is not None
    assert error.param.partition("[")[0] == name
    said = error.message.partition(f": {name} must be ")[2]
    missing = [words for words in to_be_said(schema) if not re.search(rf"(?<!\w)({words})", said)]
    assert missing == []
    assert sorted(map(float, re.findall(r"-?\d+", said))) == sorted(bounds(schema))
    assert ("or null" in said) == accepts(MINIMAL | {name: None}) == (name != "model")


def test_lists_that_may_not_be_empty_are_said_to_be() -> None:
    """Both forms of token ids say that no list of them may be empty."""
    assert refusal(MINIMAL | {"prompt": [[]]}).message.count("non-empty") == 2


NO_JSON = [
    pytest.param(b"", "valid JSON", id="empty"),
    pytest.param(b'{"model":"m"', "valid JSON", id="cut"),
    pytest.param(b"{'model': 'm'}", "valid JSON", id="single quotes"),
    pytest.param(b'{"model":"m","prompt":"x"} x', "valid JSON", id="more after it"),
    pytest.param(b'{"model":"m","prompt":"x","seed":01}', "valid JSON", id="leading zero"),
    pytest.param(b'{"model":"m","prompt":"\xff"}', "not UTF-8", id="not UTF-8"),
    pytest.param('{"model":"m"}'.encode("utf-16"), "valid JSON", id="UTF-16"),
    pytest.param(b'{"model":"m","prompt":"x","min_p":NaN}', "NaN is not", id="NaN"),
    pytest.param(b'{"model":"m","prompt":"x","min_p":Infinity}', "Infinity is not", id="Infinity"),
    pytest.param(b'{"model":"m","prompt":"x","z":[-Infinity]}', "-Infinity is not", id="-Infinity"),
    pytest.param(b"[" * 100_000, "nested too deeply", id="deep"),
    pytest.param(b'{"model":"m","prompt":"x","seed":' + b"9" * 5000 + b"}", "digits", id="digits"),
    pytest.param(b"[]", "JSON object", id="list"),
    pytest.param(b'"x"', "JSON object", id="string"),
    pytest.param(b"null", "JSON object", id="null"),
]


@pytest.mark.parametrize(("body", "words"), NO_JSON)
def test_body_that_is_no_json_object(body: bytes, words: str) -> None:
    """A body that is no JSON object is refused with what is wrong with it."""
    error = refusal(body)
    assert (error.status, error.param) == (400, None)
    assert words in error.message


def test_nan_within_a_string_is_text() -> None:
    """NaN and Infinity may stand in a text."""
    assert parse(prompt="NaN, Infinity").prompt == "NaN, Infinity"


def nested(depth: int) -> bytes:
    return b'{"model":"m","prompt":"x","z":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize("depth", [1, 50, 100, 150])
def test_nesting_is_accepted(depth: int) -> None:
    """A body may be nested deeper than any schema that people write."""
    assert list(unknown_fields(parse_request(nested(depth)))) == ["z"]


@pytest.mark.parametrize("depth", [*range(190, 210), 400, 950, 1100, 100_000])
def test_nesting_that_is_too_deep_is_refused(depth: int) -> None:
    """Beyond the parser's limit the field that is so deep is refused by its name."""
    for before in (b'"z":', b'"a":"\\\\\\"[[[","z" : ', b'"a":[[1]],"z":'):
        body = b'{"model":"m","prompt":"x",' + before + b"[" * depth + b"]" * depth + b"}"
        if depth <= 200:
            parse_request(body)
            continue
        error = refusal(body)
        assert error.param == "z"
        assert "nested too deeply: 200 levels" in error.message


@pytest.mark.parametrize("field", ["guided_json", "response_format"])
def test_schemas_that_are_too_deep_are_refused(field: str) -> None:
    """A schema that is nested deeper than can be read names its field."""
    schema = b'{"properties":{"a":' * 200 + b"{}" + b"}}" * 200
    value = schema
    if field == "response_format":
        value = b'{"type":"json_schema","json_schema":{"name":"n","schema":' + schema + b"}}"
    error = refusal(b'{"model":"m","prompt":"x","' + field.encode() + b'":' + value + b"}")
    assert (error.param, error.code) == (field, "invalid_value")
    assert "nested too deeply" in error.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param(rb'{"model":"m","prompt":"\ud800"}', "prompt", id="prompt"),
        pytest.param(rb'{"model":"m","prompt":["a","\udfff"]}', "prompt[1]", id="prompt item"),
        pytest.param(rb'{"model":"m","prompt":"x","stop":["\ud800x"]}', "stop[0]", id="stop"),
        pytest.param(
            rb'{"model":"m","prompt":"x","guided_json":{"\ud800":1}}',
            r"guided_json.\ud800",
            id="key",
        ),
        pytest.param(b'{"model":"m","prompt":"\xed\xa0\x80"}', "prompt", id="raw"),
    ],
)
def test_lone_surrogate_is_refused(body: bytes, param: str) -> None:
    """Half of a surrogate pair is no Unicode text: refused, with its place."""
    error = refusal(body)
    assert error.param == param
    assert "lone surrogate" in error.message
    assert error.message.isascii()


def test_surrogate_pair_is_one_character() -> None:
    """An escaped surrogate pair is the character that it stands for."""
    assert parse_request(rb'{"model":"m","prompt":"\ud83d\ude00"}').prompt == "😀"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            b'{"model":"m","prompt":"x","logit_bias":{'
            + b",".join(b'"%d":"a"' % i for i in range(20_000))
            + b"}}",
            id="logit_bias",
        ),
        pytest.param(
            b'{"model":"m","prompt":[' + b'"a",' * 50_000 + b"1]}",
            id="prompt",
        ),
        pytest.param(
            b'{"model":"m","prompt":"x","stop":[' + b"1," * 50_000 + b"1]}",
            id="stop",
        ),
    ],
)
def test_many_faults_are_not_all_listed(body: bytes) -> None:
    """A body full of faults is refused at the first ones, not after an error for each."""
    error = refusal(body).__context__
    assert isinstance(error, ValidationError)
    assert error.error_count() < 100


# --- unknown fields -----------------------------------------------------------------------------


def test_unknown_fields_are_listed_with_their_paths() -> None:
    """Keys that the contract does not know are listed by path, in every object of the contract."""
    request = parse(
        max_completion_tokens=50,
        service_tier=None,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )
    assert list(unknown_fields(request)) == [
        "max_completion_tokens",
        "service_tier",
        "stream_options.include_obfuscation",
    ]


def test_unknown_fields_of_a_response_format() -> None:
    """Within a JSON schema every key is the caller's own; around it they are fields."""
    request = parse(
        response_format={
            "type": "json_schema",
            "a": 1,
            "json_schema": {"name": "n", "b": 2, "schema": {"type": "object", "title": "T"}},
        },
        guided_json={"anything": 1},
    )
    assert list(unknown_fields(request)) == ["response_format.a", "response_format.json_schema.b"]


@pytest.mark.parametrize("name", ["", "model_config", "__class__", "schema_", "a b", "é", "n "])
def test_unknown_field_of_any_name(name: str) -> None:
    """An unknown field may have any name, also one that Python's objects use."""
    assert list(unknown_fields(parse(**{name: 1}))) == [name]


def test_known_fields_are_not_unknown() -> None:
    """A body with every field of the contract has no unknown field."""
    assert list(unknown_fields(parse(**dict.fromkeys(OPTIONAL)))) == []
