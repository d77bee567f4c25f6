"""vLLM still has every name, parameter and attribute that adapter/ uses.

A failure says what is missing and which file of ours to open. The last test (live) runs this file,
and the others that need vLLM, with the Python files of each other supported vLLM as well.
"""

import asyncio
import dataclasses
import inspect
import os
import re
import subprocess
import sys
import tempfile
import typing
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import get_protocol_members

from adapter import vllm_version
from adapter.engine import updates
from adapter.planning import calls
from tests import fake_engine

needs_vllm = pytest.mark.needs_vllm

# Set where the tests run with the Python files of another vLLM than the installed one.
OTHER_VLLM = "COMPLETION_V2_TEST_OTHER_VLLM"


def require(present: Iterable[str], wanted: Iterable[str], what: str, file: str) -> None:
    """Fail where something of vLLM's is gone, and name our file that uses it."""
    missing = sorted(set(wanted) - set(present))
    assert not missing, f"vLLM's {what} has no {', '.join(missing)}: open adapter/{file}"


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def protocol_fields(protocol: type) -> set[str]:
    return set(get_protocol_members(protocol))


# --- names --------------------------------------------------------------------------------------


@needs_vllm
def test_every_name_is_there() -> None:
    """Each name that adapter/vllm_api.py offers exists, and it offers all it imports."""
    from adapter import vllm_api

    require(dir(vllm_api), vllm_api.__all__, "modules", "vllm_api.py")
    imported = {name for name in vars(vllm_api) if not name.startswith("_")} - {"init_logger"}
    assert imported == set(vllm_api.__all__)


@needs_vllm
def test_version_is_the_expected_one() -> None:
    """The vLLM under test is the installed one, or the one that was put before it."""
    import vllm

    installed = vllm_version.installed() or ""
    expected = os.environ.get(OTHER_VLLM) or installed.partition("+")[0]
    assert vllm.__version__.partition("+")[0] == expected == installed.partition("+")[0]


# --- towards the engine -------------------------------------------------------------------------


@needs_vllm
def test_sampling_params_take_our_fields() -> None:
    """vLLM's SamplingParams take every field that a plan may set, and the engine client's own."""
    from adapter.vllm_api import SamplingParams

    ours = {*typing.get_type_hints(calls.SamplingFields)}
    require(
        parameters(SamplingParams), ours, "SamplingParams", "planning/calls.py (SamplingFields)"
    )
    extra = {"n", "output_kind", "flat_logprobs", "skip_clone", "detokenize", "allowed_token_ids"}
    require(
        parameters(SamplingParams),
        extra,
        "SamplingParams",
        "engine/client.py and engine/beam_scores.py",
    )


@needs_vllm
def test_sampling_params_keep_what_they_are_given() -> None:
    """What goes into SamplingParams is what the engine sees."""
    from adapter.vllm_api import RequestOutputKind, SamplingParams

    fields = calls.SamplingFields(
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        temperature=0.7,
        top_p=0.5,
        top_k=5,
        min_p=0.25,
        seed=2**62 - 1,
        stop=["a"],
        stop_token_ids=[7],
        include_stop_str_in_output=True,
        ignore_eos=True,
        max_tokens=9,
        min_tokens=3,
        logprobs=0,
        prompt_logprobs=0,
        logit_bias={5: -100.0},
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
    )
    assert set(fields) == set(typing.get_type_hints(calls.SamplingFields))
    params = SamplingParams(**fields, output_kind=RequestOutputKind.DELTA, flat_logprobs=True)
    assert {name: getattr(params, name) for name in fields} == fields
    assert params.output_kind == RequestOutputKind.DELTA


@needs_vllm
@pytest.mark.parametrize(("factor", "kept"), [(0, 0), (0.1, 1), (0.9, 1), (1, 1), (2, 2)])
def test_lowest_temperature_is_vllms(factor: float, kept: float) -> None:
    """vLLM raises a temperature above 0 to the bound that a plan keeps to, and no other."""
    from adapter.planning.values import LOWEST_TEMPERATURE
    from adapter.vllm_api import SamplingParams

    params = SamplingParams(temperature=factor * LOWEST_TEMPERATURE)
    assert params.temperature == kept * LOWEST_TEMPERATURE, "open adapter/planning/values.py"


