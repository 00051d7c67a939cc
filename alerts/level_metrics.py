"""Prometheus metrics of the service that the probes get: latencies, attempts, failures, the time of the last success.

`docs/metrics.md` lists them with their meaning. They count from the start of the process. A broker has series of its
own as long as few enough do: those that come later are told together, as `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from alerts.native_histograms import Buckets, NativeHistogramFamily

OTHER: Final = "other"
Place = tuple[str, str]


class Latencies(Protocol):
    """How long operations took, counted in buckets."""

    @property
    def classic(self) -> list[tuple[float, int]]: ...
    @property
    def native(self) -> tuple[int, float, int, int, Sequence[int]]: ...
    @property
    def seconds(self) -> float: ...
    def copy(self) -> Self: ...
    def add(self, other: Self, /) -> None: ...


class Tries(Protocol):
    """How often something was tried, failed, and came true too late."""

    @property
    def total(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def late(self) -> int: ...


class Levels(Protocol):
    """What all probes of this process have measured, by operation and place (topic and leader)."""

    @property
    def latencies(self) -> Mapping[tuple[str, Place], Latencies]: ...
    @property
    def tries(self) -> Mapping[tuple[str, Place], Tries]: ...
    @property
    def succeeded(self) -> Mapping[str, float]: ...


class _Named(NamedTuple):
    operation: str
    name: str
    text: str
    labels: tuple[str, ...] = ("cluster",)


_PLACED: Final = ("cluster", "topic", "broker")

HISTOGRAMS: Final = (
    _Named(
        "produce",
        "offsetwatch_produce_latency_seconds",
        "From handing a record to the producer until its acknowledgement (acks=all).",
        _PLACED,
    ),
    _Named(
        "end-to-end",
        "offsetwatch_end_to_end_latency_seconds",
        "From handing a record to the producer until the same process polls it at read_committed.",
        _PLACED,
    ),
    _Named("transaction-commit", "offsetwatch_transaction_commit_latency_seconds", "Committing a transaction."),
    _Named("offset-commit", "offsetwatch_offset_commit_latency_seconds", "Committing a reader's offsets."),
    _Named("metadata", "offsetwatch_metadata_latency_seconds", "Asking for the description of the probe topics."),
    _Named(
        "rebalance",
        "offsetwatch_rebalance_duration_seconds",
        "From giving up partitions, or asking to join, until a group's member is assigned partitions.",
    ),
)

COUNTERS: Final[Mapping[str, Sequence[_Named]]] = {
    "total": (
        _Named("produce", "offsetwatch_produce_records", "Records handed to plain producers.", _PLACED),
        _Named(
            "end-to-end",
            "offsetwatch_end_to_end_records",
            "Records of the end-to-end probe, each judged once.",
            _PLACED,
        ),
        _Named("consume", "offsetwatch_consume_records", "Acknowledged records of the end-to-end probe.", _PLACED),
        _Named(
            "transaction-commit",
            "offsetwatch_transaction_commits",
            "Commits of transactions tried, and producers without a producer id.",
        ),
        _Named("offset-commit", "offsetwatch_offset_commits", "Commits of readers' offsets tried."),
        _Named("metadata", "offsetwatch_metadata_requests", "Descriptions of the probe topics asked for."),
    ),
    "failed": (
        _Named(
            "produce",
            "offsetwatch_produce_record_failures",
            "Records whose write failed, or of which it is not known whether they were written.",
            _PLACED,
        ),
        _Named(
            "end-to-end",
            "offsetwatch_end_to_end_record_failures",
            "Records that did not come back within the objective, whatever held them up.",
            _PLACED,
        ),
        _Named(
            "consume",
            "offsetwatch_consume_record_failures",
            "Records that were not polled within the objective after their acknowledgement.",
            _PLACED,
        ),
        _Named(
            "transaction-commit",
            "offsetwatch_transaction_commit_failures",
            "Commits of transactions that failed.",
        ),
        _Named("offset-commit", "offsetwatch_offset_commit_failures", "Commits of readers' offsets that failed."),
        _Named("metadata", "offsetwatch_metadata_request_failures", "Descriptions that were not answered."),
    ),
    "late": (
        _Named(
            "end-to-end",
            "offsetwatch_end_to_end_delayed_records",
            "Records that came back after all, later than the objective.",
            _PLACED,
        ),
    ),
}
"""By the field of `Tries` that they show."""


class LevelMetrics(Collector):
    """`levels` and `cluster` are called at each scrape; `brokers`: how many have series of their own."""

    def __init__(self, levels: Callable[[], Levels], cluster: Callable[[], str], *, brokers: int) -> None:
        self._levels, self._cluster, self._most = levels, cluster, brokers
        self._brokers: set[str] = set()

    def collect(self) -> Iterable[Metric]:
        levels, cluster = self._levels(), self._cluster()
        self._know({broker for _, (_, broker) in (*levels.latencies, *levels.tries) if broker})
        for one in HISTOGRAMS:
            yield self._histogram(one, levels, cluster)
        for field, counters in COUNTERS.items():
            for one in counters:
                yield self._counter(one, field, levels, cluster)
        last = GaugeMetricFamily(
            "offsetwatch_last_success_timestamp_seconds",
            "When an operation was last seen to succeed, in seconds since the epoch.",
            labels=("cluster", "operation"),
        )
        for operation, when in sorted(levels.succeeded.items()):
            last.add_metric((cluster, operation), when)
        yield last

    def _know(self, brokers: set[str]) -> None:
        """Those that have series keep them: a counter that changed its name would seem to begin anew."""
        room = max(0, self._most - len(self._brokers))
        self._brokers |= set(sorted(brokers - self._brokers, key=lambda one: (len(one), one))[:room])

    def _labels(self, one: _Named, cluster: str, place: Place) -> tuple[str, ...]:
        topic, broker = place
        shown = broker if not broker or broker in self._brokers else OTHER
        return (cluster, topic, shown) if one.labels == _PLACED else (cluster,)

    def _histogram(self, one: _Named, levels: Levels, cluster: str) -> Metric:
        merged: dict[tuple[str, ...], Latencies] = {}
        for (operation, place), latencies in levels.latencies.items():
            if operation == one.operation:
                labels = self._labels(one, cluster, place)
                if labels in merged:
                    merged[labels].add(latencies)
                else:
                    merged[labels] = latencies.copy()
        family = NativeHistogramFamily(one.name, one.text, one.labels)
        for labels, latencies in sorted(merged.items()):
            family.add(labels, latencies.classic, latencies.seconds, Buckets(*latencies.native))
        return family

    def _counter(self, one: _Named, field: str, levels: Levels, cluster: str) -> Metric:
        merged: dict[tuple[str, ...], int] = {}
        for (operation, place), tries in levels.tries.items():
            if operation == one.operation:
                labels = self._labels(one, cluster, place)
                merged[labels] = merged.get(labels, 0) + getattr(tries, field)
        family = CounterMetricFamily(one.name, one.text, labels=one.labels)
        for labels, value in sorted(merged.items()):
            family.add_metric(labels, value)
        return family
