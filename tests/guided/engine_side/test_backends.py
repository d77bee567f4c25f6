"""adapter/guided/engine_side in vLLM's own manager: each request has its own backend."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adapter.guided.matcher import Guide
from adapter.guided.program import Library, Part, Program
from tests.tiny_tokenizer import byte_ids

pytestmark = pytest.mark.needs_vllm

EOS = 2
VOCAB_SIZE = 300  # more than the tokenizer has
A, B, C = byte_ids(b"abc")


class Config(SimpleNamespace):
    """What vLLM's structured output reads of its VllmConfig."""

    def __init__(self, backend: str = "auto") -> None:
        super().__init__(
            parallel_config=SimpleNamespace(distributed_executor_backend="mp"),
            scheduler_config=SimpleNamespace(max_num_seqs=8),
            model_config=SimpleNamespace(
                skip_tokenizer_init=False,
                is_diffusion=False,
                hf_config=SimpleNamespace(model_type="tiny"),
                get_vocab_size=lambda: VOCAB_SIZE,
                try_get_generation_config=lambda: {"eos_token_id": EOS},
            ),
            structured_outputs_config=SimpleNamespace(
                backend=backend,
                reasoning_parser="",
                reasoning_parser_plugin="",
                enable_in_reasoning=False,
                disable_any_whitespace=False,
                disable_additional_properties=False,
            ),
            speculative_config=None,
            num_speculative_tokens=0,
        )


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """vLLM with our patches, which are taken off afterwards unless they were there before."""
    from adapter.vllm_api import SamplingParams, StructuredOutputManager
    from adapter.vllm_patches.structured_outputs import let_requests_choose_backends

    if getattr(StructuredOutputManager, "_completion_v2", False):
        yield
        return
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(StructuredOutputManager, "_completion_v2", False, raising=False)
        for owner, name in [
            (SamplingParams, "_validate_structured_outputs"),
            (StructuredOutputManager, "__init__"),
            (StructuredOutputManager, "grammar_init"),
            (StructuredOutputManager, "_create_grammar"),
        ]:
            monkeypatch.setattr(owner, name, getattr(owner, name))
        let_requests_choose_backends()
        yield


