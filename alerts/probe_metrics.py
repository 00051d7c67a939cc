"""Prometheus metrics of probes that run in the same process, read from their counters at the scrape.

The counters count from the start of the process: a restart resets them, as Prometheus expects of counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class ProbeCounters(Protocol):
    """One probe over all its client's lives."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


class LogStatus(Protocol):
    """The probe log's committer."""

    @property
    def rows(self) -> int: ...
    @property
    def backlog(self) -> int: ...
    @property
    def append_seconds(self) -> float: ...


_BACKLOG: Final = "Bytes of the journals that are not in the probe log yet."
_APPEND: Final = "Duration of the last append to the probe log."
_OF_LOG: Final = ("cluster",)
LABELS: Final = ("cluster", "probe", "kind")

_COUNTERS: Final = (
    ("offsetwatch_probe_records_sent", "Records handed to the producer.", "sent"),
    ("offsetwatch_probe_records_acknowledged", "Records that the cluster acknowledged.", "acknowledged"),
    ("offsetwatch_probe_records_aborted", "Records of transactions that were aborted on purpose.", "aborted"),
    ("offsetwatch_probe_records_failed", "Records whose write certainly failed.", "failed"),
    (
        "offsetwatch_probe_records_indefinite",
        "Records of which it is not known whether they were written.",
        "indefinite",
    ),
    ("offsetwatch_probe_records_polled", "Records polled.", "polled"),
    ("offsetwatch_probe_records_irregular", "Polled records that are corrupt, foreign or misplaced.", "irregular"),
    ("offsetwatch_probe_transactions_committed", "Transactions committed.", "transactions_committed"),
    ("offsetwatch_probe_transactions_aborted", "Transactions aborted on purpose.", "transactions_aborted"),
    (
        "offsetwatch_probe_transactions_failed",
        "Transactions that were to be committed, and certainly were not.",
        "transactions_failed",
    ),
    ("offsetwatch_probe_transactions_indefinite", "Transactions of unknown outcome.", "transactions_indefinite"),
    ("offsetwatch_probe_offset_commits", "Offset commits that succeeded.", "commits"),
    ("offsetwatch_probe_errors", "Errors that the probe's client reported.", "errors"),
    (
        "offsetwatch_probe_throttled_seconds",
        "For how long brokers held back what they answer the probe's client, by a quota.",
        "throttled",
    ),
    ("offsetwatch_probe_lives", "Clients opened: more than one each means crashes or reopened clients.", "lives"),
)


class ProbeMetrics(Collector):
    """All are called at each scrape. `cluster`: the cluster's id, "" while it is not known."""

    def __init__(
        self,
        counters: Callable[[], Sequence[ProbeCounters]],
        log: Callable[[], LogStatus | None] = lambda: None,
        cluster: Callable[[], str] = lambda: "",
    ) -> None:
        self._counters = counters
        self._cluster = cluster
        self._log = log

    def collect(self) -> Iterable[Metric]:
        probes = list(self._counters())
        cluster = self._cluster()
        for name, text, field in _COUNTERS:
            family = CounterMetricFamily(name, text, labels=LABELS)
            for probe in probes:
                family.add_metric((cluster, probe.name, probe.kind), getattr(probe, field))
            yield family
        status = self._log()
        if status is not None:
            yield _one(
                CounterMetricFamily("offsetwatch_probe_log_rows", "Rows appended to the probe log.", labels=_OF_LOG),
                cluster,
                status.rows,
            )
            yield _one(
                GaugeMetricFamily("offsetwatch_probe_log_backlog_bytes", _BACKLOG, labels=_OF_LOG),
                cluster,
                status.backlog,
            )
            yield _one(
                GaugeMetricFamily("offsetwatch_probe_log_append_seconds", _APPEND, labels=_OF_LOG),
                cluster,
                status.append_seconds,
            )


def _one(family: CounterMetricFamily | GaugeMetricFamily, cluster: str, value: float) -> Metric:
    family.add_metric((cluster,), value)
    return family
