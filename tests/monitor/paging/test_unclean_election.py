"""A leader is gone, and a replica that was behind it leads: records are lost that were acknowledged, in every partition
that the two shared. That is one thing, and whoever is on call is told of it as one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from deploy.local_kafka import LocalKafka
from tests.monitor.paging.on_call import OnCall, on_call

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

BEHIND_S, AWAY_S, WATCHED_S = 20.0, 10.0, 120.0
"""So long the one is behind, then the other away, and then a second page is waited for."""
SETTINGS: dict[str, Any] = {
    "OFFSETWATCH_PROBES__TOPICS__REPLICATION": "2",
    "OFFSETWATCH_PROBES__TOPICS__PARTITIONS": "6",
}


def is_at_work(evening: OnCall) -> bool:
    """Is everything checked? That the setting is unsafe is an open condition all the while."""
    told = evening.status()
    return bool(told.get("partitions")) and told["not_ready"] is None and bool(evening.findings("unsafe-config"))


def elect_uncleanly(kafka: LocalKafka, evening: OnCall) -> None:
    """Broker 2 falls behind broker 1, and leads where it does."""
    kafka.broker(2).kill()
    time.sleep(BEHIND_S)
    kafka.broker(1).kill()
    kafka.broker(2).start()
    time.sleep(AWAY_S)
    kafka.broker(1).start()
    evening.until(lambda: evening.findings("log-truncation"), "finding of a log that was cut")


def test_one_unclean_election_is_one_page(tmp_path: Path) -> None:
    """Who waited for the brokers may be told of beside it, once, and that it is over."""
    overrides = {"unclean.leader.election.enable": True}
    with (
        LocalKafka(tmp_path / "kafka", brokers=3, overrides=overrides) as kafka,
        on_call(tmp_path, kafka.bootstrap, **SETTINGS) as evening,
    ):
        evening.until(lambda: is_at_work(evening), "monitor at work")
        elect_uncleanly(kafka, evening)
        until = time.monotonic() + WATCHED_S
        evening.until(lambda: time.monotonic() > until, "end of the watch")
        assert len({one["partition"] for one in evening.findings("log-truncation")}) > 1
        told = [(one["status"], {alert["labels"]["kind"] for alert in one["alerts"]}) for _, one in evening.pages()]
        assert told.count(("firing", {"violation"})) == 1, told
        assert told.count(("firing", {"condition"})) <= 1, told
        (cut,) = [one for _, one in evening.pages() if one["alerts"][0]["labels"]["kind"] == "violation"]
        assert [alert["labels"]["alertname"] for alert in cut["alerts"]] == ["log-truncation"]
        messages = [one for _, one in evening.pages("/webhook") if one["incident"]["kind"] == "violation"]
        assert len({one["incident"]["id"] for one in messages}) == 1
        first, *later = [one["state"] for one in messages]
        assert first == "open"
        assert set(later) <= {"worse"}
