"""An operator deletes a topic of the probes: no promise of the cluster's is broken, and nobody is woken."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local_kafka import LocalKafka
from probes.config import ProbesConfig, TopicsConfig
from tests.monitor.paging.on_call import on_call, prefix_of

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

SETTINGS: dict[str, Any] = {
    "OFFSETWATCH_JOB__OBJECTIVES__GRACE": "3",
    "OFFSETWATCH_JOB__OBJECTIVES__DELIVERY": "3",
    "OFFSETWATCH_JOB__OBJECTIVES__LIVENESS": "20",
    "OFFSETWATCH_PROBES__TRANSFORM__COUNT": "1",
    "OFFSETWATCH_PROBES__REGISTERS__COUNT": "1",
    "OFFSETWATCH_PROBES__ABORTS__COUNT": "1",
}
"""Objectives so short that what would page does so within the test, and every kind of probe. The log itself may be
without rows for some seconds while nobody knows what became of the topic."""
WATCHED_S = 60.0
"""So long a page is waited for: the longest objective, the grace, Alertmanager's waiting, and as much again."""

CHECKED = timedelta(seconds=40)
"""So much of what came after the deletion has to have been checked by then."""


@pytest.mark.parametrize("made_again", [True, False])
def test_a_probe_topic_is_deleted(kafka: LocalKafka, tmp_path: Path, made_again: bool) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    if not made_again:
        names = ProbesConfig(topics=TopicsConfig(prefix=prefix_of(tmp_path))).topic_names
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
            made.result(30)
    settings = SETTINGS | {"OFFSETWATCH_PROBES__TOPICS__MANAGE": str(made_again).lower()}
    with on_call(tmp_path, kafka.bootstrap, hasty=True, **settings) as evening:
        evening.until(evening.healthy, "healthy monitor")
        gone = [f"{evening.prefix}-{topic}" for topic in ("records", "transactions")]
        for deleted in admin.delete_topics(gone).values():
            deleted.result(30)
        until, since = time.monotonic() + WATCHED_S, datetime.now(UTC)

        def watched() -> bool:
            """Has it been long enough, for the checks too?"""
            assert [one["alerts"] for _, one in evening.pages()] == [], (tmp_path / "out.txt").read_text()
            newest = evening.status().get("newest")
            checked = newest is not None and datetime.fromisoformat(newest) > since + CHECKED
            return checked and time.monotonic() > until

        evening.until(watched, "end of the watch")