@needs_vllm
def test_seeds_fit_into_the_workers() -> None:
    """Each answer's seed, ours and its index, fits into the numbers that runner V2 keeps."""
    from vllm.v1.worker.gpu.sample import states

    from adapter.planning.values import SEED_RANGE

    seeds = re.search(r"self\.seeds = .*dtype=torch\.(\w+)", inspect.getsource(states))
    assert seeds is not None, "open adapter/planning/values.py"
    assert seeds[1] == "int64", "open adapter/planning/values.py"
    assert SEED_RANGE + 128 < 2**63


@needs_vllm
def test_tables_of_the_workers_are_as_large_as_we_know() -> None:
    """Runner V2 holds as many biases and stop tokens as a plan lets pass."""
    from vllm.v1.worker.gpu.sample import logit_bias

    from adapter.planning.checks import MAX_HELD_BACK, MAX_LOGIT_BIAS

    held = (logit_bias.MAX_NUM_LOGIT_BIAS_TOKENS, logit_bias.MAX_NUM_STOP_TOKEN_IDS)
    assert held == (MAX_LOGIT_BIAS, MAX_HELD_BACK), "open adapter/planning/checks.py"


@needs_vllm
def test_workers_take_what_we_let_pass() -> None:
    """vLLM's own tables on CPUs (since 0.34) take our limits and seeds, and raise beyond them."""
    import numpy as np
    import torch

    from adapter.planning.checks import MAX_HELD_BACK, MAX_LOGIT_BIAS
    from adapter.planning.values import SEED_RANGE
    from adapter.vllm_api import SamplingParams

    sampler = pytest.importorskip("vllm.v1.worker.cpu.sampler")
    cpu = torch.device("cpu")
    requests = SimpleNamespace(max_num_reqs=1, device=cpu, prompt_len_np=np.zeros(1, np.int32))
    table = sampler.CPULogitBiasState(None, requests)

    def add(biases: int, stops: int) -> bool:
        params = SamplingParams(
            logit_bias=dict.fromkeys(range(biases), 1.0),
            stop_token_ids=[*range(stops)],
            min_tokens=1,
        )
        return bool(table.add_request(0, params))

    assert add(MAX_LOGIT_BIAS, MAX_HELD_BACK)
    for beyond in ((MAX_LOGIT_BIAS + 1, 0), (0, MAX_HELD_BACK + 1)):
        with pytest.raises(ValueError, match="Too many"):
            add(*beyond)
    states = sampler.CPUSamplingStates(1, 100, cpu)
    seed = SEED_RANGE + 127
    states.add_request(0, SamplingParams(seed=seed))
    assert states.seeds.tolist() == [seed]


@needs_vllm
def test_vllm_lets_pass_what_its_workers_cannot_hold() -> None:
    """vLLM itself does not look how large logit_bias and stop_token_ids are.

    Where this fails it does: logit_bias_fits and stop_token_ids_fit in
    adapter/planning/checks.py may be unnecessary.
    """
    from adapter.planning.checks import MAX_HELD_BACK, MAX_LOGIT_BIAS
    from adapter.vllm_api import SamplingParams

    params = SamplingParams(
        logit_bias=dict.fromkeys(range(MAX_LOGIT_BIAS + 1), 1.0),
        stop_token_ids=[*range(MAX_HELD_BACK + 1)],
        min_tokens=1,
    )
    config = SimpleNamespace(
        **{"get_vocab_size": lambda: 9999, "max_logprobs": 5, "logits_processors": None},
        **{"is_diffusion": False, "logprobs_mode": "raw_logprobs"},
    )
    params.verify(config, None, None, None)


@needs_vllm
def test_runner_of_the_workers_is_known() -> None:
    """VllmConfig says which model runner the workers have, or vLLM has no other than V2."""
    from vllm.config import VllmConfig

    from adapter.vllm_api import CachedRequestState, uses_runner_v2

    assert hasattr(VllmConfig, "use_v2_model_runner") == (CachedRequestState is not None)
    assert not uses_runner_v2(SimpleNamespace(use_v2_model_runner=False))
    assert uses_runner_v2(SimpleNamespace())


