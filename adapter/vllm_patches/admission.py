"""Lets work that was admitted go on where the engine is full; see engine/admission.py."""

from typing import Any

from adapter.engine.admission import is_admitted


def let_admitted_work_go_on(client: Any) -> None:
    """Have an engine client ask for room only where new work begins.

    vLLM's --max-num-queued-reqs and --max-num-queued-tokens are checked for every request of the
    engine's, the steps of a beam search among them (vllm/v1/engine/async_llm.py, _add_request).
    Unnecessary once add_request() can be told that its request is a part of another one. Seen in
    vLLM 0.32, 0.33 and 0.34. Idempotent.
    """
    original = client.check_admission
    if getattr(original, "lets_admitted_work_go_on", False):
        return

    def check_admission(n: int = 1, request_id: str | None = None) -> None:
        if not is_admitted():
            original(n, request_id)

    check_admission.lets_admitted_work_go_on = True  # type: ignore[attr-defined]
    client.check_admission = check_admission
