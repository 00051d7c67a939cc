"""The rules and the routing that are shipped, checked by Prometheus' and Alertmanager's own tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertmanagerConfig, AlertsConfig
from alerts.exposition import Exposition, OfCluster
from alerts.incidents.incident import RUNBOOK
from alerts.metrics import Metrics
from alerts.paging import Paging
from alerts.receivers.http import post
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.policy import severity
from tests.alerts.exported import monitor, probes, samples
from tests.alerts.findings import event, finding
from tests.alerts.servers import alertmanager, eventually, get, program, prometheus, sink

yaml: Any = pytest.importorskip("yaml", reason="PyYAML comes with Apprise: pip install 'offsetwatch[chat]'")

PROJECT = Path(__file__).resolve().parent.parent.parent
SHIPPED = PROJECT / "deploy" / "prometheus"
RULES = yaml.safe_load((SHIPPED / "rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
SECTIONS = re.findall(r"^### (\S+)$", (PROJECT / RUNBOOK).read_text(), re.MULTILINE)


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=SHIPPED, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_are_what_prometheus_takes() -> None:
    assert "SUCCESS" in run(program("promtool"), "check", "rules", "rules.yml")
    assert "SUCCESS" in run(program("promtool"), "check", "config", "prometheus.yml")


@pytest.mark.slow
def test_each_alert_fires_when_it_must_and_its_twin_does_not() -> None:
    assert "SUCCESS" in run(program("promtool"), "test", "rules", "rules_test.yml")


def test_every_alert_is_tested() -> None:
    tested = yaml.safe_load((SHIPPED / "rules_test.yml").read_text())["tests"]
    fired = {one["alertname"] for test in tested for one in test.get("alert_rule_test", ()) if one.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in ALERTS}


def test_every_incident_and_every_alert_has_a_section_of_the_runbook_and_no_other_is_there() -> None:
    incidents = {entry.name for entry in CATALOGUE.values() if entry.kind != "classified"}
    assert sorted(SECTIONS) == sorted(incidents | {rule["alert"] for rule in ALERTS})
    anchors = {section.lower() for section in SECTIONS}
    for rule in ALERTS:
        assert rule["annotations"]["runbook"] == f"{RUNBOOK}#{rule['alert'].lower()}"
    linked = set(re.findall(r"\]\(#([^)]+)\)", (PROJECT / RUNBOOK).read_text()))
    assert linked <= anchors


def test_rules_speak_of_metrics_that_there_are() -> None:
    names = samples(monitor()) | samples(probes())
    spoken = {
        name
        for group in RULES["groups"]
        for rule in group["rules"]
        for name in re.findall(r"\boffsetwatch_[a-z_]+", rule["expr"])
    }
    assert spoken
    assert spoken <= names


def route(labels: dict[str, str]) -> str:
    told = run(
        program("amtool"),
        "config",
        "routes",
        "test",
        "--config.file=alertmanager.yml",
        *(f"{name}={value}" for name, value in labels.items()),
    )
    return told.splitlines()[0] if not told.startswith("Warning") else told.splitlines()[-1]


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "lost-write", "kind": "violation", "severity": "critical"}, "page"),
        ({"alertname": "cluster-unreachable", "kind": "condition", "severity": "critical"}, "page"),
        ({"alertname": "OffsetwatchCanaryBlind", "severity": "critical"}, "page"),
        ({"alertname": "OffsetwatchChecksLate", "severity": "warning"}, "ticket"),
        *(
            ({"alertname": name, "kind": "condition", "severity": severity(name, {})}, "ticket")
            for name in ("under-replicated-probe-topic", "unsafe-config", "unverifiable", "window-overflow")
        ),
        ({"alertname": "rebalance", "severity": "info"}, "nobody"),
    ],
)
def test_who_is_told(labels: dict[str, str], receiver: str) -> None:
    assert route(labels) == receiver


def test_the_routing_is_what_alertmanager_takes() -> None:
    assert "SUCCESS" in run(program("amtool"), "check-config", "alertmanager.yml")


def test_a_tool_that_is_missing_skips_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="apt-get install prometheus-alertmanager"):
        program("amtool")


@pytest.mark.evening
def test_what_the_monitor_tells_is_one_page_and_its_end_and_no_rule_pages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incident is over long before the rule's quarter of an hour is."""
    monkeypatch.setattr("alerts.receivers.alertmanager.NOTICED", timedelta(seconds=8))
    metrics = Metrics(build={})
    metrics.know("c")
    exposition = Exposition(OfCluster(metrics.registry, lambda: "c"))
    target = exposition.url.removeprefix("http://").removesuffix("/metrics")
    with sink() as pager:
        routes = (SHIPPED / "alertmanager.yml").read_text().replace("http://127.0.0.1:9099", pager.url)
        with (
            alertmanager(tmp_path / "am", routes) as am,
            prometheus(tmp_path / "p", target, SHIPPED / "rules.yml", am) as url,
        ):
            config = AlertsConfig(quiet=5.0, alertmanager=AlertmanagerConfig(urls=(am,), resend=5.0))
            paging = Paging(config, None, metrics.channel_failed)
            for name, failures in paging.receivers.items():
                metrics.know_receiver(name, failures)
            paging.start()
            try:
                zero = f"{url}/api/v1/query?query=count(offsetwatch_findings_total%7Bcluster=%22c%22%7D)"
                eventually(lambda: '"value"' in (get(zero) or ""), "scrape before the violation")
                now = datetime.now(UTC)
                found = [event(finding("lost-write"), counted=now, at=now, decidable=now)]
                metrics.deliver(found)
                paging.deliver(found)
                eventually(lambda: len(pager.bodies) > 1, "end of the incident", within=300)
                time.sleep(75)  # longer than `group_interval` of any route to a page
            finally:
                paging.stop()
                exposition.close()
        told = [(body["status"], one["labels"]["alertname"]) for body in pager.bodies for one in body["alerts"]]
        assert told == [("firing", "lost-write"), ("resolved", "lost-write")]


