"""What every rendered manifest of deploy/ must keep to: each policy yields the faults it finds.

POLICIES holds them all by name. A schema cannot say these things.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from adapter.serve import PLUGIN
from tests.deploy.manifests import Manifest, Pod, environment, flag, of_kind, pods

Policy = Callable[[list[Manifest]], Iterator[str]]

POLICIES: dict[str, Policy] = {}

# What vLLM may need between the last token and the end of its processes.
TEARDOWN_SECONDS = 10
GPU = "nvidia.com/gpu"
# Set by the LeaderWorkerSet controller in every container.
_CONTROLLERS_VARIABLES = {"LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"}
_UNITS = {"": 1, "m": 1e-3, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def policy(function: Policy) -> Policy:
    """Registers a policy under its name."""
    POLICIES[function.__name__] = function
    return function


def quantity(text: str | int) -> float:
    """A Kubernetes quantity as a number."""
    match = re.fullmatch(r"([\d.]+)(m|Mi|Gi|Ti|)", str(text))
    assert match, f"unknown quantity {text}"
    return float(match[1]) * _UNITS[match[2]]


@policy
def secrets_are_references(manifests: list[Manifest]) -> Iterator[str]:
    """No secret stands in a manifest."""
    for manifest in of_kind(manifests, "Secret"):
        yield f"Secret {manifest['metadata']['name']} is made by the cluster's owner, not here"
    for pod, container in _containers(manifests):
        for name, value in environment(container).items():
            if value and re.search(r"(KEY|TOKEN|PASSWORD|SECRET)$", name):
                yield f"{pod.where}: {name} is written out"
        for argument in container.get("args", []):
            if argument.startswith("--api-key"):
                yield f"{pod.where}: {argument} can be read by whoever may list processes"


@policy
def names_make_no_variables_of_ours(manifests: list[Manifest]) -> Iterator[str]:
    """No Service makes a variable that vLLM or the plugin reads, and pods take none."""
    for manifest in of_kind(manifests, "Service"):
        name = manifest["metadata"]["name"]
        variable = name.upper().replace("-", "_") + "_"
        if variable.startswith(("VLLM_", "COMPLETION_V2_")):
            yield f"Service {name} makes variables {variable}*"
    for pod in pods(manifests):
        if pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod.where}: enableServiceLinks is not false"


@policy
def images_are_pinned(manifests: list[Manifest]) -> Iterator[str]:
    """Each image has a version or a digest."""
    for pod, container in _containers(manifests):
        image = container["image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and not re.search(r"\d+\.\d+", tag):
            yield f"{pod.where}: the image {image} is not pinned"


@policy
def nothing_runs_as_root(manifests: list[Manifest]) -> Iterator[str]:
    """Every pod keeps to Kubernetes' restricted level, as the user of the images."""
    for pod in pods(manifests):
        security = pod.spec.get("securityContext", {})
        if security.get("runAsNonRoot") is not True:
            yield f"{pod.where}: runAsNonRoot is not true"
        # Of vLLM's image: an id without a passwd entry ends torch's import.
        if (security.get("runAsUser"), security.get("runAsGroup")) != (2000, 0):
            yield f"{pod.where}: the user is not 2000:0"
        if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{pod.where}: no seccomp profile"
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.where}: has a token of the Kubernetes API"
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(key):
                yield f"{pod.where}: {key}"
        for container in pod.containers:
            own = container.get("securityContext", {})
            if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
                yield f"{pod.where}: {container['name']} may gain privileges"
            if own.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{pod.where}: {container['name']} keeps capabilities"
            if own.get("runAsUser", 2000) != 2000:
                yield f"{pod.where}: {container['name']} has a user of its own"


@policy
def a_drain_fits_the_grace_period(manifests: list[Manifest]) -> Iterator[str]:
    """The grace period is preStop, --shutdown-timeout and teardown at least; workers wait too."""
    longest = 0
    for pod, container in _server_containers(manifests):
        if pod.headless:
            continue
        drain = int(flag(container, "--shutdown-timeout") or 0)
        if not drain:
            yield f"{pod.where}: no --shutdown-timeout, so SIGTERM aborts what is running"
        pause = _pre_stop(container)
        if pause < 5:
            yield f"{pod.where}: no preStop sleep, so requests still come when the server drains"
        grace = pod.spec.get("terminationGracePeriodSeconds", 30)
        if grace < pause + drain + TEARDOWN_SECONDS:
            yield f"{pod.where}: {grace} s of grace for {pause} + {drain} s and the teardown"
        longest = max(longest, pause + drain)
    for pod, container in _server_containers(manifests):
        if pod.headless:
            if _pre_stop(container) < longest:
                yield f"{pod.where}: the worker ends before its leader has drained"
            grace = pod.spec.get("terminationGracePeriodSeconds", 30)
            if grace < _pre_stop(container) + TEARDOWN_SECONDS:
                yield f"{pod.where}: {grace} s of grace for {_pre_stop(container)} s of preStop"


