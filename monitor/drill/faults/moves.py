"""Replicas are moved, and leaders are elected, as whoever runs a cluster would have it done."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from deploy.local_kafka import LocalKafka
from monitor.drill.faults.replicas import view
from monitor.drill.faults.requests import ask_any, until

_MOVED_WITHIN_S: Final = 60.0
_LED_WITHIN_S: Final = 15.0
_PREFERRED: Final = i8(0)
_LED: Final = frozenset({"none", "election_not_needed"})
"""What the controller says of a partition that the preferred leader leads."""
_REQUEST: Final = i32Timedelta.parse(datetime.timedelta(seconds=5))

Moves = Mapping[tuple[str, int], tuple[int, ...]]
"""(topic, partition) -> its replicas afterwards, the preferred leader first."""


def move(cluster: LocalKafka, moves: Moves) -> None:
    """Move replicas, and return when they are where they should be and in sync. Raises DrillFailed."""
    if not moves:
        return
    request = _reassignment(moves)

    def accepted() -> bool | None:
        told = ask_any(cluster, request, AlterPartitionReassignmentsResponse)
        return True if not _refused(told) else None

    def done() -> bool | None:
        now_at = {(place.topic, place.partition): place for place in view(cluster.bootstrap).placements}
        moved = all(
            place in now_at and set(now_at[place].replicas) == set(replicas) and now_at[place].whole
            for place, replicas in moves.items()
        )
        return moved or None

    what = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(moves)[:5])
    until(accepted, _MOVED_WITHIN_S, f"leave to move replicas of {what}")
    until(done, _MOVED_WITHIN_S, f"that the replicas of {what} are moved")


def elect(cluster: LocalKafka, places: Sequence[tuple[str, int]], node: int) -> None:
    """Have `node` lead these partitions, of which it is the preferred leader. Raises DrillFailed."""
    if not places:
        return

    request = _election(places)

    def led() -> bool | None:
        ask_any(cluster, request, ElectLeadersResponse)
        leaders = {(p.topic, p.partition): p.leader for p in view(cluster.bootstrap).placements}
        return all(leaders.get(place) == node for place in places) or None

    until(led, _LED_WITHIN_S, f"that broker {node} leads what it was given")


def lead(cluster: LocalKafka, topic: str, partition: int, replicas: tuple[int, ...]) -> None:
    """Have the first of the partition's `replicas`, which are those that it has, lead it. Returns when the controller
    says so; brokers and clients learn of it later. Raises DrillFailed where it does not follow."""
    order = _reassignment({(topic, partition): replicas})
    election = _election([(topic, partition)])

    def ordered() -> bool | None:
        return None if _refused(ask_any(cluster, order, AlterPartitionReassignmentsResponse)) else True

    def elected() -> bool | None:
        told = ask_any(cluster, election, ElectLeadersResponse)
        errors = {p.error_code.name for each in told.replica_election_results for p in each.partition_result}
        return True if not told.error_code and errors <= _LED else None

    until(ordered, _MOVED_WITHIN_S, f"leave to put the replicas of {topic}/{partition} in another order")
    until(elected, _LED_WITHIN_S, f"that broker {replicas[0]} leads {topic}/{partition}")


def _reassignment(moves: Moves) -> AlterPartitionReassignmentsRequest:
    topics = tuple(
        ReassignableTopic(
            name=TopicName(topic),
            partitions=tuple(
                ReassignablePartition(
                    partition_index=i32(partition), replicas=tuple(BrokerId(replica) for replica in replicas)
                )
                for (of, partition), replicas in moves.items()
                if of == topic
            ),
        )
        for topic in sorted({topic for topic, _ in moves})
    )
    return AlterPartitionReassignmentsRequest(timeout=_REQUEST, topics=topics)


def _refused(told: AlterPartitionReassignmentsResponse) -> list[str]:
    """The errors of the answer; a partition that is gone is none."""
    errors = [told.error_code] if told.error_code else []
    errors += [p.error_code for topic in told.responses for p in topic.partitions if p.error_code]
    return [error.name for error in errors]


def _election(places: Sequence[tuple[str, int]]) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=tuple(
            TopicPartitions(topic=TopicName(topic), partitions=tuple(i32(n) for of, n in places if of == topic))
            for topic in sorted({topic for topic, _ in places})
        ),
        timeout=_REQUEST,
    )
