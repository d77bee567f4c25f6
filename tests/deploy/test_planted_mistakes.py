"""Each check sees the mistake that it is there for, planted in a rendered overlay."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy import metric_names, policies, schemas
from tests.deploy.manifests import Manifest, of_kind, pods, render
from tests.deploy.test_manifests import KUBERNETES, schema_faults, vllm_routes
from tests.deploy.test_monitoring import expressions

Plant = Callable[[list[Manifest]], object]


def pod(manifests: list[Manifest], index: int = 0) -> Any:
    """A pod's spec."""
    return list(pods(manifests))[index].spec


def container(manifests: list[Manifest], index: int = 0) -> Any:
    """A server's container."""
    return pod(manifests, index)["containers"][0]


def kind(manifests: list[Manifest], name: str) -> Any:
    """The first object of a kind."""
    return of_kind(manifests, name)[0]


def with_argument(old: str, new: str) -> Plant:
    """Replaces a part of the server's arguments."""

    def plant(manifests: list[Manifest]) -> None:
        one = container(manifests)
        assert any(old in argument for argument in one["args"])
        one["args"] = [argument.replace(old, new) for argument in one["args"]]

    return plant


def with_variable(name: str, value: str) -> Plant:
    """Adds a variable to the server's container."""
    return lambda m: container(m)["env"].append({"name": name, "value": value})


