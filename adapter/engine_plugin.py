"""What vLLM loads in every one of its processes (entry point group vllm.general_plugins).

vLLM may call it several times in a process. Today nothing is to be done outside the API server; the
entry point exists under the plugin's one name, so that VLLM_PLUGINS can name both halves at once.
"""

from adapter import vllm_version


def install() -> None:
    """Refuse a vLLM that this package was not tested with, before any work is done.

    Raises:
        UnsupportedVllm: with the command that mends it.
    """
    vllm_version.check(vllm_version.installed())
