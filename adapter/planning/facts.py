"""What the checks of a request need to know of the server and its model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.guided.constraint import AUTO
from adapter.planning.infill import Infill


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is the same for all requests of a server."""

    max_model_len: int
    """Tokens of prompt and completion together."""
    vocab_size: int
    """Rows of the model's output layer: the ids that can be generated or biased."""
    max_prompt_token_id: int
    """The highest id that a prompt may hold."""
    document_separator: int
    """The token that stands for the start of a new document."""
    max_choices: int
    """Texts that one request may ask for: prompts times n, best_of or the beam's width."""
    max_logprobs: int
    """Scores that the engine gives at one position; -1 for all."""
    eos_token_ids: frozenset[int]
    """The model's ends of text."""
    max_tokens_cap: int | None = None
    """The most tokens that the operator lets one answer have (--override-generation-config)."""
    speculative: bool = False
    """True with speculative decoding, which cannot do everything."""
    diffusion: bool = False
    """True for a model that makes its tokens many at a time, which can do less still."""
    runner_v2: bool = False
    """True where the workers keep logit_bias and stop tokens in tables of a fixed size."""
    scores_chosen_tokens: bool = True
    """True where the engine can be made to choose a token without a change of its score."""
    fast_prefill: bool = False
    """True with --kv-sharing-fast-prefill, under which prompts have no right scores."""
    guided_backend: str = AUTO
    """The guided decoding backend of requests that name none."""
    guided_fault: str | None = None
    """Why nothing can be guided here, None where it can."""
    max_prompts: int = 2048
    """Prompts that one request may have."""
    max_prompt_tokens: int = 2**20
    """Tokens that all prompts of one request may have together."""
    max_stop_chars: int = 4096
    """Characters that one stop string may have."""
    infill: Infill | None = None
    """How the model fills a gap; None where it cannot."""
    infill_end_ids: frozenset[int] = frozenset()
    """Tokens that end what is filled in, beside the ends of text."""
    special_token_ids: Mapping[str, int] = field(default_factory=dict)
    """The special tokens by their names: those that skip_special_tokens leaves out."""

    @property
    def scores_given(self) -> int:
        """How many scores the engine gives at one position."""
        return self.vocab_size if self.max_logprobs < 0 else min(self.max_logprobs, self.vocab_size)
