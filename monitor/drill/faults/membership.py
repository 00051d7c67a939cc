"""A broker joins the cluster, is given replicas, and leaves it again."""

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
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i8, i32, i32Timedelta

from deploy.local_kafka import LocalKafka
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.replicas import Placement, view
from monitor.drill.faults.requests import ask_any, until

_MOVED_WITHIN_S: Final = 60.0
_LED_WITHIN_S: Final = 15.0
_PREFERRED: Final = i8(0)
_REQUEST: Final = i32Timedelta.parse(datetime.timedelta(seconds=5))

Moves = Mapping[tuple[str, int], tuple[int, ...]]
"""(topic, partition) -> its replicas afterwards, the preferred leader first."""


def moved_in(placements: Sequence[Placement], topics: Sequence[str], node: int) -> Moves:
    """What gives `node` replicas: each partition of `topics`, whose last replica it takes, as the preferred leader of
    every other partition; pure."""
    moves: dict[tuple[str, int], tuple[int, ...]] = {}
    for place in placements:
        if place.topic in topics and node not in place.replicas:
            stay = place.replicas[:-1]
            leads = place.partition % 2 == 0
            moves[place.topic, place.partition] = (node, *stay) if leads else (*stay, node)
    return moves


def moved_out(placements: Sequence[Placement], node: int, others: Sequence[int]) -> Moves:
    """What takes every replica from `node`, to the first of `others` that has none of that partition; pure.

    Where every other has one already the partition keeps one replica less."""
    moves: dict[tuple[str, int], tuple[int, ...]] = {}
    for place in placements:
        if node in place.replicas:
            stay = tuple(replica for replica in place.replicas if replica != node)
            moves[place.topic, place.partition] = (*stay, *[each for each in others if each not in stay][:1])
    return moves


class AddAndRemoveBroker(Fault):
    """A broker joins that is no controller, takes a replica of each partition of `topics` and leads every other; with
    `end` all its replicas go elsewhere, it stops, and the cluster forgets it.

    What others put on it meanwhile (the probes make a partition for every broker) goes elsewhere too; what only it had
    is moved, not lost. The partitions that were made stay."""

    def __init__(self, topics: Sequence[str] = ()) -> None:
        super().__init__()
        self.topics = tuple(topics)

    def describe(self) -> str:
        who = "a broker" if self.node is None else f"broker {self.node}"
        return f"add {who}{' with replicas of ' + ', '.join(self.topics) if self.topics else ''}, and remove it"

    def _missing(self, cluster: LocalKafka) -> list[str]:
        try:
            known = {place.topic for place in view(cluster.bootstrap).placements}
        except OSError as error:
            return [f"no broker answers: {error}"]
        return [f"there is no topic {topic} to give replicas of" for topic in self.topics if topic not in known]

    def _begin(self, cluster: LocalKafka) -> None:
        self.node = cluster.add_broker().id
        moves = moved_in(view(cluster.bootstrap).placements, self.topics, self.node)
        _move(cluster, moves)
        _elect(cluster, [place for place, replicas in moves.items() if replicas[0] == self.node], self.node)

    def _end(self, cluster: LocalKafka) -> None:
        node = self.node
        if node is None or node not in {broker.id for broker in cluster.brokers}:
            return
        cluster.broker(node).start()  # nothing, unless it ended: what is on it alone has to be moved
        others = [broker.id for broker in cluster.brokers if broker.id != node]

        def moved() -> bool | None:
            moves = moved_out(view(cluster.bootstrap).placements, node, others)
            if moves:
                _move(cluster, moves)
            return None if moves else True

        # Until none is left: while they are moved others may put more on it.
        until(moved, 2 * _MOVED_WITHIN_S, f"a cluster without replicas on broker {node}")
        cluster.remove_broker(node)
        until(lambda: _forgotten(cluster, node), _MOVED_WITHIN_S, f"that broker {node} is forgotten")


def _move(cluster: LocalKafka, moves: Moves) -> None:
    """Move replicas, and return when they are where they should be and in sync. Raises DrillFailed."""
    if not moves:
        return
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
    request = AlterPartitionReassignmentsRequest(timeout=_REQUEST, topics=topics)

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


def _refused(told: AlterPartitionReassignmentsResponse) -> list[str]:
    """The errors of the answer; a partition that is gone is none."""
    errors = [told.error_code] if told.error_code else []
    errors += [p.error_code for topic in told.responses for p in topic.partitions if p.error_code]
    return [error.name for error in errors]


def _elect(cluster: LocalKafka, places: Sequence[tuple[str, int]], node: int) -> None:
    """Have `node` lead these partitions, of which it is the preferred leader. Raises DrillFailed."""
    if not places:
        return

    request = ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=tuple(
            TopicPartitions(topic=TopicName(topic), partitions=tuple(i32(n) for of, n in places if of == topic))
            for topic in sorted({topic for topic, _ in places})
        ),
        timeout=_REQUEST,
    )

    def led() -> bool | None:
        ask_any(cluster, request, ElectLeadersResponse)
        leaders = {(p.topic, p.partition): p.leader for p in view(cluster.bootstrap).placements}
        return all(leaders.get(place) == node for place in places) or None

    until(led, _LED_WITHIN_S, f"that broker {node} leads what it was given")


def _forgotten(cluster: LocalKafka, node: int) -> bool | None:
    """Unregister a broker that has stopped; True once it is, or was, done. None while it still has a session."""
    told = ask_any(cluster, UnregisterBrokerRequest(broker_id=BrokerId(node)), UnregisterBrokerResponse)
    if told.error_code and told.error_code.name != "broker_id_not_registered":
        return None
    if node in view(cluster.bootstrap).nodes:
        return None
    return True