@policy
def probes_are_patient(manifests: list[Manifest]) -> Iterator[str]:
    """A slow load is not killed, a loaded server is unrouted first, and every port named exists."""
    for pod, container in _server_containers(manifests):
        kinds = ["startupProbe", "livenessProbe"]
        if not pod.headless:
            kinds.append("readinessProbe")
        for kind in kinds:
            probe = container.get(kind)
            if probe is None:
                yield f"{pod.where}: no {kind}"
                continue
            if probe.get("timeoutSeconds", 1) < 5:
                yield f"{pod.where}: {kind} gives up under load"
            if "httpGet" in probe and probe["httpGet"]["port"] not in _ports(container):
                yield f"{pod.where}: {kind} asks port {probe['httpGet']['port']}"
        if _window(container.get("startupProbe")) < 1800:
            yield f"{pod.where}: less than half an hour to load"
        if "readinessProbe" in container and _window(container.get("livenessProbe")) <= _window(
            container["readinessProbe"]
        ):
            yield f"{pod.where}: killed before it is unrouted"
        if pod.workload["kind"] == "Deployment" and pod.workload["spec"].get(
            "progressDeadlineSeconds", 600
        ) <= _window(container.get("startupProbe")):
            yield f"{pod.where}: a slow load counts as a failed rollout"


@policy
def resources_are_named(manifests: list[Manifest]) -> Iterator[str]:
    """CPU is requested and not limited, memory is both, GPUs are as many as the ranks."""
    for pod, container in _containers(manifests):
        requests = container.get("resources", {}).get("requests", {})
        limits = container.get("resources", {}).get("limits", {})
        if "cpu" not in requests or "cpu" in limits:
            yield f"{pod.where}: CPU must be requested and not limited"
        if not requests.get("memory") or requests["memory"] != limits.get("memory"):
            yield f"{pod.where}: memory requested and limited differ"
            continue
        if requests.get(GPU) != limits.get(GPU):
            yield f"{pod.where}: GPUs requested and limited differ"
        ranks = int(flag(container, "--tensor-parallel-size") or 1)
        local = flag(container, "--data-parallel-size-local") or "1"
        local = environment(container).get("DP_SIZE_LOCAL") or local
        gpus = int(requests.get(GPU, 0))
        if pod.serves and gpus and gpus != ranks * int(local):
            yield f"{pod.where}: {gpus} GPUs for {ranks} x {local} ranks"
        memory_volumes = sum(
            quantity(volume["emptyDir"]["sizeLimit"])
            for volume in pod.spec["volumes"]
            if volume.get("emptyDir", {}).get("medium") == "Memory"
        )
        if memory_volumes > quantity(limits["memory"]) / 2:
            yield f"{pod.where}: memory volumes take more than half of the limit"


@policy
def parallel_sizes_fit_the_group(manifests: list[Manifest]) -> Iterator[str]:
    """The ranks of a LeaderWorkerSet's flags are the GPUs of its pods."""
    for pod, container in _server_containers(manifests):
        if pod.workload["kind"] != "LeaderWorkerSet":
            continue
        size = pod.workload["spec"]["leaderWorkerTemplate"]["size"]
        gpus = size * int(container["resources"]["limits"][GPU])
        names = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
        ranks = 1
        for name in names:
            ranks *= int(flag(container, name) or 1)
        if ranks != gpus:
            yield f"{pod.where}: {ranks} ranks on {gpus} GPUs"


@policy
def volumes_fit_the_mounts(manifests: list[Manifest]) -> Iterator[str]:
    """What is mounted exists, what exists is mounted, claims and ConfigMaps are rendered too."""
    claims = {m["metadata"]["name"] for m in of_kind(manifests, "PersistentVolumeClaim")}
    maps = {m["metadata"]["name"] for m in of_kind(manifests, "ConfigMap")}
    for pod in pods(manifests):
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        mounted = {m["name"] for c in pod.containers for m in c.get("volumeMounts", [])}
        for name in mounted ^ volumes.keys():
            yield f"{pod.where}: the volume {name} is only mounted, or only there"
        for name, volume in volumes.items():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is not None and claim not in claims:
                yield f"{pod.where}: no claim {claim}"
            config = volume.get("configMap", {}).get("name")
            if config is not None and config not in maps:
                yield f"{pod.where}: no ConfigMap {config}"
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{pod.where}: {name} may fill the node's disk"


