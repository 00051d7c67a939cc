"""The only broker is stopped for a minute and comes back: that is one thing, and one page, and its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from tests.monitor.paging.on_call import on_call

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

STOPPED_S = 60.0
WATCHED_S = 150.0
"""So long it is waited for a second page: longer than any objective, and than the waiting of any group."""


def test_a_minute_without_the_only_broker_is_one_page(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", brokers=1) as kafka, on_call(tmp_path, kafka.bootstrap) as evening:
        evening.until(evening.healthy, "healthy monitor")
        assert evening.pages() == evening.pages("/webhook") == []
        (broker,) = kafka.brokers
        assert broker.terminate()
        time.sleep(STOPPED_S)
        broker.start()
        evening.until(lambda: len(evening.pages()) > 1, "page and its end")
        until = time.monotonic() + WATCHED_S
        evening.until(lambda: time.monotonic() > until, "end of the watch")
        told = [
            (one["status"], [alert["labels"]["alertname"] for alert in one["alerts"]]) for _, one in evening.pages()
        ]
        assert told == [("firing", ["cluster-unreachable"]), ("resolved", ["cluster-unreachable"])]
        assert [one["state"] for _, one in evening.pages("/webhook")] == ["open", "over"]
        assert evening.pages("/ticket") == []
        assert evening.healthy(), evening.status()
