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

import threading
from concurrent.futures import Future
from typing import Any

import torch

from adapter.guided.compiled import Compiler
from adapter.guided.matcher import Guide
from adapter.guided.program import Program
from adapter.guided.vocabulary import Vocabulary, end_token_ids, read_vocabulary
from adapter.vllm_api import (
    PIN_MEMORY,
    GuidanceBackend,
    LMFormatEnforcerBackend,
    OutlinesBackend,
    SamplingParams,
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputManager,
    StructuredOutputsParams,
    XgrammarBackend,
    logger,
    strip_speculative_padding,
)

NAME = "completion_v2"
"""The backend's name in a request of ours; its grammar is a Program."""


def structured_outputs(program: Program) -> StructuredOutputsParams:
    """What a request's sampling parameters carry to the engine."""
    params = StructuredOutputsParams(grammar=program.dumps())
    params._backend = NAME
    return params


def install() -> None:
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
        structured.grammar = self.backend.guided(structured.params.grammar)

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


class Backends(StructuredOutputBackend):  # type: ignore[misc]
    """Stands where vLLM keeps its one backend, and holds all of them."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        super().__init__(vllm_config, tokenizer, vllm_config.model_config.get_vocab_size())
        self._lock = threading.Lock()
        self._own: dict[str, StructuredOutputBackend] = {}
        self._compiler = Compiler(self._vocabulary)
        self._compiler.warm()

    def _vocabulary(self) -> Vocabulary:
        configured = self.vllm_config.model_config.try_get_generation_config()
        ends = end_token_ids(configured, self.tokenizer.eos_token_id)
        return read_vocabulary(self.tokenizer, self.vocab_size, ends)

    def guided(self, program: str) -> "Future[GuidedGrammar]":
        """The grammar of a request of ours, when it is compiled."""
        grammar: Future[GuidedGrammar] = Future()

        def hand_on(done: "Future[Guide]") -> None:
            error = done.exception()
            if error is not None:
                logger.error("A constraint could not be compiled in the engine", exc_info=error)
                grammar.set_exception(error)
            else:
                grammar.set_result(GuidedGrammar(done.result()))

        self._compiler.submit(Program.loads(program)).add_done_callback(hand_on)
        return grammar

    def named(self, name: str) -> StructuredOutputBackend:
        """vLLM's backend of a name, made when it is first asked for.

        Raises:
            ValueError: there is none.
        """
        with self._lock:
            if name not in self._own:
                if name not in _OWN:
                    raise ValueError(f"Unsupported structured output backend: {name}")
                self._own[name] = _OWN[name](self.vllm_config, self.tokenizer, self.vocab_size)
            return self._own[name]

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, stop_token_ids: set[int] | None = None
    ) -> StructuredOutputGrammar:
        """Never called: a grammar is compiled by the backend that its request names."""
        raise NotImplementedError

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """Masks that every backend can write: (max_num_seqs, words of the vocabulary) int32."""
        words = (self.vocab_size + 31) // 32
        return torch.full((max_num_seqs, words), -1, dtype=torch.int32, pin_memory=PIN_MEMORY)

    def destroy(self) -> None:
        """End them all."""
        self._compiler.close()
        for backend in self._own.values():
            backend.destroy()
        self._own.clear()


_OWN: dict[str, Any] = {
    "guidance": GuidanceBackend,
    "lm-format-enforcer": LMFormatEnforcerBackend,
    "outlines": OutlinesBackend,
    "xgrammar": XgrammarBackend,
}


class GuidedGrammar(StructuredOutputGrammar):  # type: ignore[misc]
    """A guide as the engine's scheduler holds it."""

    def __init__(self, guide: Guide) -> None:
        self._guide = guide

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take generated tokens; False ends the request with an error."""
        if self._guide.accept(tokens):
            return True
        if self._guide.failure is not None:
            logger.error("Guided decoding of %s failed: %s", request_id, self._guide.failure)
        return False

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The draft tokens that could be taken, up to the first that could not."""
        drafts: list[int] = strip_speculative_padding(tokens)
        return drafts[: self._guide.valid_prefix(drafts)]

    def rollback(self, num_tokens: int) -> None:
        """Take back draft tokens."""
        self._guide.rollback(num_tokens)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write the mask of the next token into a row."""
        self._guide.fill(bitmask[batch_index].numpy())

    def is_terminated(self) -> bool:
        """Whether the text has ended."""
        return self._guide.ended

    def reset(self) -> None:
        """Never called by the engine."""
        raise NotImplementedError
