"""A defect of Kafka itself: what a replica that was made anew tells of aborted transactions."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Final

from confluent_kafka import ElectionType, Producer, TopicPartition

from deploy.jars import KAFKA
from monitor.drill.definition.drill import OLD_KAFKA, ClusterKind, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.replicas import placement
from probes.kafka.client import producer_settings
from probes.records.tag import Encoder

ABORTED: Final = 120
"""Transactions that are aborted before the replica is made anew: one fetch returns the records of some of them."""

# One fetch brings all, so that it does not depend on where one ends.
IN_ONE: Final = tuple((f"replica.fetch.{what}max.bytes", 50_000_000) for what in ("", "response."))


class RebuiltReplica(Play):
    """The leader of a partition is stopped while a transaction of a second producer is open there, loses its replicas,
    gets them from the others, and leads again; then the transaction ends."""

    def act(self, stage: Stage) -> None:
        topic, cluster = stage.transactions, stage.cluster
        stage.wait(
            lambda: stage.total("transactions_aborted") >= ABORTED, 90, f"that {ABORTED} transactions were aborted"
        )
        settings = producer_settings(stage.direct, client="drill", delivery_timeout=30.0)
        second = Producer({**settings, "transactional.id": "drill", "transaction.timeout.ms": "120000"})
        second.init_transactions(30.0)
        second.begin_transaction()
        (value,) = Encoder(run="drill", writer=1, topic=topic, partition=0, size=256).encode(range(1), sent=0)
        second.produce(topic, value, partition=0)
        second.flush(30.0)
        node = stage.leader(topic, 0)
        broker = cluster.broker(node)
        broker.kill()
        stage.act(f"killed broker {node}, which leads {topic}/0, and removed its replicas of that topic")
        for replica in broker.log_dir.glob(f"{topic}-*"):
            shutil.rmtree(replica)
        broker.start()
        stage.say(f"whole again after {await_recovered(cluster):.1f} s")
        stage.ask(lambda: self._elect(stage, topic), "that the broker leads again")
        stage.wait(lambda: self._leads(stage, topic, node), 30, f"that broker {node} leads {topic}/0 again")
        stage.act(f"broker {node} leads {topic}/0 again")
        second.abort_transaction(30.0)

    @staticmethod
    def _elect(stage: Stage, topic: str) -> None:
        stage.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)

    @staticmethod
    def _leads(stage: Stage, topic: str, node: int) -> bool:
        try:
            placed = placement(stage.cluster, topic, 0)
        except OSError:
            return False
        return placed is not None and placed.leader == node

    def undo(self, stage: Stage) -> None:
        for broker in stage.cluster.brokers:
            broker.start()
        await_recovered(stage.cluster)
        stage.work_goes_on()


_drill = partial(
    Drill,
    name="rebuilt-replica",
    seen_in="this canary",
    changes_cluster=True,
    spoils_cluster=True,
    limit=60.0,
    probes={
        "transaction": {"count": 1, "rate": 40.0, "abort_share": 0.5, "timeouts": [10.0], "record_bytes": 4_000},
        "audit": {"enabled": True, "period": 10.0},
    },
    play=RebuiltReplica,
)

DRILLS: Final = (
    _drill(
        case=KAFKA,
        what="A broker's replicas are lost, and made anew from the others'. What a follower's fetch brings is appended"
        " at once, and its index of aborted transactions says of each of one producer's that it is known from where"
        " another producer's first open one begins, which may be far ahead. A leader looks no further than to the first"
        " that is ahead of what it returns: readers are shown what the others aborted.",
        must=(found("G1a"),),
        may=frozenset({"poll-skip", "int-poll-skip", "late-record", "torn-transaction", "zombie-write"}),
        cluster=ClusterKind(brokers=3, settings=IN_ONE),
    ),
    _drill(
        case=OLD_KAFKA,
        what="The same on an older broker. Nothing is found.",
        cluster=ClusterKind(brokers=3, version=OLD_KAFKA, settings=IN_ONE),
    ),
)
