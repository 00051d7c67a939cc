"""The whole product at work on a local cluster of its own: brokers, probes, Spark, metrics."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alerts.event import FindingEvent
from deploy.local_kafka import LocalKafka
from monitor.config.config import Config, from_environment
from monitor.process.reach import open_fleet
from monitor.process.watch import Audience, Watch
from probes.running.fleet import Fleet
from streaming_jobs.integrity_job import Batch, BatchProgress


@dataclass(frozen=True, slots=True)
class Live:
    """What runs; `sent` counts records since the start."""

    kafka: LocalKafka
    config: Config
    fleet: Fleet
    watch: Watch

    @property
    def sent(self) -> int:
        return sum(probe.sent for probe in self.fleet.status().probes)


@contextmanager
def live(
    data: Path,
    *,
    brokers: int,
    settings: Mapping[str, str],
    on_batch: Callable[[list[FindingEvent], Batch], None],
    on_progress: Callable[[BatchProgress], None],
) -> Iterator[Live]:
    """Start everything in `data`, which is emptied first; end it in order. `settings`: environment overrides."""
    shutil.rmtree(data, ignore_errors=True)
    with LocalKafka(data / "kafka", brokers=brokers) as kafka:
        config = from_environment(
            {
                "OFFSETWATCH_DATA": str(data),
                "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
                "OFFSETWATCH_ALERTS__LOG": str(data / "findings.jsonl"),
                "OFFSETWATCH_ALERTS__METRICS_PORT": "0",
                **settings,
            }
        )
        fleet = open_fleet(config, print)
        audience = Audience(events=[on_batch], progress=[on_progress])
        watch = Watch(config, say=print, fleet=fleet, audience=audience)
        try:
            watch.start()
            yield Live(kafka, config, fleet, watch)
        finally:
            watch.stop()
