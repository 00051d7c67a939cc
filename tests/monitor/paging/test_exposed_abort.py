"""A broker shows a reader records of transactions that were aborted: that is one thing, and one page."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from monitor.drill.drills.reading import READER
from monitor.drill.lies.fetch import EmptyAbortedTransactions
from monitor.drill.proxy import ONCE, Proxy, When
from tests.alerts.servers import get
from tests.monitor.paging.on_call import on_call

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

WATCHED_S = 75.0
"""So long it is waited for a second page: longer than Alertmanager's longest `group_interval`."""


@pytest.mark.parametrize("when", [ONCE, When()], ids=["once", "from-then-on"])
def test_exposed_aborts_are_one_page(kafka: LocalKafka, tmp_path: Path, when: When) -> None:
    lie = EmptyAbortedTransactions(READER, when)
    with (
        Proxy(kafka.bootstrap, lies=[lie]) as proxy,
        on_call(tmp_path, proxy.bootstrap) as evening,
    ):
        evening.until(evening.pages, "page")
        until = time.monotonic() + WATCHED_S
        evening.until(lambda: time.monotonic() > until, "end of the watch")
        pages = [one for _, one in evening.pages()]
        told = [(one["status"], [alert["labels"]["alertname"] for alert in one["alerts"]]) for one in pages]
        assert told == [("firing", ["G1a"])], (tmp_path / "out.txt").read_text()
        (alert,) = pages[0]["alerts"]
        known = json.loads(get(f"{evening.alertmanager}/api/v2/alerts?filter=source%3Doffsetwatch") or "[]")
        assert [one["labels"] for one in known if one["labels"]["severity"] == "critical"] == [alert["labels"]]
        opened = [one for _, one in evening.pages("/webhook") if one["incident"]["severity"] == "critical"]
        assert {one["incident"]["id"] for one in opened} == {alert["labels"]["incident"]}
        states = [one["state"] for one in opened]  # what goes on for a minute may have grown tenfold
        assert states == ["open"] or (when is not ONCE and states == ["open", "worse"]), states
        aborted = evening.findings("G1a")
        assert len(aborted) > (when is not ONCE), "a lie that is told once may expose one record"
        assert {one["severity"] for one in aborted} == {"critical"}
        print(f"{len(aborted)} findings of G1a, {len(lie.acts)} times exposed, {len(pages)} page")
