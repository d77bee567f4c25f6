"""Runs engine calls on vLLM's engine client: tokenises, merges prompts, aborts on leaving."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, TypedDict

from adapter.beam_run import run_beam_search
from adapter.engine_io import EngineCall, PromptUpdate
from adapter.errors import (
    ApiError,
    GenerationFailed,
    InternalError,
    InvalidRequest,
    Unavailable,
    UnknownModel,
)
from adapter.guided.admission import Admission, Admitted
from adapter.guided.constraint import AUTO, BACKENDS, Constraint
from adapter.guided.engine_routing import structured_outputs
from adapter.guided.finished import FinishedTexts
from adapter.guided.vocabulary import end_token_ids, read_vocabulary
from adapter.infill import find as find_infill
from adapter.infill import from_template
from adapter.settings import Settings
from adapter.token_text import Tokens
from adapter.translate import ServerFacts, prompt_name
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
            index=0,
            text="",
            token_ids=(),
            logprobs=None,
            finish_reason="length",
            stop_reason=None,
            cumulative_logprob=None,
        )
    ],
)


class Engine:
    """The engine client, with what is known of its model."""

    def __init__(
        self, client: EngineClient, models: OpenAIServingModels, settings: Settings
    ) -> None:
        self._client = client
        self._models = models
        self._renderer = client.renderer
        tokenizer = client.renderer.get_tokenizer()
        config = client.model_config
        vocab_size = config.get_vocab_size()
        vocabulary = tokenizer.get_vocab()
        ends = end_token_ids(config.try_get_generation_config(), client.renderer.get_eos_token_id())
        if getattr(config, "logprobs_mode", "raw_logprobs") in ("raw_logits", "processed_logits"):
            raise ValueError(
                "/v2/completions needs log-probabilities, and --logprobs-mode gives logits: start "
                "the server with raw_logprobs or processed_logprobs"
            )
        self.tokens = Tokens(tokenizer, ends)
        self._admission, guided_fault = _admission(config, tokenizer, ends, settings)
        infill = (
            from_template(settings.infill_template)
            if settings.infill_template
            else find_infill(vocabulary)
        )
        self.facts = ServerFacts(
            max_model_len=config.max_model_len,
            vocab_size=vocab_size,
            max_prompt_token_id=max(tokenizer.max_token_id, vocab_size - 1),
            document_separator=_document_separator(tokenizer),
            max_choices=settings.max_choices,
            max_logprobs=config.max_logprobs,
            end_token_ids=frozenset(ends),
            max_tokens_cap=(getattr(config, "override_generation_config", None) or {}).get(
                "max_new_tokens"
            ),
            speculative=getattr(client.vllm_config, "speculative_config", None) is not None,
            guided_backend=_default_backend(client),
            guided_fault=guided_fault,
            infill=infill,
            infill_end_ids=frozenset(
                vocabulary[name] for name in (infill.ends if infill else ()) if name in vocabulary
            ),
        )
        self.system_fingerprint = get_system_fingerprint(client.vllm_config)
        self._max_prompt_chars = config.max_model_len * tokenizer.max_chars_per_token

    def start(self) -> None:
        """Start what works beside the engine: the processes that compile constraints."""
        if self._admission is not None:
            self._admission.start()

    async def admit(self, constraint: Constraint) -> Admitted:
        """Compile a constraint, before the request is given to the engine.

        Raises:
            InvalidRequest: it cannot be served; names the field.
            Unavailable: too many others are being compiled.
        """
        assert self._admission is not None  # else translate refuses every constraint
        admitted = await self._admission.admit(constraint)
        ends = tuple(sorted(self.facts.end_token_ids))
        return dataclasses.replace(
            admitted, program=dataclasses.replace(admitted.program, ends=ends)
        )

    async def checked(
        self, updates: AsyncGenerator[Updates, None], schema: str
    ) -> AsyncGenerator[Updates, None]:
        """The updates, each finished text among them validated before it is passed on.

        Raises:
            GenerationFailed: a finished text is not what the schema asks for.
        """
        assert self._admission is not None
        texts = FinishedTexts(self._admission.vocabulary.tokens, self.facts.end_token_ids)
        async with aclosing(updates):
            async for batch in updates:
                for text in texts.of(batch):
                    await self._admission.check(schema, text)
                yield batch

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
            try:
                resolved = await self._models.resolve_lora(model)
            except Exception as error:
                raise as_api_error(error) from error
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
        self,
        prompts: Sequence[str | list[int]],
        add_special_tokens: bool,
        check: Callable[[int, int], None],
    ) -> list[list[int]]:
        """Texts to token ids, in vLLM's renderer and off the event loop; ids stay as they are.

        check: called with a prompt's index and its number of tokens, as soon as that is known; what
        it raises ends the work, so that a request that cannot be served costs little.

        Raises:
            InvalidRequest: a text that is longer than the context could ever hold, or that vLLM's
                renderer refuses.
        """
        params = dataclasses.replace(
            self._renderer.default_cmpl_tok_params,
            max_total_tokens=None,  # lengths are checked here, with the counts in the message
            add_special_tokens=add_special_tokens,
        )
        token_ids = [[] if isinstance(prompt, str) else prompt for prompt in prompts]
        for portion in self._portions(prompts):
            texts = [{"prompt": prompts[index]} for index in portion]
            try:
                rendered = await self._renderer.render_cmpl_async(texts, params)
            except Exception as error:
                raise as_api_error(error) from error
            for index, engine_input in zip(portion, rendered, strict=True):
                token_ids[index] = engine_input["prompt_token_ids"]
                check(index, len(token_ids[index]))
        whole = [ids or [self.facts.document_separator] for ids in token_ids]
        for index, ids in enumerate(whole):
            check(index, len(ids))
        return whole

    def _portions(self, prompts: Sequence[str | list[int]]) -> Iterator[list[int]]:
        """The indices of the texts, in portions of about as much text as the context could hold."""
        portion: list[int] = []
        chars = 0
        for index, prompt in enumerate(prompts):
            if not isinstance(prompt, str) or not prompt:
                continue
            if len(prompt) > self._max_prompt_chars:
                name = prompt_name(index, len(prompts))
                raise InvalidRequest(
                    f"The model's context length is {self.facts.max_model_len} tokens; {name} has "
                    f"{len(prompt)} characters, and no {self._max_prompt_chars} characters fit.",
                    param=name,
                    code="context_length_exceeded",
                )
            portion.append(index)
            chars += len(prompt)
            if chars >= self._max_prompt_chars:
                yield portion
                portion, chars = [], 0
        if portion:
            yield portion

    async def run(
        self, calls: Sequence[EngineCall], *, request_id: str, stream: bool, options: "RunOptions"
    ) -> AsyncGenerator[Updates, None]:
        """The updates of all calls, as they come. Closing the generator aborts what still runs.

        Raises:
            ApiError: as the engine's own error maps to one.
        """
        runs = _Runs(self._client, self.tokens, request_id, stream, options)
        try:
            streams = [runs.call(index, call) for index, call in enumerate(calls) if call.work.runs]
            if not streams:
                yield [(index, _NOTHING) for index in range(len(calls))]
            elif len(streams) == 1:
                async with aclosing(streams[0]) as only:
                    async for update in only:
                        yield [(0, update)]
            else:
                async with aclosing(_merge(streams)) as merged:
                    async for updates in merged:
                        yield updates
        except ApiError:
            raise
        except Exception as error:
            raise as_api_error(error) from error


class RunOptions(TypedDict):
    """What all calls of a request hand to vLLM's generate() beside prompt and sampling."""

    lora_request: LoRARequest | None
    trace_headers: Mapping[str, str] | None
    priority: int
    data_parallel_rank: int | None
    session_id: str | None


