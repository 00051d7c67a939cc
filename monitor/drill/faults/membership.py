"""A broker joins the cluster, is given replicas, and leaves it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from deploy.local_kafka import LocalKafka
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.moves import Moves, elect, move
from monitor.drill.faults.replicas import Placement, view
from monitor.drill.faults.requests import ask_any, until

_MOVED_WITHIN_S: Final = 60.0


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
        move(cluster, moves)
        elect(cluster, [place for place, replicas in moves.items() if replicas[0] == self.node], self.node)

    def _end(self, cluster: LocalKafka) -> None:
        node = self.node
        if node is None or node not in {broker.id for broker in cluster.brokers}:
            return
        cluster.broker(node).start()  # nothing, unless it ended: what is on it alone has to be moved
        others = [broker.id for broker in cluster.brokers if broker.id != node]

        def moved() -> bool | None:
            moves = moved_out(view(cluster.bootstrap).placements, node, others)
            if moves:
                move(cluster, moves)
            return None if moves else True

        # Until none is left: while they are moved others may put more on it.
        until(moved, 2 * _MOVED_WITHIN_S, f"a cluster without replicas on broker {node}")
        cluster.remove_broker(node)
        until(lambda: _forgotten(cluster, node), _MOVED_WITHIN_S, f"that broker {node} is forgotten")


def _forgotten(cluster: LocalKafka, node: int) -> bool | None:
    """Unregister a broker that has stopped; True once it is, or was, done. None while it still has a session."""
    told = ask_any(cluster, UnregisterBrokerRequest(broker_id=BrokerId(node)), UnregisterBrokerResponse)
    if told.error_code and told.error_code.name != "broker_id_not_registered":
        return None
    if node in view(cluster.bootstrap).nodes:
        return None
    return True
