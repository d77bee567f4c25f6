"""One log line and one trace span for each request: who asked, what it cost, how it ended."""

import json
import time
from collections.abc import Mapping
from typing import Any

from adapter.answer.deltas import Usage
from adapter.metrics import NONE, count_ignored_fields, count_refusal, count_request
from adapter.vllm_api import SpanKind, extract_trace_context, instrument_manual, logger

_LONGEST = 1000


class RequestRecord:
    """What is known of a request by its end. Never holds a text of the caller's but `user`."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.model: str | None = None
        self.user: str | None = None
        self.n: int | None = None
        self.best_of: int | None = None
        self.ignored: tuple[str, ...] = ()
        self.adjusted: tuple[str, ...] = ()
        """Fields that vLLM could not take exactly."""
        self.guided: str | None = None
        """Who holds the constraint, and whether the finished text is checked besides."""
        self.guided_retries = 0
        """Texts that failed that check, and were made again."""
        self.constraint = NONE
        """The kind of constraint."""
        self.backend = NONE
        """The backend that held it, or was asked to."""
        self.refused: str | None = None
        """The field at fault, where the request was refused."""
        self.status = 0
        self.usage = Usage(0, 0)
        self._started = time.time_ns()

    def write(self, headers: Mapping[str, str], *, trace: bool) -> None:
        """Count and log the request, and send its span where tracing is on."""
        count_request(self.status, self.constraint, self.backend)
        if self.refused is not None:
            count_refusal(self.refused)
        elif self.ignored:
            count_ignored_fields(len(self.ignored))
        ended = time.time_ns()
        facts: dict[str, Any] = {
            "request_id": self.request_id,
            "status": self.status,
            "model": _short(self.model),
            "user": _short(self.user),
            "n": self.n,
            "best_of": self.best_of,
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "seconds": round((ended - self._started) / 1e9, 4),
        }
        if self.constraint != NONE:
            facts |= {"constraint": self.constraint, "backend": self.backend}
            facts |= {"guided_retries": self.guided_retries} if self.guided_retries else {}
        if self.ignored:
            facts["ignored_fields"] = _short(", ".join(self.ignored))
        # JSON, so that nothing a caller sends can look like a line of its own.
        logger.info("completion %s", json.dumps(facts))
        if trace:
            instrument_manual(
                span_name="POST /v2/completions",
                start_time=self._started,
                end_time=ended,
                attributes={f"completion_v2.{k}": v for k, v in facts.items() if v is not None},
                context=extract_trace_context(headers),
                kind=SpanKind.SERVER,
            )


def _short(text: str | None) -> str | None:
    """A caller's text, cut where it would fill the log."""
    return text if text is None or len(text) <= _LONGEST else text[:_LONGEST] + "..."
