"""Whom a fault strikes: the broker that has a role at the moment when it is looked for.

`find` returns a broker's id, and raises DrillFailed where nobody has the role within some seconds. `str` of a role says
whom it means.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Protocol

from kio.schema.describe_quorum.v1.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v1.request import PartitionData as QuorumPartition
from kio.schema.describe_quorum.v1.request import TopicData as QuorumTopic
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from deploy.local_kafka import LocalKafka
from monitor.drill.faults.replicas import placement
from monitor.drill.faults.requests import ask_any, ask_controllers, until

_PATIENCE_S: Final = 30.0
_METADATA: Final = "__cluster_metadata"


class Role(Protocol):
    def find(self, cluster: LocalKafka) -> int:
        """The id of the broker that has the role now."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderOf:
    """The leader of a partition."""

    topic: str
    partition: int

    def find(self, cluster: LocalKafka) -> int:
        def leader() -> int | None:
            place = placement(cluster, self.topic, self.partition)
            return place.leader if place is not None else None

        return until(leader, _PATIENCE_S, str(self))

    def __str__(self) -> str:
        return f"the leader of {self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class TransactionCoordinator:
    """The transaction coordinator of a transactional id: the leader of the partition of `__transaction_state` that the
    id's hash names. The brokers are asked themselves, as producers ask them."""

    transactional_id: str

    def find(self, cluster: LocalKafka) -> int:
        return _coordinator(cluster, 1, self.transactional_id, str(self))

    def __str__(self) -> str:
        return f"the transaction coordinator of {self.transactional_id}"


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    """The coordinator of a consumer group, whether the group has members or not."""

    group: str

    def find(self, cluster: LocalKafka) -> int:
        return _coordinator(cluster, 0, self.group, str(self))

    def __str__(self) -> str:
        return f"the coordinator of group {self.group}"


@dataclass(frozen=True, slots=True)
class Controller:
    """The active controller: the leader of the quorum. (In KRaft, Metadata names any broker as controller.)"""

    def find(self, cluster: LocalKafka) -> int:
        request = DescribeQuorumRequest(
            topics=(
                QuorumTopic(topic_name=TopicName(_METADATA), partitions=(QuorumPartition(partition_index=i32(0)),)),
            )
        )

        def leader() -> int | None:
            # Only the leader answers; one that is cut off may take itself for it, of an older epoch.
            told = [
                (int(partition.leader_epoch), int(partition.leader_id))
                for answered in ask_controllers(cluster, request, DescribeQuorumResponse)
                for topic in answered.topics
                for partition in topic.partitions
                if not partition.error_code and partition.leader_id > 0
            ]
            return max(told)[1] if told else None

        return until(leader, _PATIENCE_S, str(self))

    def __str__(self) -> str:
        return "the controller"


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """One of the brokers that run, chosen by a seed."""

    seed: int

    def find(self, cluster: LocalKafka) -> int:
        return random.Random(self.seed).choice([broker.id for broker in cluster.brokers if broker.running])

    def __str__(self) -> str:
        return "any broker"


@dataclass(frozen=True, slots=True)
class BrokerOf:
    """The broker of that id."""

    id: int

    def find(self, cluster: LocalKafka) -> int:
        return cluster.broker(self.id).id

    def __str__(self) -> str:
        return f"broker {self.id}"


def _coordinator(cluster: LocalKafka, kind: int, key: str, what: str) -> int:
    """FindCoordinator; the topic that holds the coordinators' state is made by the first who asks."""
    request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))

    def coordinator() -> int | None:
        (told,) = ask_any(cluster, request, FindCoordinatorResponse).coordinators
        return int(told.node_id) if told.node_id > 0 else None

    return until(coordinator, _PATIENCE_S, what)
