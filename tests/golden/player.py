"""Plays a golden case: a server of the fake engine in this process, a request, and its answer.

Only the application and the engine's client are touched; nothing between them is.
"""

import json
import re
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from tests.asgi_client import Exchange, exchange, run
from tests.conftest import Server, start_server
from tests.fake_engine import FakeServingModels
from tests.golden.engine import GoldenEngine, described, output_of
from tests.golden.files import Case, Json
from tests.tiny_tokenizer import tiny_tokenizer

SEEN_HEADERS = ("x-ignored-fields", "x-adjusted-fields", "x-guided-decoding", "retry-after")
"""Headers that a reply lists where they are there."""

_ENVELOPE = ("id", "object", "created", "model", "system_fingerprint")
_DONE = "[DONE]"
_CONTENT_TYPES = {"body": "application/json", "events": "text/event-stream; charset=utf-8"}

# JSON leaves these as they are; the answers do not, since many readers take them for line ends.
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


_INDEXES = TemporaryDirectory(prefix="golden-indexes-")
"""Where compiled indexes are left."""


@dataclass(frozen=True)
class Played:
    """What one request did."""

    exchange: Exchange
    calls: list[Json]
    outputs: set[str]
    """How the engine was asked to answer: "final", "deltas"."""
    all_said: bool
    """The engine said all that the case has it say."""
    started: int
    """Seconds since the epoch."""

    @property
    def kind(self) -> str:
        """What the answer is: "body" or "events"."""
        return "body" if "content-length" in self.exchange.headers else "events"

    def reply(self, case: Case) -> Json:
        """The answer as a case has it, the envelopes left out."""
        got = self.exchange
        noted = [*SEEN_HEADERS, *(["x-request-id"] if _own_id(case) else [])]
        headers = {name: got.headers[name] for name in noted if name in got.headers}
        reply: Json = {"status": got.status} | ({"headers": headers} if headers else {})
        if self.kind == "body":
            return reply | {"body": _without_envelope(got.json())}
        blocks = got.body.decode().split("\n\n")
        assert blocks.pop() == ""
        events = [block.removeprefix("data: ") for block in blocks]
        return reply | {
            "events": [
                event if event == _DONE else _without_envelope(json.loads(event))
                for event in events
            ]
        }

    def envelope(self, case: Case) -> Json:
        """What every piece of this answer begins with, but for a wrong request's."""
        found = re.search(r'"created":([0-9]+)', self.exchange.body.decode())
        fingerprint = re.search(r'"system_fingerprint":"([^"]+)"', self.exchange.body.decode())
        return {
            "id": f"cmpl-{self.exchange.headers['x-request-id']}",
            "object": "text_completion",
            "created": int(found[1]) if found else None,
            "model": self._model(case),
            "system_fingerprint": fingerprint[1] if fingerprint else None,
        }

    def _model(self, case: Case) -> str | None:
        if self.exchange.status != 200:
            return None
        name: str = json.loads(case.raw_body(streamed=False))["model"]
        return name

    def expected_bytes(self, case: Case, reply: Json) -> bytes:
        """A reply's bytes, with this answer's id, time and fingerprint."""
        envelope = self.envelope(case)
        if "body" in reply:
            return _bytes(_with_envelope(reply["body"], envelope))
        return b"".join(
            b"data: " + (_DONE.encode() if event == _DONE else _bytes(event)) + b"\n\n"
            for event in (_with_envelope(event, envelope) for event in reply["events"])
        )

    def expected_text(self, case: Case, text: str) -> str:
        """A reply's exact text, its placeholders filled."""
        envelope = self.envelope(case)
        for name in ("id", "created", "system_fingerprint"):
            text = text.replace("{" + name + "}", str(envelope[name]))
        return text


def _own_id(case: Case) -> bool:
    return "x-request-id" in case.fields["request"].get("headers", {})


def _without_envelope(value: Json) -> Json:
    if "error" in value:
        return value
    assert tuple(value)[: len(_ENVELOPE)] == _ENVELOPE
    return {name: item for name, item in value.items() if name not in _ENVELOPE}


def _with_envelope(value: Any, envelope: Json) -> Any:
    return value if value == _DONE or "error" in value else envelope | value