@pytest.fixture
def new_manager(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Makes vLLM's managers of a small vocabulary, and ends them."""
    from vllm.v1 import structured_output

    monkeypatch.setattr(
        structured_output, "cached_tokenizer_from_config", lambda model_config: tokenizer
    )
    made = []

    def make() -> Any:
        made.append(structured_output.StructuredOutputManager(Config()))
        return made[-1]

    yield make
    for manager in made:
        manager.clear_backend()


@pytest.fixture
def manager(new_manager: Callable[[], Any]) -> Any:
    """One of them."""
    return new_manager()


def program(regex: str, library: Library = "guidance", form: str = "regex") -> Program:
    return Program((Part(library, form, regex),), eos_token_ids=(EOS,))


def request(constraint: Program | dict[str, Any], name: str = "r", backend: str = "") -> Any:
    """A request as the scheduler holds it: of ours, or of vLLM's own with a backend."""
    from vllm.v1.request import Request

    from adapter.guided.engine_side.backends import structured_outputs
    from adapter.vllm_api import SamplingParams, StructuredOutputsParams

    params = SamplingParams(max_tokens=9)
    if isinstance(constraint, Program):
        params.structured_outputs = structured_outputs(constraint.dumps())
    else:
        params.structured_outputs = StructuredOutputsParams(**constraint)
        params.structured_outputs._backend = backend
    return Request(
        request_id=name, prompt_token_ids=[A], sampling_params=params, pooling_params=None
    )


def grammar_of(asked: Any) -> Any:
    """A request's grammar, when it is compiled."""
    until = time.monotonic() + 20
    while not asked.structured_output_request.is_grammar_ready:
        assert time.monotonic() < until
        time.sleep(0.002)
    return asked.structured_output_request.grammar


def ready(asked: Any) -> Any:
    """A request whose grammar is compiled."""
    grammar = grammar_of(asked)
    assert not isinstance(grammar, Exception), grammar
    return asked


def masks(manager: Any, *requests: Any) -> list[set[int]]:
    """The tokens that each request's mask allows."""
    names = [one.request_id for one in requests]
    rows = manager.grammar_bitmask(dict(zip(names, requests, strict=True)), names, {})
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
    return [set(np.flatnonzero(row).tolist()) for row in bits]


# --- the patches --------------------------------------------------------------------------------


def test_installing_twice_changes_nothing() -> None:
    """A second install leaves vLLM as the first one left it."""
    from adapter.vllm_api import SamplingParams, StructuredOutputManager
    from adapter.vllm_patches.structured_outputs import let_requests_choose_backends

    before = (dict(vars(SamplingParams)), dict(vars(StructuredOutputManager)))
    let_requests_choose_backends()
    assert (dict(vars(SamplingParams)), dict(vars(StructuredOutputManager))) == before


@pytest.mark.parametrize("configured", ["auto", "xgrammar"])
def test_our_requests_pass_vllms_check(tokenizer: Any, configured: str) -> None:
    """Whatever backend vLLM has, a request of ours passes; one that names another still fails."""
    from adapter.vllm_api import VLLMClientError

    def check(asked: Any) -> None:
        config = Config(configured)
        asked.sampling_params._validate_structured_outputs(
            config.model_config, config.structured_outputs_config, tokenizer
        )

    ours = request(program("a"))
    check(ours)
    assert ours.sampling_params.structured_outputs._backend == "completion_v2"
    with pytest.raises((ValueError, VLLMClientError)):
        check(request({"regex": "a"}, backend="outlines"))
    plain = request({"regex": "a"})
    check(plain)
    assert plain.sampling_params.structured_outputs._backend in ("xgrammar", "guidance")


def test_program_survives_the_way_to_the_engine() -> None:
    """vLLM's transport carries a program, and the backend that it is for, unchanged."""
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    from adapter.vllm_api import SamplingParams

    sent = program('é"\n\U0001f600' * 100)
    encoded = MsgpackEncoder().encode(request(sent).sampling_params)
    params = MsgpackDecoder(SamplingParams).decode(encoded)
    assert Program.loads(params.structured_outputs.grammar) == sent
    assert params.structured_outputs._backend == "completion_v2"


# --- side by side -------------------------------------------------------------------------------

MIXED: dict[str, tuple[Program | dict[str, Any], str]] = {
    "ours by guidance": (program("[ab]"), ""),
    "ours by outlines": (program("[bc]", "outlines"), ""),
    "vLLM's by xgrammar": ({"regex": "[ac]"}, "xgrammar"),
    "vLLM's by guidance": ({"choice": ["a"]}, "guidance"),
}
FIRST = {
    "ours by guidance": {A, B},
    "ours by outlines": {B, C},
    "vLLM's by xgrammar": {A, C},
    "vLLM's by guidance": {A},
}


@pytest.mark.parametrize("first", MIXED)
def test_backends_side_by_side(new_manager: Callable[[], Any], first: str) -> None:
    """Requests of ours and of vLLM's share an engine and a batch, whoever comes first."""
    manager = new_manager()
    names = [first, *(name for name in MIXED if name != first)]
    requests = [request(MIXED[name][0], name, MIXED[name][1]) for name in names]
    for asked in requests:
        manager.grammar_init(asked)
    assert masks(manager, *map(ready, requests)) == [FIRST[name] for name in names]
    for asked in requests:
        token = min(FIRST[asked.request_id])
        assert manager.accept_tokens(asked, [token])
    assert [EOS in row for row in masks(manager, *requests)] == [True] * 4


def test_bad_program_fails_its_own_request(manager: Any) -> None:
    """A program that the engine cannot compile is an error of that request alone."""
    bad, good = request(program("(")), request(program("a"))
    for asked in (bad, good):
        manager.grammar_init(asked)
    assert isinstance(grammar_of(bad), Exception)
    assert masks(manager, ready(good)) == [{A}]


def test_unknown_backend_fails_its_own_request(manager: Any) -> None:
    """A request of vLLM's with a backend that there is none of ends as vLLM's own would."""
    asked = request({"regex": "a"}, backend="no-such")
    manager.grammar_init(asked)
    assert isinstance(grammar_of(asked), ValueError)


def test_every_backend_of_vllms_is_served() -> None:
    """A server may be set to any of vLLM's backends, for its other routes."""
    from typing import get_args

    from vllm.config.structured_outputs import StructuredOutputsBackend

    from adapter.guided.engine_side.backends import _OWN

    assert set(get_args(StructuredOutputsBackend)) - {"auto"} <= set(_OWN)


def test_plain_requests_are_left_alone(manager: Any) -> None:
    """A request without a constraint has no grammar."""
    from vllm.v1.request import Request

    from adapter.vllm_api import SamplingParams

    asked = Request(
        request_id="r",
        prompt_token_ids=[A],
        sampling_params=SamplingParams(),
        pooling_params=None,
    )
    manager.grammar_init(asked)
    assert asked.structured_output_request is None


def thinks() -> Any:
    """A reasoning parser of vLLM's that never sees the end of the thoughts."""
    from vllm.reasoning import ReasoningParser

    class Thinks(ReasoningParser):  # type: ignore[misc]
        def is_reasoning_end(self, input_ids: Any) -> bool:
            return False

        def extract_content_ids(self, input_ids: Any) -> list[int]:
            return []

        def extract_reasoning(self, *_: Any) -> Any:
            raise NotImplementedError

        def extract_reasoning_streaming(self, *_: Any) -> Any:
            raise NotImplementedError

    return Thinks


def test_reasoning_does_not_free_our_requests(manager: Any) -> None:
    """Our texts are constrained from their first token; vLLM's once the thoughts have ended."""
    manager.reasoner_cls = thinks()
    ours, theirs = request(program("a"), "ours"), request({"regex": "a"}, "theirs", "xgrammar")
    for asked in (ours, theirs):
        manager.grammar_init(asked)
    mine, other = masks(manager, ready(ours), ready(theirs))
    assert mine == {A}
    assert {A, B, C} <= other
    assert not manager.accept_tokens(ours, [B])
    assert manager.accept_tokens(theirs, [B])


def test_ending_ends_the_threads(new_manager: Callable[[], Any]) -> None:
    """When vLLM clears its backend no thread of ours lives on."""

    def ours() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name.startswith("guided-")]

    before = len(ours())
    manager = new_manager()
    manager.grammar_init(asked := request(program("a")))
    grammar_of(asked)
    assert len(ours()) > before
    manager.clear_backend()
    assert len(ours()) == before