class _Runs:
    """The engine's part of one request."""

    def __init__(
        self,
        client: EngineClient,
        tokens: Tokens,
        request_id: str,
        stream: bool,
        options: RunOptions,
    ) -> None:
        self._client = client
        self._tokens = tokens
        self._request_id = request_id
        self._kind = RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY
        self._options = options
        self._guided: Any = None

    def call(self, index: int, call: EngineCall) -> AsyncGenerator[PromptUpdate, None]:
        """The updates of one prompt."""
        if call.work.beam is not None:
            return run_beam_search(call, call.work.beam, f"{index}", self._generate, self._tokens)
        # Each call has its own object, so vLLM need not copy it.
        params = SamplingParams(
            **call.work.sampling, output_kind=self._kind, flat_logprobs=True, skip_clone=True
        )
        if call.work.program is not None:
            # All calls of a request have one program, which can be large: it is written once.
            if self._guided is None:
                self._guided = structured_outputs(call.work.program)
            params.structured_outputs = self._guided
        return self._generate(call.prompt.token_ids, params, f"{index}")

    def _generate(
        self, token_ids: list[int], params: SamplingParams, name: str
    ) -> AsyncGenerator[PromptUpdate, None]:
        generated: AsyncGenerator[PromptUpdate, None] = self._client.generate(
            tokens_input(token_ids), params, f"{self._request_id}-{name}", **self._options
        )
        return generated


async def _merge(streams: Sequence[AsyncGenerator[Any, None]]) -> AsyncGenerator[Updates, None]:
    """What all streams bring, as it comes; what one turn of the event loop brings, at once."""
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
    if (why := _gone(error)) is not None:
        return Unavailable(why)
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


def _gone(error: Exception) -> str | None:
    """Why there is no engine any more, None where there is."""
    if isinstance(error, EngineDeadError):
        return "The engine is not running."
    # vLLM ends the renderer's threads before it lets the running requests finish.
    draining = isinstance(error, RuntimeError) and "after shutdown" in str(error)
    return "The server is shutting down." if draining else None


def _admission(
    config: Any, tokenizer: Any, ends: Sequence[int], settings: Settings
) -> tuple[Admission | None, str | None]:
    """What admits constraints, or why there can be none."""
    if getattr(config, "is_diffusion", False):
        return None, "a diffusion model does not make its tokens one after another"
    try:
        vocabulary = read_vocabulary(tokenizer, config.get_vocab_size(), ends)
    except Exception as error:
        logger.exception("Guided decoding is off: the tokenizer's tokens cannot be read")
        return None, f"the tokenizer's tokens cannot be read ({error})"
    admission = Admission(
        vocabulary,
        seconds=settings.guided_timeout,
        cache_bytes=settings.guided_cache_mb * 2**20,
        relaxed=settings.guided_fallback == "check",
    )
    return admission, None


def _default_backend(client: EngineClient) -> str:
    """The guided decoding backend of requests that name none: --structured-outputs-config."""
    config = getattr(client.vllm_config, "structured_outputs_config", None)
    name = getattr(config, "backend", AUTO)
    return name if name in BACKENDS else AUTO


def _document_separator(tokenizer: Any) -> int:
    """The token that starts a new document, by the contract's default where it exists."""
    candidates = (
        tokenizer.get_vocab().get(_DOCUMENT_SEPARATOR),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )
    return next((token_id for token_id in candidates if token_id is not None), 0)
