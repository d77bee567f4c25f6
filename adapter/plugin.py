"""What vLLM loads in the API server process: it puts the route into vLLM's application.

vLLM skips a plugin that fails to load, and says so in its log only. So nothing here may fail before
attach_router: whatever is wrong is raised there, and stops the server.
"""

from argparse import Namespace
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import State

from adapter import vllm_version

# Flags of vLLM's that change the answers of its own /v1/completions, which the contract fixes here,
# or write them to the log, where no text of a caller's goes here.
_WITHOUT_EFFECT = (
    "enable_force_include_usage",
    "enable_log_outputs",
    "enable_per_request_metrics",
    "enable_prompt_tokens_details",
    "return_tokens_as_token_ids",
)


class CompletionV2Plugin:
    """vLLM's endpoint plugin (vllm/plugins/endpoint_plugins/interface.py)."""

    name = "completion_v2"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._endpoints: list[Any] = []

    def attach_router(self, app: FastAPI) -> None:
        """Add POST /v2/completions.

        Raises:
            UnsupportedVllm: vLLM's version is not one that this package was tested with.
        """
        vllm_version.check(vllm_version.installed())
        from adapter.server.key_errors import KeyErrors
        from adapter.server.openapi import completions_route, describe
        from adapter.server.routes import LLM_ENGINE_PATH, PATH, CompletionsEndpoint
        from adapter.settings import for_llm_engine
        from adapter.vllm_api import envs
        from adapter.vllm_patches.detokenizer import hold_back_less, repair_detokenizer

        repair_detokenizer()
        hold_back_less()
        paths = {PATH: CompletionsEndpoint()}
        if for_llm_engine():
            paths[LLM_ENGINE_PATH] = CompletionsEndpoint(without_nulls=True)
        self._endpoints = list(paths.values())
        for path, endpoint in paths.items():
            # First: each request walks the routes twice, for the router and for vLLM's metrics.
            app.router.routes.insert(0, completions_route(path, endpoint))
        describe(app)
        if getattr(getattr(app.state, "args", None), "api_key", None) or envs.VLLM_API_KEY:
            build_stack = app.build_middleware_stack
            # Around vLLM's own middleware, which is added later and would go around one added here.
            app.build_middleware_stack = lambda: KeyErrors(build_stack(), paths)  # type: ignore[method-assign]

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        """Give the route its engine. Without one (vLLM's render server) it answers 503."""
        from adapter.server.state import server_state
        from adapter.vllm_api import logger
        from adapter.vllm_patches.admission import let_admitted_work_go_on

        if engine_client is not None:
            let_admitted_work_go_on(engine_client)
        server = server_state(engine_client, state, args)
        for endpoint in self._endpoints:
            endpoint.open(server)
        for name in _WITHOUT_EFFECT:
            if getattr(args, name, False):
                flag = "--" + name.replace("_", "-")
                logger.warning("%s has no effect on POST /v2/completions", flag)
