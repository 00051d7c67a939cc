"""Every metric that the two processes export, with everything that can happen having happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from alerts.incidents.silence import Silence
from alerts.level_metrics import LevelMetrics
from alerts.metrics import Metrics
from alerts.probe_metrics import ProbeMetrics
from alerts.process_metrics import ProcessMetrics
from alerts.silence_metrics import SilenceMetrics
from monitor.process.versions import versions
from probes.levels import OPERATIONS, Levels
from probes.log.commits.status import CommitterStatus
from probes.workloads.probe import Counters
from tests.alerts.findings import event, finding
from tests.alerts.test_metrics import SUMMARY

PLACED = ("produce", "end-to-end", "consume")


class Exported(NamedTuple):
    """A metric under the name by which it is asked for; `labels` without `le`."""

    name: str
    type: str
    labels: tuple[str, ...]


def monitor() -> CollectorRegistry:
    """The registry of a monitor, without probes."""
    metrics = Metrics(build=versions(), partition_series="all", written=[Path(__file__).parent])
    metrics.partitions([SUMMARY])
    metrics.deliver([event(finding("lost-write"), grace=1.0), event(finding("unseen", event="opened"))])
    metrics.know_channel("log")
    metrics.know_receiver("alertmanager", lambda: 0)
    metrics.batch(seconds=1.0, input_rate=1.0, commits_behind=0)
    now = datetime.now(UTC)
    silence = Silence(id="1", cluster="c", topic="t", since=now, until=now + timedelta(hours=1), because="", by="")
    metrics.registry.register(SilenceMetrics(lambda: [silence]))
    return metrics.registry


def probes() -> CollectorRegistry:
    """The registry of probes that have a process of their own."""
    measured = Levels()
    for operation in OPERATIONS:
        place = ("t", "1") if operation in PLACED else ("", "")
        measured.took(operation, 0.1, place)
        measured.tried(operation, 1, 0, 1.0, place)
    registry = CollectorRegistry()
    counters = [Counters("writer-1", "writer")]
    status = CommitterStatus(rows=1, backlog=1, append_seconds=1.0)
    registry.register(ProbeMetrics(lambda: counters, lambda: status, lambda: "c"))
    registry.register(LevelMetrics(lambda: measured, lambda: "c", brokers=16))
    registry.register(ProcessMetrics([Path(__file__).parent]))
    return registry


def exported(registry: CollectorRegistry) -> dict[str, Exported]:
    """What a registry exports, by name, as it is served: with the label `cluster`."""
    found = {}
    for family in registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = {label for sample in family.samples for label in sample.labels if label != "le"} | {"cluster"}
        name = family.name + suffix
        found[name] = Exported(name, family.type, tuple(sorted(labels)))
    return found


def samples(registry: CollectorRegistry) -> set[str]:
    """The names of all samples: those of histograms' buckets, sums and counts among them."""
    return {sample.name for family in registry.collect() for sample in family.samples}
