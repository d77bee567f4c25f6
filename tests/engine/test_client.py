"""adapter/engine/client.py: prompts are tokenised, run together, and given up together."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from adapter.engine.updates import Updates
from adapter.errors import (
    ApiError,
    GenerationFailed,
    InternalError,
    InvalidRequest,
    NotSupported,
    Unavailable,
    UnknownModel,
)
from adapter.planning.calls import EngineCall, SamplingFields, TokenizedPrompt, Work
from adapter.planning.infill import InfillPrompt
from adapter.planning.modes import Nothing, Sample
from adapter.planning.plan import Prompt
from adapter.settings import Settings
from tests.asgi_client import run
from tests.conftest import MODEL
from tests.fake_engine import FakeEngineClient, FakeServingModels, Held, said

if TYPE_CHECKING:
    from adapter.engine.client import Engine

pytestmark = pytest.mark.needs_vllm


@pytest.fixture
def engine(client: FakeEngineClient, models: FakeServingModels) -> "Engine":
    """The engine of a fake client."""
    return make_engine(client, models)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """An engine that was started leaves vLLM's settings as they are; here they are read again."""
    from adapter.vllm_api import envs

    yield
    envs.disable_envs_cache()


def make_engine(client: FakeEngineClient, models: FakeServingModels) -> "Engine":
    from adapter.engine.client import Engine

    return Engine(client, models, Settings(reject_unknown_fields=False, max_choices=8))


def calls(count: int, *, runs: bool = True) -> list[EngineCall]:
    work = Work(Sample(1) if runs else Nothing(1), SamplingFields(max_tokens=4))
    return [EngineCall(TokenizedPrompt(None, [10 + index]), work) for index in range(count)]


def updates_of(
    engine: "Engine", made: list[EngineCall], *, stream: bool = True
) -> AsyncGenerator[Updates, None]:
    return engine.run(
        made,
        request_id="r",
        stream=stream,
        options={
            "lora_request": None,
            "trace_headers": None,
            "priority": 0,
            "data_parallel_rank": None,
            "session_id": None,
        },
    )


async def texts(engine: "Engine", made: list[EngineCall]) -> list[tuple[int, str]]:
    """Prompt index and text of each update."""
    async with aclosing(updates_of(engine, made)) as updates:
        return [
            (index, update.outputs[0].text) async for batch in updates for index, update in batch
        ]


# --- running ------------------------------------------------------------------------------------


def test_updates_of_one_prompt(engine: "Engine", client: FakeEngineClient) -> None:
    """One prompt's updates come in order."""
    client.will_answer(said("a"), said("b"))
    assert run(texts(engine, calls(1))) == [(0, "a"), (0, "b")]
    assert client.aborted == []


def test_updates_of_several_prompts(engine: "Engine", client: FakeEngineClient) -> None:
    """Several prompts run together; each update says whose it is, and each keeps its order."""
    for letter in "abc":
        client.will_answer(*(said(f"{letter}{step}") for step in range(4)))
    came = run(texts(engine, calls(3)))
    for index, letter in enumerate("abc"):
        assert [text for i, text in came if i == index] == [f"{letter}{step}" for step in range(4)]
    assert len(came) == 12
    assert [call.prompt["prompt_token_ids"] for call in client.calls] == [[10], [11], [12]]
    assert client.aborted == []


def test_a_slow_prompt_holds_up_nobody(engine: "Engine", client: FakeEngineClient) -> None:
    """While one prompt waits the others' updates come."""
    held = Held()
    client.will_answer(held, said("slow"))
    client.will_answer(said("fast"))

    async def in_order() -> list[str]:
        came = []
        async with aclosing(updates_of(engine, calls(2))) as updates:
            async for batch in updates:
                came += [update.outputs[0].text for _, update in batch]
                held.release.set()
        return came

    assert run(in_order()) == ["fast", "slow"]


