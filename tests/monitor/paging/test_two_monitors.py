"""Two monitors, each with a data folder of its own, of one probe log in a bucket: what one of them tells Alertmanager
is what the other tells, so that a person is told once; and where one has died the other goes on."""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from tests.alerts.servers import alertmanager, get, sink
from tests.alerts.test_silenced_pages import hasty, told
from tests.monitor.canaries.test_object_store import PLANTED, PREFIX, RUNS, host
from tests.monitor.hosts import Host, until
from tests.object_store import environment, store

RECORDS = f"{PREFIX}-records"
WATCHED_S = 20.0
"""So long it is waited for more: longer than two resends, and than the routing waits."""


def knows_records(monitor: Host) -> bool:
    return any(row["topic"] == RECORDS for row in monitor.table("partition_state"))


def found_them(monitor: Host) -> bool:
    return len(monitor.duplicates()) == PLANTED


@pytest.mark.evening
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_two_monitors_tell_of_an_incident_once(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store() as server, sink() as phone, alertmanager(tmp_path / "am", hasty(phone.url)) as url:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        probes, *monitors = (host(name, tmp_path, kafka, server) for name in (next(iter(RUNS)), "first", "second"))
        for one in monitors:
            one.given |= {
                "OFFSETWATCH_ALERTS__ALERTMANAGER__URLS": json.dumps([url]),
                "OFFSETWATCH_ALERTS__ALERTMANAGER__RESEND": "5",
            }

        def incidents() -> list[str]:
            alerts = json.loads(get(f"{url}/api/v2/alerts") or "[]")
            return [one["labels"]["incident"] for one in alerts if one["labels"]["alertname"] == "duplicate"]

        def watched() -> Counter[str]:
            limit = time.monotonic() + WATCHED_S
            until(lambda: time.monotonic() > limit, [probes, monitors[1]])
            return Counter(told(phone))

        try:
            probes.start("probe", "run")
            for one in monitors:
                one.start("monitor")
            for one in monitors:
                until(partial(knows_records, one), [probes, one])
            probes.send_twice(PLANTED)
            for one in monitors:
                until(partial(found_them, one), [probes, one])
            found = [sorted(row["id"] for row in one.duplicates()) for one in monitors]
            assert found[0] == found[1]
            assert watched()["duplicate"] == 1
            (incident,) = incidents()
            monitors[0].kill()
            probes.send_twice(PLANTED)
            until(lambda: len(monitors[1].duplicates()) == 2 * PLANTED, [probes, monitors[1]])
            assert watched()["duplicate"] == 1, "it is the same incident, that goes on"
            assert incidents() == [incident]
            probes.stop()
            monitors[1].stop()
        finally:
            for one in (probes, *monitors):
                one.kill()