@policy
def caches_can_be_written(manifests: list[Manifest]) -> Iterator[str]:
    """Models, caches and /tmp are on volumes, HOME too under a read-only root; shm is memory."""
    for pod, container in _containers(manifests):
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        mounts = {
            mount["mountPath"]: volumes.get(mount["name"], {})
            for mount in container.get("volumeMounts", [])
            if not mount.get("readOnly")
        }
        variables = environment(container)
        wanted = [variables.get("HF_HOME"), variables.get("VLLM_CACHE_ROOT"), "/tmp"]
        if container.get("securityContext", {}).get("readOnlyRootFilesystem"):
            wanted.append(variables.get("HOME"))
        for path in wanted:
            if path is None or not any(f"{path}/".startswith(f"{mount}/") for mount in mounts):
                yield f"{pod.where}: {path} is on no volume"
        if pod.serves and mounts.get("/dev/shm", {}).get("emptyDir", {}).get("medium") != "Memory":
            yield f"{pod.where}: /dev/shm has the runtime's 64 MB"


@policy
def selectors_match(manifests: list[Manifest]) -> Iterator[str]:
    """Whatever selects pods selects a server's, and the ports it names are theirs."""
    servers = [pod for pod in pods(manifests) if pod.serves]
    for manifest, selector, ports in _selections(manifests):
        where = f"{manifest['kind']} {manifest['metadata']['name']}"
        chosen = [pod for pod in servers if selector.items() <= pod.labels.items()]
        if not chosen:
            yield f"{where} selects no server"
        offered = set().union(*(_ports(c) for pod in chosen for c in pod.containers))
        for port in ports:
            if chosen and port not in offered:
                yield f"{where}: no port {port} in the pods"
        if manifest["kind"] in ("Service", "InferencePool") and any(p.headless for p in chosen):
            yield f"{where} sends requests to workers without an API server"
    for manifest in of_kind(manifests, "Deployment"):
        selector = manifest["spec"]["selector"]["matchLabels"]
        if not selector.items() <= manifest["spec"]["template"]["metadata"]["labels"].items():
            yield f"Deployment {manifest['metadata']['name']} does not select its own pods"
    for pod, container in _server_containers(manifests):
        port = flag(container, "--port")
        if not pod.headless and (port is None or int(port) not in _ports(container)):
            yield f"{pod.where}: --port={port} is not the container's port"


