"""The route as FastAPI and /openapi.json see it."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from adapter.contract.answer import CompletionV2Chunk, CompletionV2Error, CompletionV2Response
from adapter.contract.wording import request_json_schema

_REF = "#/components/schemas/CompletionV2{model}"


def completions_route(path: str, endpoint: ASGIApp) -> APIRoute:
    """A route that FastAPI lists, documents and replaces by path, and that runs `endpoint`."""

    async def post_v2_completions() -> None:
        """Complete prompts: the V2 completion contract. Every field is honoured, or refused by its
        name; unknown ones are named in the response header x-ignored-fields."""

    route = APIRoute(
        path,
        post_v2_completions,
        methods=["POST"],
        name="completions_v2",
        summary="Complete prompts (V2 contract)",
        response_model=None,
        responses={
            200: {
                "model": CompletionV2Response,
                "content": {"text/event-stream": {"schema": _schema_ref(CompletionV2Chunk)}},
            },
            400: {"model": CompletionV2Error},
            401: {"model": CompletionV2Error},
            404: {"model": CompletionV2Error},
            500: {"model": CompletionV2Error},
            503: {"model": CompletionV2Error},
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/CompletionV2Request"}
                    }
                },
            }
        },
    )
    route.app = endpoint
    return route


def describe(app: FastAPI) -> None:
    """Add the contract's schemas to what /openapi.json shows."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "CompletionV2Request" not in schemas:
            schemas.update(_components())
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's way to extend the document


def _components() -> dict[str, Any]:
    request = request_json_schema(ref_template=_REF)
    definitions = request.pop("$defs")
    chunk = CompletionV2Chunk.model_json_schema(ref_template="#/components/schemas/{model}")
    chunk_definitions = chunk.pop("$defs")
    return {
        "CompletionV2Request": request,
        "CompletionV2Chunk": chunk,
        **{f"CompletionV2{name}": schema for name, schema in definitions.items()},
        **chunk_definitions,
    }


def _schema_ref(model: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
