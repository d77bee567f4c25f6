"""One HTTP request and its answer: reads the body, answers, and stops when the caller leaves."""

import asyncio
import time
import uuid

from starlette.datastructures import Headers
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import Receive, Scope, Send

from adapter.answer.sse import Envelope
from adapter.errors import (
    ApiError,
    BodyTooLarge,
    EncodedBody,
    InternalError,
    InvalidRequest,
    RequestTimeout,
    Unavailable,
)
from adapter.planning.plan import Plan
from adapter.server.completion import Caller, Completion, begin
from adapter.server.request_log import RequestRecord
from adapter.server.response import Response
from adapter.server.state import ServerState
from adapter.server.writers import AnswerWriter, OwnStream, SharedStream, WholeAnswer
from adapter.vllm_api import contains_trace_headers, extract_trace_headers, logger

_CLIENT_GONE = 499  # as nginx logs it

# Packages whose middleware, what vLLM puts around every route, passes messages on as they come.
_KNOWN_MIDDLEWARE = {"prometheus_fastapi_instrumentator", "starlette", "vllm"}


class _ClientLeft(Exception):
    """The caller left before its request was complete."""


class Exchange:
    """One request and its answer."""

    def __init__(self, server: ServerState, scope: Scope, receive: Receive, send: Send) -> None:
        self._server = server
        self._scope = scope
        self._headers = headers = Headers(scope=scope)
        self._receive = receive
        self._client_gone = False
        self._record = RequestRecord(headers.get("x-request-id") or uuid.uuid4().hex)
        self._response = Response(send, self._record, adds_request_id=server.adds_request_id)

    async def run(self) -> None:
        """Answer, whatever happens; stop all work when the caller leaves."""
        try:
            await self._unless_client_leaves(await self._body())
        except ApiError as error:
            await self._response.fail(error)
        except _ClientLeft:
            self._record.status = _CLIENT_GONE
        except Exception:
            logger.exception("POST %s failed", self._scope["path"])
            await self._response.fail(InternalError())
        finally:
            self._record.write(self._headers, trace=self._server.traces)

    async def _unless_client_leaves(self, body: bytes) -> None:
        # A task of its own: what wakes it resumes every coroutine above it, and in the caller's
        # task those are all of the server's layers.
        answer = asyncio.create_task(self._answer_in_time(body))

        async def watch() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self._client_gone = True
            answer.cancel()

        watcher = asyncio.create_task(watch())
        watcher.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await answer
        except asyncio.CancelledError:
            if not self._client_gone:
                raise
            self._record.status = _CLIENT_GONE
        finally:
            watcher.cancel()

    async def _body(self) -> bytes:
        """The request's body.

        Raises:
            InvalidRequest: not JSON by its content type, compressed, or too large.
        """
        self._check_content_type()
        self._check_content_encoding()
        limit = self._server.settings.max_body_mb * 2**20
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise BodyTooLarge(f"The body is larger than {limit} bytes.")
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _check_content_type(self) -> None:
        content_type = self._headers.get("content-type", "application/json")
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise InvalidRequest(
                f"content-type must be application/json, not {content_type[:100]!r}.",
                param="content-type",
                code="unsupported_media_type",
            )

    def _check_content_encoding(self) -> None:
        encoding = self._headers.get("content-encoding", "identity").strip()
        if encoding.lower() not in ("", "identity"):
            raise EncodedBody(
                f"content-encoding must be identity, not {encoding[:100]!r}: compressed bodies are "
                "not read.",
                param="content-encoding",
            )

    async def _answer_in_time(self, body: bytes) -> None:
        """Answer, no longer than the operator allows.

        Raises:
            RequestTimeout: it would take longer; what ran for it is aborted.
        """
        seconds = self._server.settings.request_timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._answer(body)
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(
                f"The request took longer than {seconds:g} s, which is the limit of this server "
                "(--request-timeout). Ask for less."
            ) from None

    async def _answer(self, body: bytes) -> None:
        server = self._server
        if server.engine is None or server.reader is None:
            raise Unavailable("This server has no engine.")
        completion = await begin(
            await server.reader.read(body),
            self._caller(),
            server.engine,
            self._record,
            reject_unknown_fields=server.settings.reject_unknown_fields,
        )
        envelope = self._envelope(completion.plan, server.engine.system_fingerprint)
        try:
            await self._writer(completion).write(completion, envelope, self._response)
        finally:
            self._record.usage = completion.answer.usage()

    def _caller(self) -> Caller:
        headers = self._headers
        return Caller(
            request_id=f"cmpl-{self._record.request_id}",
            priority=_integer(headers.get("x-vllm-priority")) or 0,
            data_parallel_rank=_integer(headers.get("x-data-parallel-rank")),
            session_id=headers.get("x-session-id"),
            trace_headers=self._trace_headers(),
        )

    def _trace_headers(self) -> dict[str, str] | None:
        if not self._server.traces or not contains_trace_headers(self._headers):
            return None
        return dict(extract_trace_headers(self._headers))

    def _envelope(self, plan: Plan, system_fingerprint: str | None) -> Envelope:
        return Envelope(
            answer_id=f"cmpl-{self._record.request_id}",
            created=int(time.time()),
            model=plan.model,
            system_fingerprint=system_fingerprint,
            include_usage=plan.include_usage,
            without_nulls=self._server.without_nulls,
        )

    def _writer(self, completion: Completion) -> AnswerWriter:
        if not completion.plan.stream:
            return WholeAnswer()
        if completion.can_be_read_directly and self._can_share():
            return SharedStream(self._server.stream_writer)
        return OwnStream(self._server.keep_alive_seconds)

    def _can_share(self) -> bool:
        """Whether this exchange's stream may be written together with others.

        Not with keep-alives, which need a clock, nor through middleware that may need the request's
        own task: whatever is not known to do without (Starlette's BaseHTTPMiddleware does not).
        """
        if self._server.keep_alive_seconds > 0:
            return False
        around = [entry.cls for entry in self._scope["app"].user_middleware]
        return all(
            kind.__module__.partition(".")[0] in _KNOWN_MIDDLEWARE
            and not (isinstance(kind, type) and issubclass(kind, BaseHTTPMiddleware))
            for kind in around
        )


def _integer(value: str | None) -> int | None:
    """A routing header's number; such headers come from routers, and a wrong one is no request's
    fault (as in vLLM's own routes)."""
    try:
        number = int(value) if value is not None else None
    except ValueError:
        return None
    # The engine's transport carries 64 bits.
    return number if number is not None and abs(number) < 2**63 else None