@needs_vllm
def test_add_request_takes_what_we_pass() -> None:
    """AsyncLLM.add_request has the parameters that engine.py passes, in its order."""
    from adapter.engine.client import RunOptions
    from adapter.vllm_api import AsyncLLM

    names = list(inspect.signature(AsyncLLM.add_request).parameters)
    assert names[1:4] == ["request_id", "prompt", "params"], "open adapter/engine/client.py"
    options = typing.get_type_hints(RunOptions)
    require(names, options, "AsyncLLM.add_request", "engine.py (RunOptions)")
    inspect.signature(AsyncLLM.abort).bind(None, ["a"], internal=True)


@needs_vllm
def test_collector_notifies_a_reader() -> None:
    """vLLM's RequestOutputCollector calls set() of whatever is its `ready`, and joins outputs."""
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.v1.engine.output_processor import RequestOutputCollector

    from adapter.engine.output_reader import Collector, OutputReader
    from adapter.vllm_api import RequestOutputKind

    def output(text: str, *, finished: bool = False) -> RequestOutput:
        made = CompletionOutput(
            index=0, text=text, token_ids=[1], cumulative_logprob=None, logprobs=None
        )
        return RequestOutput("r", None, [2], None, [made], finished=finished)

    async def read() -> None:
        collector = RequestOutputCollector(RequestOutputKind.DELTA, "r")
        require(
            dir(collector),
            protocol_fields(Collector),
            "RequestOutputCollector",
            "engine/output_reader.py",
        )
        collector.put(output("a"))
        reader, news = OutputReader(lambda error: error), []
        reader.on_news = lambda: news.append("news")
        reader.add(0, collector)
        collector.put(output("b"))
        assert news == ["news"]
        ((index, update),) = reader.take()
        assert (index, update.outputs[0].text, reader.finished) == (0, "ab", False)
        collector.put(output("c", finished=True))
        assert news == ["news"] * 2
        assert [update.outputs[0].text for _, update in reader.take()] == ["c"]
        assert reader.finished
        collector.put(ValueError("gone"))
        with pytest.raises(ValueError, match="gone"):
            reader.take()

    asyncio.run(read())


@needs_vllm
def test_engine_client_has_what_we_read() -> None:
    """AsyncLLM has the attributes that engine.py reads, and the fake one the same."""
    from adapter.vllm_api import AsyncLLM

    own = {"model_config", "renderer", "vllm_config"}
    read = {"abort", "add_request", "check_admission", "errored", "output_handler", *own}
    set_at_start = set(re.findall(r"self\.(\w+)\b.*=", inspect.getsource(AsyncLLM.__init__)))
    require({*dir(AsyncLLM), *set_at_start}, read, "AsyncLLM", "engine.py")
    assert read <= {*dir(fake_engine.FakeEngineClient), *own, "errored", "output_handler"}
    signature = inspect.signature(AsyncLLM.check_admission)
    signature.bind(None, 3)


@needs_vllm
def test_tokens_input_takes_ids() -> None:
    """tokens_input makes of a list of ids what the engine takes as a prompt."""
    from adapter.vllm_api import tokens_input

    assert tokens_input([5, 6])["prompt_token_ids"] == [5, 6], "open adapter/engine/client.py"


@needs_vllm
def test_model_config_has_what_we_read() -> None:
    """ModelConfig has the attributes that engine.py reads, and the fake one the same."""
    from vllm.config import ModelConfig

    read = {"max_model_len", "max_logprobs", "get_vocab_size", "try_get_generation_config"}
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    require({*dir(ModelConfig), *fields}, read, "ModelConfig", "engine.py")
    fake = fake_engine.FakeModelConfig(1, 1)
    assert read <= set(dir(fake))


