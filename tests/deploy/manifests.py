"""The manifests of deploy/ as kubectl renders them, and the pods in them."""

import functools
import shutil
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

Manifest = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAYS = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
SERVERS = [name for name in OVERLAYS if name != "bench-job"]


def tool(name: str) -> str:
    """The path of a program; the test is skipped where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def build(folder: Path) -> list[Manifest]:
    """The objects of a kustomization.

    Raises:
        AssertionError: kustomize refuses it; the message is kustomize's.
    """
    command = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    done = subprocess.run(
        [tool(command[0]), command[1], str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


@functools.cache
def _rendered(overlay: str) -> tuple[Manifest, ...]:
    return tuple(build(DEPLOY / "overlays" / overlay))


def render(overlay: str) -> list[Manifest]:
    """A copy of an overlay's objects; kubectl runs once an overlay."""
    return deepcopy(list(_rendered(overlay)))


@dataclass(frozen=True)
class Pod:
    """A pod template, and the workload that it is in."""

    workload: Manifest
    where: str
    template: Manifest

    @property
    def labels(self) -> dict[str, str]:
        """The pod's labels, with those that the LeaderWorkerSet controller adds."""
        added = {}
        if self.workload["kind"] == "LeaderWorkerSet":
            index = "1" if self.headless else "0"
            added["leaderworkerset.sigs.k8s.io/worker-index"] = index
        return {**self.template["metadata"]["labels"], **added}

    @property
    def spec(self) -> Manifest:
        """The pod's spec."""
        spec: Manifest = self.template["spec"]
        return spec

    @property
    def containers(self) -> list[Manifest]:
        """All containers, those of the start included."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def serves(self) -> bool:
        """True for the server's pods, false for those of its clients."""
        component: str = self.template["metadata"]["labels"]["app.kubernetes.io/component"]
        return component == "server"

    @property
    def headless(self) -> bool:
        """True for workers that have no API server."""
        return any("--headless" in c.get("args", []) for c in self.spec["containers"])


def pods(manifests: list[Manifest]) -> Iterator[Pod]:
    """Every pod template."""
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] in ("Deployment", "Job"):
            yield Pod(manifest, name, manifest["spec"]["template"])
        elif manifest["kind"] == "LeaderWorkerSet":
            group = manifest["spec"]["leaderWorkerTemplate"]
            for role in ("leaderTemplate", "workerTemplate"):
                if role in group:
                    yield Pod(manifest, f"{name}, {role}", group[role])


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    """The objects of these kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def flag(container: Manifest, name: str) -> str | None:
    """The value of a `--name=value` argument."""
    for argument in container.get("args", []):
        if argument.startswith(f"{name}="):
            return str(argument.partition("=")[2])
    return None


def environment(container: Manifest) -> dict[str, str | None]:
    """The container's variables; None for values that are taken from elsewhere."""
    return {entry["name"]: entry.get("value") for entry in container.get("env", [])}