def test_a_failing_prompt_cancels_the_others(engine: "Engine", client: FakeEngineClient) -> None:
    """When one prompt fails all others are given up, and its error is raised."""
    from adapter.vllm_api import EngineDeadError

    client.will_answer(Held())
    client.will_answer(said("a"), EngineDeadError())
    client.will_answer(said("b"), Held())
    with pytest.raises(Unavailable):
        run(texts(engine, calls(3)))
    assert client.unfinished == set()
    assert sorted(client.aborted) == ["r-0", "r-2"]


@pytest.mark.parametrize("gone", [False, True])
def test_an_engine_that_leaves(engine: "Engine", client: FakeEngineClient, gone: bool) -> None:
    """What waits for it ends in 503, whether it left before or after it was asked."""
    held = Held()
    client.will_answer(held)

    async def leave() -> None:
        client.output_handler = asyncio.get_running_loop().create_future()
        if gone:
            client.output_handler.cancel()
        waiting = asyncio.create_task(texts(engine, calls(1)))
        await held.reached.wait()
        client.output_handler.cancel()
        with pytest.raises(Unavailable, match="not running"):
            await waiting

    run(leave())


def test_an_engine_that_stays_forgets_its_requests(
    engine: "Engine", client: FakeEngineClient
) -> None:
    """Nothing is left behind that would be told of its end."""
    client.will_answer(said("a", finish="stop"))

    async def ask() -> None:
        client.output_handler = asyncio.get_running_loop().create_future()
        await texts(engine, calls(1))
        assert not client.output_handler._callbacks

    run(ask())


@pytest.mark.parametrize("count", [1, 3])
def test_closing_aborts(engine: "Engine", client: FakeEngineClient, count: int) -> None:
    """Leaving the updates early gives up what still runs."""
    for _ in range(count):
        client.will_answer(said("a"), Held())

    async def first_only() -> None:
        async with aclosing(updates_of(engine, calls(count))) as updates:
            await anext(updates)

    run(first_only())
    assert client.unfinished == set()
    assert len(client.aborted) == len(client.calls)


def test_not_starting_asks_nothing(engine: "Engine", client: FakeEngineClient) -> None:
    """Updates that nobody reads ask nothing of the engine."""

    async def never() -> None:
        async with aclosing(updates_of(engine, calls(2))):
            pass

    run(never())
    assert client.calls == []


def test_cancellation_aborts(engine: "Engine", client: FakeEngineClient) -> None:
    """A cancelled reader gives up what still runs."""
    held = [Held(), Held()]
    for one in held:
        client.will_answer(one)

    async def cancelled() -> None:
        task = asyncio.create_task(texts(engine, calls(2)))
        for one in held:
            await one.reached.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(cancelled())
    assert client.unfinished == set()
    assert sorted(client.aborted) == ["r-0", "r-1"]


def test_calls_that_do_not_run(engine: "Engine", client: FakeEngineClient) -> None:
    """Where nothing is asked of the engine each prompt has one empty update."""
    assert run(texts(engine, calls(2, runs=False))) == [(0, ""), (1, "")]
    assert client.calls == []


def test_each_call_has_its_own_parameters(engine: "Engine", client: FakeEngineClient) -> None:
    """No two calls share a parameters object, which the engine may change."""
    client.will_answer(said("a"))
    client.will_answer(said("b"))
    run(texts(engine, calls(2)))
    first, second = (call.params for call in client.calls)
    assert first is not second
    assert (first.max_tokens, second.max_tokens) == (4, 4)


# --- errors -------------------------------------------------------------------------------------


def _closed_pool_error() -> Exception:
    pool = ThreadPoolExecutor()
    pool.shutdown()
    with pytest.raises(RuntimeError) as caught:
        pool.submit(print)
    return caught.value