@needs_vllm
def test_vllm_config_has_what_we_read() -> None:
    """VllmConfig has what plugin.py and engine.py read, and the fake one its hash."""
    from vllm.config import CacheConfig, ObservabilityConfig, VllmConfig

    hashes = {"compute_hash", "compile_factors"}
    assert hashes & set(dir(VllmConfig)), "open tests/fake_engine.py (FakeVllmConfig)"
    assert hashes <= set(dir(fake_engine.FakeVllmConfig))

    fields = {field.name for field in dataclasses.fields(VllmConfig)}
    require(fields, {"observability_config"}, "VllmConfig", "plugin.py")
    require(fields, {"cache_config", "speculative_config"}, "VllmConfig", "engine.py")
    cache = {field.name for field in dataclasses.fields(CacheConfig)}
    require(cache, {"kv_sharing_fast_prefill"}, "CacheConfig", "engine.py (_fast_prefill)")
    traces = {field.name for field in dataclasses.fields(ObservabilityConfig)}
    require(traces, {"otlp_traces_endpoint"}, "ObservabilityConfig", "plugin.py")


@needs_vllm
def test_renderer_has_what_we_call() -> None:
    """The renderer has the methods that engine.py calls, and the fake one the same."""
    from vllm.renderers.base import BaseRenderer

    called = {"get_tokenizer", "get_eos_token_id", "render_cmpl_async", "default_cmpl_tok_params"}
    require(dir(BaseRenderer), called, "BaseRenderer", "engine.py")
    fake = {*dir(fake_engine.FakeRenderer), "default_cmpl_tok_params"}
    assert called <= fake
    inspect.signature(BaseRenderer.render_cmpl_async).bind(None, [], None)
    assert inspect.iscoroutinefunction(BaseRenderer.render_cmpl_async)


@needs_vllm
def test_tokenize_params_have_what_we_replace() -> None:
    """TokenizeParams are a dataclass with the fields that engine.py replaces."""
    from vllm.renderers.params import TokenizeParams

    fields = {field.name for field in dataclasses.fields(TokenizeParams)}
    replaced = {"max_total_tokens", "add_special_tokens"}
    require(fields, replaced, "TokenizeParams", "engine.py (tokenize)")
    plain = TokenizeParams(max_total_tokens=5)
    made = dataclasses.replace(plain, max_total_tokens=None, add_special_tokens=False)
    assert (made.max_total_tokens, made.add_special_tokens) == (None, False)
    assert made.max_input_tokens is None


@needs_vllm
def test_tokenizer_has_what_we_read(tokenizer: Any) -> None:
    """A tokenizer as vLLM wraps it has the attributes that engine.py and token_text.py read."""
    read = {"all_special_ids", "bos_token_id", "decode", "eos_token_id", "get_vocab"}
    read |= {"max_chars_per_token", "max_token_id"}
    read |= {"all_special_tokens", "added_tokens_decoder", "is_fast"}
    present = [name for name in read if hasattr(tokenizer, name)]
    require(present, read, "tokenizer", "engine.py and token_text.py")


@needs_vllm
def test_models_have_what_we_read() -> None:
    """OpenAIServingModels has the attributes that engine.py reads, and the fake one the same."""
    from adapter.vllm_api import OpenAIServingModels

    read = {"is_base_model", "resolve_lora", "base_model_paths", "lora_requests"}
    source = inspect.getsource(OpenAIServingModels.__init__)
    set_there = {name for name in read if f"self.{name}" in source}
    require({*dir(OpenAIServingModels), *set_there}, read, "OpenAIServingModels", "engine.py")
    assert read <= set(dir(fake_engine.FakeServingModels("m")))
    inspect.signature(OpenAIServingModels.resolve_lora).bind(None, "name")
    assert inspect.iscoroutinefunction(OpenAIServingModels.resolve_lora)


# --- from the engine ----------------------------------------------------------------------------


@needs_vllm
def test_outputs_have_what_we_read() -> None:
    """vLLM's outputs have the attributes that engine/updates.py names, and so have the fakes."""
    from vllm.outputs import CompletionOutput, RequestOutput

    candidate = protocol_fields(updates.CandidateUpdate)
    fields = {field.name for field in dataclasses.fields(CompletionOutput)}
    require(fields, candidate, "CompletionOutput", "engine/updates.py (CandidateUpdate)")
    assert candidate <= set(dir(fake_engine.Candidate()))
    update = protocol_fields(updates.PromptUpdate)
    require(parameters(RequestOutput), update, "RequestOutput", "engine/updates.py (PromptUpdate)")
    assert update <= set(dir(fake_engine.Output([])))


