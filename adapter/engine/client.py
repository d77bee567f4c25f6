"""Runs engine calls on vLLM's engine client: tokenises, merges prompts, aborts on leaving."""

import asyncio
import dataclasses
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

from adapter.engine.admission import admission
from adapter.engine.beam_runner import run_beam_search
from adapter.engine.checked import CheckedTexts, Checks
from adapter.engine.detokenizer import Tokens
from adapter.engine.errors import api_errors, as_engine_error, engine_errors
from adapter.engine.facts import read_facts
from adapter.engine.output_reader import OutputReader
from adapter.engine.prompts import Check, PromptTokenizer
from adapter.engine.questions import Ask, Question
from adapter.engine.updates import CandidateUpdate, PromptUpdate, Updates
from adapter.engine.whole_context import fills_context, last_token, whole_prompt
from adapter.errors import UnknownModel
from adapter.guided.compile.service import CompiledConstraint, CompileService
from adapter.guided.constraint import Constraint
from adapter.guided.engine_side.backends import structured_outputs
from adapter.guided.vocabulary import eos_token_ids, read_vocabulary
from adapter.planning.calls import EngineCall, SamplingFields, TokenIds
from adapter.planning.modes import Beams, Nothing
from adapter.planning.plan import Prompt
from adapter.settings import Settings
from adapter.vllm_api import (
    AsyncLLM,
    EngineDeadError,
    ErrorResponse,
    LoRARequest,
    OpenAIServingModels,
    RequestOutputKind,
    SamplingParams,
    envs,
    get_system_fingerprint,
    logger,
    tokens_input,
)

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
        config = client.model_config
        tokenizer = client.renderer.get_tokenizer()
        ends = eos_token_ids(config.try_get_generation_config(), client.renderer.get_eos_token_id())
        self.tokens = Tokens(tokenizer, ends)
        self._retries = settings.guided_retries
        self._prompts = PromptTokenizer(client.renderer, config.max_model_len)
        self._compile_service, guided_fault = _compile_service(config, tokenizer, ends, settings)
        self.facts = read_facts(
            client,
            settings,
            eos_token_ids=ends,
            document_separator=self._prompts.document_separator,
            guided_fault=guided_fault,
        )
        self.system_fingerprint = get_system_fingerprint(client.vllm_config)

    def start(self) -> None:
        """Start what works beside the engine, before the server listens."""
        # vLLM reads one of its settings from the environment for every token. It keeps them all in
        # its engine's processes, but not in this one (vllm/v1/engine/core.py).
        envs.enable_envs_cache()
        if self._compile_service is not None:
            self._compile_service.start()

    async def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile a constraint, before the request is given to the engine.

        Raises:
            InvalidRequest: it cannot be served; names the field.
            Unavailable: too many others are being compiled.
        """
        assert self._compile_service is not None  # else the plan refuses every constraint
        compiled = await self._compile_service.compile(constraint)
        ends = tuple(sorted(self.facts.eos_token_ids))
        return dataclasses.replace(
            compiled, program=dataclasses.replace(compiled.program, eos_token_ids=ends)
        )

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
            with api_errors():
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
        with api_errors():
            if self._client.errored:
                raise EngineDeadError
            self._client.check_admission(choices)

    async def tokenize(
        self, prompts: Sequence[Prompt], *, add_special_tokens: bool, check: Check
    ) -> list[TokenIds]:
        """Texts to token ids; see PromptTokenizer.token_ids()."""
        return await self._prompts.token_ids(
            prompts, add_special_tokens=add_special_tokens, check=check
        )

    async def run(
        self, calls: Sequence[EngineCall], *, request_id: str, stream: bool, options: "RunOptions"
    ) -> AsyncGenerator[Updates, None]:
        """The updates of all calls, as they come. Closing the generator aborts what still runs.

        Raises:
            ApiError: as the engine's own error maps to one.
        """
        mode = calls[0].work.mode
        if isinstance(mode, Nothing):
            yield [(index, _NOTHING) for index in range(len(calls))]
        elif isinstance(mode, Beams):
            async with aclosing(self._search(calls, request_id, options)) as found:
                async for updates in found:
                    yield updates
        else:
            opened = self.opened(calls, request_id=request_id, stream=stream, options=options)
            async with opened as reader:
                while not reader.finished:
                    yield [
                        (index, whole_prompt(update) if self._fills(calls[index]) else update)
                        for index, update in await reader.news()
                    ]

    def _fills(self, call: EngineCall) -> bool:
        return fills_context(call, self.facts.max_model_len)

    def run_checked(
        self,
        calls: Sequence[EngineCall],
        *,
        request_id: str,
        options: "RunOptions",
        schema: str,
        thrown_away: Callable[[CandidateUpdate], None],
    ) -> AsyncGenerator[Updates, None]:
        """The same for texts that are validated against a schema: all come at once, in one piece
        each, so that what is told before them can tell of every text that was made again.

        thrown_away: is told of each text that failed, and is made again.

        Raises:
            NotSatisfied: no text that was made is what it has to be.
            ApiError: as the engine's own error maps to one.
        """
        service = self._compile_service
        assert service is not None
        texts = CheckedTexts(
            self._asking(options),
            _Questions(calls, RequestOutputKind.FINAL_ONLY, self.facts.max_model_len),
            service.vocabulary.tokens,
            self.facts.eos_token_ids,
            Checks(partial(service.check, schema), self._retries, thrown_away),
        )
        if isinstance(calls[0].work.mode, Beams):
            return self._search(calls, request_id, options, texts)

        async def make(index: int, call: EngineCall) -> tuple[int, PromptUpdate]:
            return index, await texts.make(call, f"{request_id}-{index}")

        return _at_their_end(make(*item) for item in enumerate(calls))

    def opened(
        self, calls: Sequence[EngineCall], *, request_id: str, stream: bool, options: "RunOptions"
    ) -> AbstractAsyncContextManager[OutputReader]:
        """Give calls to the engine, whose updates make the answer; leaving aborts them.

        Raises:
            ApiError: as the engine's own error maps to one; so does the reader.
        """
        kind = RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY
        work = calls[0].work
        question = _Questions(calls, kind, self.facts.max_model_len)
        # One by one as they are given: thousands at once would hold up the event loop.
        questions = (
            question(f"{request_id}-{index}", call, work.sampling, work.mode.sequences)
            for index, call in enumerate(calls)
        )
        return self._asked(questions, options)

    def _search(
        self,
        calls: Sequence[EngineCall],
        request_id: str,
        options: "RunOptions",
        checked: CheckedTexts | None = None,
    ) -> AsyncGenerator[Updates, None]:
        """The beam searches of a request; each gives its answers at its end."""

        ask = self._asking(options)

        async def search(index: int, call: EngineCall) -> tuple[int, PromptUpdate]:
            with api_errors():
                return index, await run_beam_search(
                    call,
                    f"{request_id}-{index}",
                    ask,
                    self.tokens,
                    most_scores=self.facts.scores_given,
                    checked=checked,
                )

        return _as_they_end(search(*item) for item in enumerate(calls))

    def _asking(self, options: "RunOptions") -> Ask:
        """Asks for one request's work: what follows its first questions was admitted with them."""
        begun = False

        @asynccontextmanager
        async def ask(questions: Sequence[Question]) -> AsyncIterator[OutputReader]:
            nonlocal begun
            async with self._asked(questions, options, admitted=begun) as reader:
                begun = True
                yield reader

        return ask

    @asynccontextmanager
    async def _asked(
        self, questions: Iterable[Question], options: "RunOptions", *, admitted: bool = False
    ) -> AsyncIterator[OutputReader]:
        """What vLLM's generate() does, for several prompts and without a task for each token.

        Between two questions others get their turn. admitted: they belong to work that goes on.
        """
        reader = OutputReader(as_engine_error)
        outputs: asyncio.Task[None] | None = None

        def on_end(_: object) -> None:
            # The engine may leave with requests still on their way to it; vLLM tells nobody.
            reader.end(EngineDeadError())

        try:
            with engine_errors():
                for index, (request_id, token_ids, params) in enumerate(questions):
                    if index:
                        await asyncio.sleep(0)
                    with admission(admitted=admitted):
                        collector = await self._client.add_request(
                            request_id, tokens_input(token_ids), params, **options
                        )
                    reader.add(index, collector)
            if (outputs := self._client.output_handler) is not None:
                outputs.add_done_callback(on_end)
            yield reader
        finally:
            if outputs is not None:
                outputs.remove_done_callback(on_end)
            if unfinished := reader.close():
                await self._client.abort(unfinished, internal=True)


