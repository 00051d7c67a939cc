"""A topic of the probe log in a real cluster, hosts that append to it, and what carries it into a table."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from deploy.local_kafka import LocalKafka
from probes.kafka.client import Connection
from probes.log.commits.append_plan import load
from probes.log.commits.history import History
from probes.log.evidence.intake import Intake
from probes.log.evidence.topic import TopicOf
from tests.probes.log.lives import Prober, StillClock

LIMIT = 60.0


def a_topic(cluster: LocalKafka) -> TopicOf:
    """One that is not there yet."""
    return TopicOf(Connection(cluster.bootstrap), f"evidence-{uuid.uuid4().hex[:8]}", replication=1)


def a_host(tmp_path: Path, name: str, process: int, clock: StillClock) -> tuple[Path, Prober]:
    folder = tmp_path / name
    return folder, Prober.start(folder, process, clock)


def carry(intake: Intake, seconds: float = LIMIT) -> int:
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


def app_of(folder: Path) -> str:
    plan = load(folder)
    assert plan is not None
    return plan.app


def start_of_last(folder: Path) -> int:
    """The start of the committer that has made its last append."""
    plan = load(folder)
    assert plan is not None
    return plan.start


def everything(topic: TopicOf) -> list[int]:
    """The versions of all messages that are committed, in order."""
    consumer = Consumer({"bootstrap.servers": topic.connection.bootstrap, "group.id": "all"})
    consumer.assign([TopicPartition(topic.name, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=LIMIT)
    found: list[int] = []
    while consumer.position([TopicPartition(topic.name, 0)])[0].offset < end:
        found += [int(dict(one.headers())["version"]) for one in consumer.consume(100, 1.0) if one.error() is None]
    consumer.close()
    return found