def engine_errors() -> dict[str, tuple[Exception, type[ApiError], str | None, str]]:
    """An error of vLLM's, what it becomes, the field it names, words of its message."""
    from vllm.exceptions import (
        LoRAAdapterNotFoundError,
        MaxQueuedTokensError,
        QueueOverflowError,
        RetryableRequestError,
    )
    from vllm.v1.engine.exceptions import EngineGenerateError

    from adapter.vllm_api import EngineDeadError, GenerationError, VLLMValidationError

    return {
        "full": (QueueOverflowError(), Unavailable, None, "busy"),
        "backlog": (MaxQueuedTokensError(), Unavailable, None, "backlog"),
        "dead": (EngineDeadError(), Unavailable, None, "not running"),
        # what the renderer's closed thread pool says while requests that run are finished
        "draining": (_closed_pool_error(), Unavailable, None, "shutting down"),
        "validation": (
            VLLMValidationError("too long", parameter="input_tokens", value=9),
            InvalidRequest,
            "input_tokens",
            "too long",
        ),
        "validation without a field": (VLLMValidationError("no"), InvalidRequest, None, "no"),
        "adapter": (LoRAAdapterNotFoundError("a", "/secret"), InvalidRequest, None, "a"),
        "retry": (RetryableRequestError(), Unavailable, None, "retry"),
        "generation": (GenerationError("secret"), GenerationFailed, None, "log"),
        "generate": (EngineGenerateError("secret"), GenerationFailed, None, "log"),
        "ours": (KeyError("secret"), InternalError, None, "log"),
        "value": (ValueError("secret"), InternalError, None, "log"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "full",
        "backlog",
        "dead",
        "draining",
        "validation",
        "validation without a field",
        "adapter",
        "retry",
        "generation",
        "generate",
        "ours",
        "value",
    ],
)
def test_error_mapping(name: str) -> None:
    """Each error of vLLM's becomes one of ours; only those meant for callers keep their words."""
    from adapter.engine.errors import as_api_error

    error, kind, param, words = engine_errors()[name]
    mapped = as_api_error(error)
    assert type(mapped) is kind
    assert mapped.param == param
    assert words in mapped.message
    assert "secret" not in mapped.message
    assert "value=" not in mapped.message


def test_faulted_engine_is_not_a_full_one() -> None:
    """An engine that is being recovered (vLLM 0.34) is unavailable, and not overloaded."""
    from adapter.engine.errors import as_api_error
    from adapter.vllm_api import EngineDeadError, EngineFaultedError

    if EngineFaultedError is EngineDeadError:
        pytest.skip("this vLLM has no such error")
    error = as_api_error(EngineFaultedError())
    assert (error.status, error.code) == (503, "engine_unavailable")
    assert "faulted" in error.message


# --- tokens -------------------------------------------------------------------------------------


def accept(_index: int, _count: int) -> None:
    """A check that finds nothing wrong."""


def test_tokenizing_ends_at_the_first_prompt_that_is_refused(
    engine: "Engine", client: FakeEngineClient
) -> None:
    """Long texts are tokenised a portion at a time, and no further than the first that fails."""

    def refuse(index: int, count: int) -> None:
        raise InvalidRequest(f"prompt {index} has {count} tokens")

    long = "x" * engine._prompts._max_chars
    with pytest.raises(InvalidRequest, match="prompt 0 "):
        run(engine.tokenize([long, long, long], add_special_tokens=True, check=refuse))
    assert [len(texts) for texts, _ in client.renderer.asked] == [1]


def test_logits_are_no_logprobs(client: FakeEngineClient, models: FakeServingModels) -> None:
    """A server whose scores are logits is refused at start."""
    client.model_config.logprobs_mode = "raw_logits"
    with pytest.raises(ValueError, match="--logprobs-mode"):
        make_engine(client, models)


def test_tokenize(engine: "Engine", client: FakeEngineClient, tokenizer: Any) -> None:
    """Texts become ids, ids stay as they are, empty texts become the separator, in order."""
    prompts: list[Prompt] = ["hi cat", [5, 6], "", "é"]
    token_ids = run(engine.tokenize(prompts, add_special_tokens=True, check=accept))
    expected = [tokenizer.encode("hi cat"), [5, 6], [0], tokenizer.encode("é")]
    assert token_ids == [(ids, None) for ids in expected]
    assert [texts for texts, _ in client.renderer.asked] == [["hi cat", "é"]]


