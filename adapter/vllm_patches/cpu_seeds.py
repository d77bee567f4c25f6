"""A repair of vLLM's CPU workers: a seed and a prompt that is read in pieces end the engine.

A step that reads a part of a prompt samples a token that is thrown away, and the worker then sets
the request's random generator back (vllm/v1/worker/gpu_model_runner.py, _bookkeeping_sync, by
get_offset and set_offset). Only CUDA's generators can do that; a CPU's raises, and with it ends the
engine, for everybody. Unnecessary once vLLM asks the device first.
"""

from typing import Any

import torch

from adapter.vllm_api import CachedRequestState, current_platform


class RewindingGenerator(torch.Generator):  # type: ignore[misc]
    """A CPU generator that can be set back to its seed, where a prompt's reading starts."""

    def get_offset(self) -> int:
        """What a CPU generator does not count."""
        return 0

    def set_offset(self, offset: int) -> None:
        """Back to the seed: what was thrown away was sampled before the text's first token."""
        self.manual_seed(self.initial_seed())


def repair_generators() -> None:
    """Give seeded requests such a generator, in this process, once; only on CPUs."""
    if not current_platform.is_cpu() or getattr(CachedRequestState, "_completion_v2", False):
        return
    original = CachedRequestState.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if isinstance(self.generator, torch.Generator):
            seed = self.generator.initial_seed()
            self.generator = RewindingGenerator()
            self.generator.manual_seed(seed)

    CachedRequestState.__init__ = init
    CachedRequestState._completion_v2 = True
