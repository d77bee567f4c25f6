"""The contract: CompletionV2Request as a strict pydantic model, and how a body becomes one.

A body is accepted exactly when the contract's JSON schema accepts it: `true` is no integer, `"1"`
is no number, `1.0` is an integer. Two bodies more and one less: `stop: []` (common clients send
it) is taken as no stop, and a lone surrogate is refused, since it is no Unicode text. What a
field's *value* means for this server and model is checked later, in translate.py.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema
from typing_extensions import TypeAliasType

from adapter.errors import InvalidRequest

T = TypeVar("T")

if TYPE_CHECKING:
    # Parsing replaces null by the field's default, so no reader ever sees None.
    Defaulted = Annotated[T, "null is the default"]
else:
    Defaulted = T | None


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError("not a whole number")
    return int(value)


if TYPE_CHECKING:
    Integer: TypeAlias = int
    BestOf: TypeAlias = int
    TopK: TypeAlias = int
    LogprobCount: TypeAlias = int
    TokenCount: TypeAlias = int
    ChoiceCount: TypeAlias = int
    LogitBias: TypeAlias = dict[str, int]
else:
    # JSON Schema counts 1.0 as an integer; pydantic's strict int does not. The union is tried left
    # to right, so that Python code runs only for a number written with a point.
    Integer = Annotated[
        Annotated[int, Strict()] | Annotated[float, Strict(), AfterValidator(_whole)],
        Field(union_mode="left_to_right"),
        WithJsonSchema({"type": "integer"}),
    ]

    def _bounded(ge: int, le: int | None = None) -> Any:
        def check(value: int) -> int:
            if value < ge or (le is not None and value > le):
                raise ValueError("out of bounds")
            return value

        schema = {"type": "integer", "minimum": ge} | ({} if le is None else {"maximum": le})
        return Annotated[Integer, AfterValidator(check), WithJsonSchema(schema)]

    def _integers(value: dict[str, Any]) -> dict[str, int]:
        # By hand, since pydantic goes on to list a fault for each wrong value of a large object.
        for key, item in value.items():
            if type(item) is not int:
                if type(item) is not float:
                    raise ValueError(f"the value of {key[:40]!r} is not an integer")
                value[key] = _whole(item)
        return value

    BestOf = _bounded(0, 20)
    TopK = _bounded(-1)
    LogprobCount = _bounded(0, 5)
    TokenCount = _bounded(0)
    ChoiceCount = _bounded(1, 128)
    LogitBias = Annotated[
        dict[str, Any],
        AfterValidator(_integers),
        WithJsonSchema({"additionalProperties": {"type": "integer"}, "type": "object"}),
    ]

Number = Annotated[float, Strict()]
Penalty = Annotated[float, Strict(), Field(ge=-2, le=2)]
Temperature = Annotated[float, Strict(), Field(ge=0, le=2)]
TopP = Annotated[float, Strict(), Field(ge=0, le=1)]

_SEPARATOR_DEFAULT = {"default": "<|endoftext|>"}

Prompt1Item = TypeAliasType(
    "Prompt1Item", Annotated[list[Integer], Field(min_length=1, fail_fast=True)]
)
Prompt = TypeAliasType(
    "Prompt",
    Annotated[
        Annotated[list[Integer], Field(min_length=1, fail_fast=True)] | None,
        Field(json_schema_extra=_SEPARATOR_DEFAULT),
    ],
)
Prompt1 = TypeAliasType(
    "Prompt1",
    Annotated[
        Annotated[list[Prompt1Item], Field(min_length=1, fail_fast=True)] | None,
        Field(json_schema_extra=_SEPARATOR_DEFAULT),
    ],
)

# The contract asks for 1 to 4 stop strings. Common clients send [] for none: taken as that.
StopConfiguration1 = TypeAliasType(
    "StopConfiguration1",
    Annotated[
        list[str],
        Field(max_length=4),
        WithJsonSchema(
            {"items": {"type": "string"}, "type": "array", "maxItems": 4, "minItems": 1}
        ),
    ]
    | None,
)
StopConfiguration = TypeAliasType("StopConfiguration", str | StopConfiguration1 | None)


class _Object(BaseModel):
    """An object of the contract: strict, never changed after parsing, unknown keys kept."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="allow",
        allow_inf_nan=False,
        # The contract does not mention extras, which JSON Schema takes as allowed.
        json_schema_extra=lambda schema: schema.pop("additionalProperties", None),
    )