@pytest.mark.parametrize("add", [False, True])
def test_tokenize_asks_for_special_tokens(
    engine: "Engine", client: FakeEngineClient, add: bool
) -> None:
    """add_special_tokens reaches vLLM's renderer, which is to check no lengths."""
    run(engine.tokenize(["hi"], add_special_tokens=add, check=accept))
    ((_, params),) = client.renderer.asked
    assert (params.add_special_tokens, params.max_total_tokens) == (add, None)
    assert client.renderer.default_cmpl_tok_params.max_total_tokens == 64


def test_the_callers_own_of_an_infill_prompt(
    engine: "Engine", client: FakeEngineClient, tokenizer: Any
) -> None:
    """Texts are tokenised as a whole and told from what stands around them, which is tokenised as
    it stands there; ids stand between it. What is added to a text is added at its beginning."""
    prompts: list[Prompt] = [InfillPrompt("q", "hi cat", "z"), InfillPrompt("q", [5, 6], "z")]
    text, ids = run(engine.tokenize(prompts, add_special_tokens=True, check=accept))
    before, after = tokenizer.encode("q"), tokenizer.encode("z")
    own = tokenizer.encode("hi cat")
    assert text == ([*before, *own, *after], (1, 1 + len(own)))
    assert ids == ([*before, 5, 6, *after], (1, 3))
    asked = [(texts, params.add_special_tokens) for texts, params in client.renderer.asked]
    assert asked == [(["qhi catz"], True), (["q", "q"], True), (["z", "z"], False)]


@pytest.mark.parametrize("around", [("h", "i", "z"), ("z", "h", "i"), ("ca", "", "t")])
def test_tokens_that_join_with_the_template(engine: "Engine", around: tuple[str, str, str]) -> None:
    """A prompt whose tokens are partly the template's is refused, at either end."""
    with pytest.raises(NotSupported) as caught:
        run(engine.tokenize([InfillPrompt(*around)], add_special_tokens=True, check=accept))
    assert caught.value.param == "suffix"


def test_tokens_that_stand_for_all_of_an_infill_prompt() -> None:
    """One token cannot be what comes before and what comes after."""
    from adapter.engine.prompts import _joined

    with pytest.raises(NotSupported):
        _joined(InfillPrompt("?", "?", "?"), [7], [7], [7])


def test_ids_alone_ask_no_tokenizer(engine: "Engine", client: FakeEngineClient) -> None:
    """Where no prompt is a text the tokenizer has no work."""
    assert run(engine.tokenize([[5], ""], add_special_tokens=True, check=accept)) == [
        ([5], None),
        ([0], None),
    ]
    assert client.renderer.asked == []


def test_text_beyond_the_context_is_refused_unread(
    engine: "Engine", client: FakeEngineClient
) -> None:
    """A text that no tokenizer could fit into the context is refused before it is tokenised."""
    with pytest.raises(InvalidRequest, match="64 tokens") as caught:
        run(engine.tokenize(["hi", "x" * 100_000], add_special_tokens=True, check=accept))
    assert (caught.value.param, caught.value.code) == ("prompt[1]", "context_length_exceeded")
    assert client.renderer.asked == []


