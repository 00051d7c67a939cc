"""Drills in which nothing is wrong, or only what the cluster says of itself."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from monitor.drill.definition.drill import THREE, Drill, found
from monitor.drill.definition.play import Play, Watched
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillFailed
from probes.kafka.client import producer_settings
from probes.records.allowance import A_SECOND, AT_ONCE, LEAST
from probes.records.tag import Encoder

EVERYTHING: Final = {
    "writer": {"with_five_in_flight": 1},
    "reader": {"group": 2, "restless": 1},
    "transaction": {"count": 2, "timeouts": [10.0, 5.0]},
    "transform": {"count": 2, "timeouts": [10.0]},
    "aborts": {"count": 1, "rate": 1.0},
    "registers": {"count": 2},
    "zombies": {"count": 1, "interval": 2.0},
    "audit": {"enabled": True, "period": 8.0},
    "unrest": {"enabled": True, "mean_interval": 20.0},
}

RECORDS: Final = 1_000_000
AT_A_TIME: Final = 5_000
READERS: Final = 2
PARTITIONS: Final = 2


class ForeignFlood(Play):
    """A second canary writes `RECORDS` records into the probes' topic, as fast as it can.

    Raises DrillFailed where they are not all counted by each reader, or where more of them are listed in the probe log
    than readers allow themselves."""

    def act(self, stage: Stage) -> None:
        producer = Producer({**producer_settings(stage.direct, client="another-canary"), "linger.ms": "20"})
        stage.act(f"another canary begins to write {RECORDS:,} records")
        encoders = [
            Encoder(run="another-canary", writer=1, topic=stage.records, partition=partition, size=128)
            for partition in range(PARTITIONS)
        ]
        for first in range(0, RECORDS // PARTITIONS, AT_A_TIME):
            for partition, encoder in enumerate(encoders):
                for value in encoder.encode(range(first, first + AT_A_TIME), sent=0):
                    _produce(producer, stage, partition, value)
            stage.pause(0.0)
        if producer.flush(60.0):
            raise DrillFailed("the other canary could not write its records")
        stage.say("they are written")
        stage.wait(lambda: stage.total("irregular", "reader") >= READERS * RECORDS, 180, "that readers count them all")
        stage.work_goes_on()
        (told,) = stage.logged("select sum(cardinality(irregular)) as listed, count(*) as polls from history")
        seconds = stage.clock() - stage.acted[0][0]
        allowed = READERS * (AT_ONCE + seconds * A_SECOND) + LEAST * told["polls"]
        if told["listed"] > allowed:
            raise DrillFailed(f"{told['listed']} foreign records are listed in the probe log, of at most {allowed:.0f}")


def _produce(producer: Producer, stage: Stage, partition: int, value: bytes) -> None:
    while True:
        try:
            producer.produce(stage.records, value, partition=partition)
        except BufferError:
            producer.poll(0.1)
            stage.pause(0.0)
        else:
            return


DRILLS: Final = (
    # The nearest innocent twin of every other drill.
    Drill(
        name="baseline",
        what="Nothing is done: every workload on three healthy brokers, with restless readers and clients that crash.",
        seen_in="every healthy cluster",
        cluster=THREE,
        probes=EVERYTHING,
        play=lambda: Watched("the probes are watched at work", seconds=15.0),
    ),
    # Within a drill's objectives, 3 s, readers may not get through it: `unseen` is true then, and has to close.
    Drill(
        name="foreign-flood",
        what="Another canary writes a million well-formed records into the topic that writers write to.",
        seen_in="two canaries on one cluster",
        must=(found("foreign-record", severity="info", times=PARTITIONS, run="another-canary"),),
        never=frozenset({"stuck-producer", "stuck-consumer", "evidence-late"}),
        closes=True,
        limit=30.0,
        probes={"topics": {"partitions": PARTITIONS}, "reader": {"assign": READERS}},
        play=ForeignFlood,
    ),
)
