"""Every flag in deploy/ is one that vLLM, or the plugin, takes today."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endpoint.options import parse
from tests.deploy.manifests import SERVERS, environment, pods, render
from tests.deploy.test_vllm_server import COMMAND, translate, vllm_server

pytestmark = pytest.mark.needs_vllm

# Added by start.sh of multi-node-dp.
BY_SCRIPT = ["--data-parallel-address=10.0.0.1", "--data-parallel-start-rank=8"]


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    """The parser of adapter.serve."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from adapter.serve import make_parser
    from adapter.vllm_api import ServeSubcommand

    return make_parser(ServeSubcommand())


def with_values(container: Any) -> list[str]:
    """The container's arguments with its variables in them."""
    values = {
        **{name: value for name, value in environment(container).items() if value},
        "LWS_GROUP_SIZE": "2",
        "LWS_LEADER_ADDRESS": "leader",
        "LWS_WORKER_INDEX": "1",
    }
    arguments = []
    for argument in container["args"]:
        for name, value in values.items():
            argument = argument.replace(f"$({name})", value)  # noqa: PLW2901
        arguments.append(argument)
    return arguments


@pytest.mark.parametrize("overlay", SERVERS)
def test_server_takes_the_flags(parser: ArgumentParser, overlay: str) -> None:
    """The parser of adapter.serve takes each container's arguments, and nothing is left over."""
    for pod in pods(render(overlay)):
        arguments = with_values(pod.containers[0])
        if arguments[0].endswith("start.sh"):
            arguments = [*arguments[1:], *BY_SCRIPT]
        args = parser.parse_args(["serve", *arguments])
        assert args.shutdown_timeout == 120
        assert args.port == 8000
        assert "$(" not in " ".join(arguments)


def test_benchmark_takes_the_flags() -> None:
    """So does the parser of the benchmark."""
    [pod] = pods(render("bench-job"))
    options = parse(with_values(pod.containers[0]))
    assert options.concurrency == [1, 16, 64]
    assert options.out.parent == Path("/results")


def test_retired_flags_are_retired(
    parser: ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the shim maps or drops, vLLM does not know; what it writes instead, vLLM knows."""
    for name in (*vllm_server.RENAMED, *vllm_server.WITHOUT_EFFECT, vllm_server.ROPE_SCALING):
        with pytest.raises(SystemExit):
            parser.parse_args(["serve", "m", f"{name}=1"])
    capsys.readouterr()
    made, _ = translate(
        *COMMAND,
        *("--cache-dtype", "fp8", "--max-gpu-memory-utilization", "0.8", "--swap-space", "4"),
        *("--rope-scaling", '{"rope_type": "linear", "factor": 2.0}', "--disable-log-requests"),
        environment={"RAY_CLUSTER_SIZE": "2"},
    )
    args = parser.parse_args(["serve", *made])
    assert args.model_tag == "model_files"
    assert args.served_model_name == ["llama-3-8b", "model_files"]
    assert (args.host, args.port, args.shutdown_timeout) == ("::", 5005, 540)
    assert (args.kv_cache_dtype, args.gpu_memory_utilization) == ("fp8", 0.8)
    assert args.hf_overrides == {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    assert args.distributed_executor_backend == "ray"
