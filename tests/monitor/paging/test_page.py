"""From a violation on a real cluster to somebody's phone, through Alertmanager and Prometheus as Debian ships them.

How long it took is printed, and in `times.json` of the test's folder; how loaded the machine was, too.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from deploy.local_kafka import LocalKafka
from probes.kafka.client import Connection, consumer_settings, open_consumer, open_producer, producer_settings
from probes.kafka.errors import ClientError
from tests.alerts.servers import get
from tests.known import known
from tests.monitor.paging.on_call import RUNBOOK, Seen, on_call

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

QUIET = 20.0
"""Seconds after which a violation that is not seen any more is over."""


def test_a_violation_is_paged_at_once_and_once_and_its_end_is_told(kafka: LocalKafka, tmp_path: Path) -> None:
    with on_call(tmp_path, kafka.bootstrap, quiet=QUIET) as evening:
        evening.until(evening.healthy, "healthy monitor")
        assert evening.pages() == evening.pages("/webhook") == [], "nobody is told of a cluster that is well"
        seen = Seen(evening.alertmanager)
        try:
            provoked = again(kafka, f"{evening.prefix}-records")
            page_at, page = evening.until(evening.pages, "page")[0]
            hook_at, hook = evening.until(lambda: evening.pages("/webhook"), "webhook")[0]
            evening.until(lambda: "duplicate" in seen.first, "alert at Alertmanager's API")
        finally:
            seen.close()
        found = evening.findings("duplicate")[0]
        told(tmp_path, provoked, found, seen, page_at, hook_at)
        (alert,) = page["alerts"]
        incident = alert["labels"]["incident"]
        assert (page["status"], alert["status"]) == ("firing", "firing")
        assert alert["labels"] == {
            "alertname": "duplicate",
            "severity": "critical",
            "kind": "violation",
            "cluster": found["cluster"],
            "topic": f"{evening.prefix}-records",
            "incident": found["id"],
            "source": "offsetwatch",
        }
        said = alert["annotations"]
        assert said["summary"] == f"duplicate in {found['topic']}/0 (critical)"
        assert found["message"][1:] in said["description"]
        assert said["runbook_url"] == f"{RUNBOOK}#duplicate"
        assert said["dashboard"] == alert["generatorURL"] == f"{evening.page}/incidents/{incident}"
        evening.until(lambda: "duplicate" in (get(said["dashboard"]) or ""), "incident's own page", within=60)
        assert (hook["state"], hook["incident"]["id"]) == ("open", incident)
        ended = evening.until(lambda: evening.pages()[1:], "end")
        assert [(one["status"], one["alerts"][0]["labels"]) for _, one in ended] == [("resolved", alert["labels"])]
        assert [one["state"] for _, one in evening.pages("/webhook")] == ["open", "over"]
        assert (
            json.loads(known(get(f"{evening.alertmanager}/api/v2/alerts?active=true&filter=source%3Doffsetwatch")))
            == []
        )


def again(kafka: LocalKafka, topic: str) -> datetime:
    """Send the last bytes of a partition to it again, as a tool that copies topics would; when it was acknowledged."""
    read = open_consumer(consumer_settings(Connection(kafka.bootstrap), client="copier", group="copier"), raised)
    _, end = read.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    read.assign([TopicPartition(topic, 0, end - 1)])
    found = read.poll(30)
    read.close()
    assert found is not None and found.error() is None
    write = open_producer(producer_settings(Connection(kafka.bootstrap), client="copier"), raised)
    acknowledged: list[datetime] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        acknowledged.append(datetime.now(UTC))

    write.produce(
        topic,
        found.value(),
        found.key(),
        0,
        headers=found.headers(),
        timestamp=found.timestamp()[1],
        on_delivery=delivered,
    )
    assert write.flush(30) == 0
    write.close()
    return acknowledged[0]


def raised(error: ClientError) -> None:
    raise error


def told(folder: Path, provoked: datetime, found: dict[str, Any], seen: Seen, page: datetime, hook: datetime) -> None:
    """Print how long each step took, seconds from the finding's detection, and keep it."""
    detected = datetime.fromisoformat(found["time"])
    times = {
        "from the second copy's acknowledgement to the finding": (detected - provoked).total_seconds(),
        "from the finding to Alertmanager's API": (seen.first["duplicate"] - detected).total_seconds(),
        "from the finding to the page by Alertmanager": (page - detected).total_seconds(),
        "from the finding to the monitor's own webhook": (hook - detected).total_seconds(),
        "load of the last minute": os.getloadavg()[0],
    }
    (folder / "times.json").write_text(json.dumps(times, indent=1))
    print(f"\n{folder / 'times.json'}: {json.dumps(times, indent=1)}")
