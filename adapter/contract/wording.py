"""The contract's schema, as JSON and as words."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from adapter.contract.request import CompletionV2Request


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
