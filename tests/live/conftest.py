"""The servers of the live tests: one after the other, since two engines at once starve each other.

The first is the built-in model in float32, as exact as the oracles; one test ends it by a drain.
Then comes vLLM's own serve command, for the files named test_second_server*, and last those that
the files named test_third_server* start and end themselves.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from adapter.builtin_model.model import (
    MODEL_NAME,
    TINY_SHAPE,
    ensure_default_model,
    ensure_tiny_model,
)
from adapter.serve import KEEP_ALIVE_SECONDS
from tests.live.server import Server, start, stop

KEY = "live-tests-key"
ADAPTER = "tiny-adapter"
LLM_ENGINE_NAME = "model_files"

RUNNING = pytest.StashKey[Server]()

# What the `vllm` command does for `vllm serve`; the CPU build has no such command of its own.
PLAIN_SERVE = """
import sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    cli_env_setup()
    parser = FlexibleArgumentParser()
    ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    args = parser.parse_args(["serve", *sys.argv[1:]])
    ServeSubcommand().validate(args)
    ServeSubcommand.cmd(args)
"""


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The built-in model's folder."""
    return ensure_default_model()


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The built-in model, started as a user would, in float32."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    names = ["--served-model-name", MODEL_NAME, "second-name"]
    flags = ["--dtype", "float32", "--api-key", KEY, "--shutdown-timeout", "60"]
    running = start([*names, *flags], log, key=KEY)
    request.config.stash[RUNNING] = running
    yield running
    stop(running)


def make_adapter(folder: Path) -> Path:
    """A LoRA adapter for the tiny model, with weights large enough to change what it says."""
    width, rank = TINY_SHAPE["hidden_size"], 8
    random = np.random.default_rng(1)
    name = "base_model.model.model.layers.0.self_attn.o_proj"
    weights = {
        f"{name}.lora_A.weight": random.normal(size=(rank, width)).astype(np.float32),
        f"{name}.lora_B.weight": random.normal(size=(width, rank)).astype(np.float32) * 20,
    }
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["o_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def make_infilling_model(folder: Path) -> Path:
    """The tiny model, with a tokenizer that has fill-in-the-middle tokens of Qwen's kind."""
    from transformers import AutoTokenizer

    source = ensure_tiny_model()
    tokenizer = AutoTokenizer.from_pretrained(source)
    names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    tokenizer.save_pretrained(folder)
    config = json.loads((source / "config.json").read_text())
    config["vocab_size"] += 64
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(source / "generation_config.json", folder)
    return folder


def _stop_running(config: pytest.Config) -> None:
    running = config.stash.get(RUNNING, None)
    if running is not None:
        stop(running)


@pytest.fixture(scope="session")
def no_other_server(request: pytest.FixtureRequest) -> None:
    """The servers that the session started before have ended."""
    _stop_running(request.config)


@pytest.fixture(scope="session")
def second(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """vLLM's plain command with VLLM_PLUGINS set, two API servers, LoRA, unknown fields refused.

    It answers LLM Engine's gateway too, under the three names that the gateway's command gives.
    """
    _stop_running(request.config)
    folder = tmp_path_factory.mktemp("second")
    program = folder / "plain_serve.py"
    program.write_text(PLAIN_SERVE)
    model = str(make_infilling_model(folder / "model"))
    arguments = [
        model,
        *("--served-model-name", "tiny", LLM_ENGINE_NAME, model),
        *("--load-format", "dummy", "--enforce-eager", "--shutdown-timeout", "60"),
        *("--host", "127.0.0.1", "--api-server-count", "2", "--max-model-len", "2048"),
        *("--enable-lora", "--max-lora-rank", "8"),
        *("--lora-modules", f"{ADAPTER}={make_adapter(folder / 'adapter')}"),
    ]
    running = start(
        arguments,
        folder / "log.txt",
        program=[sys.executable, str(program)],
        VLLM_PLUGINS="completion_v2",
        VLLM_HTTP_TIMEOUT_KEEP_ALIVE=str(KEEP_ALIVE_SECONDS),
        COMPLETION_V2_LLM_ENGINE="1",
        COMPLETION_V2_UNKNOWN_FIELDS="reject",
        COMPLETION_V2_MAX_CHOICES="32",
    )
    request.config.stash[RUNNING] = running
    yield running
    stop(running)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever order was asked for: the first server's drain ends it, and the second starts."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if "test_second_server_drain" in item.nodeid:
        return 1
    if "third_server" in item.nodeid:
        return 3
    return 2 if "second_server" in item.nodeid else 0
