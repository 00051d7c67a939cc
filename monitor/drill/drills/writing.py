"""Drills on the produce path: duplicates, offsets and partitions that are not those of the record, lost answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kio.schema.errors import ErrorCode

from monitor.drill.actors.actors import altered_writer, plain_writer
from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.plays import OneLie
from monitor.drill.lies.produce import (
    AnswerProduceWith,
    ChangeAckOffset,
    CopyElsewhere,
    CopyProduceWithoutProducerId,
    DropProduceResponse,
    Exchanged,
    LateProduceResponse,
    NeverAnswered,
    ReusedSequence,
)
from monitor.drill.proxy import ONCE, Api, When, Where
from probes.running.supervisor import Spec

PLAIN: Final = Where(client_id="offsetwatch-writer-plain")
SINGLY: Final = Where(client_id="offsetwatch-writer-singly", partitions={0})
WRITER: Final = Where(client_id="offsetwatch-writer-1")
THRICE: Final = When(times=3)
LARGEST_MESSAGE: Final = "max.message.bytes"
MIN_INSYNC: Final = "min.insync.replicas"
TOO_SMALL: Final = 100
"""Bytes; less than any batch of a probe has."""


def is_records(exchange: Any) -> bool:
    """Is the request about the topic of ordinary writers?"""
    return all(place.topic.endswith("-records") for place in exchange.places())


def set_to(stage: Stage, name: str, number: int | None) -> None:
    """Set what is so named of the topic that writers write to; None: as it was before."""
    value = None if number is None else str(number)
    how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=how)
    topic = ConfigResource(ResourceType.TOPIC, stage.records, incremental_configs=[entry])
    for future in stage.admin.incremental_alter_configs([topic]).values():
        future.result(10.0)
    stage.act(f"{name} of the topic is {value or 'as before'}")


class TooLargeRetry(OneLie):
    """The retry of a batch that was appended is refused. The records are there all the same, and nobody may say that
    they were not written."""

    def __init__(self, writer: Where, actors: Sequence[Spec] = ()) -> None:
        self._late = LateProduceResponse(writer, ONCE, only_if=is_records)
        super().__init__(self._late, actors=actors)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        set_to(stage, LARGEST_MESSAGE, TOO_SMALL)
        self._late.lost.set()
        stage.wait(lambda: any("refused" in act.what for act in self.lie.acts), 30, "that a batch was refused")
        stage.pause(1.0)

    def undo(self, stage: Stage) -> None:
        self._late.lost.set()
        set_to(stage, LARGEST_MESSAGE, None)
        stage.work_goes_on()


class TooLargeForLong(Play):
    """Somebody makes the topic's largest message smaller than anything that is written, until that is told."""

    def act(self, stage: Stage) -> None:
        set_to(stage, LARGEST_MESSAGE, TOO_SMALL)
        refused = "select 1 from history where f = 'send' and error = 'MSG_SIZE_TOO_LARGE' limit 1"
        stage.wait(lambda: stage.logged(refused), 30, "that a writer was refused")

    def undo(self, stage: Stage) -> None:
        set_to(stage, LARGEST_MESSAGE, None)
        stage.work_goes_on()


class TooFewForLong(Play):
    """Somebody asks for more replicas in sync than the topic has, until that is told."""

    def act(self, stage: Stage) -> None:
        set_to(stage, MIN_INSYNC, 2)
        stage.wait(lambda: stage.found("under-min-isr"), 40, "that too few replicas were told to be in sync")

    def undo(self, stage: Stage) -> None:
        set_to(stage, MIN_INSYNC, 1)
        stage.work_goes_on()


class IndefiniteForLong(OneLie):
    """The error is told until a record has timed out."""

    def __init__(self) -> None:
        super().__init__(AnswerProduceWith(WRITER, error=ErrorCode.not_leader_or_follower), ends=True)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        said = "select 1 from history where f = 'send' and type = 'info' and error is not null limit 1"
        stage.wait(lambda: stage.logged(said), 30, "that a record timed out")


class StuckInit(OneLie):
    """Another writer comes when the others are at work."""

    def __init__(self) -> None:
        late = Where(client_id="offsetwatch-writer-late")
        super().__init__(NeverAnswered(late, api=Api.INIT_PRODUCER_ID), at_once=True, ends=True)

    def act(self, stage: Stage) -> None:
        stage.probes.add(altered_writer("writer-late", {}))
        super().act(stage)


too_large = partial(Drill, name="too-large-retry", seen_in="the field's checkers", changes_cluster=True)
indefinite = partial(Drill, name="indefinite-not-leader", seen_in="KAFKA-13574")
stuck = partial(Drill, name="stuck-produce", seen_in="Bufstream #2", must=(found("stuck-producer"),))

