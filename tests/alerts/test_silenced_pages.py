"""Silences at a real Alertmanager with the shipped routing: who is not told, and who is told when they end."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertmanagerConfig, AlertsConfig, WebhookConfig
from alerts.paging import Paging, machine_time
from alerts.receivers.http import post
from alerts.silences import FolderSilences, path_of
from tests.alerts.servers import Sink, alertmanager, eventually, get, sink
from tests.alerts.test_paging import now_event

SHIPPED = Path(__file__).resolve().parent.parent.parent / "deploy" / "prometheus" / "alertmanager.yml"
QUIET_S = 5.0
"""So long it is watched that nobody is told: longer than the routing waits."""


def told(phone: Sink) -> list[str]:
    """The names of the alerts that were told of by Alertmanager, and `webhook` for what the monitor posted itself."""
    return [
        "webhook" if path == "/webhook" else alert["labels"]["alertname"]
        for path, _, body in list(phone.posts)
        for alert in json.loads(body).get("alerts", [{}])
    ]


def hasty(url: str) -> str:
    """The shipped routing, that waits for a second."""
    lines = SHIPPED.read_text().replace("http://127.0.0.1:9099", url).splitlines()
    waits = {"group_wait": "1s", "group_interval": "2s"}
    return "\n".join(
        f"{line.partition(':')[0]}: {waits[name]}" if (name := line.strip().partition(":")[0]) in waits else line
        for line in lines
    )


def states(url: str) -> dict[str, str]:
    alerts: list[dict[str, Any]] = json.loads(get(f"{url}/api/v2/alerts") or "[]")
    return {alert["labels"]["alertname"]: alert["status"]["state"] for alert in alerts}


def of_the_rules(url: str, name: str, cluster: str) -> None:
    """Send what Prometheus would send of a rule."""
    labels = {"alertname": name, "cluster": cluster, "severity": "critical", "source": "offsetwatch-rules"}
    post(f"{url}/api/v2/alerts", json.dumps([{"labels": labels}]).encode(), {}, None, 60)


def paging(url: str, phone: Sink, folder: Path) -> Paging:
    config = AlertsConfig(
        alertmanager=AlertmanagerConfig(urls=(url,), resend=5.0), webhook=WebhookConfig(urls=(f"{phone.url}/webhook",))
    )
    made = Paging(config, folder, list[str]().append)
    made.start()
    return made


@pytest.mark.long
def test_nobody_is_told_while_a_cluster_is_silenced_and_then_of_what_is_still_open(tmp_path: Path) -> None:
    silences = FolderSilences(path_of(tmp_path / "told"))
    now = machine_time()
    made = silences.add(cluster="c", topic="", until=now + timedelta(hours=1), because="new disks", by="ops", now=now)
    with sink() as phone, alertmanager(tmp_path / "am", hasty(phone.url)) as url:
        running = paging(url, phone, tmp_path / "told")
        try:
            eventually(lambda: json.loads(get(f"{url}/api/v2/silences") or "[]"), "silence at Alertmanager")
            running.deliver([now_event("duplicate", 1), now_event("unseen", 2, "opened")])
            of_the_rules(url, "OffsetwatchCanarySilent", "c")
            eventually(lambda: set(states(url).values()) == {"suppressed"} and len(states(url)) == 3, "silenced alerts")
            time.sleep(QUIET_S)
            assert told(phone) == []
            of_the_rules(url, "OffsetwatchCanaryBlind", "d")
            eventually(lambda: told(phone) == ["OffsetwatchCanaryBlind"], "page of another cluster")
            running.deliver([now_event("unseen", 2, "closed")])
            running.stop()
            running = paging(url, phone, tmp_path / "told")
            running.begin([now_event("duplicate", 1)])
            time.sleep(QUIET_S)
            assert told(phone) == ["OffsetwatchCanaryBlind"], "a restart tells nobody either"
            silences.end(made.id, machine_time())
            eventually(
                lambda: {"duplicate", "webhook", "OffsetwatchCanarySilent"} <= set(told(phone)), "pages of what is open"
            )
            assert told(phone).count("duplicate") == told(phone).count("webhook") == 1
            assert "unseen" not in told(phone)
        finally:
            running.stop()


@pytest.mark.evening
def test_a_silenced_topic_hides_no_other(tmp_path: Path) -> None:
    silences = FolderSilences(path_of(tmp_path / "told"))
    with sink() as phone, alertmanager(tmp_path / "am", hasty(phone.url)) as url:
        now = machine_time()
        until = now + timedelta(seconds=40)
        silences.add(cluster="c", topic="t", until=until, because="new disks", by="ops", now=now)
        running = paging(url, phone, tmp_path / "told")
        try:
            running.deliver([now_event("duplicate", 1), now_event("lost-write", 2, topic="u")])
            eventually(lambda: {"lost-write", "webhook"} <= set(told(phone)), "page of the other topic")
            assert states(url)["duplicate"] == "suppressed"
            assert sorted(set(told(phone))) == ["lost-write", "webhook"]
            eventually(lambda: "duplicate" in told(phone), "page at the silence's end")
            assert machine_time() >= until
        finally:
            running.stop()


@pytest.mark.evening
def test_a_page_that_ends_while_it_is_silenced_ends_where_people_are_told_when_the_silence_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = timedelta(seconds=25)  # five times what is waited between two, for a machine that stands still meanwhile
    monkeypatch.setattr("alerts.receivers.alertmanager.RESOLVED_FOR", again)
    silences = FolderSilences(path_of(tmp_path / "told"))
    with sink() as phone, alertmanager(tmp_path / "am", hasty(phone.url)) as url:
        running = paging(url, phone, tmp_path / "told")
        try:
            running.deliver([now_event("stuck-consumer", 1, "opened")])
            eventually(lambda: "stuck-consumer" in told(phone), "page")
            now = machine_time()
            until = now + 3 * again
            silences.add(cluster="c", topic="", until=until, because="seen, at work", by="ops", now=now)
            eventually(lambda: "suppressed" in states(url).values(), "silence at Alertmanager")
            running.deliver([now_event("stuck-consumer", 1, "closed")])
            assert machine_time() + again < until, "the silence lasts longer than ends are sent again"
            eventually(lambda: "resolved" in ended(phone), "end of the page")
            assert machine_time() >= until
        finally:
            running.stop()


def ended(phone: Sink) -> list[str]:
    """Of what Alertmanager told, whether it is firing or resolved."""
    return [json.loads(body)["status"] for path, _, body in list(phone.posts) if path != "/webhook"]
