"""A defect of Kafka itself: a group coordinator that answers before it has loaded what was committed."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import NewTopic

from deploy.broker import Broker
from deploy.jars import KAFKA
from monitor.drill.definition.drill import OLD_KAFKA, ORDER, ClusterKind, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.moves import lead
from monitor.drill.faults.replicas import placement
from probes.kafka.client import consumer_settings

OFFSETS: Final = "__consumer_offsets"
SETTINGS: Final = (("offsets.topic.num.partitions", 1), ("offsets.load.buffer.size", 50_000_000))
"""All groups have one coordinator, so that there is one leader to be moved. One read brings its whole log: between two
reads a load is given up where its broker happens not to lead, and it would depend on where they end."""
FILLERS: Final = 4
AT_ONCE: Final = 100
EACH: Final = 500
"""So many groups commit the offsets of so many partitions so often: a log that takes longer to load than its leader
takes to be moved away and back."""
UNDER_WAY: Final = 80
"""So many commits are sent before the answers to those before have come."""
TRIES: Final = 6
GROUPS: Final = 2
"""The groups of probes, of which something has to be known that can be lost."""
_COMMITTED: Final = "SELECT COUNT(DISTINCT \"group\") AS n FROM history WHERE f = 'offsets' AND committed IS NOT NULL"

_LOAD: Final = re.compile(
    rf"(?P<what>Scheduling|Finished) loading .*?metadata from {OFFSETS}-0"
    r"(?: in \d+ milliseconds)? (?:with|for) epoch (?P<epoch>\d+)"
)


def first_to_end(log: str) -> tuple[int, int] | None:
    """The leader epoch of the load that ended first after the newest one was to begin, and that of the newest, as a
    broker's log tells; None while none has ended; pure."""
    ended, newest = -1, -1
    for line in _LOAD.finditer(log):
        if line["what"] == "Scheduling":
            ended, newest = -1, int(line["epoch"])
        elif ended < 0:
            ended = int(line["epoch"])
    return (ended, newest) if ended >= 0 else None


class Fillers:
    """Groups without members that commit, and make the log of committed offsets long."""

    def __init__(self, stage: Stage) -> None:
        self.topic = f"{stage.records}-filler"
        stage.admin.create_topics([NewTopic(self.topic, AT_ONCE, 1)])[self.topic].result(30)
        self._sent = self._settled = 0
        self._refused: list[KafkaError] = []
        self._consumers = [self._consumer(stage, number) for number in range(FILLERS)]

    def commit(self, stage: Stage) -> None:
        """Commit all that they have to. Raises DrillFailed where that is refused, or takes minutes."""
        first = [TopicPartition(self.topic, 0, 1)]
        for consumer in self._consumers:  # the first makes the topic of committed offsets
            stage.ask(partial(consumer.commit, offsets=first, asynchronous=False), "that groups commit", 60)
        for number in range(EACH):
            offsets = [TopicPartition(self.topic, partition, number + 1) for partition in range(AT_ONCE)]
            for consumer in self._consumers:
                consumer.commit(offsets=offsets, asynchronous=True)
                self._sent += 1
            stage.wait(lambda: self._under_way() < UNDER_WAY, 60, "that commits are answered")
        stage.wait(lambda: not self._under_way(), 60, "that all commits are answered")
        if self._refused:
            raise DrillFailed(f"{len(self._refused)} commits were refused, the first with {self._refused[0]}")

    def committed(self) -> int:
        """What one of them has committed, as the coordinator tells. Raises KafkaException where it does not."""
        (told,) = self._consumers[0].committed([TopicPartition(self.topic, 0)], timeout=5.0)
        return int(told.offset)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    def _consumer(self, stage: Stage, number: int) -> Consumer:
        settings = consumer_settings(stage.direct, client="offsetwatch-drill", group=f"{self.topic}-{number}")
        return Consumer({**settings, "log_level": 0, "on_commit": self._answered})

    def _answered(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._settled += 1
        if error is not None:
            self._refused.append(error)

    def _under_way(self) -> int:
        for consumer in self._consumers:
            consumer.poll(0)
        return self._sent - self._settled


class OvertakenLoad(Play):
    """The leader of the partition that holds what groups have committed is moved away and back, and while it loads that
    partition away and back again: the first load ends when the second has only begun."""

    def __init__(self) -> None:
        self._fillers: Fillers | None = None
        self._home: tuple[int, ...] = ()

    def prepare(self, stage: Stage) -> None:
        self._fillers = Fillers(stage)
        self._fillers.commit(stage)
        placed = placement(stage.cluster, OFFSETS, 0)
        if placed is None or len(placed.replicas) < 2:
            raise DrillFailed(f"{OFFSETS}/0 has no second replica that could lead")
        self._home = placed.replicas

    def act(self, stage: Stage) -> None:
        stage.wait(lambda: stage.logged(_COMMITTED)[0]["n"] >= GROUPS, 60, "that the observer knows what is committed")
        broker = stage.cluster.broker(self._home[0])
        for _ in range(TRIES):
            stage.say(f"the leader of {OFFSETS}/0 is moved away from broker {broker.id} and back, twice")
            begins = broker.server_log.stat().st_size
            for replicas in (self._away, self._home, self._away, self._home):
                lead(stage.cluster, OFFSETS, 0, replicas)
            ended, newest = _first_to_end(stage, broker, begins)
            if ended < newest:
                stage.act(f"on broker {broker.id} the load of leader epoch {ended} ended in leader epoch {newest}")
                return
        raise DrillFailed(f"no load was overtaken by the next one in {TRIES} tries")

    def undo(self, stage: Stage) -> None:
        # A coordinator that has failed stays so until its broker has been made leader anew.
        assert self._fillers is not None
        lead(stage.cluster, OFFSETS, 0, self._away)
        stage.ask(self._fillers.committed, "that a coordinator answers", 120)
        stage.work_goes_on()

    def end(self) -> None:
        if self._fillers is not None:
            self._fillers.close()

    @property
    def _away(self) -> tuple[int, ...]:
        first, second, *others = self._home
        return (second, first, *others)


def _first_to_end(stage: Stage, broker: Broker, begins: int) -> tuple[int, int]:
    """As `first_to_end`, of the broker's log from there."""

    def told() -> tuple[int, int] | None:
        with broker.server_log.open("rb") as log:
            log.seek(begins)
            return first_to_end(log.read().decode(errors="replace"))

    stage.wait(told, 60, "that a load ended")
    ended = told()
    assert ended is not None
    return ended


_drill = partial(
    Drill,
    name="overtaken-load",
    seen_in="this canary",
    changes_cluster=True,
    probes={
        "reader": {"assign": 1, "group": 1, "commit_interval": 3.0},
        "observer": {"interval": 0.2},
    },
    play=OvertakenLoad,
)

DRILLS: Final = (
    _drill(
        case=KAFKA,
        what="The leader of a partition of __consumer_offsets is moved away and back while it loads it. That load goes"
        " on, and when it ends the coordinator of 4.3.1 takes it for the end of the next one, which has only begun: it"
        " tells of committed offsets that there are none, or older ones. A commit of then makes it load again, in the"
        " same way.",
        must=(found("lost-commit"),),
        may=ORDER | {"offset-regression"},
        cluster=ClusterKind(brokers=3, settings=SETTINGS),
    ),
    _drill(
        case=OLD_KAFKA,
        what="The same on an older broker, which loads and unloads in the order in which it was told to. Nothing is"
        " found.",
        cluster=ClusterKind(brokers=3, version=OLD_KAFKA, settings=SETTINGS),
    ),
)
