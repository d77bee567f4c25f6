"""LLM Engine's command line becomes one that adapter.serve takes."""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.deploy.manifests import DEPLOY

# As LLM Engine writes it.
COMMAND = [
    *("--model", "model_files", "--served-model-name", "llama-3-8b", "model_files"),
    *("--port", "5005", "--host", "::", "--tensor-parallel-size", "2", "--trust-remote-code"),
]


def load() -> ModuleType:
    """The module as the image has it: outside of any package."""
    path = DEPLOY / "llm_engine" / "vllm_server.py"
    spec = importlib.util.spec_from_file_location("vllm_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclass looks its module up there.
    sys.modules["vllm_server"] = module
    spec.loader.exec_module(module)
    return module


vllm_server: Any = load()


@pytest.fixture(autouse=True)
def switch_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set and deleted, so that it is as before whatever main does to it."""
    monkeypatch.setenv(vllm_server.SWITCH, "")
    monkeypatch.delenv(vllm_server.SWITCH)


def translate(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """The command line made of these arguments, and the warnings."""
    warnings: list[str] = []
    made = vllm_server.translate(arguments, environment or {}, warn=warnings.append)
    return made, warnings


def test_command_line_of_llm_engine() -> None:
    """The model comes first, the rest stays in its order, and the drain is set."""
    made, warnings = translate(*COMMAND)
    assert made == ["model_files", *COMMAND[2:], "--shutdown-timeout", "540"]
    assert warnings == []


@pytest.mark.parametrize("given", [["--shutdown-timeout", "60"], ["--shutdown_timeout=60"]])
def test_a_drain_that_was_chosen_stays(given: list[str]) -> None:
    """In either spelling."""
    made, _ = translate("--model", "m", *given)
    assert made == ["m", *given]


@pytest.mark.parametrize(
    "given",
    [
        ["--disable-log-requests"],
        ["--disable_log_requests"],
        ["--disable-log-requests=true"],
        ["--disable-log-requests", "true"],
        ["--swap-space", "16"],
        ["--swap-space=-1"],
        ["--max-seq-len-to-capture", "8192"],
        ["--override-neuron-config", '{"a": 1}'],
        ["--quantization-param-path", "scales.json"],
    ],
)
def test_flags_without_effect_are_warned_about(given: list[str]) -> None:
    """The flag goes with its value, a warning names it, its neighbours stay."""
    made, [warning] = translate("--model", "m", "--seed", "1", *given, "--enforce-eager")
    assert made == ["m", "--seed", "1", "--enforce-eager", "--shutdown-timeout", "540"]
    assert warning.startswith(given[0].partition("=")[0])
    assert "no effect" in warning


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--cache-dtype", "--kv-cache-dtype"),
        ("--max-gpu-memory-utilization", "--gpu-memory-utilization"),
    ],
)
def test_renamed_flags_are_mapped(old: str, new: str) -> None:
    """In all spellings; the new name wins where both are given."""
    expected = ["m", new, "0.9", "--shutdown-timeout", "540"]
    for given in ([old, "0.9"], [f"{old}=0.9"], [old.replace("-", "_").replace("__", "--"), "0.9"]):
        made, warnings = translate("--model", "m", *given)
        assert made == expected
        assert len(warnings) == 1
    made, [warning] = translate("--model", "m", old, "0.5", new, "0.9")
    assert made == expected
    assert "left out" in warning


@pytest.mark.parametrize(
    ("config", "theta"),
    [
        ({"rope_theta": 500000.0}, 500000.0),
        ({"rope_parameters": {"rope_theta": 1e6}}, 1e6),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_rope_scaling_keeps_the_model_s_base(tmp_path: Path, config: Any, theta: Any) -> None:
    """The override replaces all of vLLM's rope parameters: the model's rope_theta goes along."""
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    scaling = {"rope_type": "yarn", "factor": 4.0}
    made, warnings = translate("--model", str(tmp_path), "--rope-scaling", json.dumps(scaling))
    at = made.index("--hf-overrides")
    expected = scaling if theta is None else {**scaling, "rope_theta": theta}
    assert json.loads(made[at + 1]) == {"rope_parameters": expected}
    assert len(warnings) == (2 if theta is None else 1)


def test_rope_scaling_joins_the_overrides() -> None:
    """Other overrides stay, and rope_parameters of --hf-overrides win."""
    made, _ = translate(
        *("--model", "m", "--rope-scaling", '{"factor": 2, "rope_theta": 1}'),
        *("--hf-overrides", '{"max_position_embeddings": 8192}'),
    )
    assert made.count("--hf-overrides") == 1
    assert json.loads(made[made.index("--hf-overrides") + 1]) == {
        "max_position_embeddings": 8192,
        "rope_parameters": {"factor": 2, "rope_theta": 1},
    }
    overrides = '{"rope_parameters": {"factor": 8}}'
    made, [warning] = translate("--rope-scaling", '{"factor": 2}', "--hf-overrides", overrides)
    assert json.loads(made[made.index("--hf-overrides") + 1]) == json.loads(overrides)
    assert "left out" in warning


def test_overrides_alone_are_left_as_they_are() -> None:
    """They may be what only vLLM can read."""
    made, warnings = translate("--model", "m", "--hf-overrides.a", "1", "--hf-overrides={}")
    assert made[1:4] == ["--hf-overrides.a", "1", "--hf-overrides={}"]
    assert warnings == []


@pytest.mark.parametrize(
    "given",
    [
        ["--rope-scaling", "{factor: 2}"],
        ["--rope-scaling", "[1]"],
        ["--rope-scaling"],
        ["--cache-dtype"],
        ["--cache-dtype", "--enforce-eager"],
        ["--model"],
    ],
)
def test_a_value_that_cannot_be_mapped_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the flag, and nothing is started."""
    with pytest.raises(SystemExit) as stopped:
        vllm_server.main(given)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {given[0]} ")


@pytest.mark.parametrize(
    ("size", "given", "expected"),
    [
        ("2", [], ["--distributed-executor-backend", "ray"]),
        ("1", [], []),
        ("", [], []),
        ("2", ["--distributed-executor-backend", "mp"], ["--distributed-executor-backend", "mp"]),
    ],
)
def test_several_nodes_are_ray_s(size: str, given: list[str], expected: list[str]) -> None:
    """LLM Engine joins nodes by Ray, which vLLM must be told."""
    made, _ = translate("--model", "m", *given, environment={"RAY_CLUSTER_SIZE": size})
    assert [part for part in made if part not in ("m", "--shutdown-timeout", "540")] == expected


def test_main_sets_the_switch_and_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter finds COMPLETION_V2_LLM_ENGINE=1, unless the operator has set it."""
    calls: list[tuple[list[str], str | None]] = []
    monkeypatch.setattr(
        vllm_server, "serve", lambda a: calls.append((a, os.environ.get(vllm_server.SWITCH)))
    )
    for already in (None, "0"):
        if already is not None:
            monkeypatch.setenv(vllm_server.SWITCH, already)
        vllm_server.main(["--model", "m"])
    assert vllm_server.SWITCH == "COMPLETION_V2_LLM_ENGINE"
    assert calls == [
        (["m", "--shutdown-timeout", "540"], "1"),
        (["m", "--shutdown-timeout", "540"], "0"),
    ]
