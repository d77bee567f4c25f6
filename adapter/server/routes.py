"""POST /v2/completions: the only file that knows HTTP.

The endpoint is an ASGI application, so that no framework reads the body or wraps the answer: parse,
plan, tokenise, run, answer.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from typing import Any, TypedDict
from urllib.parse import quote

from starlette.datastructures import Headers, State
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapter.answer.deltas import Answer, Delta, fold
from adapter.answer.sse import DONE, Envelope, error_event, json_bytes
from adapter.answer.stream_writer import Outbox
from adapter.contract.request import CompletionV2Request, parse_request, unknown_fields
from adapter.engine.client import Engine, RunOptions
from adapter.engine.output_reader import Inbox, Updates
from adapter.errors import ApiError, InternalError, InvalidRequest, Unavailable, WrongKey
from adapter.guided.compile.service import CompiledConstraint
from adapter.guided.constraint import Constraint
from adapter.planning import translate
from adapter.server.request_log import RequestRecord
from adapter.settings import Settings
from adapter.vllm_api import (
    LoRARequest,
    contains_trace_headers,
    extract_trace_headers,
    logger,
    with_sse_keep_alive,
)

PATH = "/v2/completions"
LLM_ENGINE_PATH = "/v1/completions"

# Parsing holds up the event loop: some 0.15 s for each MiB of numbers.
MAX_BODY_BYTES = 16 * 2**20
_MAX_HEADER = 4000
_CLIENT_GONE = 499  # as nginx logs it

# Packages whose middleware, what vLLM puts around every route, passes messages on as they come.
_KNOWN_MIDDLEWARE = {"prometheus_fastapi_instrumentator", "starlette", "vllm"}

_Headers = list[tuple[bytes, bytes]]


class CompletionsEndpoint:
    """Answers POST /v2/completions once it was given an engine."""

    def __init__(self, *, without_nulls: bool = False) -> None:
        """without_nulls: see Envelope."""
        self.without_nulls = without_nulls
        self.engine: Engine | None = None
        self.settings = Settings(reject_unknown_fields=False, max_choices=1)
        self.keep_alive_seconds = 0.0
        self.traces = False
        self.adds_request_id = True
        self.outbox = Outbox()
        self.state: State | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = _Exchange(self, scope, receive, send)
        state = self.state
        tracks_load = state is not None and getattr(state, "enable_server_load_tracking", False)
        if not tracks_load:
            await exchange.run()
            return
        state.server_load_metrics += 1  # type: ignore[union-attr]  # what vLLM's /load shows
        try:
            await exchange.run()
        finally:
            state.server_load_metrics -= 1  # type: ignore[union-attr]


class _ClientLeft(Exception):
    """The caller left before its request was complete."""


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, endpoint: CompletionsEndpoint, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._endpoint = endpoint
        self._scope = scope
        self._headers = headers = Headers(scope=scope)
        self._receive = receive
        self._send = send
        self._started = False
        self._client_gone = False
        self._adjusted: Sequence[str] = ()
        self._guided: str | None = None
        self._record = RequestRecord(headers.get("x-request-id") or uuid.uuid4().hex)

    async def run(self) -> None:
        """Answer, whatever happens; stop all work when the caller leaves."""
        try:
            await self._unless_client_leaves()
        except ApiError as error:
            await self._fail(error)
        except _ClientLeft:
            self._record.status = _CLIENT_GONE
        except Exception:
            logger.exception("POST %s failed", PATH)
            await self._fail(InternalError())
        finally:
            self._record.write(self._headers, trace=self._endpoint.traces)

    async def _unless_client_leaves(self) -> None:
        body = await self._body()
        # A task of its own: what wakes it resumes every coroutine above it, and in the caller's
        # task those are all of the server's layers.
        answer = asyncio.create_task(self._answer(body))

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
            InvalidRequest: not JSON by its content type, or too large.
        """
        content_type = self._headers.get("content-type", "application/json")
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise InvalidRequest(
                f"content-type must be application/json, not {content_type[:100]!r}.",
                param="content-type",
                code="unsupported_media_type",
            )
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > MAX_BODY_BYTES:
                raise InvalidRequest(
                    f"The body is larger than {MAX_BODY_BYTES} bytes.", code="body_too_large"
                )
            if not message.get("more_body", False):
                return b"".join(pieces)

    # --- the main path

    async def _answer(self, body: bytes) -> None:
        engine = self._endpoint.engine
        if engine is None:
            raise Unavailable("This server has no engine.")
        request = parse_request(body)
        self._note(request)
        adapter = await engine.adapter_for(request.model)
        plan = translate.plan(request, engine.facts)
        self._adjusted = plan.adjusted
        engine.refuse_if_unavailable(
            len(plan.prompts) * plan.work.distinct if plan.work.runs else 0
        )
        compiled = await self._compile(plan.constraint, engine) if plan.constraint else None
        token_ids = await engine.tokenize(
            plan.prompts,
            request.add_special_tokens is not False,
            lambda index, count: translate.check_length(
                plan, index, count, request.max_tokens, engine.facts.max_model_len
            ),
        )
        calls = translate.engine_calls(plan, token_ids, compiled.program if compiled else None)
        answer = Answer(request, calls, engine.tokens)
        envelope = self._envelope(request, engine)
        # Ranked answers are known at the end alone: a stream brings them all at once.
        stream = request.stream and not plan.work.ranked
        run: _Run = {
            "request_id": f"cmpl-{self._record.request_id}",
            "stream": stream,
            "options": self._run_options(adapter),
        }
        schema = compiled.schema if compiled is not None else None
        try:
            if stream and plan.work.direct and schema is None and self._can_write_together():
                async with engine.opened(calls, **run) as inbox:
                    await self._stream_together(answer, envelope, inbox)
            else:
                updates = engine.run(calls, **run)
                if schema is not None:
                    updates = engine.checked(updates, schema)
                async with aclosing(updates):
                    if request.stream:
                        await self._stream(answer, envelope, updates)
                    else:
                        await self._respond(answer, envelope, updates)
        finally:
            self._record.usage = answer.usage()

    def _run_options(self, adapter: LoRARequest | None) -> RunOptions:
        return {
            "lora_request": adapter,
            "trace_headers": self._trace_headers(),
            "priority": _integer(self._headers.get("x-vllm-priority")) or 0,
            "data_parallel_rank": _integer(self._headers.get("x-data-parallel-rank")),
            "session_id": self._headers.get("x-session-id"),
        }

    async def _compile(self, constraint: Constraint, engine: Engine) -> CompiledConstraint:
        """Compile the constraint; keep what the log and the headers tell of it."""
        self._record.constraint, self._record.backend = constraint.kind, constraint.backend
        compiled = await engine.compile(constraint)
        self._record.backend = compiled.backend
        self._guided = compiled.backend + ("" if compiled.schema is None else "; checked")
        return compiled

    def _note(self, request: CompletionV2Request) -> None:
        """Keep what the log and the headers tell; refuse unknown fields where that is set."""
        self._record.model = request.model
        self._record.user = request.user
        self._record.n, self._record.best_of = request.n, request.best_of
        self._record.ignored = tuple(unknown_fields(request))
        if self._record.ignored and self._endpoint.settings.reject_unknown_fields:
            first = self._record.ignored[0][:200]
            raise InvalidRequest(
                f"Unknown field {first!r}: the contract has no such field.",
                param=first,
                code="unknown_field",
            )

    def _envelope(self, request: CompletionV2Request, engine: Engine) -> Envelope:
        options = request.stream_options
        return Envelope(
            answer_id=f"cmpl-{self._record.request_id}",
            created=int(time.time()),
            model=request.model,
            system_fingerprint=engine.system_fingerprint,
            include_usage=bool(options and options.include_usage),
            without_nulls=self._endpoint.without_nulls,
        )

    async def _respond(
        self, answer: Answer, envelope: Envelope, updates: AsyncIterator[Updates]
    ) -> None:
        deltas: list[Delta] = []
        async for batch in updates:
            deltas += answer.deltas(batch)
        body = envelope.response(fold(deltas), answer.usage())
        await self._send_whole(200, body)

    async def _stream(
        self, answer: Answer, envelope: Envelope, updates: AsyncIterator[Updates]
    ) -> None:
        """Write the updates' events in this task, with keep-alives where they are set."""
        interval = self._endpoint.keep_alive_seconds
        first = asyncio.ensure_future(anext(updates))
        try:
            # The status waits for the engine's first word: until then an error is an HTTP error.
            # A keep-alive interval bounds that wait, since a proxy would not wait longer.
            await asyncio.wait({first}, timeout=interval or None)
            start = envelope.chunks(answer.deltas(first.result())) if first.done() else b""
            await self._start_stream(start)
            events = _events(answer, envelope, updates, None if first.done() else first)
            await self._write_all(with_sse_keep_alive(events, interval) if interval else events)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        await self._end_stream(answer, envelope)

    def _can_write_together(self) -> bool:
        """Whether a stream of this exchange may be written by the outbox.

        Not with keep-alives, which need a clock, nor through middleware that may need the request's
        own task: whatever is not known to do without (Starlette's BaseHTTPMiddleware does not).
        """
        if self._endpoint.keep_alive_seconds > 0:
            return False
        around = [entry.cls for entry in self._scope["app"].user_middleware]
        return all(
            kind.__module__.partition(".")[0] in _KNOWN_MIDDLEWARE
            and not (isinstance(kind, type) and issubclass(kind, BaseHTTPMiddleware))
            for kind in around
        )

    async def _stream_together(self, answer: Answer, envelope: Envelope, inbox: Inbox) -> None:
        """Have the outbox write the updates' events, together with those of other streams."""
        await self._start_stream(envelope.chunks(answer.deltas(await inbox.news())))
        await self._endpoint.outbox.write(
            inbox, lambda: envelope.chunks(answer.deltas(inbox.take())), self._write
        )
        await self._end_stream(answer, envelope)

    async def _start_stream(self, events: bytes) -> None:
        no_cache = [(b"cache-control", b"no-cache")]
        await self._start(200, b"text/event-stream; charset=utf-8", no_cache)
        if events:
            await self._write(events)

    async def _end_stream(self, answer: Answer, envelope: Envelope) -> None:
        usage = envelope.usage_chunk(answer.usage()) if envelope.include_usage else b""
        await self._write(usage + DONE, last=True)

    async def _write_all(self, events: AsyncGenerator[bytes | str, None]) -> None:
        async with aclosing(events):
            async for piece in events:
                if piece:
                    await self._write(piece if isinstance(piece, bytes) else piece.encode())

    # --- what goes over the wire

    async def _start(self, status: int, content_type: bytes, headers: _Headers) -> None:
        self._started = True
        self._record.status = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", content_type), *headers, *self._own_headers()],
            }
        )

    async def _write(self, body: bytes, *, last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def _send_whole(self, status: int, body: bytes, headers: _Headers | None = None) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, b"application/json", [length, *(headers or [])])
        await self._write(body, last=True)

    async def _fail(self, error: ApiError) -> None:
        """An HTTP error before the first byte, an error event after it."""
        if isinstance(error, InvalidRequest):
            self._record.refused = error.param or ""
        if not self._started:
            retry = [(b"retry-after", b"1")] if isinstance(error, Unavailable) else []
            await self._send_whole(error.status, json_bytes(error.body()), retry)
            return
        self._record.status = error.status
        await self._write(error_event(error) + DONE, last=True)

    def _own_headers(self) -> _Headers:
        headers: _Headers = []
        if self._endpoint.adds_request_id:
            headers.append((b"x-request-id", self._record.request_id.encode("latin-1", "replace")))
        for name, fields in (
            (b"x-ignored-fields", self._record.ignored),
            (b"x-adjusted-fields", self._adjusted),
        ):
            if fields:
                headers.append((name, _field_list(fields)))
        if self._guided is not None:
            headers.append((b"x-guided-decoding", self._guided.encode()))
        return headers

    def _trace_headers(self) -> dict[str, str] | None:
        if not self._endpoint.traces or not contains_trace_headers(self._headers):
            return None
        return dict(extract_trace_headers(self._headers))


