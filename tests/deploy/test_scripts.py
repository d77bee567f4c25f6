"""The start scripts, run with stand-ins for Python, Ray and the name service."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY, tool

START = DEPLOY / "overlays" / "multi-node-dp" / "start.sh"
INIT_RAY = DEPLOY / "llm_engine" / "init_ray.sh"


def run(
    script: Path, *arguments: str, programs: dict[str, str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script with these programs (texts in sh) before those of the system."""
    bash = tool("bash")
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return subprocess.run(
        [bash, str(script), *arguments],
        env={"PATH": f"{folder}:{os.environ['PATH']}", **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("index", "address", "rank"), [("0", "10.0.0.1", "0"), ("1", "10.0.0.9", "8")]
)
def test_data_parallel_start(tmp_path: Path, index: str, address: str, rank: str) -> None:
    """The leader takes its own address, others look it up, and each has its first rank."""
    done = run(
        START,
        "model",
        "--port=8000",
        programs={"python3": 'echo "$@"', "getent": 'echo "10.0.0.9 leader.group.svc"'},
        folder=tmp_path,
        VLLM_HOST_IP="10.0.0.1",
        LWS_WORKER_INDEX=index,
        LWS_LEADER_ADDRESS="leader.group",
        DP_SIZE_LOCAL="8",
    )
    assert done.stdout.split() == [
        *("-m", "adapter.serve", "model", "--port=8000"),
        f"--data-parallel-address={address}",
        f"--data-parallel-start-rank={rank}",
    ]


def test_data_parallel_start_waits_for_the_name(tmp_path: Path) -> None:
    """A name that resolves late is waited for."""
    done = run(
        START,
        programs={
            "python3": 'echo "$@"',
            "getent": "[ -e seen ] && echo 10.0.0.9 leader || { touch seen; exit 2; }",
            "sleep": "exit 0",
        },
        folder=tmp_path,
        VLLM_HOST_IP="10.0.0.1",
        LWS_WORKER_INDEX="1",
        LWS_LEADER_ADDRESS="leader.group",
        DP_SIZE_LOCAL="4",
    )
    assert "--data-parallel-address=10.0.0.9" in done.stdout
    assert "--data-parallel-start-rank=4" in done.stdout


def test_ray_leader_waits_for_all_nodes(tmp_path: Path) -> None:
    """It starts the head on its own address and returns when the cluster is whole."""
    done = run(
        INIT_RAY,
        "leader",
        "--ray_cluster_size=2",
        "--own_address=me.group",
        programs={
            "getent": 'echo "10.0.0.1 $2"',
            "ray": 'echo "$@" >>calls',
            "python": "[ -e seen ] && echo 2 || { touch seen; echo 1; }",
            "sleep": "exit 0",
        },
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").exists()
    [call] = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert call.startswith("start --head --port=6379 --node-ip-address=10.0.0.1")


def test_ray_worker_joins_and_stays(tmp_path: Path) -> None:
    """It joins the leader, and ends when the cluster does."""
    done = run(
        INIT_RAY,
        "worker",
        "--ray_address=leader.group",
        "--own_address=me.group",
        programs={
            "getent": 'case $2 in leader*) echo "10.0.0.9 x" ;; *) echo "10.0.0.1 x" ;; esac',
            "ray": 'echo "$@" >>calls; [ "$1" = start ] || [ "$(wc -l <calls)" -lt 4 ]',
            "sleep": "exit 0",
        },
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert first.startswith("start --address=10.0.0.9:6379 --node-ip-address=10.0.0.1")
    assert rest == ["status --address=10.0.0.9:6379"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--own_address is missing"),
        (["leader", "--own_address=a"], "--ray_cluster_size is missing"),
        (["worker", "--own_address=a"], "--ray_address is missing"),
        (["guest", "--own_address=a"], "must be leader or worker"),
        (["leader", "--size=2"], "unknown argument --size=2"),
    ],
)
def test_ray_script_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    """One line says what is missing."""
    done = run(INIT_RAY, *arguments, programs={"getent": 'echo "10.0.0.1 x"'}, folder=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def test_ray_script_gives_up_on_a_name(tmp_path: Path) -> None:
    """A name that never resolves ends the script, not the patience of whoever waits."""
    done = run(
        INIT_RAY,
        "worker",
        "--ray_address=leader",
        "--own_address=me",
        programs={"getent": "exit 2", "sleep": "exit 0"},
        folder=tmp_path,
        RAY_INIT_TIMEOUT="0",
    )
    assert done.returncode == 1
    assert "me does not resolve" in done.stderr
