"""What goes over the wire: status, headers and body of one response, as ASGI messages."""

from collections.abc import Sequence
from urllib.parse import quote

from starlette.types import Send

from adapter.answer.sse import DONE, error_event, json_bytes
from adapter.errors import ApiError, InvalidRequest, Unavailable
from adapter.server.request_log import RequestRecord

Headers = list[tuple[bytes, bytes]]

_MAX_HEADER = 4000
_MAX_PIECE = 2**20
"""Bytes of a body that are put together from smaller pieces and sent at once."""


class Response:
    """One response; what it tells of its request stands in the record."""

    def __init__(self, send: Send, record: RequestRecord, *, adds_request_id: bool) -> None:
        """adds_request_id: False where vLLM's middleware does it."""
        self._send = send
        self._record = record
        self._adds_request_id = adds_request_id
        self._started = False

    async def start(self, status: int, content_type: bytes, headers: Headers | None = None) -> None:
        """Send status and headers."""
        self._started = True
        self._record.status = status
        all_headers = [(b"content-type", content_type), *(headers or []), *self._own_headers()]
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Send a piece of the body; may wait for a slow reader."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def send_whole(self, status: int, *pieces: bytes, headers: Headers | None = None) -> None:
        """Send a JSON body, given in pieces; a large one is sent in several."""
        length = (b"content-length", str(sum(map(len, pieces))).encode())
        await self.start(status, b"application/json", [length, *(headers or [])])
        waiting: list[bytes] = []
        size = 0
        for piece in pieces:
            if waiting and size + len(piece) > _MAX_PIECE:
                await self.write(b"".join(waiting))
                waiting, size = [], 0
            waiting.append(piece)
            size += len(piece)
        await self.write(b"".join(waiting), last=True)

    async def fail(self, error: ApiError) -> None:
        """An HTTP error before the first byte, an error event after it."""
        if isinstance(error, InvalidRequest):
            self._record.refused = error.param or ""
        if not self._started:
            retry = [(b"retry-after", b"1")] if isinstance(error, Unavailable) else []
            await self.send_whole(error.status, json_bytes(error.body()), headers=retry)
            return
        self._record.status = error.status
        await self.write(error_event(error) + DONE, last=True)

    def _own_headers(self) -> Headers:
        record = self._record
        headers: Headers = []
        if self._adds_request_id:
            headers.append((b"x-request-id", record.request_id.encode("latin-1", "replace")))
        for name, fields in (
            (b"x-ignored-fields", record.ignored),
            (b"x-adjusted-fields", record.adjusted),
        ):
            if fields:
                headers.append((name, _field_list(fields)))
        if record.guided is not None:
            retries = f"; retries={record.guided_retries}" if record.guided_retries else ""
            headers.append((b"x-guided-decoding", (record.guided + retries).encode()))
        return headers


def _field_list(names: Sequence[str]) -> bytes:
    """Names as a header value: a caller's name may hold any character, and be any length."""
    shown = names[: _MAX_HEADER // 3]  # more would not fit: each takes three characters or more
    value = ", ".join(quote(name[:200], safe=" $()*/:;<=>?@[]_{|}~!#&+.^`'-") for name in shown)
    return (value if len(value) <= _MAX_HEADER else value[:_MAX_HEADER] + ", ...").encode()
