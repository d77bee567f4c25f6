"""Every overlay and component renders, fits the schemas, and keeps to the policies."""

import ast
import functools
import os
import re
from pathlib import Path

import pytest
import yaml

from tests.deploy import policies, schemas
from tests.deploy.manifests import (
    COMPONENTS,
    DEPLOY,
    OVERLAYS,
    SERVERS,
    Manifest,
    build,
    environment,
    flag,
    of_kind,
    pods,
    render,
)
from tests.deploy.metric_names import vllm_folder

# The oldest that has every field used (preStop.sleep is on by default from it), and a late one.
KUBERNETES = ("1.30", "1.37")
CUSTOM = {
    "HTTPRoute",
    "InferencePool",
    "LeaderWorkerSet",
    "PodMonitor",
    "PrometheusRule",
    "ScaledObject",
}


@functools.cache
def vllm_routes() -> set[str]:
    """The paths that vLLM answers GET on, read from its source."""
    found = {"/metrics"}
    for path in (vllm_folder() / "entrypoints").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "router.get(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "router.get":
                found |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
    return found


def schema_faults(manifest: Manifest, version: str) -> list[str]:
    """What Kubernetes' own strict schema says against an object."""
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    try:
        kubernetes.validate(manifest, version, strict=True)
    except kubernetes.ValidationError as error:
        return [error.message]
    return []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_renders(overlay: str) -> None:
    """kubectl builds it, and no object is there twice."""
    names = [(m["kind"], m["metadata"]["name"]) for m in render(overlay)]
    assert names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_fits_the_schema_of_kubernetes(overlay: str, version: str) -> None:
    """Every key and type is Kubernetes' own."""
    for manifest in render(overlay):
        if manifest["kind"] not in CUSTOM:
            assert schema_faults(manifest, version) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_fits_the_schemas_of_custom_resources(overlay: str) -> None:
    """The same for the kinds that controllers bring."""
    for manifest in render(overlay):
        if manifest["kind"] in CUSTOM:
            assert schemas.faults(manifest) == []


@pytest.mark.parametrize("name", policies.POLICIES)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_keeps_to_the_policy(overlay: str, name: str) -> None:
    """The project's own rules hold."""
    manifests = render(overlay)
    if overlay == "bench-job" and name == "references_exist":
        # It runs beside the overlay that it measures.
        manifests += of_kind(render("gpu-single"), "Service")
    assert list(policies.POLICIES[name](manifests)) == []


@pytest.mark.parametrize("overlay", SERVERS)
def test_probes_ask_for_paths_that_vllm_has(overlay: str) -> None:
    """/health and /metrics are vLLM's."""
    assert {"/health", "/metrics"} <= vllm_routes()
    assert list(policies.probe_paths(render(overlay), vllm_routes())) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_fits_a_plain_overlay(component: str, tmp_path: Path) -> None:
    """Each component may be added to gpu-single, and what comes keeps to schema and policies."""
    rest = [] if component == "monitoring" else [DEPLOY / "components" / component]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": [os.path.relpath(DEPLOY / "overlays" / "gpu-single", tmp_path)],
                "components": [os.path.relpath(path, tmp_path) for path in rest],
            }
        ),
        encoding="utf-8",
    )
    manifests = build(tmp_path)
    assert component == "monitoring" or manifests != render("gpu-single")
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            assert schema_faults(manifest, KUBERNETES[-1]) == []
    assert [fault for check in policies.POLICIES.values() for fault in check(manifests)] == []
    [pod] = pods(manifests)
    assert ("VLLM_API_KEY" in environment(pod.containers[0])) == (component != "no-api-key")


def test_multi_node_pods_differ_where_they_must_alone() -> None:
    """Leader and worker of a group start with the same flags, variables and volumes."""
    leader, worker = pods(render("multi-node-lws"))
    one, other = leader.containers[0], worker.containers[0]
    assert other["args"] == [*one["args"], "--headless"]
    for key in ("env", "image", "command", "resources", "volumeMounts", "securityContext"):
        assert one[key] == other[key]
    assert leader.spec["volumes"] == worker.spec["volumes"]


def test_multi_node_pods_are_the_base_s() -> None:
    """What the LeaderWorkerSets repeat of the base's pod is still the same there."""
    [base] = pods(render("gpu-single"))
    for overlay in ("multi-node-lws", "multi-node-dp"):
        for pod in pods(render(overlay)):
            for key in ("securityContext", "serviceAccountName", "tolerations"):
                assert pod.spec[key] == base.spec[key]
            ours, bases = pod.containers[0], base.containers[0]
            names = ("VLLM_API_KEY", "HF_TOKEN", "HOME", "HF_HOME", "VLLM_CACHE_ROOT")
            assert [e for e in ours["env"] if e["name"] in names] == [
                e for e in bases["env"] if e["name"] in names
            ]
            assert set(bases["args"]) <= set(ours["args"])
            if not pod.headless:
                for key in ("lifecycle", "readinessProbe", "livenessProbe", "ports"):
                    assert ours[key] == bases[key]


def test_the_benchmark_asks_the_service() -> None:
    """Host and port are the Service's, the path is the plugin's, and the policy lets it in."""
    [pod] = pods(render("bench-job"))
    [service] = of_kind(render("gpu-single"), "Service")
    [port] = service["spec"]["ports"]
    [container] = pod.containers
    address = f"http://{service['metadata']['name']}:{port['port']}"
    assert flag(container, "--base-url") == address
    assert pod.labels["completions-client"] == "true"
    results = str(flag(container, "--out")).removesuffix("/$(POD_NAME)")
    assert {"name": "results", "mountPath": results} in container["volumeMounts"]


def test_readme_names_everything() -> None:
    """deploy/README.md says what each overlay and component is for."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert [n for n in (*OVERLAYS, *COMPONENTS) if f"`{n}`" not in text] == []


def test_manifests_in_the_readme_fit_the_schemas() -> None:
    """Those that one may copy from it are as strictly checked as the others."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert schemas.faults(yaml.safe_load(block)) == []