def _bytes(value: Any) -> bytes:
    """JSON in one line without blanks, in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char, escape in _LINE_ENDS.items():
        text = text.replace(char, escape)
    return text.encode()


def content_type(kind: str) -> str:
    """Of an answer in one piece ("body") or of a stream ("events")."""
    return _CONTENT_TYPES[kind]


# --- the server ---------------------------------------------------------------------------------


@cache
def _tokenizer(special_tokens: tuple[str, ...], adds_bos: bool) -> Any:
    """The tests' tokenizer, with more special tokens, and one before each text if asked."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer(special_tokens)
    if adds_bos:
        bos = (tokenizer.bos_token, tokenizer.bos_token_id)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{bos[0]} $A", special_tokens=[bos]
        )
    return tokenizer


@cache
def _server(facts_as_json: str) -> tuple[Server, GoldenEngine]:
    """A server of an engine, as a case's facts describe them; it waits for the next case."""
    facts = json.loads(facts_as_json)
    engine = _engine(facts)
    models = FakeServingModels(*facts["models"])
    models.lora_requests = {name: name for name in facts["loras"]}
    with pytest.MonkeyPatch.context() as patch:
        server = start_server(
            None if facts["engine"] == "absent" else engine,
            models,
            patch,
            unknown_fields=facts["unknown_fields"],
            max_choices=facts["max_choices"],
            infill_template=facts["infill_template"],
        )
    return server, engine


def _engine(facts: Json) -> GoldenEngine:
    from vllm.exceptions import QueueOverflowError
    from vllm.renderers.params import TokenizeParams

    engine = GoldenEngine(
        _tokenizer(tuple(facts["special_tokens"]), facts["adds_bos"]),
        TokenizeParams(max_total_tokens=facts["max_model_len"]),
        max_model_len=facts["max_model_len"],
    )
    config: Any = engine.model_config
    config.max_logprobs = facts["max_logprobs"]
    config.generation_config = facts["generation_config"]
    config.override_generation_config = {"max_new_tokens": facts["max_new_tokens"]}
    vllm_config: Any = engine.vllm_config
    vllm_config.speculative_config = object() if facts["speculative_decoding"] else None
    vllm_config.structured_outputs_config = SimpleNamespace(backend=facts["guided_backend"])
    engine.errored = facts["engine"] == "dead"
    engine.refusal = QueueOverflowError() if facts["engine"] == "full" else None
    return engine


def compile_here(patch: pytest.MonkeyPatch, *, relaxed: bool) -> None:
    """Compile constraints in this process, where nothing stops them, instead of in others.

    relaxed: a schema that no library can hold may be served by a check of the finished text.
    """
    from adapter.errors import NotSupported
    from adapter.guided.compile.compiler import Refused
    from adapter.guided.compile.service import CompiledConstraint, CompileService
    from adapter.guided.compile.validation import text_fault

    async def compile_here(self: Any, constraint: Any) -> CompiledConstraint:
        try:
            made = _compiler(self.vocabulary).compile(constraint, relaxed=relaxed)
        except Refused as refused:
            param = refused.field or constraint.field
            raise NotSupported(refused.message, param=param) from None
        return CompiledConstraint(
            made.program, made.backend, constraint.text if made.checked else None
        )

    async def check(_self: Any, schema: str, text: str) -> None:
        assert text_fault(schema, text) is None

    patch.setattr(CompileService, "compile", compile_here)
    patch.setattr(CompileService, "check", check)


@cache
def _compiler(vocabulary: Any) -> Any:
    """What compiles constraints for a vocabulary; the libraries are loaded once."""
    from adapter.guided.backends.registry import Libraries
    from adapter.guided.compile.compiler import ConstraintCompiler

    return ConstraintCompiler(Libraries(vocabulary), Path(_INDEXES.name))


def play(case: Case, *, streamed: bool) -> Played:
    """Send a case's request, with stream set to true if asked, and take the answer."""
    facts = case.server
    server, engine = _server(json.dumps(facts))
    engine.will_say(case.fields.get("engine_says", []))
    body = case.raw_body(streamed=streamed).encode()
    started = int(time.time())
    with pytest.MonkeyPatch.context() as patch:
        compile_here(patch, relaxed=facts["guided_fallback"] == "check")
        got = run(exchange(server.app, body, headers=case.fields["request"].get("headers")))
    return Played(
        got,
        [described(call) for call in engine.calls],
        {output_of(call) for call in engine.calls},
        engine.silent,
        started,
    )
