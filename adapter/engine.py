"""Runs engine calls on vLLM's engine client: tokenises, merges prompts, aborts on leaving."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

from adapter.engine_io import EngineCall, Prompt, PromptUpdate
from adapter.errors import (
    ApiError,
    GenerationFailed,
    InternalError,
    InvalidRequest,
    Unavailable,
    UnknownModel,
)
from adapter.token_text import Tokens
from adapter.translate import ServerFacts
from adapter.vllm_api import (
    EngineClient,
    EngineDeadError,
    ErrorResponse,
    GenerationError,
    GracefulHTTPError,
    LoRARequest,
    OpenAIServingModels,
    RequestOutputKind,
    SamplingParams,
    VLLMClientError,
    VLLMServerError,
    envs,
    get_system_fingerprint,
    logger,
    tokens_input,
)

Updates = list[tuple[int, PromptUpdate]]
"""What came in one turn of the event loop, each with its prompt's index."""

_DOCUMENT_SEPARATOR = "<|endoftext|>"

# What an engine call that asks nothing of the engine brings back.
_NOTHING = SimpleNamespace(
    prompt_logprobs=None,
    outputs=[
        SimpleNamespace(
            index=0, text="", token_ids=(), logprobs=None, finish_reason="length", stop_reason=None
        )
    ],
)


class Engine:
    """The engine client, with what is known of its model."""

    def __init__(self, client: EngineClient, models: OpenAIServingModels, max_choices: int) -> None:
        self._client = client
        self._models = models
        self._renderer = client.renderer
        tokenizer = client.renderer.get_tokenizer()
        config = client.model_config
        vocab_size = config.get_vocab_size()
        self.tokens = Tokens(tokenizer, _end_token_ids(client))
        self.facts = ServerFacts(
            max_model_len=config.max_model_len,
            vocab_size=vocab_size,
            max_prompt_token_id=max(tokenizer.max_token_id, vocab_size - 1),
            document_separator=_document_separator(tokenizer),
            max_choices=max_choices,
        )
        self.system_fingerprint = get_system_fingerprint(client.vllm_config)
        self._max_prompt_chars = config.max_model_len * tokenizer.max_chars_per_token

    async def adapter_for(self, model: str) -> LoRARequest | None:
        """The LoRA adapter of a model name, None for the base model.

        Raises:
            UnknownModel: naming the models that are served.
        """
        if self._models.is_base_model(model) or envs.VLLM_SKIP_MODEL_NAME_VALIDATION:
            return None
        if (adapter := self._models.lora_requests.get(model)) is not None:
            return adapter
        if envs.VLLM_ALLOW_RUNTIME_LORA_UPDATING and model:
            resolved = await self._models.resolve_lora(model)
            if not isinstance(resolved, ErrorResponse):
                return resolved
        served = [path.name for path in self._models.base_model_paths]
        names = ", ".join([*served, *self._models.lora_requests])
        raise UnknownModel(
            f"The model {model[:200]!r} does not exist; served here: {names}.", param="model"
        )

    def refuse_if_unavailable(self, choices: int) -> None:
        """Ask before a response is started.

        Raises:
            Unavailable: the engine is dead or full.
        """
        try:
            if self._client.errored:
                raise EngineDeadError
            self._client.check_admission(choices)
        except Exception as error:
            raise as_api_error(error) from error

    async def tokenize(
        self, prompts: Sequence[str | list[int]], add_special_tokens: bool
    ) -> list[Prompt]:
        """Texts to token ids, in vLLM's renderer and off the event loop; ids stay as they are.

        Raises:
            InvalidRequest: a text that is longer than the context could ever hold.
        """
        for index, prompt in enumerate(prompts):
            if isinstance(prompt, str) and len(prompt) > self._max_prompt_chars:
                name = f"prompt[{index}]" if len(prompts) > 1 else "prompt"
                raise InvalidRequest(
                    f"The model's context length is {self.facts.max_model_len} tokens; {name} has "
                    f"{len(prompt)} characters, and no {self._max_prompt_chars} characters fit.",
                    param=name,
                    code="context_length_exceeded",
                )
        texts = [{"prompt": prompt} for prompt in prompts if isinstance(prompt, str) and prompt]
        params = dataclasses.replace(
            self._renderer.default_cmpl_tok_params,
            max_total_tokens=None,  # lengths are checked here, with the counts in the message
            add_special_tokens=add_special_tokens,
        )
        rendered = iter(await self._renderer.render_cmpl_async(texts, params) if texts else ())
        separator = [self.facts.document_separator]
        return [
            Prompt(None, prompt)
            if not isinstance(prompt, str)
            else Prompt(prompt, next(rendered)["prompt_token_ids"] or separator)
            if prompt
            else Prompt("", separator)
            for prompt in prompts
        ]

    async def run(
        self,
        calls: Sequence[EngineCall],
        *,
        request_id: str,
        stream: bool,
        adapter: LoRARequest | None,
        trace_headers: Mapping[str, str] | None,
        priority: int,
        data_parallel_rank: int | None,
    ) -> AsyncGenerator[Updates, None]:
        """The updates of all calls, as they come. Closing the generator aborts what still runs.

        Raises:
            ApiError: as the engine's own error maps to one.
        """
        kind = RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY
        streams = [
            self._client.generate(
                tokens_input(call.prompt.token_ids),
                # Each call has its own object, so vLLM need not copy it.
                SamplingParams(
                    **call.sampling, output_kind=kind, flat_logprobs=True, skip_clone=True
                ),
                f"{request_id}-{index}",
                lora_request=adapter,
                trace_headers=trace_headers,
                priority=priority,
                data_parallel_rank=data_parallel_rank,
            )
            for index, call in enumerate(calls)
            if call.runs
        ]
        try:
            if not streams:
                yield [(index, _NOTHING) for index in range(len(calls))]
            async with aclosing(_merge(streams)) as merged:
                async for updates in merged:
                    yield updates
        except ApiError:
            raise
        except Exception as error:
            raise as_api_error(error) from error


