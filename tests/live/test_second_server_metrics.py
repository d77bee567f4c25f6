"""/metrics of two API servers, and a real Prometheus that asks all that deploy/ asks of it."""

import itertools
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.manifests import tool
from tests.deploy.test_monitoring import expressions, rules
from tests.live.server import Server, free_port

pytestmark = pytest.mark.live

CLIENTS = 6
LOAD_SECONDS = 12

# What a pod's target has from the PodMonitor and the operator.
TARGET = {"namespace": "completions", "pod": "completions-0", "container": "server"}
VARIABLES = {
    "$namespace": TARGET["namespace"],
    "$pod": TARGET["pod"],
    "$__rate_interval": "1m",
}

# What no healthy server has; the expression is asked without it.
NEVER_YET = {'outcome=~"failed|unavailable"': "no request of this load fails"}


def samples(server: Server) -> Counter[str]:
    """The counters of ours and of the HTTP answers, each written as in PromQL."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for name, labels, value, *_ in family.samples:
            if name.endswith(("_total", "_count")):
                pairs = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
                assert f"{name}{{{pairs}}}" not in found, "one series twice"
                found[f"{name}{{{pairs}}}"] = int(value)
    return found


def test_counts_of_both_api_servers(second: Server) -> None:
    """Each request is counted once, by how it ended, whichever API server answered it."""
    kinds: list[tuple[int, dict[str, Any]]] = [
        (200, {"max_tokens": 2}),
        (200, {"max_tokens": 2, "stream": True, "n": 2}),
        (200, {"guided_regex": "[ab]{3}-m", "guided_decoding_backend": "xgrammar"}),
        (200, {"guided_regex": "[ab]{3}-m", "guided_decoding_backend": "guidance"}),
        (400, {"guided_choice": []}),
        (400, {"max_tokens": 5000}),
        (400, {"guided_grammer": "x"}),
    ]
    before = samples(second)
    with ExitStack() as stack:
        # vLLM gives a new connection to the API server with fewer; each client keeps its own.
        clients = [
            stack.enter_context(httpx.Client(base_url=second.url, timeout=60))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            for status, fields in kinds:
                body = {"model": second.model, "prompt": "a", **fields}
                response = client.post("/v2/completions", json=body)
                assert response.status_code == status, response.text
    requests, refused = "completion_v2_requests_total", "completion_v2_refused_requests_total"
    cache = "completion_v2_constraint_cache_total"
    compiled = "completion_v2_constraint_compile_seconds_count"
    expected = {
        f'{requests}{{backend="none",constraint="none",outcome="ok"}}': 2 * CLIENTS,
        f'{requests}{{backend="xgrammar",constraint="regex",outcome="ok"}}': CLIENTS,
        f'{requests}{{backend="guidance",constraint="regex",outcome="ok"}}': CLIENTS,
        f'{requests}{{backend="none",constraint="none",outcome="refused"}}': 3 * CLIENTS,
        f'{refused}{{field="guided_choice"}}': CLIENTS,
        f'{refused}{{field="max_tokens"}}': CLIENTS,
        f'{refused}{{field="other"}}': CLIENTS,
        # Each API server compiles a constraint once.
        f'{cache}{{result="miss"}}': 4,
        f'{cache}{{result="hit"}}': 2 * CLIENTS - 4,
        f'{compiled}{{backend="xgrammar"}}': 2,
        f'{compiled}{{backend="guidance"}}': 2,
        'http_requests_total{handler="/v2/completions",method="POST",status="2xx"}': 4 * CLIENTS,
        'http_requests_total{handler="/v2/completions",method="POST",status="4xx"}': 3 * CLIENTS,
    }
    ours = ("completion_v2_", 'http_requests_total{handler="/v2')
    deadline = time.monotonic() + 5  # a request is counted after its answer is sent
    while True:
        news = samples(second) - before
        counted = {name: value for name, value in news.items() if name.startswith(ours)}
        if counted == expected or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert counted == expected


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30)

    def ask(self, expression: str) -> list[Any]:
        """What an expression gives; its fault is raised."""
        answer = self.http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        result: list[Any] = answer["data"]["result"]
        return result

    def numbers(self, expression: str) -> list[str]:
        """The values that are numbers."""
        return [row["value"][1] for row in self.ask(expression) if row["value"][1] != "NaN"]


def work(server: Server) -> None:
    """Requests of all kinds for a while; each constraint is a new one, and one that is kept."""
    until = time.monotonic() + LOAD_SECONDS

    def loop(kind: Callable[[int], dict[str, Any]]) -> None:
        for number in itertools.count():
            if time.monotonic() > until:
                return
            body = {"model": server.model, "prompt": "a b c", "max_tokens": 8, **kind(number)}
            httpx.post(f"{server.url}/v2/completions", json=body, timeout=60)
            time.sleep(0.1)

    kinds: list[Callable[[int], dict[str, Any]]] = [
        lambda number: {"n": 1 + number % 2},
        lambda number: {"stream": True},
        lambda number: {"guided_regex": f"[ab]{{3}}-{number}"},
        lambda number: {"guided_regex": "[ab]{3}"},
        lambda number: {"max_tokens": 5000} if number % 2 else {"unknown": 1},
    ]
    threads = [threading.Thread(target=loop, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def prometheus(second: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with the alerts of deploy/, scraping the server each second of some work."""
    program = tool("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules()), encoding="utf-8")
    target = {"targets": [second.url.removeprefix("http://")], "labels": TARGET}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "completions", "static_configs": [target]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        running = Prometheus(f"http://{address}")
        _wait_until_up(running, folder / "log.txt")
        work(second)
        time.sleep(2)
        yield running
        running.http.close()
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_up(prometheus: Prometheus, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if prometheus.numbers("up") == ["1"]:
                return
        except (httpx.TransportError, json.JSONDecodeError):
            pass
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


@pytest.mark.parametrize(
    ("where", "expression"),
    expressions(),
    ids=[f"{number}-{where}" for number, (where, _) in enumerate(expressions())],
)
def test_every_expression_has_data(prometheus: Prometheus, where: str, expression: str) -> None:
    """Prometheus takes it, and it says something of a server that works; an alert's comparisons
    are left out, since none should hold."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    found = prometheus.numbers(expression)
    if not where.startswith("alert"):
        assert found, f"{where}: {expression}"
        return
    for label in NEVER_YET:
        expression = expression.replace(label, "")
    for part in compared(expression):
        assert prometheus.numbers(part), f"{where}: {part}"


def compared(expression: str) -> list[str]:
    """The parts of an alert's expression that its comparisons compare, without plain numbers."""
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")

    def parts(tree: Any) -> Iterator[str]:
        if isinstance(tree, parser.ParenExpr):
            yield from parts(tree.expr)
        elif isinstance(tree, parser.Call) and tree.func.name == "absent":
            yield from parts(tree.args[0])
        elif isinstance(tree, parser.BinaryExpr) and str(tree.op) not in set("+-*/"):
            yield from parts(tree.lhs)
            yield from parts(tree.rhs)
        elif not isinstance(tree, parser.NumberLiteral):
            yield str(tree)

    return list(parts(parser.parse(expression)))


def test_alerts_are_evaluated(prometheus: Prometheus) -> None:
    """Prometheus evaluates the rules as they are shipped; that nothing runs is not said."""
    groups = prometheus.http.get("/api/v1/rules").json()["data"]["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert found.keys() == {rule["alert"] for group in rules()["groups"] for rule in group["rules"]}
    assert {rule["health"] for rule in found.values()} == {"ok"}
    assert found["CompletionsNoTarget"]["state"] == "inactive"
