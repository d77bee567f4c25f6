"""A hand-written engine: it gives the answers that a test queued, and keeps what was asked of it.

It has what adapter/ uses of vLLM's AsyncLLM, of its outputs and of OpenAIServingModels;
test_vllm_api.py checks that vLLM's own still have that. Imports no vLLM.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from adapter.engine.output_reader import Collector
from adapter.engine.updates import CandidateUpdate, LogprobTable, PromptUpdate


@dataclass
class Table:
    """vLLM's FlatLogprobs, filled one position at a time."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    decoded_tokens: list[str | None] = field(default_factory=list)

    def add(self, *entries: tuple[int, float, str | None]) -> "Table":
        """Add a position: (token id, logprob, text) of each entry, the position's token first."""
        self.start_indices.append(len(self.logprobs))
        for token_id, logprob, text in entries:
            self.token_ids.append(token_id)
            self.logprobs.append(logprob)
            self.decoded_tokens.append(text)
        self.end_indices.append(len(self.logprobs))
        return self


@dataclass
class Candidate:
    """vLLM's CompletionOutput."""

    text: str = ""
    token_ids: Sequence[int] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Table | None = None
    index: int = 0
    cumulative_logprob: float | None = None


@dataclass
class Output:
    """vLLM's RequestOutput."""

    outputs: list[Candidate]
    prompt_logprobs: Table | None = None
    finished: bool = False
    """The fake engine sets it in a call's last update."""


def said(text: str, *token_ids: int, finish: str | None = None, index: int = 0) -> Output:
    """An update of one candidate."""
    return Output([Candidate(text, token_ids, finish, index=index)])


@dataclass
class Held:
    """A step of an answer at which the engine waits until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)


Step = Output | Exception | Held


class Call(NamedTuple):
    """What add_request() was called with."""

    prompt: Mapping[str, Any]
    params: Any
    request_id: str
    options: Mapping[str, Any]


class FakeCollector:
    """vLLM's RequestOutputCollector, but for the joining of outputs that nobody took."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.ready = asyncio.Event()
        self.output: Output | Exception | None = None
        self.taken = asyncio.Event()
        self.taken.set()

    def put(self, output: Output | Exception) -> None:
        self.taken.clear()
        self.output = output
        self.ready.set()

    def get_nowait(self) -> Output | None:
        output, self.output = self.output, None
        self.ready.clear()
        self.taken.set()
        if isinstance(output, Exception):
            raise output
        return output

    def close(self) -> None:
        pass


class FakeRenderer:
    """vLLM's BaseRenderer, as far as texts become token ids."""

    def __init__(self, tokenizer: Any, tok_params: Any) -> None:
        """tok_params: a dataclass with max_total_tokens and add_special_tokens."""
        self.default_cmpl_tok_params = tok_params
        self.asked: list[tuple[list[str], Any]] = []
        self.failure: Exception | None = None
        self._tokenizer = tokenizer

    def get_tokenizer(self) -> Any:
        return self._tokenizer

    def get_eos_token_id(self) -> int | None:
        eos: int | None = self._tokenizer.eos_token_id
        return eos

    async def render_cmpl_async(
        self, prompts: Sequence[Mapping[str, str]], params: Any
    ) -> list[dict[str, Any]]:
        texts = [prompt["prompt"] for prompt in prompts]
        self.asked.append((texts, params))
        if self.failure is not None:
            raise self.failure
        return [
            {
                "prompt_token_ids": self._tokenizer.encode(
                    text, add_special_tokens=params.add_special_tokens
                )
            }
            for text in texts
        ]


class FakeModelConfig:
    """vLLM's ModelConfig."""

    def __init__(self, max_model_len: int, vocab_size: int) -> None:
        self.max_model_len = max_model_len
        self.max_logprobs = 20
        self.logprobs_mode = "raw_logprobs"
        self.is_diffusion = False
        self.generation_config: dict[str, Any] = {}
        self._vocab_size = vocab_size

    def get_vocab_size(self) -> int:
        return self._vocab_size

    def try_get_generation_config(self) -> dict[str, Any]:
        return self.generation_config


