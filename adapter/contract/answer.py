"""The contract's answers as pydantic models: the response, the chunk of a stream, the error.

They describe the answers (in /openapi.json, and in the tests that parse every answer with them);
the answers themselves are written by sse.py without a model.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "length", "content_filter"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class CompletionV2Logprobs(_Answer):
    """Four lists of one length. Null stands for the first token of an echoed prompt alone."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionV2Usage(_Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionV2Choice(_Answer):
    index: int
    text: str
    logprobs: CompletionV2Logprobs | None
    finish_reason: FinishReason


class CompletionV2ChunkChoice(_Answer):
    index: int
    text: str
    logprobs: CompletionV2Logprobs | None
    finish_reason: FinishReason | None


class CompletionV2Response(_Answer):
    """A whole answer; choice prompt * n + i is the i-th answer to a prompt."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionV2Choice]
    usage: CompletionV2Usage


class CompletionV2Chunk(_Answer):
    """One event of a stream. usage is there only with stream_options.include_usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionV2ChunkChoice]
    usage: CompletionV2Usage | None = None


class ErrorDetails(_Answer):
    message: str
    type: str
    param: str | None
    code: str | None


class CompletionV2Error(_Answer):
    """The body of an error, and the event of a stream that fails."""

    error: ErrorDetails
