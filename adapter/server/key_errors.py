"""A wrong API key is answered in the contract's form; vLLM's check stays what it is."""

from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapter.answer.sse import json_bytes
from adapter.errors import ApiError, WrongKey


class KeyErrors:
    """Gives the answer to a wrong API key the contract's form; vLLM's check stays what it is."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on but a 401 on the endpoint's paths."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or path not in self._paths:
            await self._app(scope, receive, send)
            return
        refused = False

        async def reply(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == 401:
                refused = True
                await _send_error(WrongKey("The API key is missing or wrong."), message, send)
            elif not refused:
                await send(message)

        await self._app(scope, receive, reply)


async def _send_error(error: ApiError, start: Message, send: Send) -> None:
    body = json_bytes(error.body())
    replaced = (b"content-length", b"content-type")
    kept: list[Any] = [header for header in start["headers"] if header[0] not in replaced]
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({**start, "headers": [*own, *kept]})
    await send({"type": "http.response.body", "body": body})
