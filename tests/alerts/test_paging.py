"""From findings to somebody's phone, through real receivers."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertmanagerConfig, AlertsConfig, ChatConfig, Secret, WebhookConfig
from alerts.event import FindingEvent
from alerts.incidents.incident import Incident
from alerts.paging import Paging, machine_time, receivers
from alerts.receivers.http import Refused, SendFailed, basic, post
from alerts.receivers.webhook import verified
from tests.alerts.findings import event, finding
from tests.alerts.servers import alertmanager, eventually, free_port, get, sink

ROUTES = """
route:
  receiver: pager
  group_by: [cluster]
  group_wait: 1s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: pager
    webhook_configs:
      - url: {url}
        send_resolved: true
"""


def now_event(anomaly: str, subject: int, what: str = "raised", **changed: Any) -> FindingEvent:
    """An event that is counted now."""
    found = replace(finding(anomaly, subject, event=what), **changed)  # type: ignore[arg-type]
    return event(found, counted=machine_time(), at=machine_time(), decidable=machine_time())


def paging(config: AlertsConfig, folder: Path | None, failed: list[str] | None = None) -> Paging:
    made = Paging(config, folder, (failed if failed is not None else []).append)
    made.start()
    return made


def config(*urls: str, timeout: float = 20.0, **more: Any) -> AlertsConfig:
    """An alert that is not sent again for four times `resend` ends at Alertmanager: longer than we may stand still."""
    return AlertsConfig(alertmanager=AlertmanagerConfig(urls=urls, resend=5.0, timeout=timeout), **more)


def test_an_incident_of_many_records_is_one_page_and_its_end_resolves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.receivers.alertmanager.NOTICED", timedelta(seconds=3))
    with sink() as pager, alertmanager(tmp_path / "am", ROUTES.format(url=pager.url)) as url:
        running = paging(config(url, quiet=4.0), tmp_path / "told")
        try:
            for _ in range(5):
                running.deliver([now_event("G1a", n, partition=n % 7) for n in range(100)])
            (page,) = eventually(lambda: pager.bodies, "page")
            (alert,) = page["alerts"]
            assert (page["status"], alert["status"]) == ("firing", "firing")
            assert alert["labels"] == {
                "alertname": "G1a",
                "cluster": "c",
                "topic": "t",
                "severity": "critical",
                "kind": "violation",
                "source": "offsetwatch",
                "incident": alert["labels"]["incident"],
            }
            assert alert["annotations"]["runbook"] == "docs/runbook.md#g1a"
            assert "7 places" in alert["annotations"]["summary"]
            pages = eventually(lambda: len(pager.bodies) > 1 and pager.bodies, "resolution")
            assert [one["status"] for one in pages] == ["firing", "resolved"], "one page, and its end"
            assert pages[1]["alerts"][0]["labels"] == alert["labels"]
        finally:
            running.stop()


def test_a_condition_pages_once_while_it_lasts_and_a_restart_pages_nobody_again(tmp_path: Path) -> None:
    opened = now_event("unseen", 1, "opened")
    with sink() as pager, alertmanager(tmp_path / "am", ROUTES.format(url=pager.url)) as url:
        first = paging(config(url), tmp_path / "told")
        first.deliver([opened])
        eventually(lambda: pager.bodies, "page")
        first.stop()
        second = Paging(config(url), tmp_path / "told", list[str]().append)
        second.begin([opened])
        second.start()
        try:
            second.deliver([replace(opened, replayed=True)])
            known = json.loads(eventually(lambda: get(f"{url}/api/v2/alerts"), "answer"))
            assert [one["labels"]["alertname"] for one in known] == ["unseen"]
            second.deliver([now_event("unseen", 1, "closed")])
            pages = eventually(lambda: len(pager.bodies) > 1 and pager.bodies, "resolution")
            assert [one["status"] for one in pages] == ["firing", "resolved"]
        finally:
            second.stop()


def test_an_alertmanager_that_was_away_is_told_what_it_missed(tmp_path: Path) -> None:
    port = free_port()
    failed: list[str] = []
    with sink() as pager:
        running = paging(config(f"http://127.0.0.1:{port}", quiet=1.0), None, failed)
        try:
            running.deliver([now_event("duplicate", 1)])
            eventually(lambda: failed, "failed attempt")
            eventually(lambda: not running.standing(machine_time())[0].open, "end of the incident")
            with alertmanager(tmp_path / "am", ROUTES.format(url=pager.url), port):
                page = eventually(lambda: pager.bodies, "page of what was over by then")[0]
            assert page["alerts"][0]["labels"]["alertname"] == "duplicate"
            assert set(failed) == {"alertmanager"}
        finally:
            running.stop()


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # Apprise imports it
def test_several_receivers_are_each_told_and_a_slow_one_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "s3cret")
    with sink() as slow, sink() as quick, sink() as chat:
        slow.slow = threading.Event()
        monkeypatch.setenv("CHAT", chat.url.replace("http://", "json://"))
        running = paging(
            config(
                slow.url,
                webhook=WebhookConfig(urls=(slow.url, f"{quick.url}/hook"), secret=Secret(env="HOOK"), timeout=600),
                chat=ChatConfig(targets=(Secret(env="CHAT"),)),
                timeout=600,
            ),
            None,
        )
        for n in range(1_000):
            running.deliver([now_event("lost-write", n)])
        assert slow.posts == [], "the checks went on while nobody had been told"
        (posted,) = eventually(lambda: quick.posts, "webhook")
        path, headers, body = posted
        assert path == "/hook"
        assert verified("s3cret", headers, body, datetime.now(UTC))
        (said,) = eventually(lambda: chat.bodies, "chat message")
        assert said["title"] == "lost-write in t/3 (critical)"
        assert slow.posts == [], "and they were told before the slow one had answered"
        slow.slow.set()
        eventually(lambda: len(slow.posts) >= 2, "the slow receiver's posts")
        running.stop()


def test_a_redirect_is_not_followed_and_no_secret_is_said(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    caplog.set_level(logging.DEBUG)
    with sink() as server:
        for answer, error in ((307, SendFailed), (500, SendFailed), (429, SendFailed), (403, Refused)):
            server.answer = answer
            with pytest.raises(error, match=f"^http://127.0.0.1:[0-9]+ answered {answer}"):
                post(f"{server.url}/a?key=s3cret", b"{}", {"Authorization": "Bearer s3cret"}, None, 60)
        assert {path for path, _, _ in server.posts} == {"/a?key=s3cret"}
        server.answer = 200
        post(f"{server.url.replace('//', '//me:s3%40cret@')}/a", b"{}", {}, None, 60)
        assert server.posts[-1][1]["Authorization"] == basic("me", "s3@cret")
    failed: list[str] = []
    auth = AlertmanagerConfig(
        urls=(f"http://me:s3cret@127.0.0.1:{free_port()}/s3cret",), token=Secret(file=tmp_path / "token")
    )
    running = paging(AlertsConfig(alertmanager=auth), tmp_path / "told", failed)
    running.deliver([now_event("duplicate", 1)])
    eventually(lambda: failed, "failed attempt")
    running.stop()
    assert "alertmanager could not be told: http://127.0.0.1:" in caplog.text
    assert "s3cret" not in caplog.text
    assert "s3cret" not in "".join(one.read_text() for one in (tmp_path / "told").iterdir())


def test_each_receiver_has_a_name_of_its_own() -> None:
    configured = config("http://a", "http://b", webhook=WebhookConfig(urls=("http://c", "http://d")))
    assert [one.name for one in receivers(configured)] == ["alertmanager", "alertmanager-2", "webhook", "webhook-2"]
    assert receivers(AlertsConfig()) == []


def test_incidents_end_by_the_clock_alone() -> None:
    running = Paging(AlertsConfig(quiet=60), None, list[str]().append)
    running.deliver([now_event("duplicate", 1)])

    def standing(after: float) -> list[Incident]:
        return running.standing(machine_time() + timedelta(seconds=after))

    assert [one.open for one in standing(0)] == [True]
    assert [one.open for one in standing(61)] == [False]
