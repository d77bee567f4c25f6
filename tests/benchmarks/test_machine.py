"""What is recorded of a machine with GPUs, and of a checkout."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.running.machine import (
    Environment,
    checked_out_commit,
    environment,
    gpus_of,
    operating_system,
)

LISTING = """NVIDIA H200, 143771, 570.133.20
NVIDIA H200, 143771, 570.133.20
"""


def test_gpus_are_named_with_their_memory_and_driver() -> None:
    assert gpus_of(LISTING) == (["NVIDIA H200, 140.4 GiB"] * 2, "570.133.20")
    assert gpus_of("NVIDIA GB10, [N/A], 580.1\n") == (["NVIDIA GB10"], "580.1")
    assert gpus_of("") == ([], "")


def test_gpus_are_in_the_line_of_the_machine() -> None:
    machine = Environment(8, "EPYC", 64.0, 0.5, {"python": "3.11"}, *gpus_of(LISTING))
    line, versions = machine.lines()
    assert line.endswith("; NVIDIA H200, 140.4 GiB; driver 570.133.20")
    assert versions == "versions: python 3.11"


def test_a_record_from_before_these_facts_still_loads() -> None:
    old: dict[str, Any] = {
        "cores": 2,
        "cpu": "EPYC",
        "memory_gib": 24.0,
        "load_average": 2.0,
        "versions": {},
    }
    assert Environment(**old).lines()[0] == (
        "machine: 2 cores, EPYC, 24 GiB of memory, load average 2.00"
    )


def test_a_record_survives_json() -> None:
    now = environment()
    again = Environment(**json.loads(json.dumps(dataclasses.asdict(now))))
    assert again.lines() == now.lines()
    assert operating_system() in now.lines()[0]


def test_a_commit_is_told_with_whether_files_differ(tmp_path: Path) -> None:
    assert checked_out_commit(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    commit = checked_out_commit(tmp_path)
    assert len(commit) == 12
    (tmp_path / "new").touch()
    assert checked_out_commit(tmp_path) == f"{commit}+changes"