def test_started_engine_reads_no_environment(
    engine: "Engine", monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start on vLLM's settings are kept, and not read again for every token."""
    from adapter.vllm_api import envs

    monkeypatch.setattr(engine, "_compile_service", None)
    engine.start()
    before = envs.VLLM_COMPUTE_NANS_IN_LOGITS
    monkeypatch.setenv("VLLM_COMPUTE_NANS_IN_LOGITS", str(int(not before)))
    assert before == envs.VLLM_COMPUTE_NANS_IN_LOGITS
    envs.disable_envs_cache()
    assert before != envs.VLLM_COMPUTE_NANS_IN_LOGITS


def test_facts(engine: "Engine") -> None:
    """What the checks know of the server is the model's own."""
    facts = engine.facts
    assert (facts.max_model_len, facts.vocab_size, facts.max_choices) == (64, 267, 8)
    assert (facts.max_prompt_token_id, facts.document_separator) == (266, 0)
    assert facts.eos_token_ids == {2}


def test_where_a_token_can_be_chosen(client: FakeEngineClient, models: FakeServingModels) -> None:
    """Not where log-probabilities are taken after allowed_token_ids, or drafts leave them out."""
    assert make_engine(client, models).facts.scores_chosen_tokens
    client.model_config.logprobs_mode = "processed_logprobs"
    assert not make_engine(client, models).facts.scores_chosen_tokens
    client.model_config.logprobs_mode = "raw_logprobs"
    config: Any = client.vllm_config
    config.speculative_config = object()
    assert not make_engine(client, models).facts.scores_chosen_tokens
    config.speculative_config = None
    client.model_config.is_diffusion = True
    assert not make_engine(client, models).facts.scores_chosen_tokens


@pytest.mark.parametrize(
    ("configured", "ends"), [(None, {2}), (2, {2}), (0, {0, 2}), ([0, 1], {0, 1, 2})], ids=str
)
def test_end_tokens(
    client: FakeEngineClient, models: FakeServingModels, configured: Any, ends: set[int]
) -> None:
    """The model's ends are the tokenizer's and those of its generation_config."""
    client.model_config.generation_config = {"eos_token_id": configured}
    made = make_engine(client, models)
    assert made.facts.eos_token_ids == ends
    assert all(made.tokens.is_special(token_id) for token_id in ends)


# --- models -------------------------------------------------------------------------------------


def test_base_model_has_no_adapter(engine: "Engine") -> None:
    """The served model's own name means no adapter."""
    assert run(engine.adapter_for(MODEL)) is None


@pytest.mark.parametrize("name", ["other", "", "x" * 5000])
def test_unknown_model(engine: "Engine", models: FakeServingModels, name: str) -> None:
    """Another name is unknown; adapters are looked for only where vLLM is set to."""
    with pytest.raises(UnknownModel) as caught:
        run(engine.adapter_for(name))
    assert (caught.value.param, caught.value.status) == ("model", 404)
    assert len(caught.value.message) < 400
    assert models.asked == []


def test_adapter_found_at_run_time(
    engine: "Engine", models: FakeServingModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where vLLM may load adapters at run time, its resolver is asked."""
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    models.resolvable["new"] = found = object()
    assert run(engine.adapter_for("new")) is found
    assert models.asked == ["new"]


def test_adapter_not_found_at_run_time(
    engine: "Engine", models: FakeServingModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter that the resolver does not find is an unknown model."""
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo

    from adapter.vllm_api import ErrorResponse

    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    info = ErrorInfo(message="no", type="NotFoundError", code=404)
    models.resolvable["new"] = ErrorResponse(error=info)
    with pytest.raises(UnknownModel):
        run(engine.adapter_for("new"))
    assert models.asked == ["new"]


# --- availability -------------------------------------------------------------------------------


def test_available(engine: "Engine", client: FakeEngineClient) -> None:
    """A healthy engine is asked to admit as many choices as there will be."""
    engine.refuse_if_unavailable(5)
    assert client.admissions == [5]


def test_dead_engine_is_not_asked(engine: "Engine", client: FakeEngineClient) -> None:
    """A dead engine admits nothing."""
    client.errored = True
    with pytest.raises(Unavailable):
        engine.refuse_if_unavailable(1)
    assert client.admissions == []


# --- guided decoding ----------------------------------------------------------------------------


def test_settings_reach_the_compile_service(
    client: FakeEngineClient, models: FakeServingModels
) -> None:
    """What the operator set for guided decoding is what constraints are compiled with."""
    from adapter.engine.client import Engine

    settings = Settings(
        *(False, 8),
        guided_timeout=2.5,
        guided_cache_mb=3,
        guided_fallback="refuse",
        guided_documents="folder",
    )
    service = Engine(client, models, settings)._compile_service
    assert service is not None
    assert (service._seconds, service._relaxed) == (2.5, False)
    assert service._fork_server._documents == Path("folder")
    assert service._cache._limit == 3 * 2**20


@pytest.mark.parametrize(
    ("configured", "expected"),
    [("xgrammar", "xgrammar"), ("outlines", "outlines"), ("no-such", "auto"), (None, "auto")],
)
def test_default_backend_is_vllms_setting(
    client: FakeEngineClient, models: FakeServingModels, configured: str | None, expected: str
) -> None:
    """--structured-outputs-config names the backend of requests that name none."""
    if configured is not None:
        client.vllm_config.structured_outputs_config = SimpleNamespace(backend=configured)
    assert make_engine(client, models).facts.guided_backend == expected


def test_ends_are_the_models(
    client: FakeEngineClient, models: FakeServingModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An compiled program ends at any of the model's ends of text."""
    from adapter.guided.compile.service import CompiledConstraint
    from adapter.guided.constraint import Constraint, Kind
    from adapter.guided.program import Part, Program

    client.model_config.generation_config = {"eos_token_id": [2, 0]}
    engine = make_engine(client, models)
    program = Program((Part("guidance", "regex", "a"),))

    class Compiles:
        async def compile(self, _constraint: Constraint) -> CompiledConstraint:
            return CompiledConstraint(program, "guidance")

    assert engine._compile_service is not None
    assert set(engine._compile_service.vocabulary.eos_token_ids) == {0, 2}
    monkeypatch.setattr(engine, "_compile_service", Compiles())
    compiled = run(engine.compile(Constraint("guided_regex", Kind.REGEX, "a", "auto")))
    assert compiled == CompiledConstraint(Program(program.parts, eos_token_ids=(0, 2)), "guidance")


def test_diffusion_models_are_not_guided(
    client: FakeEngineClient, models: FakeServingModels
) -> None:
    """A model that does not make its tokens one after another refuses every constraint."""
    client.model_config.is_diffusion = True
    engine = make_engine(client, models)
    assert "diffusion" in str(engine.facts.guided_fault)
    assert engine.facts.diffusion
    engine.start()


@pytest.mark.parametrize("on", [False, True])
def test_what_the_workers_cannot_do(
    client: FakeEngineClient, models: FakeServingModels, on: bool
) -> None:
    """Which model runner vLLM has, and whether it cuts prompts short, is known to the checks."""
    client.vllm_config.use_v2_model_runner = on  # type: ignore[attr-defined]
    client.vllm_config.cache_config = SimpleNamespace(  # type: ignore[attr-defined]
        kv_sharing_fast_prefill=on
    )
    facts = make_engine(client, models).facts
    assert (facts.runner_v2, facts.fast_prefill, facts.diffusion) == (on, on, False)


def test_tokens_that_end_a_text_can_be_made(
    client: FakeEngineClient, models: FakeServingModels
) -> None:
    """Known by name are the tokenizer's special tokens, later ones too, that the model has."""
    from tests.tiny_tokenizer import SPECIAL, tiny_tokenizer

    fim = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>"]
    tokenizer = tiny_tokenizer([*fim, "<later>"])
    tokenizer.add_tokens(["<plain>"])
    client.renderer.get_tokenizer = lambda: tokenizer  # type: ignore[method-assign]
    ids = tokenizer.get_vocab()
    for vocab_size in (ids["<later>"] + 1, ids["<later>"], ids["<fim_pad>"]):
        client.model_config._vocab_size = vocab_size
        facts = make_engine(client, models).facts
        named = {name: ids[name] for name in [*SPECIAL, *fim, "<later>"]}
        assert facts.special_token_ids == {k: v for k, v in named.items() if v < vocab_size}
        ends = [ids[name] for name in ("<|endoftext|>", "<fim_pad>", *fim[:2])]
        assert facts.infill_end_ids == {each for each in ends if each < vocab_size}


def test_unreadable_tokenizer_is_not_guided(
    client: FakeEngineClient, models: FakeServingModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the tokens' bytes there are no constraints, and all else is served."""
    from adapter.engine import client as engine_module

    def unreadable(*_arguments: Any) -> Any:
        raise ValueError("no such bytes")

    monkeypatch.setattr(engine_module, "read_vocabulary", unreadable)
    assert "no such bytes" in str(make_engine(client, models).facts.guided_fault)
