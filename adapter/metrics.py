"""What is counted beside vLLM's own metrics, in the same /metrics.

Labels are bounded: no name or text of a caller's becomes one.
"""

from prometheus_client import Counter, Histogram

from adapter.contract.request import CompletionV2Request

NONE = "none"
OTHER = "other"

_OUTCOMES = {200: "ok", 499: "cancelled", 500: "failed", 503: "unavailable"}

_REQUESTS = Counter(
    "completion_v2_requests",
    "Requests to /v2/completions, by how they ended, their kind of constraint, and its backend.",
    ["outcome", "constraint", "backend"],
)
_REFUSED = Counter(
    "completion_v2_refused_requests",
    "Requests refused before any work, by the field at fault.",
    ["field"],
)
_IGNORED = Counter(
    "completion_v2_ignored_fields", "Fields that the contract does not know, in accepted requests."
)
_RETRIES = Counter(
    "completion_v2_guided_retries",
    "Constrained texts that failed their check at the end, and were made again.",
)
_COMPILE_SECONDS = Histogram(
    "completion_v2_constraint_compile_seconds",
    "Seconds to compile a constraint that was not kept, refused ones included, by backend.",
    ["backend"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_CACHE = Counter(
    "completion_v2_constraint_cache",
    "Constraints that were found compiled (hit), or were not (miss).",
    ["result"],
)


def count_request(status: int, constraint: str, backend: str) -> None:
    """Count a finished request by its HTTP status, 499 where the caller left."""
    outcome = _OUTCOMES.get(status, "refused")
    _REQUESTS.labels(outcome, constraint, backend).inc()


def count_refusal(field: str | None) -> None:
    """Count a refused request by its `param`: a field of the contract, or "other"."""
    name = (field or "").partition(".")[0].partition("[")[0]
    _REFUSED.labels(name if name in CompletionV2Request.model_fields else OTHER).inc()


def count_ignored_fields(count: int) -> None:
    """Count fields that the contract does not know."""
    _IGNORED.inc(count)


def count_retry() -> None:
    """Count a text that failed its check and is made again."""
    _RETRIES.inc()


def observe_compile(backend: str, seconds: float) -> None:
    """Note how long a constraint took to compile."""
    _COMPILE_SECONDS.labels(backend).observe(seconds)


def count_lookup(*, hit: bool) -> None:
    """Count a constraint that was looked for among the kept ones."""
    _CACHE.labels("hit" if hit else "miss").inc()
