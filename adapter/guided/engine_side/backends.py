"""What the engine keeps where vLLM keeps its one structured-output backend: one for each name."""

import threading
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

import torch

from adapter.guided.engine_side.loader import ProgramLoader
from adapter.guided.matcher import Guide
from adapter.guided.program import Program, read_request
from adapter.guided.vocabulary import Vocabulary, eos_token_ids, read_vocabulary
from adapter.vllm_api import (
    PIN_MEMORY,
    GuidanceBackend,
    LMFormatEnforcerBackend,
    OutlinesBackend,
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputsParams,
    XgrammarBackend,
    logger,
    strip_speculative_padding,
)

# The requests of a beam search have the same program, thousands of times.
_read = lru_cache(maxsize=16)(Program.loads)

NAME = "completion_v2"
"""The backend's name in a request of ours; its grammar is a Program."""


def structured_outputs(program: str) -> StructuredOutputsParams:
    """What a request's sampling parameters carry to the engine.

    program: its text, with the request's Focus before it where there is one.
    """
    params = StructuredOutputsParams(grammar=program)
    params._backend = NAME
    return params


class Backends(StructuredOutputBackend):  # type: ignore[misc]
    """Stands where vLLM keeps its one backend, and holds all of them."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        super().__init__(vllm_config, tokenizer, vllm_config.model_config.get_vocab_size())
        self._lock = threading.Lock()
        self._own: dict[str, StructuredOutputBackend] = {}
        self._loader = ProgramLoader(self._vocabulary)
        self._loader.warm()

    def _vocabulary(self) -> Vocabulary:
        configured = self.vllm_config.model_config.try_get_generation_config()
        ends = eos_token_ids(configured, self.tokenizer.eos_token_id)
        return read_vocabulary(self.tokenizer, self.vocab_size, ends)

    def load(self, program: str) -> "Future[GuidedGrammar]":
        """The grammar of a request of ours, when its program is loaded."""
        grammar: Future[GuidedGrammar] = Future()

        def hand_on(done: "Future[Guide]") -> None:
            error = done.exception()
            if error is not None:
                logger.error("A constraint could not be compiled in the engine", exc_info=error)
                grammar.set_exception(error)
            else:
                grammar.set_result(GuidedGrammar(done.result()))

        focus, text = read_request(program)
        self._loader.load(_read(text), focus).add_done_callback(hand_on)
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
        self._loader.close()
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
