"""How much one request may ask for, beside what the contract itself bounds.

Every limit has a row in docs/reliability.md. What an operator can choose is among ServerFacts.
"""

from adapter.errors import InvalidRequest
from adapter.planning.facts import ServerFacts

MAX_GUIDED_CHOICES = 100_000
"""Texts of guided_choice."""

MAX_WHITESPACE_CHARS = 4096
"""Characters of guided_whitespace_pattern."""


def refuse_tokens(count: int, facts: ServerFacts) -> None:
    """Refuse prompts that have more tokens than all of a request's may have together.

    Raises:
        InvalidRequest: they have.
    """
    if count > facts.max_prompt_tokens:
        raise InvalidRequest(
            f"prompt: all prompts together have {count} tokens or more, and one request may have "
            f"{facts.max_prompt_tokens}. Send several requests.",
            param="prompt",
        )


def refuse_more_than_tokens(field: str, count: int, facts: ServerFacts) -> None:
    """Refuse more token ids than the model has.

    Raises:
        InvalidRequest: there are more.
    """
    if count > facts.vocab_size:
        raise InvalidRequest(
            f"{field} has {count} entries, and the vocabulary has {facts.vocab_size} tokens.",
            param=field,
        )


def refuse_long(name: str, length: int, limit: int) -> None:
    """Refuse a text that is longer than it may be.

    Raises:
        InvalidRequest: it is.
    """
    if length > limit:
        raise InvalidRequest(
            f"{name} is too large: {length} characters as text, and {limit} are allowed.",
            param=name,
        )
