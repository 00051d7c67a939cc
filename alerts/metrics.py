"""Prometheus metrics of the checks: what was found, how far the checks are, and how long they take.

Names begin with `offsetwatch_` and end with their unit. Labels are bounded: anomalies come from the catalogue,
severities from the policy, partitions from the probe topics; processes, writers and offsets are never labels. What has
one value per partition is collected at the scrape from the last summary of each; a topic that was created anew
replaces the one whose name it bears.

Counters of findings outlive this process: they start from what the findings table holds (`begin`), and what an
earlier process recorded is not counted twice (`replayed`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from alerts.event import FindingEvent
from alerts.incidents.grouping import kind_of
from alerts.process_metrics import ProcessMetrics
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.policy import SEVERITIES
from rules.vocabulary.policy import severity as severity_of

LATENCY_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 10, 20, 30, 60)
"""Seconds. The objective is 2 s at the median and 6 s at the 99th percentile, so those are borders."""

GRACE_BUCKETS: Final = (0.1, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300)
BATCH_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60)

PARTITION_LABELS: Final = ("cluster", "topic", "partition")


class Count(NamedTuple):
    """So many findings of one anomaly and severity were recorded before this process began."""

    cluster: str
    anomaly: str
    severity: str
    findings: int


class Open(NamedTuple):
    """A condition that was open when this process began."""

    id: str
    cluster: str
    anomaly: str
    severity: str


class _Partitions(Collector):
    """One value per partition, from the last known summary of each. Times in summaries are aware datetimes."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    def update(self, summaries: Iterable[Mapping[str, Any]]) -> None:
        rows = dict(self._rows)
        for row in summaries:
            rows[(str(row["cluster"]), str(row["topic"]), str(row["partition"]))] = row
        self._rows = rows  # replaced as a whole: the scrape runs in another thread

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name, help_text, column in _PARTITION_GAUGES:
            family = GaugeMetricFamily(name, help_text, labels=PARTITION_LABELS)
            for labels, row in self._rows.items():
                value = row.get(column)
                if value is not None:
                    family.add_metric(labels, value.timestamp() if isinstance(value, datetime) else float(value))
            yield family
        behind = GaugeMetricFamily(
            "offsetwatch_partition_checked_behind_seconds",
            "Log time between the newest evidence and that through which every verdict is given.",
            labels=PARTITION_LABELS,
        )
        for labels, row in self._rows.items():
            if row.get("now") is not None and row.get("checked_through") is not None:
                behind.add_metric(labels, max(0.0, (row["now"] - row["checked_through"]).total_seconds()))
        yield behind
        lag = GaugeMetricFamily(
            "offsetwatch_partition_readers_lag_records",
            "How far the furthest-behind reader is behind the last stable offset, by how it reached the partition "
            "(assign, subscribe).",
            labels=(*PARTITION_LABELS, "mode"),
        )
        for labels, row in self._rows.items():
            for mode, records in readers_lag(row).items():
                lag.add_metric((*labels, mode), records)
        yield lag


_PARTITION_GAUGES: Final = (
    ("offsetwatch_partition_log_start_offset", "First offset that the partition still holds.", "log_start"),
    ("offsetwatch_partition_log_end_offset", "One past the last offset (read_uncommitted).", "log_end"),
    ("offsetwatch_partition_last_stable_offset", "One past the last offset readable at read_committed.", "last_stable"),
    ("offsetwatch_partition_settled_frontier_offset", "Below this offset every verdict is final.", "frontier"),
    ("offsetwatch_partition_unseen_records", "Acknowledged records not polled within the objective.", "unseen"),
    ("offsetwatch_partition_window_runs", "Runs of records above the settled frontier.", "window_runs"),
    ("offsetwatch_partition_processes", "Client lives whose log the partition's checks follow.", "processes"),
    ("offsetwatch_partition_state_bytes", "Size of the partition's hot state.", "state_bytes"),
    ("offsetwatch_partition_log_time_seconds", "Log time of the checks, in seconds since the epoch.", "now"),
)  # fmt: skip


def readers_lag(summary: Mapping[str, Any]) -> dict[str, int]:
    """Records from the furthest-behind reader's position to the last stable offset (or the log end), by mode."""
    end = summary.get("last_stable")
    if end is None:
        end = summary.get("log_end")
    lags: dict[str, int] = {}
    for reader in summary.get("readers") or ():
        if end is not None and reader["position"] is not None:
            mode = reader["mode"] or "unknown"
            lags[mode] = max(lags.get(mode, 0), end - reader["position"], 0)
    return lags


