"""Where the replicas of a cluster's partitions are, as its brokers tell."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local_kafka import LocalKafka
from probes.kafka.errors import translate

_TIMEOUT_S: Final = 5.0
_SILENT: Final = logging.Logger("confluent_kafka.drill", logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Placement:
    """One partition: `leader` is None where there is none, `replicas` begin with the preferred leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: frozenset[int]

    @property
    def whole(self) -> bool:
        """Whether it has a leader, and every replica is in sync."""
        return self.leader is not None and self.in_sync == set(self.replicas)


@dataclass(frozen=True, slots=True)
class View:
    """What one broker tells: the brokers that live, and the partitions."""

    nodes: frozenset[int]
    placements: tuple[Placement, ...]


def admin(bootstrap: str) -> AdminClient:
    """A client for requests of a drill, that keeps to itself what it meets on its way."""
    return AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 0, "client.id": "offsetwatch-drill"}, logger=_SILENT
    )


def view(bootstrap: str, topic: str | None = None) -> View:
    """What the brokers at `bootstrap` tell of all topics, or of one. Raises OSError where none answers in 5 s."""
    try:
        client = admin(bootstrap)
        told = client.list_topics(topic, timeout=_TIMEOUT_S) if topic else client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise ConnectionError(str(translate(error))) from error
    placements = [
        Placement(
            name,
            number,
            partition.leader if partition.leader >= 0 else None,
            tuple(partition.replicas),
            frozenset(partition.isrs),
        )
        for name, described in sorted(told.topics.items())
        for number, partition in sorted(described.partitions.items())
    ]
    return View(frozenset(told.brokers), tuple(placements))


def placement(cluster: LocalKafka, topic: str, partition: int) -> Placement | None:
    """One partition as the cluster tells, None where there is none. Raises OSError where nobody answers."""
    for place in view(cluster.bootstrap, topic).placements:
        if (place.topic, place.partition) == (topic, partition):
            return place
    return None


def leaderless(cluster: LocalKafka, topic: str, partitions: Collection[int]) -> bool:
    """Does every broker that runs say that none of these partitions has a leader? A coordinator is one of them. Not
    while one of them does not answer."""
    try:
        views = [view(broker.bootstrap, topic) for broker in cluster.brokers if broker.running]
    except OSError:
        return False
    return all(place.leader is None for told in views for place in told.placements if place.partition in partitions)


def not_whole(placements: Sequence[Placement]) -> list[str]:
    """The partitions that lack a leader or a replica in sync, as topic/partition."""
    return [f"{place.topic}/{place.partition}" for place in placements if not place.whole]