class ChatCompletionStreamOptions(_Object):
    include_usage: bool | None = None


class ResponseFormatText(_Object):
    type: Literal["text"]


class ResponseFormatJsonSchemaSchema(_Object):
    """Any JSON schema; it is kept as extra keys."""

    model_config = ConfigDict(json_schema_extra=lambda schema: None)


class JsonSchema(_Object):
    description: str | None = None
    name: str
    schema_: ResponseFormatJsonSchemaSchema | None = Field(default=None, alias="schema")
    strict: Defaulted[bool] = False


class ResponseFormatJsonSchema(_Object):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class ResponseFormatJsonObject(_Object):
    type: Literal["json_object"]


ResponseFormat = ResponseFormatText | ResponseFormatJsonSchema | ResponseFormatJsonObject


class CompletionV2Request(_Object):
    """A body of POST /v2/completions. null equals absent in every optional field."""

    best_of: Defaulted[BestOf] = 1
    top_k: TopK | None = None
    min_p: Number | None = None
    use_beam_search: bool | None = None
    length_penalty: Number | None = None
    repetition_penalty: Number | None = None
    early_stopping: bool | None = None
    stop_token_ids: Annotated[list[Integer], Field(fail_fast=True)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Integer | None = None
    skip_special_tokens: Defaulted[bool] = True
    spaces_between_special_tokens: Defaulted[bool] = True
    add_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(fail_fast=True)] | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: str | None = None
    model: str
    prompt: Annotated[
        str | Annotated[list[str], Field(fail_fast=True)] | Prompt | Prompt1 | None,
        Field(union_mode="left_to_right"),
    ]
    echo: Defaulted[bool] = False
    frequency_penalty: Defaulted[Penalty] = 0
    logit_bias: LogitBias | None = None
    logprobs: LogprobCount | None = None
    max_tokens: Defaulted[TokenCount] = 16
    n: Defaulted[ChoiceCount] = 1
    presence_penalty: Defaulted[Penalty] = 0
    seed: Integer | None = None
    stop: StopConfiguration | None = None
    stream: Defaulted[bool] = False
    stream_options: ChatCompletionStreamOptions | None = None
    suffix: str | None = None
    temperature: Defaulted[Temperature] = 1
    top_p: Defaulted[TopP] = 1
    user: str | None = None

    @model_validator(mode="after")
    def _null_is_absent(self) -> "CompletionV2Request":
        values = self.__dict__
        for name, default in _DEFAULTS:
            if values[name] is None:
                values[name] = default
        return self


_DEFAULTS: tuple[tuple[str, Any], ...] = tuple(
    (name, field.default)
    for name, field in CompletionV2Request.model_fields.items()
    if not field.is_required() and field.default is not None
)


def unknown_fields(request: BaseModel, prefix: str = "") -> Iterator[str]:
    """The paths of the keys that the contract does not know: the body's own, then nested ones."""
    for name in request.model_extra or ():
        yield prefix + name
    for name in type(request).model_fields:
        value = getattr(request, name)
        # Inside a JSON schema every key is the caller's own.
        if isinstance(value, BaseModel) and not isinstance(value, ResponseFormatJsonSchemaSchema):
            yield from unknown_fields(value, f"{prefix}{name}.")


# --- parsing -----------------------------------------------------------------------------------


def parse_request(body: bytes) -> CompletionV2Request:
    """The request that a body holds.

    Raises:
        InvalidRequest: naming the field, or saying why the body is no JSON object.
    """
    try:
        # pydantic-core's parser also takes NaN and Infinity, which are no JSON.
        if b"NaN" in body or b"Infinity" in body:
            _strict_json(body)
        return CompletionV2Request.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, body) from None


