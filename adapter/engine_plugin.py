"""What vLLM loads in every one of its processes (entry point group vllm.general_plugins).

vLLM may call it several times in a process. It has the plugin's one name, so that VLLM_PLUGINS can
name both halves at once.
"""

from adapter import vllm_version


def install() -> None:
    """Let each request have its own guided decoding backend, and repair CPU workers.

    Raises:
        UnsupportedVllm: this package was not tested with this vLLM; with the command that mends it.
    """
    vllm_version.check(vllm_version.installed())
    from adapter.vllm_patches.cpu_seeds import repair_generators
    from adapter.vllm_patches.structured_outputs import let_requests_choose_backends

    let_requests_choose_backends()
    repair_generators()
