"""From a body to an answer and the updates that make it. Knows no HTTP."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from adapter.answer.deltas import Answer
from adapter.engine.client import Engine, RunOptions
from adapter.engine.output_reader import OutputReader
from adapter.engine.updates import CandidateUpdate, Updates
from adapter.errors import InvalidRequest
from adapter.guided.compile.service import CompiledConstraint
from adapter.guided.constraint import Constraint
from adapter.metrics import count_retry
from adapter.planning.calls import EngineCall
from adapter.planning.modes import Beams, Greedy, Nothing, Score
from adapter.planning.plan import Plan, PromptLengths, engine_calls
from adapter.reading.read import Reading
from adapter.server.request_log import RequestRecord


@dataclass(frozen=True, slots=True)
class Caller:
    """What came with a body: where the engine's work is to run, and who watches it."""

    request_id: str
    priority: int = 0
    data_parallel_rank: int | None = None
    session_id: str | None = None
    trace_headers: Mapping[str, str] | None = None


class Completion:
    """A request that was checked through and through, and not yet given to the engine."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        calls: tuple[EngineCall, ...],
        *,
        request_id: str,
        options: RunOptions,
        schema: str | None,
        record: RequestRecord,
    ) -> None:
        """schema: what a finished text has to be checked against; None where nothing is."""
        self.plan = plan
        self.answer = Answer(plan.shape, calls, engine.tokens)
        self._engine = engine
        self._calls = calls
        self._request_id = request_id
        self._options = options
        self._record = record
        self._schema = schema

    @property
    def _in_pieces(self) -> bool:
        """Whether the engine gives updates as it goes, or only the finished texts.

        Of a text that may be taken back nothing is shown.
        """
        return self.plan.stream and self.plan.mode.streams and self._schema is None

    @property
    def can_be_read_directly(self) -> bool:
        """Whether nothing stands between the engine's updates and a stream's events."""
        return self._in_pieces and not isinstance(self.plan.mode, Beams | Nothing | Score)

    def updates(self) -> AsyncGenerator[Updates, None]:
        """The updates as they come. Closing the generator aborts what still runs.

        Raises:
            ApiError: the engine failed, or a finished text is not what its schema asks for.
        """
        if self._schema is not None:
            return self._engine.run_checked(
                self._calls,
                request_id=self._request_id,
                options=self._options,
                schema=self._schema,
                thrown_away=self._throw_away,
            )
        return self._engine.run(
            self._calls,
            request_id=self._request_id,
            stream=self._in_pieces,
            options=self._options,
        )

    def _throw_away(self, text: CandidateUpdate) -> None:
        """A text failed its check, and another one is made in its place."""
        self.answer.throw_away(len(text.token_ids))
        count_retry()
        self._record.guided_retries += 1
        if isinstance(self.plan.mode, Greedy):  # in which nothing else is adjusted
            self._record.adjusted = ("temperature",)  # see TEMPERATURE_AGAIN

    def opened(self) -> AbstractAsyncContextManager[OutputReader]:
        """The same for who reads directly; leaving the context aborts what still runs."""
        return self._engine.opened(
            self._calls, request_id=self._request_id, stream=True, options=self._options
        )


async def begin(
    reading: Reading,
    caller: Caller,
    engine: Engine,
    record: RequestRecord,
    *,
    reject_unknown_fields: bool,
) -> Completion:
    """Take a request that was read, and compile and tokenise what it holds.

    record: is told what becomes known on the way, also of a request that is refused.

    Raises:
        ApiError: the request is refused, or cannot be served now.
    """
    _note(reading, record, reject_unknown_fields)
    adapter = await engine.adapter_for(reading.model)
    made = reading.plan()
    record.adjusted = made.adjusted
    engine.refuse_if_unavailable(len(made.prompts) * made.mode.sequences)
    compiled = await _compiled(made.constraint, engine, record) if made.constraint else None
    token_ids = await engine.tokenize(
        made.prompts,
        add_special_tokens=made.add_special_tokens,
        check=PromptLengths(made, engine.facts),
    )
    return Completion(
        engine,
        made,
        engine_calls(made, token_ids, compiled.program if compiled else None),
        request_id=caller.request_id,
        options={
            "lora_request": adapter,
            "trace_headers": caller.trace_headers,
            "priority": caller.priority,
            "data_parallel_rank": caller.data_parallel_rank,
            "session_id": caller.session_id,
        },
        schema=compiled.schema if compiled and made.mode.generates else None,
        record=record,
    )


def _note(reading: Reading, record: RequestRecord, reject_unknown_fields: bool) -> None:
    """Keep what the log and the headers tell; refuse unknown fields where that is set."""
    record.model = reading.model
    record.user = reading.user
    record.n, record.best_of = reading.n, reading.best_of
    record.ignored = reading.unknown
    if record.ignored and reject_unknown_fields:
        first = record.ignored[0][:200]
        raise InvalidRequest(
            f"Unknown field {first!r}: the contract has no such field.",
            param=first,
            code="unknown_field",
        )


async def _compiled(
    constraint: Constraint, engine: Engine, record: RequestRecord
) -> CompiledConstraint:
    """Compile the constraint; keep what the log and the headers tell of it."""
    record.constraint, record.backend = constraint.kind, constraint.backend
    compiled = await engine.compile(constraint)
    record.backend = compiled.backend
    record.guided = compiled.backend + ("" if compiled.schema is None else "; checked")
    return compiled
