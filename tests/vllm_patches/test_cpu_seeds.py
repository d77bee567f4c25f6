"""A seeded request whose prompt is read in pieces does not end a CPU engine."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs_vllm


@pytest.fixture
def state() -> Any:
    """What vLLM's worker keeps of a seeded request."""
    import torch

    from adapter.vllm_api import CachedRequestState, current_platform
    from adapter.vllm_patches.cpu_seeds import repair_generators

    if not current_platform.is_cpu():
        pytest.skip("the repair is of CPU workers")
    repair_generators()
    repair_generators()
    if CachedRequestState is None:
        pytest.skip("this vLLM has no model runner V1, which the repair is of")
    generator = torch.Generator().manual_seed(7)
    return CachedRequestState(
        req_id="a",
        prompt_token_ids=[1],
        mm_features=[],
        sampling_params=None,
        generator=generator,
        block_ids=([],),
        num_computed_tokens=0,
        output_token_ids=[],
    )


def drawn(generator: Any) -> list[float]:
    """Random numbers, as vLLM's sampler draws them."""
    import torch

    numbers: list[float] = torch.empty(4).exponential_(generator=generator).tolist()
    return numbers


def test_a_thrown_away_token_leaves_no_trace(state: Any) -> None:
    """Set back, the generator draws what the seed gives from the start."""
    import torch

    first = drawn(state.generator)
    state.generator.set_offset(state.generator.get_offset() - 4)
    assert drawn(state.generator) == first == drawn(torch.Generator().manual_seed(7))


def test_only_runner_v1_sets_generators_back() -> None:
    """vLLM's workers set generators back where they have model runner V1, and nowhere else.

    Where this fails, look at what vLLM's workers do with seeds: open adapter/cpu_seeds.py.
    """
    import vllm

    from adapter.vllm_api import CachedRequestState

    workers = Path(vllm.__file__).parent / "v1" / "worker"
    texts = [path.read_text("utf-8") for path in workers.rglob("*.py")]
    assert any(".set_offset(" in text for text in texts) == (CachedRequestState is not None)


def test_a_plain_cpu_generator_cannot_be_set_back() -> None:
    """Why the repair is needed; where this fails, it is not any more."""
    import torch

    with pytest.raises(RuntimeError, match="offset"):
        torch.Generator().get_offset()
