"""Gives each request of one engine its own backend, by four patches of vLLM.

vLLM holds one structured-output backend an engine (vllm/v1/structured_output/__init__.py), and
refuses a request that names another (vllm/sampling_params.py, _validate_structured_outputs). With
backends chosen by request in vLLM, as vllm-project/vllm issue 16738 asked (closed without it), this
file could go.

The same four methods in 0.32, 0.33 and 0.34, and under both model runners: the manager fills the
masks in the engine's core, and a runner only lays them over the logits (V1: apply_grammar_bitmask
in vllm/v1/structured_output/utils.py; V2: vllm/v1/worker/gpu/structured_outputs.py, on CPUs without
Triton vllm/v1/worker/cpu/structured_outputs.py).
"""

from typing import Any

from adapter.guided.engine_side.backends import NAME, Backends
from adapter.vllm_api import (
    SamplingParams,
    StructuredOutputGrammar,
    StructuredOutputManager,
    logger,
)


def let_requests_choose_backends() -> None:
    """Patch vLLM in this process, once."""
    if getattr(StructuredOutputManager, "_completion_v2", False):
        return
    StructuredOutputManager._completion_v2 = True
    SamplingParams._validate_structured_outputs = _validating(
        SamplingParams._validate_structured_outputs
    )
    StructuredOutputManager.__init__ = _with_backends(StructuredOutputManager.__init__)
    StructuredOutputManager.grammar_init = _with_guides(StructuredOutputManager.grammar_init)
    StructuredOutputManager._create_grammar = _create_grammar


def _validating(original: Any) -> Any:
    """A request of ours was compiled before it came here, and vLLM does not know its backend."""

    def validate(self: Any, model_config: Any, config: Any, tokenizer: Any) -> None:
        asked = self.structured_outputs
        if asked is None or asked._backend != NAME:
            original(self, model_config, config, tokenizer)

    return validate


def _with_backends(original: Any) -> Any:
    """The manager's one backend is ours, which holds all; vLLM makes none while there is one."""

    def init(self: Any, vllm_config: Any) -> None:
        original(self, vllm_config)
        if not vllm_config.model_config.skip_tokenizer_init:
            self.backend = Backends(vllm_config, self.tokenizer)

    return init


def _with_guides(original: Any) -> Any:
    """A request of ours gets its Guide. Others go vLLM's way, each to its own backend.

    Since 0.33 vLLM refuses a second backend there, by the name of the one that it made itself; it
    makes none here.
    """

    def grammar_init(self: Any, request: Any) -> None:
        structured = request.structured_output_request
        if structured is None or structured.params._backend != NAME:
            original(self, request)
            return
        # The whole text is constrained, whatever a reasoning parser thinks of its beginning.
        structured.reasoning_ended = True
        structured.grammar = self.backend.load(structured.params.grammar)

    return grammar_init


def _create_grammar(self: Any, request: Any) -> StructuredOutputGrammar:
    """vLLM's own, but for the backend: the one that this request resolved to."""
    structured = request.structured_output_request
    kind, text = structured.structured_output_key
    backend = self.backend.named(structured.params._backend)
    stops = request.sampling_params.all_stop_token_ids if request.sampling_params else None
    try:
        return backend.compile_grammar(kind, text, stop_token_ids=stops)
    except Exception:
        logger.exception("Failed to compile grammar for request %s", request.request_id)
        raise
