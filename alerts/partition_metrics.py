"""Prometheus metrics of partitions, and of topics where there are too many partitions.

They are collected at the scrape from the last summary of each partition; a topic that was created anew replaces the one
whose name it bears. Each partition has the series of `ESSENTIAL`, six with two kinds of readers, unless told otherwise:
so 1,000 partitions have 6,000. What an alert needs is there by topic in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Series = Literal["none", "essential", "all"]
"""Which series each partition has."""
Labels = tuple[str, str, str]

PARTITION_LABELS: Final = ("cluster", "topic", "partition")

_GAUGES: Final = (
    ("offsetwatch_partition_log_start_offset", "First offset that the partition still holds.", "log_start"),
    ("offsetwatch_partition_log_end_offset", "One past the last offset (read_uncommitted).", "log_end"),
    ("offsetwatch_partition_last_stable_offset", "One past the last offset readable at read_committed.", "last_stable"),
    ("offsetwatch_partition_settled_frontier_offset", "Below this offset every verdict is final.", "frontier"),
    ("offsetwatch_partition_unseen_records", "Acknowledged records not polled within the objective.", "unseen"),
    ("offsetwatch_partition_window_runs", "Runs of records above the settled frontier.", "window_runs"),
    ("offsetwatch_partition_processes", "Client lives whose log the partition's checks follow.", "processes"),
    ("offsetwatch_partition_state_bytes", "Size of the partition's hot state.", "state_bytes"),
    ("offsetwatch_partition_log_time_seconds", "Log time of the checks, in seconds since the epoch.", "now"),
)
ESSENTIAL: Final = frozenset({"log_end", "last_stable", "unseen"})
"""Of these, what every partition has by default, beside how late its verdicts are and its readers' lag."""


class PartitionMetrics(Collector):
    """Times in summaries are aware datetimes."""

    def __init__(self, series: Series = "essential") -> None:
        self._series = series
        self._rows: dict[Labels, Mapping[str, Any]] = {}

    def update(self, summaries: Iterable[Mapping[str, Any]]) -> None:
        """Take in rows of `partition_state`."""
        rows = dict(self._rows)
        for row in summaries:
            rows[(str(row["cluster"]), str(row["topic"]), str(row["partition"]))] = row
        self._rows = rows  # replaced as a whole: the scrape runs in another thread

    def collect(self) -> Iterable[GaugeMetricFamily]:
        rows = self._rows
        yield from _by_topic(rows)
        if self._series == "none":
            return
        for name, help_text, column in _GAUGES:
            if self._series == "essential" and column not in ESSENTIAL:
                continue
            family = GaugeMetricFamily(name, help_text, labels=PARTITION_LABELS)
            for labels, row in rows.items():
                value = row.get(column)
                if value is not None:
                    family.add_metric(labels, value.timestamp() if isinstance(value, datetime) else float(value))
            yield family
        behind = GaugeMetricFamily(
            "offsetwatch_partition_checked_behind_seconds",
            "Log time between the newest evidence and that through which every verdict is given.",
            labels=PARTITION_LABELS,
        )
        for labels, row in rows.items():
            if (seconds := checked_behind(row)) is not None:
                behind.add_metric(labels, seconds)
        yield behind
        lag = GaugeMetricFamily(
            "offsetwatch_partition_readers_lag_records",
            "How far the furthest-behind reader is behind the last stable offset, by how it reached the partition "
            "(assign, subscribe).",
            labels=(*PARTITION_LABELS, "mode"),
        )
        for labels, row in rows.items():
            for mode, records in readers_lag(row).items():
                lag.add_metric((*labels, mode), records)
        yield lag


def _by_topic(rows: Mapping[Labels, Mapping[str, Any]]) -> Iterable[GaugeMetricFamily]:
    """The worst partition of each topic, and of unseen records the sum."""
    behind: dict[tuple[str, str], float] = {}
    unseen: dict[tuple[str, str], int] = {}
    lags: dict[tuple[str, str, str], int] = {}
    held: dict[tuple[str, str], int] = {}
    for (cluster, topic, _), row in rows.items():
        place = cluster, topic
        if (seconds := checked_behind(row)) is not None:
            behind[place] = max(behind.get(place, 0.0), seconds)
        if row.get("unseen") is not None:
            unseen[place] = unseen.get(place, 0) + int(row["unseen"])
        if row.get("log_end") is not None and row.get("last_stable") is not None:
            held[place] = max(held.get(place, 0), int(row["log_end"]) - int(row["last_stable"]))
        for mode, records in readers_lag(row).items():
            lags[*place, mode] = max(lags.get((*place, mode), 0), records)
    for name, text, labels, values in (
        (
            "offsetwatch_topic_checked_behind_seconds",
            "Of the topic's partition that is furthest behind: log time between the newest evidence and that through "
            "which every verdict is given.",
            ("cluster", "topic"),
            behind,
        ),
        (
            "offsetwatch_topic_unseen_records",
            "Acknowledged records of the topic that were not polled within the objective.",
            ("cluster", "topic"),
            unseen,
        ),
        (
            "offsetwatch_topic_unstable_records",
            "The most offsets of one partition that open transactions hold back: log end less last stable offset.",
            ("cluster", "topic"),
            held,
        ),
        (
            "offsetwatch_topic_readers_lag_records",
            "How far the furthest-behind reader of any partition of the topic is behind, by how it reached it.",
            ("cluster", "topic", "mode"),
            lags,
        ),
    ):
        family = GaugeMetricFamily(name, text, labels=labels)
        for key, value in values.items():
            family.add_metric(key, value)
        yield family


def checked_behind(summary: Mapping[str, Any]) -> float | None:
    """Seconds of log time from that through which every verdict is given to the newest evidence."""
    if summary.get("now") is None or summary.get("checked_through") is None:
        return None
    return max(0.0, float((summary["now"] - summary["checked_through"]).total_seconds()))


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
