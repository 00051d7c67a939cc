"""Prometheus metrics of the checks: what was found, how far the checks are, and how long they take.

Names begin with `offsetwatch_` and end with their unit. Labels are bounded: anomalies come from the catalogue,
severities from the policy; processes, writers and offsets are never labels. Those of partitions and topics are in
`alerts.partition_metrics`.

Counters of findings outlive this process: they start from what the findings table holds (`begin`), and what an
earlier process recorded is not counted twice (`replayed`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from alerts.cluster_info import ClusterInfo
from alerts.event import FindingEvent
from alerts.incidents.incident import Names, nameless
from alerts.incidents.judged import kind_of
from alerts.partition_metrics import PartitionMetrics, Series
from alerts.process_metrics import ProcessMetrics
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.policy import SEVERITIES
from rules.vocabulary.policy import severity as severity_of

LATENCY_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 10, 20, 30, 60)
"""Seconds. The objective is 2 s at the median and 6 s at the 99th percentile, so those are borders."""

GRACE_BUCKETS: Final = (0.1, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300)
BATCH_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60)

LOST: Final = "lost-write"
DUPLICATED: Final = "duplicate"
"""The anomalies of which each finding is one record that was lost, or that is there twice."""


class Count(NamedTuple):
    """So many findings of one anomaly and severity were recorded before this process began."""

    cluster: str
    topic: str
    anomaly: str
    severity: str
    findings: int


class Open(NamedTuple):
    """A condition that was open when this process began."""

    id: str
    cluster: str
    anomaly: str
    severity: str


class Metrics:
    """The metrics of one monitor process, in a registry of their own; also the dispatcher's first channel."""

    name = "metrics"

    def __init__(
        self,
        *,
        build: Mapping[str, str],
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.time,
        partition_series: Series = "essential",
        written: Sequence[Path] = (),
        names: Names = nameless,
    ) -> None:
        """`partition_series`: which series each partition has. `written`: the data folder, and
        others that may be on other disks. `names`: how people call the clusters."""
        self.registry = registry if registry is not None else CollectorRegistry()
        self._clock = clock
        self._began = clock()
        self._open: dict[str, Open] = {}
        self._clusters: set[str] = set()
        self._newest: float | None = None

        Info("offsetwatch_build", "Versions of the program and of what it runs on.", registry=self.registry).info(
            dict(build)
        )
        self._make_those_of_findings()
        self._make_those_of_batches()
        self._make_those_of_channels()
        self._partitions = PartitionMetrics(partition_series)
        self.registry.register(self._partitions)
        self.registry.register(ProcessMetrics(written))
        self.registry.register(ClusterInfo(lambda: self._clusters, names))
        self.know("")

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, registry=self.registry, buckets=buckets)

    def _make_those_of_findings(self) -> None:
        self._findings = self._counter(
            "offsetwatch_findings",
            "Findings by anomaly and severity, from the findings table's beginning: violations raised, conditions "
            "opened, observations classified.",
            ("cluster", "anomaly", "severity", "kind"),
        )
        self._last = self._gauge(
            "offsetwatch_last_finding_timestamp_seconds",
            "When the latest finding of a severity was counted, in seconds since the epoch.",
            ("cluster", "severity"),
        )
        self._conditions = self._gauge(
            "offsetwatch_conditions_open", "Conditions that are open now.", ("cluster", "anomaly", "severity")
        )
        self._latency = self._histogram(
            "offsetwatch_detection_latency_seconds",
            "From the moment when a finding could be decided (after any grace) to its being counted here.",
            LATENCY_BUCKETS,
        )
        self._grace = self._histogram(
            "offsetwatch_detection_grace_seconds",
            "Grace that findings from absence were given before they could be decided; not part of the latency.",
            GRACE_BUCKETS,
        )
        self._lost = self._counter(
            "offsetwatch_lost_records", "Acknowledged records that are proven lost (lost-write).", ("cluster", "topic")
        )
        self._duplicated = self._counter(
            "offsetwatch_duplicated_records",
            "Records that stand at two or more offsets (duplicate).",
            ("cluster", "topic"),
        )

    def _make_those_of_batches(self) -> None:
        self._batch = self._histogram(
            "offsetwatch_batch_duration_seconds", "Duration of a batch of checks.", BATCH_BUCKETS
        )
        self._rate = self._gauge(
            "offsetwatch_batch_input_slices_per_second", "Rows of the probe log that came in per second, last batch."
        )
        self._behind = self._gauge(
            "offsetwatch_probe_log_unread_commits",
            "Commits of the probe log that the checks have not read to their end.",
        )
        self._batches = self._counter("offsetwatch_batches", "Batches of checks completed by this process.")
        self._slices = self._counter("offsetwatch_slices_checked", "Rows of the probe log checked by this process.")
        self._rejected = self._counter(
            "offsetwatch_slices_rejected", "Rows of the probe log that this process could not understand."
        )
        self._records = self._counter(
            "offsetwatch_records_checked", "Records, sent and polled, in the rows checked by this process."
        )
        self._gauge(
            "offsetwatch_evidence_age_seconds",
            "Age of the newest row of the probe log that was checked, also by an earlier process; while none is known, "
            "the age of this process.",
        ).set_function(self._evidence_age)

    def _make_those_of_channels(self) -> None:
        self._failures = self._counter(
            "offsetwatch_alert_channel_failures", "Deliveries of finding events that a channel failed.", ("channel",)
        )
        self._failing = self._gauge(
            "offsetwatch_alert_channel_consecutive_failures",
            "Attempts to tell a receiver of incidents that failed since the last one that did not.",
            ("channel",),
        )

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
            self._affected(count.anomaly, count.cluster, count.topic, count.findings)
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
            self._affected(event.anomaly, event.cluster, event.topic, 1)
            self._last.labels(event.cluster, event.severity).set(event.counted.timestamp())
            self._latency.observe(event.latency)
            if event.grace is not None:
                self._grace.observe(event.grace)
        self._set_open(touched)

    def _affected(self, anomaly: str, cluster: str, topic: str, records: int) -> None:
        if anomaly in (LOST, DUPLICATED):
            (self._lost if anomaly == LOST else self._duplicated).labels(cluster, topic).inc(records)

    def _set_open(self, places: Iterable[tuple[str, str, str]]) -> None:
        standing = [one[1:] for one in self._open.values()]
        for place in places:
            self._conditions.labels(*place).set(standing.count(place))

    def checked(self, *, slices: int, rejected: int = 0, records: int, newest: datetime | None) -> None:
        """Rows of the probe log were checked, with so many records, sent and polled, others could not be understood;
        `newest`: log time reached."""
        self._slices.inc(slices)
        self._rejected.inc(rejected)
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
            for counter in (self._lost, self._duplicated):
                counter.labels(str(row["cluster"]), str(row["topic"]))  # there at 0 before the first
        self._partitions.update(rows)

    def know_channel(self, channel: str) -> None:
        """Its failures are there at 0 before the first."""
        self._failures.labels(channel)

    def know_receiver(self, channel: str, failures: Callable[[], int]) -> None:
        """A channel that is tried again and again. `failures`: how many attempts failed since the last that did not."""
        self.know_channel(channel)
        self._failing.labels(channel).set_function(failures)

    @property
    def cluster(self) -> str:
        """The id of the cluster that is watched; "" while none is known, or where there are several."""
        known = self._clusters - {""}
        return next(iter(known)) if len(known) == 1 else ""

    def channel_failed(self, channel: str) -> None:
        self._failures.labels(channel).inc()

    def _evidence_age(self) -> float:
        return max(0.0, self._clock() - (self._began if self._newest is None else self._newest))