def _strict_json(body: bytes) -> Any:
    """The parsed body, by the slow parser that says most about what is wrong."""

    def no_constant(name: str) -> None:
        raise InvalidRequest(f"The body is not valid JSON: {name} is not a JSON value.")

    try:
        return json.loads(body, parse_constant=no_constant)
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid JSON: it is not UTF-8 text.") from None
    except RecursionError:
        raise InvalidRequest("The body is not valid JSON: it is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from None
    except ValueError:
        raise InvalidRequest("The body is not valid JSON: a number has too many digits.") from None


def _refusal(error: ValidationError, body: bytes) -> InvalidRequest:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    if faults[0]["type"] == "json_invalid":
        try:
            path = _lone_surrogate(_strict_json(body))
        except RecursionError:
            return InvalidRequest("The body is not valid JSON: it is nested too deeply.")
        if path is not None:
            return InvalidRequest(f"{path}: a lone surrogate is not Unicode text.", param=path)
        return InvalidRequest(f"The body is not valid JSON: {faults[0]['msg']}.")
    fault = _telling(faults)
    if not fault["loc"]:
        return InvalidRequest("The body must be a JSON object.")
    field = str(fault["loc"][0])
    path = _path(fault["loc"])
    if fault["type"] == "missing" and path == field:
        return InvalidRequest(f"{field} is required.", param=field, code="missing_required_field")
    return InvalidRequest(f"{path} is not valid: {field} must be {expectation(field)}.", param=path)


def _telling(faults: Sequence[ErrorDetails]) -> ErrorDetails:
    """Of a union's branches the one that got furthest, which says most about what was meant."""
    other_kinds = {fault["loc"][:-1] for fault in faults if fault["type"] == "literal_error"}
    meant = [fault for fault in faults if fault["loc"][:-1] not in other_kinds] or [
        fault for fault in faults if fault["type"] == "literal_error"
    ]
    return max(meant, key=lambda fault: (len(fault["loc"]), fault["type"] == "missing"))


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


def _lone_surrogate(value: Any, path: str = "") -> str | None:
    """The path of the first string that holds half of a surrogate pair."""
    if isinstance(value, str):
        return path if any("\ud800" <= char <= "\udfff" for char in value) else None
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


# --- the schema, as JSON and as words -----------------------------------------------------------


class _ContractJsonSchema(GenerateJsonSchema):
    """The contract's own JSON schema: no titles, no `default: null`, extras not mentioned."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def generate(
        self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation"
    ) -> JsonSchemaValue:
        generated = super().generate(schema, mode)
        _drop_prose(generated)
        return generated


def _drop_prose(node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _drop_prose(item)
    if isinstance(node, dict):
        for key in ("title", "description"):
            if isinstance(node.get(key), str):
                del node[key]
        for item in node.values():
            _drop_prose(item)


def request_json_schema(ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """The contract's JSON schema, made from the model above."""
    return CompletionV2Request.model_json_schema(
        schema_generator=_ContractJsonSchema, ref_template=ref_template
    )


def expectation(field: str) -> str:
    """What a field must be, in words: "an integer from 1 to 128, or null"."""
    if field in _EXPECTATIONS:
        return _EXPECTATIONS[field]
    return _words(_PROPERTIES[field])


_EXPECTATIONS = {
    "prompt": "a string, a list of strings, a non-empty list of token ids, a list of non-empty "
    "lists of token ids, or null",
    "stop": "a string, a list of at most 4 strings, or null",
    "response_format": 'an object with "type" text, json_object or json_schema (this one with '
    '"json_schema": an object with a "name", and optionally "schema", an object), or null',
    "stream_options": "an object whose include_usage is a boolean or null, or null",
    "guided_json": "an object (a JSON schema), or null",
    "guided_choice": "a list of strings, or null",
    "stop_token_ids": "a list of integers, or null",
    "logit_bias": "an object whose values are integers, or null",
}

_TYPE_WORDS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "string": "a string",
    "null": "null",
}


def _words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return ", or ".join(_words(branch) for branch in schema["anyOf"])
    word = _TYPE_WORDS[schema["type"]]
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{word} from {low:g} to {high:g}"
    return word if low is None else f"{word} of at least {low:g}"


_PROPERTIES: dict[str, dict[str, Any]] = request_json_schema()["properties"]
