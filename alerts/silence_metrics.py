"""The metric of silences: what is silenced now, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from alerts.incidents.silence import Silence


class SilenceMetrics(Collector):
    """Collected at each scrape; there are as many series as silences are active, `alerts.silences.MOST` at most."""

    def __init__(self, silences: Callable[[], Sequence[Silence]]) -> None:
        self._silences = silences

    def collect(self) -> Iterable[Metric]:
        now = datetime.now(UTC)
        until: dict[tuple[str, str], float] = {}
        for one in self._silences():
            if one.active(now):
                place = one.cluster, one.topic
                until[place] = max(until.get(place, 0.0), one.until.timestamp())
        family = GaugeMetricFamily(
            "offsetwatch_silenced_until_timestamp_seconds",
            "Until when nobody is told of incidents in this cluster, or topic, in seconds since the epoch.",
            labels=("cluster", "topic"),
        )
        for place, ends in until.items():
            family.add_metric(place, ends)
        yield family