# --- as the scheduler asks ----------------------------------------------------------------------


@pytest.fixture
def grammar(manager: Any) -> Any:
    """The texts "ab" and "ac"."""
    asked = request(program("a[bc]"))
    manager.grammar_init(asked)
    return grammar_of(asked)


def test_mask_goes_into_its_row(manager: Any, grammar: Any) -> None:
    """A row of the batch's table is written as a whole, and no other row."""
    table = manager.backend.allocate_token_bitmask(3)
    assert table.shape == (3, (VOCAB_SIZE + 31) // 32)
    grammar.fill_bitmask(table, 1)
    bits = np.unpackbits(table.numpy().view(np.uint8), axis=1, bitorder="little")
    assert set(np.flatnonzero(bits[1]).tolist()) == {A}
    assert bits[[0, 2]].all()


def test_tokens_are_taken_and_taken_back(grammar: Any) -> None:
    """Accepted tokens move a text on to its end, and rolling back moves it back."""
    assert grammar.accept_tokens("r", [A, B, EOS])
    assert grammar.is_terminated()
    grammar.rollback(2)
    assert not grammar.is_terminated()
    assert not grammar.accept_tokens("r", [A])
    assert grammar.accept_tokens("r", [C, EOS])


@pytest.mark.parametrize(
    ("drafts", "valid"),
    [
        ([A, B, EOS], [A, B, EOS]),
        ([A, A, B], [A]),
        ([A, -1, -1], [A]),
        ([-1, -1], []),
        ([C], []),
        ([A, B, EOS, A], [A, B, EOS]),
    ],
    ids=str,
)
def test_drafts(grammar: Any, drafts: list[int], valid: list[int]) -> None:
    """Draft tokens are cut at their padding and at the first that could not come."""
    assert grammar.validate_tokens(drafts) == valid
    assert not grammar.is_terminated()
    assert grammar.accept_tokens("r", [A, C])


def test_masks_of_drafts(manager: Any) -> None:
    """The manager asks for a mask behind each draft that could come, and takes them all back.

    Since vLLM 0.34 the first draft that could not come is among them.
    """
    manager.vllm_config.num_speculative_tokens = 2
    asked = request(program("a[bc]"))
    manager.grammar_init(asked)
    ready(asked)
    rows = manager.grammar_bitmask({"r": asked}, ["r"], {"r": [A, A]})
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
    assert [set(np.flatnonzero(row).tolist()) for row in bits[:2]] == [{A}, {B, C}]
    assert grammar_of(asked).accept_tokens("r", [A, C, EOS])


class Fails:
    """A library that fails at its first mask."""

    def narrow(self, mask: Any) -> None:
        raise MemoryError("too much")

    def advance(self, token: int) -> bool:
        return True

    def rollback(self, count: int) -> None: ...

    def can_end(self) -> bool:
        return True


def test_failure_ends_the_request_with_an_error(
    manager: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a library fails its text is refused the next token, and the log says why."""
    from adapter.guided.engine_side.backends import GuidedGrammar

    grammar = GuidedGrammar(Guide([Fails()], [EOS]))
    table = manager.backend.allocate_token_bitmask(1)
    grammar.fill_bitmask(table, 0)
    assert table.any()  # a row without a token would be no distribution
    assert not grammar.accept_tokens("request-7", [EOS])
    assert not grammar.is_terminated()
    assert "request-7" in caplog.text
    assert "MemoryError: too much" in caplog.text


def test_eos_last_reaches_the_engine(manager: Any) -> None:
    """With ignore_eos the end of a text is masked as long as there is more to come."""
    asked = request(replace(program("a+"), eos_last=True))
    manager.grammar_init(asked)
    assert grammar_of(asked).accept_tokens("r", [A])
    assert masks(manager, asked) == [{A}]


@pytest.mark.parametrize("count", [2, 3])
def test_texts_of_one_constraint_are_apart(manager: Any, count: int) -> None:
    """What is compiled once serves several texts, each with a state of its own."""
    requests = [request(program("a[bc]"), f"r{index}") for index in range(count)]
    for asked in requests:
        manager.grammar_init(asked)
    assert grammar_of(requests[0]).accept_tokens("r0", [A])
    grammar_of(requests[1])
    assert masks(manager, *map(ready, requests)) == [{B, C}, *itertools.repeat({A}, count - 1)]
