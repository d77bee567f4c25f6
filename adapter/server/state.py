"""What the route works with, made once when vLLM gives its engine."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any

from adapter.answer.stream_writer import StreamWriter
from adapter.engine.client import Engine
from adapter.reading.reader import BodyReader
from adapter.settings import Settings, settings_from


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is the same for all requests to a route."""

    engine: Engine | None
    """None on a server without one (vLLM's render server)."""
    settings: Settings
    reader: BodyReader | None = None
    """There where the engine is."""
    without_nulls: bool = False
    """See Envelope."""
    keep_alive_seconds: float = 0.0
    """Between the comments that keep a stream's connection open; 0 for none."""
    traces: bool = False
    adds_request_id: bool = True
    """False where vLLM's middleware adds x-request-id."""
    load: Any = None
    """vLLM's application state where it counts the running requests, which /load shows
    (--enable-server-load-tracking); else None."""
    stream_writer: StreamWriter = field(default_factory=StreamWriter)


def server_state(engine_client: Any, state: Any, args: Namespace) -> ServerState:
    """The state of a server, its engine started.

    engine_client: vLLM's AsyncLLM, or None. state: the application's. args: the command line's.

    Raises:
        ValueError: a setting that cannot be.
    """
    settings = settings_from(args)
    engine = None
    if engine_client is not None:
        engine = Engine(engine_client, state.openai_serving_models, settings)
        engine.start()
    return ServerState(
        engine=engine,
        settings=settings,
        reader=None if engine is None else BodyReader(engine.facts),
        keep_alive_seconds=float(getattr(args, "sse_keep_alive_interval", 0) or 0),
        traces=_traces(engine_client),
        adds_request_id=not getattr(args, "enable_request_id_headers", False),
        # vLLM sets the state's own flag only after it has called its plugins.
        load=state if getattr(args, "enable_server_load_tracking", False) else None,
    )


def _traces(engine_client: Any) -> bool:
    if engine_client is None:
        return False
    return engine_client.vllm_config.observability_config.otlp_traces_endpoint is not None
