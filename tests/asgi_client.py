"""A client in the same process: drives an ASGI application by hand, and can leave at any time."""

import asyncio
import json
from collections.abc import Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

PATH = "/v2/completions"


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; one that hangs fails."""

    async def limited() -> T:
        async with asyncio.timeout(10):
            return await coroutine

    return asyncio.run(limited())


@dataclass
class Exchange:
    """One request, and what has come back of its answer."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    complete: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)
    on_piece: Callable[[bytes], None] | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """A stream's events, the last of which must be [DONE]."""
        blocks = self.body.decode().split("\n\n")
        assert blocks[-2:] == ["data: [DONE]", ""], blocks[-3:]
        return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]

    def error(self) -> dict[str, Any]:
        """An error's details."""
        assert self.headers["content-type"] == "application/json"
        body: dict[str, dict[str, Any]] = self.json()
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return body["error"]


async def exchange(
    app: Any,
    body: Any,
    *,
    headers: dict[str, str] | None = None,
    cut: int | None = None,
    progress: Exchange | None = None,
) -> Exchange:
    """POST a body: bytes, or anything that JSON can say; cut in pieces of `cut` bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = cut or len(raw) or 1
    parts = [raw[start : start + size] for start in range(0, len(raw), size)] or [b""]
    waiting = [
        {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
        for index, part in enumerate(parts)
    ]
    told = {"content-type": "application/json"} | (headers or {})
    got = progress or Exchange()

    async def receive() -> MutableMapping[str, Any]:
        if waiting and not got.left.is_set():
            return waiting.pop(0)
        await got.left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        assert not got.complete, f"after the end of the answer: {message}"
        if message["type"] == "http.response.start":
            assert got.status is None, "a second answer"
            got.status = message["status"]
            got.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        assert got.status is not None, "a body before the status"
        got.pieces.append(message.get("body", b""))
        got.complete = not message.get("more_body", False)
        if got.on_piece is not None:
            got.on_piece(got.pieces[-1])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in told.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return got
