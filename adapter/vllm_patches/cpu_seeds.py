"""A repair of vLLM's CPU workers: a seed and a prompt that is read in pieces end the engine.

A step that reads a part of a prompt samples a token that is thrown away, and the worker then sets
the request's random generator back (vllm/v1/worker/gpu_model_runner.py, _bookkeeping_sync, by
get_offset and set_offset). Only CUDA's generators can do that; a CPU's raises, and with it ends the
engine, for everybody.

Needed by model runner V1 alone, which vLLM 0.32 and 0.33 use on CPUs without Triton. Runner V2 has
no generators: its noise is a hash of seed and position (vllm/v1/worker/gpu/sample/gumbel.py, on
CPUs without Triton vllm/v1/worker/cpu/gumbel.py), so that nothing is set back. vLLM 0.34 has no
other runner; this file can go with 0.33.
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
    """Give seeded requests such a generator, in this process, once; only in runner V1 on CPUs."""
    if CachedRequestState is None or not current_platform.is_cpu():
        return
    if getattr(CachedRequestState, "_completion_v2", False):
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
