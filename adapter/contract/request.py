"""The contract: CompletionV2Request as a strict pydantic model.

A body is accepted exactly when the contract's JSON schema accepts it: `true` is no integer, `"1"`
is no number, `1.0` is an integer. Two bodies more and one less: `stop: []` (common clients send
it) is taken as no stop, and a lone surrogate is refused, since it is no Unicode text. What a
field's *value* means for this server and model is checked later, in planning/.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import TypeAliasType

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