async def _merge(streams: Sequence[AsyncGenerator[Any, None]]) -> AsyncGenerator[Updates, None]:
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for update in only:
                yield [(0, update)]
        return
    ready: Updates = []
    wake = asyncio.Event()
    failures: list[Exception] = []
    running = len(streams)

    async def pump(index: int, stream: AsyncGenerator[Any, None]) -> None:
        nonlocal running
        try:
            async with aclosing(stream):
                async for update in stream:
                    ready.append((index, update))
                    wake.set()
        except Exception as error:
            failures.append(error)
        finally:
            running -= 1
            wake.set()

    tasks = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    try:
        while running or ready:
            await wake.wait()
            wake.clear()
            if failures:
                raise failures[0]
            if ready:
                updates = ready.copy()
                ready.clear()
                yield updates
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def as_api_error(error: Exception) -> ApiError:
    """What the caller is told of an error of vLLM's, or of our own."""
    if isinstance(error, GracefulHTTPError):
        return Unavailable(str(error), code="engine_overloaded")
    if isinstance(error, EngineDeadError):
        return Unavailable("The engine is not running.")
    if isinstance(error, VLLMClientError):
        # Our own checks come first and name the field; this is a check that vLLM alone makes.
        parameter = getattr(error, "parameter", None)
        return InvalidRequest(str(error.args[0] if error.args else error), param=parameter)
    if isinstance(error, GenerationError) and getattr(error, "status_code", 500) == 503:
        return Unavailable(str(error))
    logger.error("A request failed in the engine", exc_info=error)
    if isinstance(error, VLLMServerError):
        return GenerationFailed("The engine failed on this request; the server's log says why.")
    return InternalError()


def _end_token_ids(client: EngineClient) -> list[int]:
    """The model's ends of text: the tokenizer's, and those of its generation_config."""
    configured = client.model_config.try_get_generation_config().get("eos_token_id")
    ends = [configured] if isinstance(configured, int) else list(configured or ())
    own = client.renderer.get_eos_token_id()
    return ends if own is None else [*ends, own]


def _document_separator(tokenizer: Any) -> int:
    """The token that starts a new document, by the contract's default where it exists."""
    candidates = (
        tokenizer.get_vocab().get(_DOCUMENT_SEPARATOR),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )
    return next((token_id for token_id in candidates if token_id is not None), 0)
