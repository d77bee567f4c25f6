"""Dashboard, alerts and scaler ask for metrics that exist, and the alerts fire when they should."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import metric_names
from tests.deploy.manifests import DEPLOY, tool

MONITORING = DEPLOY / "components" / "monitoring"
ADAPTER = DEPLOY.parent / "adapter"


def dashboard() -> Any:
    """The Grafana dashboard."""
    return json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))


def rules() -> Any:
    """The groups of the PrometheusRule, as Prometheus' own file has them."""
    manifest = yaml.safe_load((MONITORING / "prometheusrule.yaml").read_text(encoding="utf-8"))
    return manifest["spec"]


def expressions() -> list[tuple[str, str]]:
    """Every PromQL expression of deploy/, with where it stands."""
    found = [
        (f"panel {panel['title']}", target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", [])
    ]
    found += [
        (f"alert {rule['alert']}", rule["expr"])
        for group in rules()["groups"]
        for rule in group["rules"]
    ]
    scaler = yaml.safe_load(
        (DEPLOY / "overlays" / "keda" / "scaledobject.yaml").read_text(encoding="utf-8")
    )
    found += [
        (f"trigger {trigger['name']}", trigger["metadata"]["query"])
        for trigger in scaler["spec"]["triggers"]
    ]
    return found


@pytest.mark.parametrize(("where", "expression"), expressions(), ids=lambda value: str(value)[:40])
def test_expression_asks_for_what_exists(where: str, expression: str) -> None:
    """It parses, and its metrics, labels and label values are the server's."""
    assert metric_names.faults(expression) == [], where


def test_dashboard_shows_every_metric_of_ours() -> None:
    """No metric of the plugin is made and never looked at."""
    text = " ".join(expression for _, expression in expressions())
    assert [name for name in metric_names.OURS if name not in text] == []


def test_metrics_of_ours_are_the_adapters() -> None:
    """The table of this test suite has the adapter's metrics, with their kinds and labels."""
    assert dict(metric_names.made_in(ADAPTER / "metrics.py")) == metric_names.OURS


def test_dashboard_is_whole() -> None:
    """Panels have ids of their own, do not overlap, and use the variables that there are."""
    panels = dashboard()["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    names = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert names == {"datasource", "namespace", "pod"}


def test_alerts_say_what_to_do() -> None:
    """Each has a severity, what happened, and what to do about it."""
    for group in rules()["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description"}


def test_prometheus_takes_the_rules_and_they_fire(tmp_path: Path) -> None:
    """promtool checks the rules, and runs rules_test.yaml against them."""
    promtool = tool("promtool")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()), encoding="utf-8")
    shutil.copy(MONITORING / "rules_test.yaml", tmp_path)
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run(
            [promtool, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_unit_test() -> None:
    """No alert is only believed to fire."""
    cases = yaml.safe_load((MONITORING / "rules_test.yaml").read_text(encoding="utf-8"))["tests"]
    fired = {
        check["alertname"]
        for case in cases
        for check in case["alert_rule_test"]
        if check.get("exp_alerts")
    }
    assert fired == {rule["alert"] for group in rules()["groups"] for rule in group["rules"]}