@needs_vllm
def test_logprobs_have_what_we_read() -> None:
    """FlatLogprobs have the lists that engine/updates.py names, the token itself first."""
    from vllm.logprobs import FlatLogprobs

    names = protocol_fields(updates.LogprobTable)
    fields = {field.name for field in dataclasses.fields(FlatLogprobs)}
    require(fields, names, "FlatLogprobs", "engine/updates.py (LogprobTable)")
    assert names <= set(dir(fake_engine.Table()))
    real = FlatLogprobs()
    real.append(None)
    real.append_fast([5, 6], [-0.5, -1.0], iter([1, 2]), ["a", "b"])
    ours = fake_engine.Table().add().add((5, -0.5, "a"), (6, -1.0, "b"))
    assert {name: getattr(real, name) for name in names} == {
        name: getattr(ours, name) for name in names
    }


@needs_vllm
def test_finish_reasons_are_known() -> None:
    """engine/updates.py knows the finish reasons that vLLM has."""
    from vllm.v1.engine import FINISH_REASON_STRINGS

    known = {"stop", "length", "abort", "error", "repetition"}
    assert set(FINISH_REASON_STRINGS) <= known, "open adapter/engine/updates.py (finish_reason_of)"


@needs_vllm
def test_detokenizer_is_as_we_use_it() -> None:
    """The detokenizer has the methods and attributes that token_text.py and beam_run.py use."""
    from adapter.vllm_api import FastIncrementalDetokenizer, IncrementalDetokenizer

    used = {"from_new_request", "update", "get_next_output_text"}
    require(dir(FastIncrementalDetokenizer), used, "detokenizer", "token_text.py")
    inspect.signature(FastIncrementalDetokenizer.update).bind(None, [1], stop_terminated=True)
    inspect.signature(FastIncrementalDetokenizer.get_next_output_text).bind(
        None, finished=True, delta=True
    )
    inspect.signature(IncrementalDetokenizer.from_new_request).bind(None, None)
    source = inspect.getsource(FastIncrementalDetokenizer)
    require(
        [name for name in ("self.stream", "self.skip_special_tokens") if name in source],
        ["self.stream", "self.skip_special_tokens"],
        "FastIncrementalDetokenizer",
        "token_text.py (repair_detokenizer)",
    )


