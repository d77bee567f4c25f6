"""Runs engine calls on vLLM's engine client: tokenises, merges prompts, aborts on leaving."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, TypedDict

from adapter.beam_run import Question, run_beam_search
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
from adapter.inbox import Inbox, Updates
from adapter.infill import find as find_infill
from adapter.infill import from_template
from adapter.settings import Settings
from adapter.token_text import Tokens
from adapter.translate import ServerFacts, prompt_name
from adapter.vllm_api import (
    AsyncLLM,
    EngineDeadError,
    EngineFaultedError,
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
    uses_runner_v2,
)

_DOCUMENT_SEPARATOR = "<|endoftext|>"

# What an engine call that asks nothing of the engine brings back.
_NOTHING = SimpleNamespace(
    prompt_logprobs=None,
    finished=True,
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

    def __init__(self, client: AsyncLLM, models: OpenAIServingModels, settings: Settings) -> None:
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
            diffusion=bool(getattr(config, "is_diffusion", False)),
            runner_v2=uses_runner_v2(client.vllm_config),
            fast_prefill=_fast_prefill(client),
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
        """Start what works beside the engine, before the server listens."""
        # vLLM reads one of its settings from the environment for every token. It keeps them all in
        # its engine's processes, but not in this one (vllm/v1/engine/core.py).
        envs.enable_envs_cache()
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
            with _api_errors():
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
        with _api_errors():
            if self._client.errored:
                raise EngineDeadError
            self._client.check_admission(choices)

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
            with _api_errors():
                rendered = await self._renderer.render_cmpl_async(texts, params)
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
        work = calls[0].work
        if not work.runs:
            yield [(index, _NOTHING) for index in range(len(calls))]
        elif work.direct:
            opened = self.opened(calls, request_id=request_id, stream=stream, options=options)
            async with opened as inbox:
                while not inbox.finished:
                    yield await inbox.news()
        else:
            async with aclosing(self._search(calls, request_id, options)) as found:
                async for updates in found:
                    yield updates

    def opened(
        self, calls: Sequence[EngineCall], *, request_id: str, stream: bool, options: "RunOptions"
    ) -> AbstractAsyncContextManager[Inbox]:
        """Give calls whose work is direct to the engine; leaving aborts them.

        Raises:
            ApiError: as the engine's own error maps to one; so does the inbox.
        """
        kind = RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY
        # All calls of a request have one program, which can be large: it is written once.
        program = calls[0].work.program
        guided = structured_outputs(program) if program is not None else None
        with _api_errors():
            # Each call has its own parameters, so vLLM need not copy them.
            questions = [
                Question(
                    f"{request_id}-{index}",
                    call.prompt.token_ids,
                    SamplingParams(
                        **call.work.sampling,
                        structured_outputs=guided,
                        output_kind=kind,
                        flat_logprobs=True,
                        skip_clone=True,
                    ),
                )
                for index, call in enumerate(calls)
            ]
        return self._asked(questions, options)

    async def _search(
        self, calls: Sequence[EngineCall], request_id: str, options: "RunOptions"
    ) -> AsyncGenerator[Updates, None]:
        """The beam searches of a request; each gives its answers at its end."""

        def ask(questions: Sequence[Question]) -> AbstractAsyncContextManager[Inbox]:
            return self._asked(questions, options)

        async def search(index: int, call: EngineCall) -> tuple[int, PromptUpdate]:
            with _api_errors():
                return index, await run_beam_search(call, f"{request_id}-{index}", ask, self.tokens)

        tasks = [asyncio.create_task(search(*item)) for item in enumerate(calls)]
        try:
            for first in asyncio.as_completed(tasks):
                yield [await first]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def _asked(
        self, questions: Sequence[Question], options: "RunOptions"
    ) -> AsyncIterator[Inbox]:
        """What vLLM's generate() does, for several prompts and without a task for each token."""
        inbox = Inbox(_as_engine_error)
        try:
            for index, (request_id, token_ids, params) in enumerate(questions):
                try:
                    collector = await self._client.add_request(
                        request_id, tokens_input(token_ids), params, **options
                    )
                except Exception as error:
                    raise _as_engine_error(error) from error
                inbox.add(index, collector)
            yield inbox
        finally:
            if unfinished := inbox.close():
                await self._client.abort(unfinished, internal=True)


class RunOptions(TypedDict):
    """What all calls of a request hand to vLLM beside prompt and sampling."""

    lora_request: LoRARequest | None
    trace_headers: Mapping[str, str] | None
    priority: int
    data_parallel_rank: int | None
    session_id: str | None


@contextmanager
def _api_errors() -> Iterator[None]:
    """Raise vLLM's errors as what they become."""
    try:
        yield
    except ApiError:
        raise
    except Exception as error:
        raise as_api_error(error) from error


def as_api_error(error: Exception) -> ApiError:
    """What the caller is told of an error of vLLM's, or of our own."""
    if (why := _gone(error)) is not None:
        return Unavailable(why)
    if isinstance(error, GracefulHTTPError):
        return Unavailable(str(error), code="engine_overloaded")
    if isinstance(error, VLLMClientError):
        # Our own checks come first and name the field; this is a check that vLLM alone makes.
        parameter = getattr(error, "parameter", None)
        return InvalidRequest(str(error.args[0] if error.args else error), param=parameter)
    if isinstance(error, GenerationError) and getattr(error, "status_code", 500) == 503:
        return Unavailable(str(error))
    logger.error("A request failed in the engine", exc_info=error)
    return _failed() if isinstance(error, VLLMServerError) else InternalError()


def _as_engine_error(error: Exception) -> ApiError:
    """The same of an error that came in an answer's place: whatever it is, it is the engine's."""
    mapped = as_api_error(error)
    return _failed() if isinstance(mapped, InternalError) else mapped


def _failed() -> GenerationFailed:
    return GenerationFailed("The engine failed on this request; the server's log says why.")


def _gone(error: Exception) -> str | None:
    """Why there is no engine any more, None where there is."""
    if isinstance(error, EngineDeadError):
        return "The engine is not running."
    if isinstance(error, EngineFaultedError):
        return str(error)
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


def _default_backend(client: AsyncLLM) -> str:
    """The guided decoding backend of requests that name none: --structured-outputs-config."""
    config = getattr(client.vllm_config, "structured_outputs_config", None)
    name = getattr(config, "backend", AUTO)
    return name if name in BACKENDS else AUTO


def _fast_prefill(client: AsyncLLM) -> bool:
    """Whether --kv-sharing-fast-prefill is on: not all of a prompt goes through all layers."""
    config = getattr(client.vllm_config, "cache_config", None)
    return bool(getattr(config, "kv_sharing_fast_prefill", False))


def _document_separator(tokenizer: Any) -> int:
    """The token that starts a new document, by the contract's default where it exists."""
    candidates = (
        tokenizer.get_vocab().get(_DOCUMENT_SEPARATOR),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )
    return next((token_id for token_id in candidates if token_id is not None), 0)
