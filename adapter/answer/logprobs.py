"""The contract's logprobs object, put together token by token."""

import math
from dataclasses import dataclass, field
from typing import Any

from adapter.engine.updates import LogprobTable

# What -inf becomes: JSON has no infinity. The value is vLLM's own.
LOWEST_LOGPROB = -9999.0


@dataclass(slots=True)
class Logprobs:
    """The contract's logprobs object; the four lists have one length."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)
    """Where each token starts in the choice's text, in characters (code points)."""

    def extend(self, other: "Logprobs") -> None:
        """Append another piece of the same choice."""
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.top_logprobs += other.top_logprobs
        self.text_offset += other.text_offset

    def followed_by(self, other: "Logprobs") -> "Logprobs":
        """A new object with this piece and the next one."""
        joined = Logprobs()
        joined.extend(self)
        joined.extend(other)
        return joined

    def as_json(self) -> dict[str, Any]:
        """The object as it goes over the wire."""
        return {
            "text_offset": self.text_offset,
            "token_logprobs": self.token_logprobs,
            "tokens": self.tokens,
            "top_logprobs": self.top_logprobs,
        }


def append(
    logprobs: Logprobs, table: LogprobTable | None, position: int, token: str, offset: int
) -> None:
    """Append one token to the lists. A position without scores, a prompt's first, gets null."""
    logprobs.tokens.append(token)
    logprobs.text_offset.append(offset)
    if table is None or table.start_indices[position] == table.end_indices[position]:
        logprobs.token_logprobs.append(None)
        logprobs.top_logprobs.append(None)
        return
    start, end = table.start_indices[position], table.end_indices[position]
    own_id, own = table.token_ids[start], finite(table.logprobs[start])
    top = {token: own}
    for entry in range(start + 1, end):
        token_id = table.token_ids[entry]
        if token_id == own_id:
            continue
        name = table.decoded_tokens[entry]
        if not name or name in top:  # part of a character, or prints like another entry
            name = f"token_id:{token_id}"
        top[name] = finite(table.logprobs[entry])
    logprobs.token_logprobs.append(own)
    logprobs.top_logprobs.append(top)


def finite(logprob: float) -> float:
    """A log-probability that JSON can carry, never above 0."""
    if math.isnan(logprob) or logprob < LOWEST_LOGPROB:
        return LOWEST_LOGPROB
    return min(logprob, 0.0)
