"""A topic of the probe log in a real cluster, and what carries it into a table."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from deploy.local_kafka import LocalKafka
from probes.kafka.client import Connection
from probes.log.commits.history import History
from probes.log.evidence.intake import Intake
from probes.log.evidence.topic import TopicOf


def a_topic(cluster: LocalKafka) -> TopicOf:
    """One that is not there yet."""
    return TopicOf(Connection(cluster.bootstrap), f"evidence-{uuid.uuid4().hex[:8]}", replication=1)


def carry(intake: Intake, seconds: float = 60.0) -> int:
    """Take in all that the topic holds now; returns the rows that came into the table."""
    rows, until = 0, time.monotonic() + seconds
    while True:
        rows += intake.turn()
        if intake.behind == 0:
            return rows
        assert time.monotonic() < until, intake.behind


def carried(topic: TopicOf, history: Path, said: list[str] | None = None) -> int:
    """The same by an intake of its own."""
    intake = Intake(topic, History(str(history)), list[str]().append if said is None else said.append)
    try:
        return carry(intake)
    finally:
        intake.close()
