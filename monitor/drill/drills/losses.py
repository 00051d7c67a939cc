"""Drills that take records away, or only seem to: retention that overtakes a reader, a segment that is cut."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode

from monitor.drill.actors.actors import held_reader
from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.produce import AnswerProduceWith
from monitor.drill.proxy import ONCE, Lie, Where
from probes.running.supervisor import Spec

NO_READERS: Final = {"reader": {"assign": 0}}


class HeldReaders(Play):
    """The readers can be held back, so that what happens to the log happens to what they have not read."""

    def __init__(self) -> None:
        self._held = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [held_reader(1, self._held), held_reader(2, self._held)]

    def undo(self, stage: Stage) -> None:
        self._held.clear()


class RetentionOvertakesReader(HeldReaders):
    """What nobody read is gone, and no loss: retention is allowed to do that."""

    def act(self, stage: Stage) -> None:
        self._held.set()
        stage.pause(2.0)
        ends = {p: stage.end(stage.records, p) for p in range(2)}
        stage.wait(lambda: all(stage.end(stage.records, p) >= ends[p] + 50 for p in ends), 20, "that writers go on")
        upto = [TopicPartition(stage.records, p, stage.end(stage.records, p)) for p in ends]
        for future in stage.admin.delete_records(upto).values():
            future.result(10.0)
        stage.act(f"deleted the records before {', '.join(f'{tp.partition}: {tp.offset}' for tp in upto)}")
        self._held.clear()


class RetentionForgetsProducer(RetentionOvertakesReader):
    """As before, and then the producer is told that nobody knows it."""

    def __init__(self) -> None:
        super().__init__()
        self._lie = AnswerProduceWith(
            Where(client_id="offsetwatch-writer-1"),
            ONCE,
            error=ErrorCode.unknown_producer_id,
            forward=False,
            armed=False,
        )

    def lies(self) -> Sequence[Lie]:
        return [self._lie]

    def act(self, stage: Stage) -> None:
        super().act(stage)
        self._lie.arm()
        stage.wait(lambda: self._lie.acts, 20, "that the writer wrote")
        stage.work_goes_on()


class ErasedSegment(HeldReaders):
    """The broker comes back with less than it had acknowledged; a producer with the broken sequence says so, and new
    records take the places of the old ones."""

    def act(self, stage: Stage) -> None:
        self._held.set()
        stage.pause(2.0)
        before = stage.end(stage.records, 0)
        stage.wait(lambda: stage.end(stage.records, 0) >= before + 100, 20, "that writers go on")
        broker = stage.cluster.broker(1)
        broker.kill()
        segment = max((broker.log_dir / f"{stage.records}-0").glob("*.log"))
        size = segment.stat().st_size
        left = size * before // (before + 100)
        with segment.open("r+b") as file:
            file.truncate(left)  # in mid-batch: the broker finds that when it recovers the log
        stage.act(f"cut {segment.name} of {stage.records}/0 from {size} to {left} bytes while the broker was down")
        broker.start()
        self._held.clear()


DRILLS: Final = (
    Drill(
        name="retention-overtakes-reader",
        case="readers-held",
        what="Readers are held, DeleteRecords goes past the last acknowledged offset, readers are released.",
        seen_in="OutOfOrderSequence notes",
        must=(found("benign-retention"),),
        probes=NO_READERS,
        play=RetentionOvertakesReader,
    ),
    Drill(
        name="retention-overtakes-reader",
        case="unknown-producer",
        what="As before, and the next Produce is answered UnknownProducerId: a broker that kept nothing of a producer's"
        " records may have forgotten the producer as well.",
        seen_in="OutOfOrderSequence notes",
        must=(found("benign-retention"),),
        probes=NO_READERS,
        play=RetentionForgetsProducer,
    ),
    Drill(
        name="erased-segment",
        what="The only replica's newest segment is cut while the broker is down, readers held back.",
        seen_in="OutOfOrderSequence notes",
        must=(found("log-truncation"), found("lost-write")),
        may=ORDER | {"inconsistent-offsets", "vanished-record", "sequence-loss"},
        changes_cluster=True,
        spoils_cluster=True,
        probes=NO_READERS,
        play=ErasedSegment,
    ),
)