class Metrics:
    """The metrics of one monitor process, in a registry of their own; also the dispatcher's first channel."""

    name = "metrics"

    def __init__(
        self,
        *,
        build: Mapping[str, str],
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._clock = clock
        self._began = clock()
        self._open: dict[str, Open] = {}
        self._clusters: set[str] = set()
        self._newest: float | None = None

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(name, text, registry=self.registry, buckets=buckets)

        Info("offsetwatch_build", "Versions of the program and of what it runs on.", registry=self.registry).info(
            dict(build)
        )
        self._findings = counter(
            "offsetwatch_findings",
            "Findings by anomaly and severity, from the findings table's beginning: violations raised, conditions "
            "opened, observations classified.",
            ("cluster", "anomaly", "severity", "kind"),
        )
        self._last = gauge(
            "offsetwatch_last_finding_timestamp_seconds",
            "When the latest finding of a severity was counted, in seconds since the epoch.",
            ("cluster", "severity"),
        )
        self._conditions = gauge(
            "offsetwatch_conditions_open", "Conditions that are open now.", ("cluster", "anomaly", "severity")
        )
        self._latency = histogram(
            "offsetwatch_detection_latency_seconds",
            "From the moment when a finding could be decided (after any grace) to its being counted here.",
            LATENCY_BUCKETS,
        )
        self._grace = histogram(
            "offsetwatch_detection_grace_seconds",
            "Grace that findings from absence were given before they could be decided; not part of the latency.",
            GRACE_BUCKETS,
        )
        self._batch = histogram("offsetwatch_batch_duration_seconds", "Duration of a batch of checks.", BATCH_BUCKETS)
        self._rate = gauge(
            "offsetwatch_batch_input_slices_per_second", "Rows of the probe log that came in per second, last batch."
        )
        self._behind = gauge(
            "offsetwatch_probe_log_unread_commits",
            "Commits of the probe log that the checks have not read to their end.",
        )
        self._batches = counter("offsetwatch_batches", "Batches of checks completed by this process.")
        self._slices = counter("offsetwatch_slices_checked", "Rows of the probe log checked by this process.")
        self._records = counter(
            "offsetwatch_records_checked", "Records, sent and polled, in the rows checked by this process."
        )
        self._failures = counter(
            "offsetwatch_alert_channel_failures", "Deliveries of finding events that a channel failed.", ("channel",)
        )
        gauge(
            "offsetwatch_evidence_age_seconds",
            "Age of the newest row of the probe log that was checked, also by an earlier process; while none is known, "
            "the age of this process.",
        ).set_function(self._evidence_age)
        self._partitions = _Partitions()
        self.registry.register(self._partitions)
        self.registry.register(ProcessMetrics())
        self.know("")

    def begin(
        self,
        counts: Iterable[Count],
        conditions: Iterable[Open],
        last: Mapping[tuple[str, str], float] | None = None,
        newest: datetime | None = None,
        clusters: Iterable[str] = (),
    ) -> None:
        """Take over what was known before this process: findings counted, open conditions, the last time by cluster
        and severity, the newest row that was checked, the clusters that are known."""
        if newest is not None:
            self.checked(slices=0, records=0, newest=newest)
        for count in counts:
            self._findings.labels(count.cluster, count.anomaly, count.severity, kind_of(count.anomaly)).inc(
                count.findings
            )
        for condition in conditions:
            self._open[condition.id] = condition
        for (cluster, severity), when in (last or {}).items():
            self._last.labels(cluster, severity).set(when)
        # After the counts: a scrape in between that saw 0 would make an increase of what is old.
        for cluster in (*clusters, *(one.cluster for one in self._open.values())):
            self.know(cluster)
        self._set_open({one[1:] for one in self._open.values()})

    def know(self, cluster: str) -> None:
        """Every anomaly and severity of a cluster is there from the start: a first finding is an increase from 0. What
        concerns the checks themselves has the cluster ""."""
        if cluster in self._clusters:
            return
        self._clusters.add(cluster)
        for entry in CATALOGUE.values():
            for one in SEVERITIES:
                self._findings.labels(cluster, entry.name, one, entry.kind)
            if entry.kind == "condition":
                self._conditions.labels(cluster, entry.name, severity_of(entry.name, {})).set(0)

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        """Count the events of findings; those that `begin` has counted already are passed over."""
        touched = set()
        for event in events:
            if event.replayed:
                continue
            self.know(event.cluster)
            if event.event == "closed":
                closed = self._open.pop(event.id, None)
                if closed is not None:
                    touched.add(closed[1:])
                continue  # the end of something already counted, and no detection
            if event.event == "opened":
                opened = Open(event.id, event.cluster, event.anomaly, event.severity)
                self._open[event.id] = opened
                touched.add(opened[1:])
            self._findings.labels(event.cluster, event.anomaly, event.severity, kind_of(event.anomaly)).inc()
            self._last.labels(event.cluster, event.severity).set(event.counted.timestamp())
            self._latency.observe(event.latency)
            if event.grace is not None:
                self._grace.observe(event.grace)
        self._set_open(touched)

    def _set_open(self, places: Iterable[tuple[str, str, str]]) -> None:
        standing = [one[1:] for one in self._open.values()]
        for place in places:
            self._conditions.labels(*place).set(standing.count(place))

    def checked(self, *, slices: int, records: int, newest: datetime | None) -> None:
        """Rows of the probe log were checked, with so many records, sent and polled; `newest`: log time reached."""
        self._slices.inc(slices)
        self._records.inc(records)
        if newest is not None:
            self._newest = max(self._newest or 0.0, newest.timestamp())

    def batch(self, *, seconds: float, input_rate: float, commits_behind: int) -> None:
        """A batch is done: its duration, the rows that came in per second, the log's commits that are still unread."""
        self._batches.inc()
        self._batch.observe(seconds)
        self._rate.set(input_rate)
        self._behind.set(commits_behind)

    def partitions(self, summaries: Iterable[Mapping[str, Any]]) -> None:
        """Rows of `partition_state`, of the partitions that a batch touched."""
        rows = list(summaries)
        for row in rows:
            self.know(str(row["cluster"]))
        self._partitions.update(rows)

    def channel_failed(self, channel: str) -> None:
        self._failures.labels(channel).inc()

    def _evidence_age(self) -> float:
        return max(0.0, self._clock() - (self._began if self._newest is None else self._newest))
