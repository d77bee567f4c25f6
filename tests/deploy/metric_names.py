"""Which metrics the server has, with their labels, and what a PromQL expression asks for."""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Of this plugin: kind and labels. A test holds it to the adapter.
OURS: dict[str, tuple[str, set[str]]] = {
    "completion_v2_requests": ("counter", {"outcome", "constraint", "backend"}),
    "completion_v2_refused_requests": ("counter", {"field"}),
    "completion_v2_ignored_fields": ("counter", set()),
    "completion_v2_guided_retries": ("counter", set()),
    "completion_v2_constraint_compile_seconds": ("histogram", {"backend"}),
    "completion_v2_constraint_cache": ("counter", {"result"}),
}
OUTCOMES = {"ok", "refused", "failed", "unavailable", "cancelled"}
LABEL_VALUES = {
    ("completion_v2_requests_total", "outcome"): OUTCOMES,
    ("completion_v2_constraint_cache_total", "result"): {"hit", "miss"},
    ("http_requests_total", "handler"): {"/v2/completions"},
}
# Of the library that vLLM counts its HTTP answers with.
HTTP: dict[str, tuple[str, set[str]]] = {
    "http_requests": ("counter", {"handler", "status", "method"})
}
# Prometheus adds them to whatever it scrapes from a pod.
TARGET_LABELS = {"namespace", "pod", "job", "instance", "container", "endpoint"}


def vllm_folder() -> Path:
    """Where vLLM is installed; the test is skipped where it is not. Nothing of it is imported."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    return Path(spec.origin).parent


@functools.cache
def series() -> dict[str, set[str]]:
    """Every series of a server that may be asked for, with its labels."""
    found = {"up": set(TARGET_LABELS)}
    metrics = {**OURS, **HTTP, **dict(_vllm_metrics())}
    for name, (kind, own) in metrics.items():
        labels = own | TARGET_LABELS
        if kind == "counter":
            found[name.removesuffix("_total") + "_total"] = labels
        elif kind == "histogram":
            found |= {f"{name}_sum": labels, f"{name}_count": labels}
            found[f"{name}_bucket"] = labels | {"le"}
        else:
            found[name] = labels
    return found


def _vllm_metrics() -> Iterator[tuple[str, tuple[str, set[str]]]]:
    """Read from the calls in vLLM's source that make its metrics."""
    for path in sorted((vllm_folder() / "v1" / "metrics").glob("*.py")):
        for name, (kind, labels) in made_in(path):
            if name.startswith("vllm:"):
                # model_name and engine come by a variable; others stand there.
                yield name, (kind, labels | {"model_name", "engine"})


def made_in(source: Path) -> Iterator[tuple[str, tuple[str, set[str]]]]:
    """The metrics that a Python file makes by calls: name, kind and the labels that stand there."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        maker = ast.unparse(node.func).lower()
        kinds = [kind for kind in ("counter", "gauge", "histogram") if kind in maker]
        # In their order in prometheus_client's constructors.
        named = dict(zip(("name", "documentation", "labelnames"), node.args, strict=False))
        named |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        name = named.get("name")
        if kinds and isinstance(name, ast.Constant) and isinstance(name.value, str):
            parts = ast.walk(named.get("labelnames", ast.List([])))
            labels = {str(part.value) for part in parts if isinstance(part, ast.Constant)}
            yield name.value, (kinds[0], labels)


def faults(expression: str) -> list[str]:
    """What is wrong with an expression: it does not parse, or names what no server has.

    Grafana's variables are taken for what they stand for.
    """
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    try:
        tree = parser.parse(expression.replace("$__rate_interval", "5m"))
    except ValueError as error:
        return [str(error)]
    return list(_faults(parser, tree))


def _faults(parser: Any, tree: Any) -> Iterator[str]:
    known = series()
    if isinstance(tree, parser.VectorSelector):
        name = tree.name
        if name not in known:
            yield f"no metric {name}"
            return
        for matcher in tree.matchers.matchers:
            if matcher.name not in known[name]:
                yield f"{name} has no label {matcher.name}"
            values = LABEL_VALUES.get((name, matcher.name))
            if values is not None and not set(matcher.value.split("|")) <= values:
                yield f"{matcher.name} of {name} is never {matcher.value}"
        return
    inner = [child for key in ("lhs", "rhs", "expr") if (child := getattr(tree, key, None))]
    inner += getattr(tree, "args", [])
    if isinstance(tree, parser.MatrixSelector):
        inner.append(tree.vector_selector)
    for child in inner:
        yield from _faults(parser, child)
    if isinstance(tree, parser.AggregateExpr) and tree.modifier is not None:
        offered = set().union(*(known.get(name, set()) for name in _names(parser, tree)))
        for label in set(tree.modifier.labels) - offered:
            yield f"{label} is a label of none of {sorted(_names(parser, tree))}"


def _names(parser: Any, tree: Any) -> set[str]:
    """The metrics that an expression asks for."""
    if isinstance(tree, parser.VectorSelector):
        return {tree.name}
    children = [getattr(tree, key, None) for key in ("lhs", "rhs", "expr", "vector_selector")]
    children += getattr(tree, "args", [])
    return set().union(*(_names(parser, child) for child in children if child is not None))