class FakeVllmConfig:
    """vLLM's VllmConfig."""

    def __init__(self, model: str = "m") -> None:
        self.observability_config = SimpleNamespace(otlp_traces_endpoint=None)
        self.structured_outputs_config: SimpleNamespace | None = None
        self._model = model

    def compute_hash(self) -> str:
        """What the fingerprint is made of, up to vLLM 0.33."""
        return hashlib.sha256(self._model.encode()).hexdigest()

    def compile_factors(self) -> dict[str, str]:
        """The same since vLLM 0.34."""
        return {"model": self._model}


class FakeEngineClient:
    """vLLM's AsyncLLM: each call of add_request() plays the next queued answer."""

    def __init__(self, tokenizer: Any, tok_params: Any, *, max_model_len: int = 64) -> None:
        self.renderer = FakeRenderer(tokenizer, tok_params)
        self.model_config = FakeModelConfig(max_model_len, len(tokenizer))
        self.vllm_config = FakeVllmConfig()
        self.errored = False
        self.output_handler: asyncio.Future[None] | None = None
        """vLLM's task that brings the outputs; done when the engine is gone."""
        self.refusal: Exception | None = None
        """What check_admission raises."""
        self.admissions: list[int] = []
        self.checks_each_call = False
        """Whether each call is asked for as well, as vLLM does."""
        self.calls: list[Call] = []
        self.aborted: list[str] = []
        """The requests that were given up before they were finished."""
        self.unfinished: set[str] = set()
        self._playing: dict[str, asyncio.Task[None]] = {}
        self._answers: deque[tuple[Step, ...]] = deque()

    def will_answer(self, *steps: Step) -> None:
        """Queue the answer to one more call: updates, an error to raise, or a wait."""
        self._answers.append(steps)

    def check_admission(self, n: int = 1, request_id: str | None = None) -> None:
        self.admissions.append(n)
        if self.refusal is not None:
            raise self.refusal

    async def add_request(
        self, request_id: str, prompt: Mapping[str, Any], params: Any, **options: Any
    ) -> FakeCollector:
        """Play the next answer into a collector, each update once the last one was taken."""
        if self.checks_each_call:
            self.check_admission(params.n, request_id)
        self.calls.append(Call(prompt, params, request_id, options))
        collector = FakeCollector(f"internal-{request_id}")
        self._playing[collector.request_id] = asyncio.create_task(
            self._play(request_id, collector, self._answers.popleft())
        )
        self.unfinished.add(request_id)
        return collector

    async def abort(self, request_id: Sequence[str], internal: bool = False) -> None:
        """Give up requests, by the ids of their collectors."""
        assert internal
        for one in request_id:
            self._playing[one].cancel()
            await asyncio.gather(self._playing[one], return_exceptions=True)

    async def _play(self, request_id: str, collector: FakeCollector, steps: Sequence[Step]) -> None:
        updates = [step for step in steps if isinstance(step, Output)]
        if updates and not isinstance(steps[-1], Exception):
            updates[-1].finished = True
        try:
            for step in steps:
                if isinstance(step, Held):
                    step.reached.set()
                    await step.release.wait()
                    continue
                await asyncio.sleep(0)
                await collector.taken.wait()
                collector.put(step)
        except asyncio.CancelledError:
            self.aborted.append(request_id)
            raise
        finally:
            self.unfinished.discard(request_id)


class FakeServingModels:
    """vLLM's OpenAIServingModels."""

    def __init__(self, *names: str) -> None:
        self.base_model_paths = [SimpleNamespace(name=name) for name in names]
        self.lora_requests: dict[str, Any] = {}
        self.resolvable: dict[str, Any] = {}
        self.asked: list[str] = []

    def is_base_model(self, model_name: str) -> bool:
        return any(path.name == model_name for path in self.base_model_paths)

    async def resolve_lora(self, lora_name: str) -> Any:
        self.asked.append(lora_name)
        return self.resolvable[lora_name]


if TYPE_CHECKING:
    # What adapter/ reads, and the fakes have to be.
    _table: type[LogprobTable] = Table
    _candidate: type[CandidateUpdate] = Candidate
    _output: type[PromptUpdate] = Output
    _collector: type[Collector] = FakeCollector
