"""POST /v2/completions as an ASGI application: no framework reads the body or wraps the answer."""

from dataclasses import replace

from starlette.types import Receive, Scope, Send

from adapter.server.exchange import Exchange
from adapter.server.state import ServerState
from adapter.settings import Settings

PATH = "/v2/completions"
LLM_ENGINE_PATH = "/v1/completions"


class CompletionsEndpoint:
    """Answers POST /v2/completions; 503 until it was opened."""

    def __init__(self, *, without_nulls: bool = False) -> None:
        """without_nulls: see Envelope."""
        self._without_nulls = without_nulls
        self._server = ServerState(None, Settings(reject_unknown_fields=False, max_choices=1))

    def open(self, server: ServerState) -> None:
        """Answer from now on with what a server has."""
        self._server = replace(server, without_nulls=self._without_nulls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(self._server, scope, receive, send)
        load = self._server.load
        if load is None:
            await exchange.run()
            return
        load.server_load_metrics += 1
        try:
            await exchange.run()
        finally:
            load.server_load_metrics -= 1