@needs_vllm
def test_detokenizer_holds_back_too_much(tokenizer: Any) -> None:
    """vLLM's own detokenizer still holds back text that cannot become a stop string.

    Where this fails vLLM does without hold_back_less in adapter/vllm_patches/detokenizer.py.
    """
    from adapter.vllm_api import (
        BaseIncrementalDetokenizer,
        IncrementalDetokenizer,
        SamplingParams,
    )
    from tests.tiny_tokenizer import byte_ids

    used = ("stop_buffer_length", "output_text", "self.stop")
    source = inspect.getsource(BaseIncrementalDetokenizer)
    require([name for name in used if name in source], used, "detokenizer", "hold_back_less")
    request = SimpleNamespace(
        request_id="test",
        prompt_token_ids=[5],
        prompt_embeds=None,
        sampling_params=SamplingParams(stop=["END OF TEXT"]),
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    detokenizer.update(byte_ids(b"xyz"), stop_terminated=False)
    method = BaseIncrementalDetokenizer.get_next_output_text
    if getattr(method, "holds_less", False):
        method = inspect.getclosurevars(method).nonlocals["original"]
    assert method(detokenizer, finished=False, delta=True) == ""


@needs_vllm
def test_detokenizer_needs_the_repair(tokenizer: Any) -> None:
    """vLLM's own detokenizer still repeats a prompt that ends inside a character.

    Where this fails vLLM does without adapter/vllm_patches/detokenizer.py: remove it.
    """
    from adapter.vllm_api import FastIncrementalDetokenizer, SamplingParams
    from tests.tiny_tokenizer import byte_ids

    cat = "🐈".encode()
    request = SimpleNamespace(
        request_id="test",
        prompt_token_ids=byte_ids(b"hi" + cat[:2]),
        prompt_embeds=None,
        sampling_params=SamplingParams(),
    )
    init = FastIncrementalDetokenizer.__init__
    original = inspect.unwrap(init, stop=lambda f: not hasattr(f, "repaired"))
    original = getattr(init, "original", original)
    if getattr(original, "repaired", False):
        closure = inspect.getclosurevars(original).nonlocals
        original = closure["original"]
    detokenizer = FastIncrementalDetokenizer.__new__(FastIncrementalDetokenizer)
    original(detokenizer, tokenizer, request)
    detokenizer.update(byte_ids(cat[2:]), stop_terminated=False)
    assert detokenizer.get_next_output_text(finished=True, delta=True) == "hi🐈"


@needs_vllm
def test_each_call_asks_for_room() -> None:
    """vLLM asks for room with every request of the engine's, and asks the client itself.

    Where this fails adapter/vllm_patches/admission.py is not needed, or has no effect.
    """
    from adapter.vllm_api import AsyncLLM

    class Full(Exception):
        pass

    def check_admission(n: int = 1, request_id: str | None = None) -> None:
        raise Full

    client = object.__new__(AsyncLLM)
    client.output_processor = SimpleNamespace(has_request=lambda _: False)
    client.check_admission = check_admission
    request = SimpleNamespace(request_id="a", external_req_id="a")
    with pytest.raises(Full):
        asyncio.run(AsyncLLM._add_request(client, request, None, None, 0, None))


# --- errors, tracing, the server ----------------------------------------------------------------


@needs_vllm
def test_errors_are_related_as_we_take_them() -> None:
    """vLLM's errors have the bases that engine.as_api_error tells them apart by."""
    from adapter.vllm_api import (
        EngineDeadError,
        GenerationError,
        GracefulHTTPError,
        VLLMClientError,
        VLLMError,
        VLLMServerError,
        VLLMValidationError,
    )

    assert issubclass(VLLMValidationError, VLLMClientError), "open adapter/engine/client.py"
    assert issubclass(GenerationError, VLLMServerError), "open adapter/engine/client.py"
    assert issubclass(EngineDeadError, VLLMServerError), "open adapter/engine/client.py"
    assert issubclass(GracefulHTTPError, VLLMError), "open adapter/engine/client.py"
    assert not issubclass(GracefulHTTPError, VLLMClientError | VLLMServerError)
    error = VLLMValidationError("no", parameter="p", value=1)
    assert (error.args[0], error.parameter) == ("no", "p"), "open adapter/engine/client.py"
    assert GenerationError("x").status_code == 500, "open adapter/engine/client.py"
    assert str(EngineDeadError())


@needs_vllm
def test_environment_has_what_we_read() -> None:
    """vLLM knows the environment variables that engine.py reads."""
    from adapter.vllm_api import envs

    read = {"VLLM_SKIP_MODEL_NAME_VALIDATION", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}
    require(envs.environment_variables, read, "envs", "engine.py (adapter_for)")


@needs_vllm
def test_tracing_takes_what_we_pass() -> None:
    """vLLM's tracing takes what request_log.py passes."""
    from adapter.vllm_api import (
        SpanKind,
        contains_trace_headers,
        extract_trace_context,
        extract_trace_headers,
        instrument_manual,
    )

    passed = {"span_name", "start_time", "end_time", "attributes", "context", "kind"}
    require(parameters(instrument_manual), passed, "instrument_manual", "request_log.py")
    assert SpanKind.SERVER
    assert not contains_trace_headers({"a": "b"})
    header = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    assert contains_trace_headers(header)
    assert dict(extract_trace_headers(header)) == header
    inspect.signature(extract_trace_context).bind(header)


@needs_vllm
def test_fingerprint_and_keep_alive_take_what_we_pass() -> None:
    """The helpers of vLLM's own routes take what ours pass."""
    from adapter.vllm_api import get_system_fingerprint, with_sse_keep_alive

    a, b = (get_system_fingerprint(fake_engine.FakeVllmConfig(name)) for name in "ab")
    assert a == get_system_fingerprint(fake_engine.FakeVllmConfig("a"))
    assert a != b, "vLLM hashes a configuration by another method: open tests/fake_engine.py"
    inspect.signature(with_sse_keep_alive).bind(None, 1.0)


@needs_vllm
def test_endpoint_plugin_protocol_is_ours() -> None:
    """vLLM's plugin protocol asks for what plugin.py has, and calls it as plugin.py expects."""
    from vllm.plugins.endpoint_plugins.interface import EndpointPlugin

    from adapter.plugin import CompletionV2Plugin

    asked = {name for name in dir(EndpointPlugin) if not name.startswith("_")}
    asked |= set(EndpointPlugin.__annotations__)
    missing = asked - set(dir(CompletionV2Plugin))
    assert not missing, f"vLLM asks a plugin for {missing}: open adapter/plugin.py"
    for name in ("attach_router", "init_state"):
        theirs = list(inspect.signature(getattr(EndpointPlugin, name)).parameters)
        ours = list(inspect.signature(getattr(CompletionV2Plugin, name)).parameters)
        assert ours == theirs, f"open adapter/plugin.py ({name})"


@needs_vllm
def test_entry_point_groups_are_vllms() -> None:
    """The entry point groups that pyproject.toml and serve.py name are vLLM's."""
    from vllm import plugins

    from adapter import serve

    groups = {value for name, value in vars(plugins).items() if name.endswith("_PLUGINS_GROUP")}
    named = {*serve._OTHER_GROUPS, serve._ENDPOINT_GROUP}
    assert groups == named, "open adapter/serve.py"


@needs_vllm
def test_serve_command_has_what_we_call() -> None:
    """The serve command has the methods that serve.py calls."""
    from adapter.vllm_api import ServeSubcommand, configure_logging_from_args, current_platform

    require(dir(ServeSubcommand), {"subparser_init", "validate", "cmd"}, "ServeSubcommand", "serve")
    inspect.signature(configure_logging_from_args).bind(None)
    assert isinstance(current_platform.is_cpu(), bool)


@needs_vllm
def test_server_arguments_have_what_we_read() -> None:
    """vLLM's command line has the flags whose values plugin.py reads."""
    from adapter.plugin import _WITHOUT_EFFECT
    from adapter.serve import make_parser
    from adapter.vllm_api import ServeSubcommand

    args = make_parser(ServeSubcommand()).parse_args(["serve", "m"])
    read = {"sse_keep_alive_interval", "enable_request_id_headers", "model", "model_tag"}
    require(vars(args), {*read, *_WITHOUT_EFFECT}, "command line", "plugin.py and serve.py")


# --- guided decoding ----------------------------------------------------------------------------


@needs_vllm
def test_structured_output_is_as_we_patch_it() -> None:
    """What engine_routing.py replaces, and what it reads of a request, is there."""
    from vllm.v1.structured_output.request import StructuredOutputRequest

    from adapter import vllm_api

    file = "guided/engine_routing.py"
    manager = vllm_api.StructuredOutputManager
    assert parameters(manager.__init__) == {"self", "vllm_config"}, f"open adapter/{file}"
    assert parameters(manager.grammar_init) == {"self", "request"}, f"open adapter/{file}"
    assert parameters(manager._create_grammar) == {"self", "request"}, f"open adapter/{file}"
    validate = inspect.signature(vllm_api.SamplingParams._validate_structured_outputs)
    assert len(validate.parameters) == 4, f"open adapter/{file}"
    fields = {"grammar", "_backend"}
    params = vllm_api.StructuredOutputsParams(grammar="a")
    require(dir(params), fields, "StructuredOutputsParams", file)
    fields = {"params", "grammar", "reasoning_ended", "structured_output_key"}
    found = {*dir(StructuredOutputRequest), *parameters(StructuredOutputRequest)}
    require(found, fields, "StructuredOutputRequest", file)


@needs_vllm
def test_structured_output_needs_the_patches() -> None:
    """vLLM itself still has one backend an engine, and refuses a request that names another.

    Where this fails it may choose by request: open adapter/vllm_patches/structured_outputs.py.
    """
    from vllm.v1 import structured_output

    from adapter.vllm_api import SamplingParams, StructuredOutputsParams, VLLMValidationError

    patched = SamplingParams._validate_structured_outputs
    validate = inspect.getclosurevars(patched).nonlocals.get("original", patched)
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    params.structured_outputs._backend = "outlines"
    config = SimpleNamespace(is_diffusion=False, skip_tokenizer_init=False)
    with pytest.raises(VLLMValidationError, match="backend selection is not supported"):
        validate(params, config, SimpleNamespace(backend="xgrammar"), object())
    assert "if self.backend is None:" in inspect.getsource(structured_output)


@needs_vllm
def test_structured_output_asks_for_what_we_have() -> None:
    """vLLM's backends and grammars have no method that ours lack."""
    from adapter import vllm_api
    from adapter.guided.engine_side.backends import Backends, GuidedGrammar

    for theirs, ours in [
        (vllm_api.StructuredOutputBackend, Backends),
        (vllm_api.StructuredOutputGrammar, GuidedGrammar),
    ]:
        asked = {name for name in vars(theirs) if not name.startswith("_")}
        require(dir(ours), asked, theirs.__name__, "guided/engine_routing.py")
        assert not getattr(ours, "__abstractmethods__", None)
        for name in asked & {name for name in dir(ours) if callable(getattr(theirs, name, None))}:
            wanted = [*inspect.signature(getattr(theirs, name)).parameters]
            assert [*inspect.signature(getattr(ours, name)).parameters] == wanted, name


# --- the other supported versions ---------------------------------------------------------------

ROOT = Path(__file__).parent.parent
VERSIONS = [*vllm_version.SUPPORTED]
INSTALLED = vllm_version.installed() or ""


def other_vllm(series: str) -> Path:
    """The folder with the Python files of the newest release of 0.33, say; downloaded once.

    A wheel has some 300 MB, of which these are 20, so nothing else is kept of it.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    folder = base / "vllm-completion-v2" / "tests" / f"vllm-{series}"
    if (folder / "vllm" / "__init__.py").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, suffix=".download") as downloads:
        wheel = download(series, Path(downloads))
        unpacked = unpack(wheel, Path(downloads) / "unpacked")
        if not folder.exists():  # another run may have been faster
            unpacked.rename(folder)
    return folder


def download(series: str, downloads: Path) -> Path:
    """The wheel of the GPU build, whatever this machine is."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(downloads)]
    command += ["--only-binary", ":all:", "--python-version", "3.12", "--no-cache-dir"]
    command += ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_31_x86_64"]
    command += [f"vllm=={series}.*", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    wheels = list(downloads.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        pytest.skip(f"vllm {series} cannot be downloaded: {done.stderr[-300:]}")
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    """The wheel's Python files, as a distribution of a CPU build."""
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        wanted = [name for name in names if name.startswith("vllm/") and name.endswith(".py")]
        archive.extractall(folder, wanted)
    # vLLM takes its platform from its distribution's version.
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (info / "METADATA").write_text(metadata, "utf-8")
    return folder


def files_that_need_vllm() -> list[str]:
    """Every file with tests that need vLLM but no engine."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "live" not in path.parts]
    return sorted(str(path) for path in files if "needs_vllm" in path.read_text("utf-8"))


@pytest.mark.live
@pytest.mark.skipif(OTHER_VLLM in os.environ, reason="this is the run with another vLLM")
@pytest.mark.parametrize("series", [v for v in VERSIONS if not INSTALLED.startswith(f"{v}.")])
def test_other_supported_vllm_passes_too(series: str) -> None:
    """With the Python files of each other supported vLLM all tests that need vLLM pass as well."""
    folder = other_vllm(series)
    (info,) = folder.glob("vllm-*.dist-info")
    environment = os.environ | {
        OTHER_VLLM: info.name.removeprefix("vllm-").removesuffix(".dist-info"),
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", "needs_vllm and not live"),
            *("-p", "no:cacheprovider", *files_that_need_vllm()),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6000:]