class _Run(TypedDict):
    """How a request's calls are given to the engine."""

    request_id: str
    stream: bool
    options: RunOptions


async def _events(
    answer: Answer,
    envelope: Envelope,
    updates: AsyncIterator[Updates],
    first: asyncio.Future[Updates] | None,
) -> AsyncGenerator[bytes, None]:
    """The events of all updates; `first` is one that is still waited for."""
    if first is not None:
        yield envelope.chunks(answer.deltas(await first))
    async for batch in updates:
        if events := envelope.chunks(answer.deltas(batch)):
            yield events


def _field_list(names: Sequence[str]) -> bytes:
    """Names as a header value: a caller's name may hold any character, and be any length."""
    value = ", ".join(quote(name[:200], safe=" $()*/:;<=>?@[]_{|}~!#&+.^`'-") for name in names)
    return (value if len(value) <= _MAX_HEADER else value[:_MAX_HEADER] + ", ...").encode()


def _integer(value: str | None) -> int | None:
    """A routing header's number; such headers come from routers, and a wrong one is no request's
    fault (as in vLLM's own routes)."""
    try:
        number = int(value) if value is not None else None
    except ValueError:
        return None
    # The engine's transport carries 64 bits.
    return number if number is not None and abs(number) < 2**63 else None


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