class RunOptions(TypedDict):
    """What all calls of a request hand to vLLM beside prompt and sampling."""

    lora_request: LoRARequest | None
    trace_headers: Mapping[str, str] | None
    priority: int
    data_parallel_rank: int | None
    session_id: str | None


class _Questions:
    """Makes questions of a request's calls; see AsQuestion."""

    def __init__(
        self, calls: Sequence[EngineCall], kind: RequestOutputKind, max_model_len: int
    ) -> None:
        # All calls of a request have one program, which can be large: it is written once.
        program = calls[0].work.program
        self._guided = structured_outputs(program.dumps()) if program is not None else None
        self._kind = kind
        self._max_model_len = max_model_len

    def __call__(
        self, name: str, call: EngineCall, sampling: SamplingFields, sequences: int
    ) -> Question:
        fills = fills_context(call, self._max_model_len)
        # Each call has its own parameters, so vLLM need not copy them.
        with api_errors():
            params = SamplingParams(
                **sampling,
                **(last_token(call) if fills else {}),
                n=sequences,
                structured_outputs=self._guided,
                output_kind=self._kind,
                flat_logprobs=True,
                skip_clone=True,
            )
        return Question(name, call.prompt.token_ids[: -1 if fills else None], params)


async def _as_they_end(
    answers: Iterable[Coroutine[Any, Any, tuple[int, PromptUpdate]]],
) -> AsyncGenerator[Updates, None]:
    """What coroutines return that run at the same time. Closing the generator cancels them."""
    tasks = [asyncio.create_task(answer) for answer in answers]
    try:
        for first in asyncio.as_completed(tasks):
            yield [await first]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _at_their_end(
    answers: Iterable[Coroutine[Any, Any, tuple[int, PromptUpdate]]],
) -> AsyncGenerator[Updates, None]:
    """The same, when all of them have returned."""
    async with aclosing(_as_they_end(answers)) as ended:
        yield [update async for updates in ended for update in updates]


def _compile_service(
    config: Any, tokenizer: Any, ends: Sequence[int], settings: Settings
) -> tuple[CompileService | None, str | None]:
    """What compiles constraints, or why there can be none."""
    if getattr(config, "is_diffusion", False):
        return None, "a diffusion model does not make its tokens one after another"
    try:
        vocabulary = read_vocabulary(tokenizer, config.get_vocab_size(), ends)
    except Exception as error:
        logger.exception("Guided decoding is off: the tokenizer's tokens cannot be read")
        return None, f"the tokenizer's tokens cannot be read ({error})"
    service = CompileService(
        vocabulary,
        seconds=settings.guided_timeout,
        cache_bytes=settings.guided_cache_mb * 2**20,
        relaxed=settings.guided_fallback == "check",
        documents=Path(settings.guided_documents) if settings.guided_documents else None,
    )
    return service, None
