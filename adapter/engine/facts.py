"""What vLLM says of its model, as the checks of a request need it."""

from collections.abc import Sequence
from typing import Any

from adapter.engine.detokenizer import special_tokens
from adapter.guided.constraint import AUTO, BACKENDS
from adapter.planning.facts import ServerFacts
from adapter.planning.infill import Infill, find, from_template
from adapter.settings import Settings
from adapter.vllm_api import AsyncLLM, uses_runner_v2

MAX_PROMPT_TOKENS = 2**20
"""Of all prompts of a request together, where the operator says nothing else."""


def read_facts(
    client: AsyncLLM,
    settings: Settings,
    *,
    eos_token_ids: Sequence[int],
    document_separator: int,
    guided_fault: str | None,
) -> ServerFacts:
    """The facts of a server. guided_fault: why nothing can be guided, None where it can.

    Raises:
        ValueError: the server gives no log-probabilities.
    """
    config = client.model_config
    _check_logprobs(config)
    tokenizer = client.renderer.get_tokenizer()
    vocab_size = config.get_vocab_size()
    vocabulary = tokenizer.get_vocab()
    infill = _infill(settings, vocabulary)
    ends = infill.ends if infill is not None else ()
    end_ids = {name: vocabulary[name] for name in ends if name in vocabulary}
    overridden = getattr(config, "override_generation_config", None) or {}
    return ServerFacts(
        max_model_len=config.max_model_len,
        vocab_size=vocab_size,
        max_prompt_token_id=max(tokenizer.max_token_id, vocab_size - 1),
        document_separator=document_separator,
        max_choices=settings.max_choices,
        max_prompts=settings.max_prompts,
        max_prompt_tokens=settings.max_prompt_tokens
        or max(MAX_PROMPT_TOKENS, config.max_model_len),
        max_logprobs=config.max_logprobs,
        eos_token_ids=frozenset(eos_token_ids),
        max_tokens_cap=overridden.get("max_new_tokens"),
        speculative=getattr(client.vllm_config, "speculative_config", None) is not None,
        diffusion=bool(getattr(config, "is_diffusion", False)),
        runner_v2=uses_runner_v2(client.vllm_config),
        scores_chosen_tokens=_scores_chosen_tokens(client),
        fast_prefill=_fast_prefill(client),
        guided_backend=_default_backend(client),
        guided_fault=guided_fault,
        infill=infill,
        special_token_ids=_made(special_tokens(tokenizer), vocab_size),
        infill_end_ids=frozenset(_made(end_ids, vocab_size).values()),
    )


def _check_logprobs(config: Any) -> None:
    if getattr(config, "logprobs_mode", "raw_logprobs") in ("raw_logits", "processed_logits"):
        raise ValueError(
            "/v2/completions needs log-probabilities, and --logprobs-mode gives logits: start "
            "the server with raw_logprobs or processed_logprobs"
        )


def _made(token_ids: dict[str, int], vocab_size: int) -> dict[str, int]:
    """Those that the model can make: vLLM refuses to stop at others."""
    return {name: token_id for name, token_id in token_ids.items() if token_id < vocab_size}


def _infill(settings: Settings, vocabulary: dict[str, int]) -> Infill | None:
    """The operator's own way to fill a gap, or that of the model's family."""
    if settings.infill_template:
        return from_template(settings.infill_template)
    return find(vocabulary)


def _scores_chosen_tokens(client: AsyncLLM) -> bool:
    """Whether allowed_token_ids leave log-probabilities as they are, and are heeded at all."""
    config = client.model_config
    drafts = getattr(client.vllm_config, "speculative_config", None) is not None
    raw = getattr(config, "logprobs_mode", "raw_logprobs") == "raw_logprobs"
    return raw and not drafts and not getattr(config, "is_diffusion", False)


def _fast_prefill(client: AsyncLLM) -> bool:
    """Whether --kv-sharing-fast-prefill is on: not all of a prompt goes through all layers."""
    config = getattr(client.vllm_config, "cache_config", None)
    return bool(getattr(config, "kv_sharing_fast_prefill", False))


def _default_backend(client: AsyncLLM) -> str:
    """The guided decoding backend of requests that name none: --structured-outputs-config."""
    config = getattr(client.vllm_config, "structured_outputs_config", None)
    name = getattr(config, "backend", AUTO)
    return name if name in BACKENDS else AUTO