@pytest.mark.parametrize("name", ["checks-stalled", "evidence-stalled"])
def test_what_stands_still_pages_once_and_not_again_as_a_blind_canary(tmp_path: Path, name: str) -> None:
    """The monitor says after seconds that its checks, or rows, have stopped, and the rule after minutes that nothing
    was checked."""
    told = {"alertname": name, "severity": "critical", "kind": "condition", "source": "offsetwatch"}
    blind = {"alertname": "OffsetwatchCanaryBlind", "severity": "critical", "source": "offsetwatch-rules"}

    def state(url: str) -> str:
        alerts: list[dict[str, Any]] = json.loads(get(f"{url}/api/v2/alerts") or "[]")
        return next((one["status"]["state"] for one in alerts if one["labels"] == blind), "")

    with sink() as pager:
        routes = (SHIPPED / "alertmanager.yml").read_text().replace("http://127.0.0.1:9099", pager.url)
        with alertmanager(tmp_path / "am", routes) as url:
            post(f"{url}/api/v2/alerts", json.dumps([{"labels": blind}]).encode(), {}, None, 60)
            eventually(lambda: state(url) == "active", "page of a canary that nobody else explains")
            post(f"{url}/api/v2/alerts", json.dumps([{"labels": told}]).encode(), {}, None, 60)
            eventually(lambda: state(url) == "suppressed", "canary that is known to stand still", within=60)


def test_the_first_violation_of_its_kind_reaches_somebody_by_the_rules_alone(tmp_path: Path) -> None:
    """Real metrics, scraped by a real Prometheus, whose alert a real Alertmanager hands on by the shipped routes."""
    metrics = Metrics(build={})
    metrics.know("c")
    exposition = Exposition(metrics.registry)
    target = exposition.url.removeprefix("http://").removesuffix("/metrics")
    with sink() as pager:
        routes = (SHIPPED / "alertmanager.yml").read_text()
        assert "http://127.0.0.1:9099" in routes
        routes = routes.replace("http://127.0.0.1:9099", pager.url).replace("group_wait: 10s", "group_wait: 1s")
        try:
            with (
                alertmanager(tmp_path / "am", routes) as am,
                prometheus(tmp_path / "p", target, SHIPPED / "rules.yml", am) as url,
            ):
                zero = f"{url}/api/v1/query?query=count(offsetwatch_findings_total%7Bcluster=%22c%22%7D)"
                eventually(lambda: '"value"' in (get(zero) or ""), "scrape before the violation")
                now = datetime.now(UTC)
                metrics.deliver(
                    [event(finding("lost-write"), counted=now), event(finding("rebalance"), "info", counted=now)]
                )
                page = eventually(lambda: pager.bodies, "page")[0]
        finally:
            exposition.close()
        assert {path for path, _, _ in pager.posts} == {"/page"}
        assert [(one["labels"]["alertname"], one["labels"]["anomaly"]) for one in page["alerts"]] == [
            ("OffsetwatchViolation", "lost-write")
        ]