DRILLS: Final = (
    Drill(
        name="retry-without-idempotence",
        what="The acknowledgement is dropped, and a client without idempotence sends the batch again.",
        seen_in="Redpanda #1",
        must=(found("duplicate", severity="warning"),),
        may=ORDER,
        play=lambda: OneLie(DropProduceResponse(PLAIN, THRICE), actors=[plain_writer()]),
    ),
    Drill(
        name="idempotent-duplicate",
        what="The accepted batch of an idempotent producer is appended once more, without its producer id.",
        seen_in="Redpanda 3039",
        must=(found("duplicate", severity="critical"),),
        may=ORDER,
        play=lambda: OneLie(CopyProduceWithoutProducerId(WRITER, THRICE)),
    ),
    Drill(
        name="wrong-ack-offset",
        what="The acknowledged base offset is that of another record, which stands before it.",
        seen_in="Redpanda 3003",
        must=(found("inconsistent-offsets"),),
        may=ORDER | {"duplicate", "spurious-zero-offset"},  # where the other record is the first
        play=lambda: OneLie(ChangeAckOffset(WRITER, THRICE, change=lambda real: max(real - 2, 0))),
    ),
    Drill(
        name="relocated-record",
        what="A copy of a batch is appended, without producer id, to a partition that it was not sent to.",
        seen_in="Redpanda 3003",
        must=(found("relocated-write"),),
        may=ORDER,
        play=lambda: OneLie(CopyElsewhere(WRITER, THRICE, to=1)),
    ),
    # The first is acknowledged before it is appended, at the offset that it gets: with the real answer, the two would
    # have to be in flight together, and a proxy that waits for the second never sees it.
    Drill(
        name="reordered-log",
        what="The payloads of two single-record batches are exchanged, and their acknowledged offsets with them.",
        seen_in="Redpanda 3003",
        must=(found("nonmonotonic-send", "int-nonmonotonic-send"),),
        probes={"writer": {"count": 0, "rate": 40.0}},
        play=lambda: OneLie(
            Exchanged(SINGLY, THRICE, only_if=is_records),
            actors=[altered_writer("writer-singly", {"batch.num.messages": "1"})],
        ),
    ),
    too_large(
        case="idempotent",
        what="A batch is appended and its answer late, the topic's largest message is made smaller, and the retry is"
        " refused as too large. The records are there all the same, and nobody may say that they were not written.",
        play=lambda: TooLargeRetry(WRITER),
    ),
    too_large(
        case="not-idempotent",
        what="The same of a client without idempotence.",
        play=lambda: TooLargeRetry(PLAIN, [plain_writer()]),
    ),
    Drill(
        name="refused-writes",
        what="Somebody makes the topic's largest message so small that every write is refused. Each comes back at once,"
        " so that nobody is stuck, and nothing is written until it is put right.",
        seen_in="this canary",
        must=(found("refused-writes", error="MSG_SIZE_TOO_LARGE"),),
        never=frozenset({"stuck-producer"}),
        closes=True,
        changes_cluster=True,
        play=TooLargeForLong,
    ),
    Drill(
        name="too-few-in-sync",
        what="Somebody asks for more replicas in sync than the topic has. Leaders answer, and acknowledge nothing.",
        seen_in="this canary",
        must=(found("under-min-isr", times=1, replicas=[1], in_sync=[1], min_insync=2),),
        closes=True,
        changes_cluster=True,
        play=TooFewForLong,
    ),
    indefinite(
        case="idempotent",
        what="The broker appends, the client is told NotLeaderOrFollower once, and tries again: the broker knows the"
        " batch.",
        play=lambda: OneLie(AnswerProduceWith(WRITER, THRICE, error=ErrorCode.not_leader_or_follower)),
    ),
    indefinite(
        case="plain",
        what="The broker appends, a client without idempotence is told NotLeaderOrFollower once, and sends the batch"
        " again.",
        must=(found("duplicate", severity="warning"),),
        may=ORDER,
        play=lambda: OneLie(
            AnswerProduceWith(PLAIN, THRICE, error=ErrorCode.not_leader_or_follower), actors=[plain_writer()]
        ),
    ),
    indefinite(
        case="timed-out",
        what="The broker appends, the client is told NotLeaderOrFollower until it gives up: its records are there, and"
        " it says that they timed out. They are indefinite, and reading them is no aborted read.",
        probes={"writer": {"delivery_timeout": 4.0}},
        play=IndefiniteForLong,
    ),
    stuck(
        case="produce",
        what="Produce requests are never answered.",
        play=lambda: OneLie(NeverAnswered(WRITER, api=Api.PRODUCE), ends=True),
    ),
    stuck(
        case="init-producer-id",
        what="InitProducerId is never answered, and the producer that wants an id never begins.",
        play=StuckInit,
    ),
    Drill(
        name="zero-offset",
        case="acknowledged",
        what="An acknowledgement says that the batch stands at offset 0.",
        seen_in="Bufstream #3",
        must=(found("spurious-zero-offset"),),
        may=ORDER | {"duplicate", "inconsistent-offsets"},
        play=lambda: OneLie(ChangeAckOffset(WRITER, THRICE, change=lambda real: 0)),
    ),
    # Not the second batch of all: it would be acknowledged where the first one stands, at 0.
    Drill(
        name="reused-sequence",
        what="A batch re-uses its predecessor's sequence numbers: the broker takes it for a duplicate and drops it.",
        seen_in="Bufstream report, open questions",
        must=(found("lost-write", "unseen"),),
        may=frozenset({"lost-write", "inconsistent-offsets", "duplicate"}),
        play=lambda: OneLie(ReusedSequence(WRITER, When(after=5, times=1)), at_once=True),
    ),
)
