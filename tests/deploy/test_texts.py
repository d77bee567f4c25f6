"""The linters of each kind of file find nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY, tool


def check(*command: str) -> None:
    """Runs a linter, which must end with 0."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def program(name: str) -> str:
    """A program that came with a Python package, or one of the system."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else tool(name)


def test_dockerfile() -> None:
    """hadolint has no remark on the Dockerfile, notes included."""
    check(program("hadolint"), "--failure-threshold", "style", str(DEPLOY / "Dockerfile"))


def test_yaml() -> None:
    """yamllint, with the settings in deploy/."""
    check(program("yamllint"), "--strict", "-c", str(DEPLOY / ".yamllint"), str(DEPLOY))


@pytest.mark.parametrize(
    "script", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: str(path.relative_to(DEPLOY))
)
def test_shell(script: Path) -> None:
    """shellcheck, with what it only notes."""
    check(tool("shellcheck"), "--severity", "style", str(script))
