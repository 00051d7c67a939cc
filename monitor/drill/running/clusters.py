"""The clusters of a session of drills: one at a time, used again while drills want the same kind and leave it clean.

Drills never share a topic: each run has a prefix of its own. What a run did to brokers is looked at when the next one
asks: a cluster one of whose brokers does not run is not given out again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from deploy.local_kafka import LocalKafka
from monitor.drill.definition.drill import ClusterKind


class Clusters:
    """Clusters in `folder`. `say` is given a line when one starts."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._kind: ClusterKind | None = None
        self._kafka: LocalKafka | None = None
        self._made = 0

    def take(self, kind: ClusterKind) -> LocalKafka:
        """A cluster of that kind, running. Raises what `LocalKafka.start` raises."""
        running = self._kafka
        if running is not None and self._kind == kind and all(broker.running for broker in running.brokers):
            return running
        self.drop()
        self._made += 1
        count = kind.brokers
        self._say(f"starting Kafka {kind.version}, {count} broker{'s' * (count > 1)}")
        folder = self._folder / f"kafka-{self._made}"
        kafka = LocalKafka(
            folder,
            brokers=count,
            version=kind.version,
            overrides=dict(kind.settings),
            cuttable=count > 1,
            say=self._say,
        )
        kafka.start()
        self._kafka, self._kind = kafka, kind
        return kafka

    def drop(self) -> None:
        """Stop the running cluster and remove its data. Safe to call at any time."""
        kafka, self._kafka, self._kind = self._kafka, None, None
        if kafka is None:
            return
        for broker in kafka.brokers:
            broker.resume()
        kafka.stop()
        shutil.rmtree(kafka.folder, ignore_errors=True)