@policy
def references_exist(manifests: list[Manifest]) -> Iterator[str]:
    """Scaler and route name things that are there, and everything is in a namespace."""
    known = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    for manifest in of_kind(manifests, "ScaledObject"):
        target = manifest["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) not in known:
            yield f"ScaledObject scales no {target['kind']} {target['name']}"
        for workload in of_kind(manifests, target["kind"]):
            if "replicas" in workload["spec"]:
                yield "replicas is set beside a ScaledObject"
    for manifest in of_kind(manifests, "HTTPRoute"):
        for rule in manifest["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                if (backend["kind"], backend["name"]) not in known:
                    yield f"HTTPRoute has no {backend['kind']} {backend['name']}"
    for manifest in manifests:
        if manifest["kind"] != "Namespace" and "namespace" not in manifest["metadata"]:
            yield f"{manifest['kind']} {manifest['metadata']['name']} is in no namespace"


@policy
def variables_are_defined(manifests: list[Manifest]) -> Iterator[str]:
    """Arguments use variables that the container has, and pods an account that is there."""
    accounts = {m["metadata"]["name"] for m in of_kind(manifests, "ServiceAccount")}
    for pod in pods(manifests):
        account = pod.spec.get("serviceAccountName")
        if account is not None and account not in accounts:
            yield f"{pod.where}: no ServiceAccount {account}"
        for container in pod.containers:
            defined = environment(container).keys() | _CONTROLLERS_VARIABLES
            for argument in container.get("args", []):
                for name in re.findall(r"\$\((\w+)\)", argument):
                    if name not in defined:
                        yield f"{pod.where}: $({name}) in {argument} is not defined"


@policy
def the_plugin_is_on(manifests: list[Manifest]) -> Iterator[str]:
    """Servers are started by adapter.serve, and a list of plugins has ours."""
    scripts = {
        text
        for manifest in of_kind(manifests, "ConfigMap")
        for name, text in manifest.get("data", {}).items()
        if name.endswith(".sh")
    }
    for pod, container in _server_containers(manifests):
        command = container.get("command", [])
        started = command == ["python3", "-m", "adapter.serve"] or (
            command == ["/bin/bash"] and any("python3 -m adapter.serve" in s for s in scripts)
        )
        if not started:
            yield f"{pod.where}: {command} does not start adapter.serve"
        plugins = environment(container).get("VLLM_PLUGINS")
        if plugins is not None and PLUGIN not in plugins.split(","):
            yield f"{pod.where}: VLLM_PLUGINS leaves {PLUGIN} out"
        if "--disable-log-stats" in container.get("args", []):
            yield f"{pod.where}: without statistics there are no metrics"


@policy
def claims_fit_the_replicas(manifests: list[Manifest]) -> Iterator[str]:
    """A claim of several pods can be mounted on several nodes."""
    modes = {
        m["metadata"]["name"]: m["spec"]["accessModes"]
        for m in of_kind(manifests, "PersistentVolumeClaim")
    }
    scaled = {m["spec"]["scaleTargetRef"]["name"] for m in of_kind(manifests, "ScaledObject")}
    for pod in pods(manifests):
        spec = pod.workload["spec"]
        size = spec.get("leaderWorkerTemplate", {}).get("size", 1) * spec.get("replicas", 1)
        if size == 1 and pod.workload["metadata"]["name"] not in scaled:
            continue
        for volume in pod.spec["volumes"]:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is not None and "ReadWriteMany" not in modes[claim]:
                yield f"{pod.where}: {claim} can be mounted on one node only"


@policy
def who_may_connect_is_named(manifests: list[Manifest]) -> Iterator[str]:
    """A NetworkPolicy guards the server both ways, and no rule of it is open to all."""
    policies = of_kind(manifests, "NetworkPolicy")
    for pod in pods(manifests):
        if not pod.serves:
            continue
        guards = {
            direction
            for manifest in policies
            if manifest["spec"]["podSelector"]["matchLabels"].items() <= pod.labels.items()
            for direction in manifest["spec"]["policyTypes"]
        }
        if guards != {"Ingress", "Egress"}:
            yield f"{pod.where}: guarded for {sorted(guards)} only"
    for manifest in policies:
        name = manifest["metadata"]["name"]
        for rule in manifest["spec"].get("ingress", []):
            if not rule.get("from"):
                yield f"NetworkPolicy {name} lets everybody in"
        for rule in manifest["spec"].get("egress", []):
            for peer in rule.get("to") or [{"ipBlock": {"cidr": "0.0.0.0/0"}}]:
                block = peer.get("ipBlock", {})
                if block.get("cidr") == "0.0.0.0/0" and "169.254.0.0/16" not in block.get(
                    "except", []
                ):
                    yield f"NetworkPolicy {name} lets pods ask the cloud's metadata service"


def probe_paths(manifests: list[Manifest], routes: set[str]) -> Iterator[str]:
    """The HTTP probes and scrapes of paths that the server does not have."""
    for pod, container in _server_containers(manifests):
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container.get(kind, {}).get("httpGet", {}).get("path")
            if path is not None and path not in routes:
                yield f"{pod.where}: {kind} asks {path}"
    for manifest in of_kind(manifests, "PodMonitor"):
        for endpoint in manifest["spec"]["podMetricsEndpoints"]:
            if endpoint["path"] not in routes:
                yield f"PodMonitor asks {endpoint['path']}"


def _containers(manifests: list[Manifest]) -> Iterator[tuple[Pod, Manifest]]:
    for pod in pods(manifests):
        for container in pod.containers:
            yield pod, container


def _server_containers(manifests: list[Manifest]) -> Iterator[tuple[Pod, Manifest]]:
    for pod in pods(manifests):
        if pod.serves:
            for container in pod.spec["containers"]:
                yield pod, container


def _ports(container: Manifest) -> set[Any]:
    ports = container.get("ports", [])
    return {port[key] for port in ports for key in ("name", "containerPort")}


def _pre_stop(container: Manifest) -> int:
    sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
    return int(sleep.get("seconds", 0))


def _window(probe: Manifest | None) -> int:
    """Seconds that a probe may fail before it has an effect."""
    if probe is None:
        return 0
    return int(probe.get("periodSeconds", 10)) * int(probe.get("failureThreshold", 3))


def _selections(
    manifests: list[Manifest],
) -> Iterator[tuple[Manifest, dict[str, str], list[Any]]]:
    """Whatever selects pods, the labels it asks for, and the ports it names."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        match manifest["kind"]:
            case "Service":
                yield manifest, spec["selector"], [port["targetPort"] for port in spec["ports"]]
            case "PodDisruptionBudget":
                yield manifest, spec["selector"]["matchLabels"], []
            case "NetworkPolicy":
                rules = spec.get("ingress", [])
                named = [port["port"] for rule in rules for port in rule.get("ports", [])]
                yield manifest, spec["podSelector"]["matchLabels"], named
            case "PodMonitor":
                ports = [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]]
                yield manifest, spec["selector"]["matchLabels"], ports
            case "InferencePool":
                ports = [port["number"] for port in spec["targetPorts"]]
                yield manifest, spec["selector"]["matchLabels"], ports
