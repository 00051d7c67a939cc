"""Drills on the produce path: duplicates, offsets and partitions that are not those of the record, lost answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kio.schema.errors import ErrorCode

from monitor.drill.actors.actors import altered_writer, plain_writer
from monitor.drill.definition.drill import ORDER, found
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.drill import Lying
from monitor.drill.lies.produce import CopyElsewhere, Exchanged, NeverAnswered, ReusedSequence
from monitor.drill.proxy import Api, Lie, When, Where
from monitor.drill.proxy.lies import (
    AnswerProduceWith,
    ChangeAckOffset,
    CopyProduceWithoutProducerId,
    DropProduceResponse,
    LateProduceResponse,
)
from probes.running.supervisor import Spec

PLAIN = Where(client_id="offsetwatch-writer-plain")
WRITER = Where(client_id="offsetwatch-writer-1")
THRICE = When(times=3)
TOO_SMALL = 100
"""Bytes; less than any batch of a probe has."""


class RetryWithoutIdempotence(Lying):
    """The acknowledgement is dropped, and a client without idempotence sends the batch again."""

    name = "retry-without-idempotence"
    seen_in = "Redpanda #1"
    must = (found("duplicate", severity="warning"),)
    may = ORDER

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [plain_writer()]

    def make(self) -> Lie:
        return DropProduceResponse(PLAIN, THRICE, armed=False)


class IdempotentDuplicate(Lying):
    """The accepted batch of an idempotent producer is appended once more, without its producer id."""

    name = "idempotent-duplicate"
    seen_in = "Redpanda 3039"
    must = (found("duplicate", severity="critical"),)
    may = ORDER

    def make(self) -> Lie:
        return CopyProduceWithoutProducerId(WRITER, THRICE, armed=False)


class WrongAckOffset(Lying):
    """The acknowledged base offset is that of another record, which stands before it."""

    name = "wrong-ack-offset"
    seen_in = "Redpanda 3003"
    must = (found("inconsistent-offsets"),)
    may = ORDER | {"duplicate"}

    def make(self) -> Lie:
        return ChangeAckOffset(lambda real: max(real - 2, 0), WRITER, THRICE, armed=False)


class RelocatedRecord(Lying):
    """A copy of a batch is appended, without producer id, to a partition that it was not sent to."""

    name = "relocated-record"
    seen_in = "Redpanda 3003"
    must = (found("relocated-write"),)
    may = ORDER

    def make(self) -> Lie:
        return CopyElsewhere(1, WRITER, THRICE, armed=False)


class ReorderedLog(Lying):
    """The payloads of two single-record batches are exchanged, and their acknowledged offsets with them.

    The first is acknowledged before it is appended, at the offset that it gets: with the real answer, the two would
    have to be in flight together, and a proxy that waits for the second never sees it."""

    name = "reordered-log"
    seen_in = "Redpanda 3003"
    must = (found("nonmonotonic-send", "int-nonmonotonic-send"),)
    probes: ClassVar = {"writer": {"count": 0, "rate": 40.0}}

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [altered_writer("writer-singly", {"batch.num.messages": "1"})]

    def make(self) -> Lie:
        return Exchanged(
            Where(client_id="offsetwatch-writer-singly", partitions={0}), THRICE, armed=False, only_if=is_records
        )


class TooLargeRetry(Lying):
    """A batch is appended and its answer late, the topic's largest message is made smaller, and the retry is refused as
    too large. The records are there all the same, and nobody may say that they were not written."""

    name = "too-large-retry"
    case = "idempotent"
    seen_in = "the field's checkers"
    changes_cluster = True
    setting: ClassVar = "max.message.bytes"
    writer: ClassVar[Where] = WRITER

    def make(self) -> Lie:
        self._late = LateProduceResponse(self.writer, When(times=1), armed=False, only_if=is_records)
        return self._late

    def act(self, stage: Stage) -> None:
        super().act(stage)
        self._alter(stage, str(TOO_SMALL))
        self._late.lost.set()
        stage.wait(lambda: any("refused" in act.what for act in self.lie.acts), 30, "that a batch was refused")
        stage.pause(1.0)

    def undo(self, stage: Stage) -> None:
        self._late.lost.set()
        self._alter(stage, None)
        stage.work_goes_on()

    def _alter(self, stage: Stage, value: str | None) -> None:
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(self.setting, value, incremental_operation=how)
        topic = ConfigResource(ResourceType.TOPIC, stage.records, incremental_configs=[entry])
        for future in stage.admin.incremental_alter_configs([topic]).values():
            future.result(10.0)
        stage.act(f"{self.setting} of the topic is {value or 'as before'}")


class TooLargePlainRetry(TooLargeRetry):
    """The same of a client without idempotence."""

    case = "not-idempotent"
    writer = PLAIN

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [plain_writer()]


def is_records(exchange: Any) -> bool:
    """Is the request about the topic of ordinary writers?"""
    return all(place.topic.endswith("-records") for place in exchange.places())


class IndefiniteOnce(Lying):
    """The broker appends, the client is told NotLeaderOrFollower once, and tries again: the broker knows the batch."""

    name = "indefinite-not-leader"
    case = "idempotent"
    seen_in = "KAFKA-13574"

    def make(self) -> Lie:
        return AnswerProduceWith(ErrorCode.not_leader_or_follower, WRITER, THRICE, armed=False)


class IndefinitePlain(Lying):
    """The broker appends, a client without idempotence is told NotLeaderOrFollower once, and sends the batch again."""

    name = "indefinite-not-leader"
    case = "plain"
    seen_in = "KAFKA-13574"
    must = (found("duplicate", severity="warning"),)
    may = ORDER

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [plain_writer()]

    def make(self) -> Lie:
        return AnswerProduceWith(ErrorCode.not_leader_or_follower, PLAIN, THRICE, armed=False)


class IndefiniteForLong(Lying):
    """The broker appends, the client is told NotLeaderOrFollower until it gives up: its records are there, and it says
    that they timed out. They are indefinite, and reading them is no aborted read."""

    name = "indefinite-not-leader"
    case = "timed-out"
    seen_in = "KAFKA-13574"
    probes: ClassVar = {"writer": {"delivery_timeout": 4.0}}

    def make(self) -> Lie:
        return AnswerProduceWith(ErrorCode.not_leader_or_follower, WRITER, armed=False)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        said = "select 1 from history where f = 'send' and type = 'info' and error is not null limit 1"
        stage.wait(lambda: stage.logged(said), 30, "that a record timed out")

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class StuckProduce(Lying):
    """Produce requests are never answered."""

    name = "stuck-produce"
    case = "produce"
    seen_in = "Bufstream #2"
    must = (found("stuck-producer"),)

    def make(self) -> Lie:
        return NeverAnswered(Api.PRODUCE, WRITER, armed=False)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class StuckInit(Lying):
    """InitProducerId is never answered, and the producer that wants an id never begins."""

    name = "stuck-produce"
    case = "init-producer-id"
    seen_in = "Bufstream #2"
    must = (found("stuck-producer"),)

    def make(self) -> Lie:
        return NeverAnswered(Api.INIT_PRODUCER_ID, Where(client_id="offsetwatch-writer-late"), armed=True)

    def act(self, stage: Stage) -> None:
        stage.probes.add(altered_writer("writer-late", {}))
        super().act(stage)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class ZeroAcknowledged(Lying):
    """An acknowledgement says that the batch stands at offset 0."""

    name = "zero-offset"
    case = "acknowledged"
    seen_in = "Bufstream #3"
    must = (found("spurious-zero-offset"),)
    may = ORDER | {"duplicate", "inconsistent-offsets"}

    def make(self) -> Lie:
        return ChangeAckOffset(lambda real: 0, WRITER, THRICE, armed=False)


class SequenceReused(Lying):
    """A batch re-uses its predecessor's sequence numbers: the broker takes it for a duplicate and drops it.

    Not the second batch of all: it would be acknowledged where the first one stands, at 0."""

    name = "reused-sequence"
    seen_in = "Bufstream report, open questions"
    must = (found("lost-write", "unseen"),)
    may = frozenset({"lost-write", "inconsistent-offsets", "duplicate"})

    def make(self) -> Lie:
        return ReusedSequence(WRITER, When(after=5, times=1), armed=True)