POLICY_MISTAKES: list[tuple[str, str, str, Plant]] = [
    (
        "secrets_are_references",
        "gpu-single",
        "the key written out",
        with_variable("VLLM_API_KEY", "sk-1"),
    ),
    (
        "secrets_are_references",
        "gpu-single",
        "the key as a flag",
        lambda m: container(m)["args"].append("--api-key=sk-1"),
    ),
    (
        "secrets_are_references",
        "gpu-single",
        "a Secret among the manifests",
        lambda m: m.append({"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}),
    ),
    (
        "names_make_no_variables_of_ours",
        "gpu-single",
        "a Service named vllm",
        lambda m: kind(m, "Service")["metadata"].update(name="vllm"),
    ),
    (
        "names_make_no_variables_of_ours",
        "gpu-single",
        "a Service named like the plugin",
        lambda m: kind(m, "Service")["metadata"].update(name="completion-v2"),
    ),
    (
        "names_make_no_variables_of_ours",
        "multi-node-lws",
        "service links",
        lambda m: pod(m, 1).pop("enableServiceLinks"),
    ),
    (
        "images_are_pinned",
        "gpu-single",
        "the tag latest",
        lambda m: container(m).update(image="registry.example.com/completion-v2:latest"),
    ),
    (
        "images_are_pinned",
        "bench-job",
        "no tag, and a port that looks like one",
        lambda m: container(m).update(image="registry.example.com:5000/completion-v2"),
    ),
    (
        "nothing_runs_as_root",
        "gpu-single",
        "root",
        lambda m: pod(m)["securityContext"].update(runAsUser=0),
    ),
    (
        "nothing_runs_as_root",
        "multi-node-lws",
        "a worker that may be root",
        lambda m: pod(m, 1)["securityContext"].pop("runAsNonRoot"),
    ),
    (
        "nothing_runs_as_root",
        "gpu-single",
        "a capability kept",
        lambda m: container(m)["securityContext"].update(capabilities={"drop": []}),
    ),
    (
        "a_drain_fits_the_grace_period",
        "gpu-single",
        "a grace period below the sum",
        lambda m: pod(m).update(terminationGracePeriodSeconds=140),
    ),
    (
        "a_drain_fits_the_grace_period",
        "gpu-single",
        "Kubernetes' own grace period",
        lambda m: pod(m).pop("terminationGracePeriodSeconds"),
    ),
    (
        "a_drain_fits_the_grace_period",
        "gateway",
        "a longer drain alone",
        with_argument("--shutdown-timeout=120", "--shutdown-timeout=300"),
    ),
    (
        "a_drain_fits_the_grace_period",
        "gpu-single",
        "no drain",
        with_argument("--shutdown-timeout=120", "--enable-prefix-caching"),
    ),
    (
        "a_drain_fits_the_grace_period",
        "multi-node-lws",
        "a worker that goes first",
        lambda m: container(m, 1).pop("lifecycle"),
    ),
    (
        "probes_are_patient",
        "gpu-single",
        "no startup probe",
        lambda m: container(m).pop("startupProbe"),
    ),
    (
        "probes_are_patient",
        "gpu-single",
        "a probe of a port that is not there",
        lambda m: container(m)["readinessProbe"]["httpGet"].update(port="https"),
    ),
    (
        "probes_are_patient",
        "gpu-single",
        "a liveness probe faster than readiness",
        lambda m: container(m)["livenessProbe"].update(periodSeconds=1),
    ),
    (
        "probes_are_patient",
        "gpu-single",
        "Kubernetes' own probe timeout",
        lambda m: container(m)["livenessProbe"].pop("timeoutSeconds"),
    ),
    (
        "probes_are_patient",
        "multi-node-lws",
        "a worker nobody looks at",
        lambda m: container(m, 1).pop("livenessProbe"),
    ),
    (
        "resources_are_named",
        "gpu-tp",
        "fewer GPUs than ranks",
        lambda m: [x.update({"nvidia.com/gpu": "2"}) for x in container(m)["resources"].values()],
    ),
    (
        "resources_are_named",
        "gpu-single",
        "a CPU limit",
        lambda m: container(m)["resources"]["limits"].update(cpu="4"),
    ),
    (
        "parallel_sizes_fit_the_group",
        "multi-node-lws",
        "a third node",
        lambda m: kind(m, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"].update(size=3),
    ),
    (
        "parallel_sizes_fit_the_group",
        "multi-node-dp",
        "a third node",
        lambda m: kind(m, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"].update(size=3),
    ),
    (
        "volumes_fit_the_mounts",
        "gpu-single",
        "a mount of nothing",
        lambda m: pod(m)["volumes"].pop(0),
    ),
    (
        "volumes_fit_the_mounts",
        "gpu-single",
        "a claim that is not there",
        lambda m: m.remove(kind(m, "PersistentVolumeClaim")),
    ),
    (
        "volumes_fit_the_mounts",
        "multi-node-dp",
        "a ConfigMap that is not there",
        lambda m: m.__setitem__(slice(None), [o for o in m if o["kind"] != "ConfigMap"]),
    ),
    (
        "caches_can_be_written",
        "cpu-smoke",
        "a read-only HOME",
        lambda m: container(m)["volumeMounts"].pop(
            [v["name"] for v in container(m)["volumeMounts"]].index("home")
        ),
    ),
    (
        "caches_can_be_written",
        "gpu-tp",
        "the runtime's own /dev/shm",
        lambda m: [v.update(emptyDir={}) for v in pod(m)["volumes"] if v["name"] == "shm"],
    ),
    (
        "selectors_match",
        "gpu-single",
        "a Service that selects nothing",
        lambda m: kind(m, "Service")["spec"]["selector"].update(tier="gpu"),
    ),
    (
        "selectors_match",
        "gpu-single",
        "a PodMonitor of another port",
        lambda m: kind(m, "PodMonitor")["spec"]["podMetricsEndpoints"][0].update(port="metrics"),
    ),
    (
        "selectors_match",
        "gateway",
        "a pool of another port",
        lambda m: kind(m, "InferencePool")["spec"].update(targetPorts=[{"number": 8080}]),
    ),
    (
        "selectors_match",
        "multi-node-lws",
        "a Service over the workers too",
        lambda m: kind(m, "Service")["spec"]["selector"].pop(
            "leaderworkerset.sigs.k8s.io/worker-index"
        ),
    ),
    (
        "selectors_match",
        "gpu-single",
        "a server on another port",
        with_argument("--port=8000", "--port=8080"),
    ),
    (
        "references_exist",
        "keda",
        "replicas beside the scaler",
        lambda m: kind(m, "Deployment")["spec"].update(replicas=2),
    ),
    (
        "references_exist",
        "keda",
        "a scaler of nothing",
        lambda m: kind(m, "ScaledObject")["spec"]["scaleTargetRef"].update(name="vllm"),
    ),
    (
        "references_exist",
        "gateway",
        "a route to nothing",
        lambda m: m.remove(kind(m, "InferencePool")),
    ),
    (
        "references_exist",
        "gpu-single",
        "no namespace",
        lambda m: kind(m, "Service")["metadata"].pop("namespace"),
    ),
    (
        "variables_are_defined",
        "gpu-single",
        "a variable misspelt",
        with_argument("$(MODEL)", "$(MODELL)"),
    ),
    (
        "the_plugin_is_on",
        "gpu-single",
        "vLLM's own command",
        lambda m: container(m).update(command=["vllm", "serve"]),
    ),
    (
        "the_plugin_is_on",
        "gpu-single",
        "a list of plugins without ours",
        with_variable("VLLM_PLUGINS", "lora_filesystem_resolver"),
    ),
    (
        "the_plugin_is_on",
        "gpu-single",
        "no metrics",
        lambda m: container(m)["args"].append("--disable-log-stats"),
    ),
    (
        "claims_fit_the_replicas",
        "gpu-single",
        "two replicas on one node's volume",
        lambda m: kind(m, "Deployment")["spec"].update(replicas=2),
    ),
    (
        "claims_fit_the_replicas",
        "keda",
        "a scaler over one node's volume",
        lambda m: kind(m, "PersistentVolumeClaim")["spec"].update(accessModes=["ReadWriteOnce"]),
    ),
    (
        "who_may_connect_is_named",
        "gpu-single",
        "a door open to all",
        lambda m: kind(m, "NetworkPolicy")["spec"]["ingress"][0].pop("from"),
    ),
    (
        "who_may_connect_is_named",
        "gpu-single",
        "a way to the metadata service",
        lambda m: kind(m, "NetworkPolicy")["spec"]["egress"][1]["to"][0]["ipBlock"].pop("except"),
    ),
    (
        "who_may_connect_is_named",
        "gpu-single",
        "no policy",
        lambda m: m.remove(kind(m, "NetworkPolicy")),
    ),
]


@pytest.mark.parametrize(
    ("name", "overlay", "plant"),
    [
        pytest.param(name, overlay, plant, id=f"{overlay}-{what}")
        for name, overlay, what, plant in POLICY_MISTAKES
    ],
)
def test_policy_sees_the_mistake(name: str, overlay: str, plant: Plant) -> None:
    """The policy finds nothing before it is planted, and something after."""
    manifests = render(overlay)
    before = list(policies.POLICIES[name](manifests))
    plant(manifests)
    assert before == []
    assert list(policies.POLICIES[name](manifests)) != []


def test_every_policy_has_a_planted_mistake() -> None:
    """None of the policies is only believed to work."""
    assert {name for name, *_ in POLICY_MISTAKES} == policies.POLICIES.keys()


@pytest.mark.parametrize("path", ["/healthz", "/v1/health", "/ready"])
def test_a_wrong_probe_path_is_seen(path: str) -> None:
    """Paths of other servers are not vLLM's."""
    manifests = render("gpu-single")
    container(manifests)["livenessProbe"]["httpGet"]["path"] = path
    assert list(policies.probe_paths(manifests, vllm_routes())) != []


@pytest.mark.parametrize(
    "plant",
    [
        lambda m: container(m).update(imagePullPolcy="Always"),
        lambda m: pod(m).update(terminationGracePeriodSecond=150),
        lambda m: kind(m, "Deployment")["spec"].update(replicas="two"),
        lambda m: container(m)["readinessProbe"]["httpGet"].update(paht="/health"),
    ],
)
def test_a_typo_in_a_key_is_seen(plant: Plant) -> None:
    """Kubernetes' schema is read strictly."""
    manifests = render("gpu-single")
    plant(manifests)
    faults = [schema_faults(one, KUBERNETES[-1]) for one in of_kind(manifests, "Deployment")]
    assert any(faults)


@pytest.mark.parametrize(
    ("overlay", "of", "plant"),
    [
        (
            "multi-node-lws",
            "LeaderWorkerSet",
            lambda m: container(m, 1).update(imagePullPolcy="Always"),
        ),
        (
            "multi-node-lws",
            "LeaderWorkerSet",
            lambda m: kind(m, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"].update(size="two"),
        ),
        ("keda", "ScaledObject", lambda m: kind(m, "ScaledObject")["spec"].update(minReplicas=1)),
        (
            "gateway",
            "InferencePool",
            lambda m: kind(m, "InferencePool")["spec"].pop("targetPorts"),
        ),
        (
            "gateway",
            "HTTPRoute",
            lambda m: kind(m, "HTTPRoute")["spec"]["rules"][0].update(timeout="0s"),
        ),
        (
            "gpu-single",
            "PodMonitor",
            lambda m: kind(m, "PodMonitor")["spec"].update(podMetricEndpoints=[]),
        ),
        (
            "gpu-single",
            "PrometheusRule",
            lambda m: kind(m, "PrometheusRule")["spec"]["groups"][0]["rules"][0].update(fro="5m"),
        ),
    ],
)
def test_a_typo_in_a_custom_resource_is_seen(overlay: str, of: str, plant: Plant) -> None:
    """The schemas of custom resources are read strictly."""
    manifests = render(overlay)
    plant(manifests)
    assert schemas.faults(kind(manifests, of)) != []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vllm:num_requests_running", "vllm:num_requests_runing"),
        ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        ("vllm:request_success_total", "vllm:request_success"),
        ("vllm:time_to_first_token_seconds_bucket", "vllm:time_to_first_token_seconds"),
        ("completion_v2_requests_total", "completions_v2_requests_total"),
        ('result="hit"', 'result="hits"'),
        ('outcome=~"failed|unavailable"', 'outcome=~"failure|unavailable"'),
        ("sum by (outcome)", "sum by (status)"),
        ("sum by (finished_reason)", "sum by (finish_reason)"),
        ('handler="/v2/completions"', 'handler="/v1/completions"'),
        ("[$__rate_interval])))", "[$__rate_interval]))"),
    ],
)
def test_a_wrong_expression_is_seen(old: str, new: str) -> None:
    """Metrics, labels and values that no server has, and what does not parse."""
    planted = [text.replace(old, new) for _, text in expressions() if old in text]
    assert planted
    assert all(metric_names.faults(text) for text in planted)
