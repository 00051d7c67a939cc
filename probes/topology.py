"""Where the probes work: the cluster, and the partitions of the probe topics by topic id.

A topic that is deleted and created again has a new id: its partitions are new places, and the layout a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Partition = tuple[str, int]
"""A topic's name and a partition of it."""

GroupProtocol = Literal["classic", "consumer"]
"""How members join their group: as ever, or by the consumer rebalance protocol of KIP-848, where the coordinator says
who reads what, and a member gives up only what somebody else is to have."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str
    partitions: int
    left_alone: int = 0
    """How many more partitions it has, of the highest numbers, in which no probe works."""
    former_id: str = field(default="", compare=False)
    """Of the topic that had this name before, if it was deleted and made again since the probes began."""


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    address: str
    """host:port as the cluster advertises it."""


@dataclass(frozen=True, slots=True)
class Layout:
    cluster: str
    topics: tuple[Topic, ...]
    brokers: tuple[Broker, ...] = ()
    leaders: Mapping[Partition, int] = field(default_factory=dict, compare=False)
    """The broker that led each partition when the topics were last looked at."""
    former_cluster: str = field(default="", compare=False)
    """The id of the cluster that was at these addresses before, if this one took its place."""

    def partitions(self, *topics: str) -> Iterator[Partition]:
        """Every partition of the named topics, of all topics if none is named."""
        for topic in self.topics:
            if not topics or topic.name in topics:
                for partition in range(topic.partitions):
                    yield topic.name, partition

    def topic_id(self, name: str) -> str:
        """The id of a topic; KeyError where it is not a probe topic."""
        for topic in self.topics:
            if topic.name == name:
                return topic.id
        raise KeyError(name)

    def former_id(self, name: str) -> str:
        """The id that a probe topic had before it was made anew, empty where it was not."""
        return next((topic.former_id for topic in self.topics if topic.name == name), "")

    def same_places(self, other: Layout) -> bool:
        """Whether both name the same partitions of the same topics' lives; brokers may differ."""
        return (self.cluster, self.topics) == (other.cluster, other.topics)
