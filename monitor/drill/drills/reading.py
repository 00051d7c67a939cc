"""Drills on the fetch path: records that change, vanish, come late, or never come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from monitor.drill.actors.actors import held_reader
from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.fetch import (
    EmptyAbortedTransactions,
    HideFrom,
    HideRange,
    ReadUncommitted,
    RewriteBatch,
    RewriteRecord,
    flipped,
    keyless,
    of_1970,
    of_the_broker,
    predecessor,
    with_header,
)
from monitor.drill.lies.plays import OneLie
from monitor.drill.lies.produce import SlowProduceResponse
from monitor.drill.proxy import ONCE, Lie, Where
from probes.running.supervisor import Spec

READER: Final = Where(client_id="offsetwatch-reader-1")
FIRST: Final = Where(client_id="offsetwatch-reader-1", topic="*-records", partitions={0})
HELD: Final = Where(client_id="offsetwatch-reader-held-1", topic="*-records", partitions={0})
OF_A_GROUP: Final = Where(client_id="offsetwatch-reader-group-1", topic="*-records", partitions={0})
READERS: Final = Where(client_id="offsetwatch-reader-*", topic="*-records", partitions={0})
TRANSACTIONS: Final = {"transaction": {"count": 1, "rate": 5.0, "abort_share": 0.5, "timeouts": [10.0]}}


COMMITS: Final = {"transaction": {"count": 1, "rate": 5.0, "abort_share": 0.0, "timeouts": [10.0]}}


class Exposed(OneLie):
    """What open transactions wrote is shown to a reader at read_committed."""

    def __init__(self) -> None:
        super().__init__(ReadUncommitted(READER), at_once=True)

    def lies(self) -> Sequence[Lie]:
        return [self.lie, SlowProduceResponse(Where(client_id="offsetwatch-transactions-*"), seconds=1.0)]


class VanishedTail(OneLie):
    """One of two readers is held back, and is shown less than the other has read."""

    def __init__(self) -> None:
        super().__init__(HideRange(HELD, length=5))
        self._held = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [held_reader(1, self._held)]

    def act(self, stage: Stage) -> None:
        self._held.set()
        stage.pause(2.0)
        at = stage.end(stage.records, 0)
        stage.wait(lambda: stage.end(stage.records, 0) > at + 50, 20, "that the other reader has something to read")
        stage.pause(1.0)
        self.lie.arm()
        self._held.clear()
        stage.wait(lambda: self.lie.acts, 30, "that something called for the lie")

    def undo(self, stage: Stage) -> None:
        self._held.clear()


class StaleTail(OneLie):
    """What is hidden is shown when somebody has missed it."""

    def __init__(self) -> None:
        super().__init__(HideFrom(READERS), ends=True)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        stage.wait(lambda: stage.found("unseen"), 30, "that anything was missed")
        self.lie.disarm()


class DeadCluster(Play):
    """The only broker is killed, and is back only when it is over."""

    def act(self, stage: Stage) -> None:
        stage.cluster.broker(1).kill()
        stage.act("killed the only broker")

    def undo(self, stage: Stage) -> None:
        stage.cluster.broker(1).start()


rewritten = partial(Drill, name="rewritten-timestamps", seen_in="the field's oldest fear")

DRILLS: Final = (
    Drill(
        name="rewritten-record",
        what="One consumer is shown another value, one that was really sent, at the same offset.",
        seen_in="Redpanda 3003",
        must=(found("inconsistent-offsets"),),
        may=ORDER | {"duplicate"},
        play=lambda: OneLie(RewriteRecord(FIRST, ONCE, change=predecessor)),
    ),
    Drill(
        name="corrupted-record",
        what="A byte of a value changes for one reader, and the batch's checksum is made to fit.",
        seen_in="the field's oldest fear",
        must=(found("corrupted-record"),),
        may=frozenset({"lost-write"}),
        play=lambda: OneLie(RewriteRecord(FIRST, ONCE, change=flipped)),
    ),
    rewritten(
        case="timestamps",
        what="Every timestamp of a batch is shown as of 1970.",
        must=(found("altered-record", what="timestamp"),),
        play=lambda: OneLie(RewriteBatch(FIRST, ONCE, change=of_1970)),
    ),
    rewritten(
        case="timestamp-type",
        what="A batch is shown with the broker's time, in a topic that keeps the sender's. It is judged when the"
        " topic's settings were told again.",
        must=(found("altered-record", what="timestamp-type"),),
        limit=90.0,
        play=lambda: OneLie(RewriteBatch(FIRST, ONCE, change=of_the_broker)),
    ),
    rewritten(
        case="key",
        what="The records of a batch are shown without their keys.",
        must=(found("altered-record", what="key"),),
        play=lambda: OneLie(RewriteBatch(FIRST, ONCE, change=keyless)),
    ),
    rewritten(
        case="header",
        what="The records of a batch are shown with a header that nobody sent.",
        must=(found("altered-record", what="headers"),),
        play=lambda: OneLie(RewriteBatch(FIRST, ONCE, change=with_header)),
    ),
    Drill(
        name="vanished-tail",
        what="Records are shown once, then left out of every later fetch.",
        seen_in="Redpanda (value 567), Bufstream (101-106)",
        must=(found("vanished-record"),),
        may=ORDER | {"lost-write"},
        probes={"reader": {"assign": 1}},
        play=VanishedTail,
    ),
    Drill(
        name="stale-tail",
        what="The newest records stay hidden from every reader for some seconds, then show.",
        seen_in="Redpanda #6",
        must=(found("unseen"), found("unseen", event="closed")),
        play=StaleTail,
    ),
    # A lie that began or ended inside a transaction would show one part of it and hide another: torn-transaction.
    Drill(
        name="exposed-abort",
        what="The list of aborted transactions is taken out of what one reader fetches, from its first fetch on.",
        seen_in="Redpanda 3036",
        must=(found("G1a"),),
        may=ORDER,
        probes=TRANSACTIONS,
        play=lambda: OneLie(EmptyAbortedTransactions(READER), at_once=True),
    ),
    # One reader's fetches are forwarded as read_uncommitted: what the broker keeps back, a proxy cannot make up.
    Drill(
        name="lso-off-by-one",
        what="Records past the last stable offset are handed out.",
        seen_in="Redpanda 3036",
        must=(found("G1a", "precommitted-read", "G1c"),),
        may=ORDER | {"G1a", "dirty-read", "precommitted-read", "G1c"},
        probes=TRANSACTIONS,
        play=lambda: OneLie(ReadUncommitted(READER), at_once=True),
    ),
    Drill(
        name="dirty-read",
        what="Records past the last stable offset are handed out, of transactions that commit in the end; their"
        " producer waits a second for each acknowledgement.",
        seen_in="Redpanda 3036",
        must=(found("dirty-read"),),
        may=ORDER | {"G1c", "G1c-process", "G1c-realtime"},
        probes=COMMITS,
        play=Exposed,
    ),
    Drill(
        name="filtered-fetch",
        case="from-the-first",
        what="A range in the middle of the log is left out of everybody's fetches, from the first read on.",
        seen_in="Bufstream #5",
        must=(found("lost-write"), found("poll-skip", "int-poll-skip")),
        play=lambda: OneLie(HideRange(READERS, length=5, skip=40)),
    ),
    Drill(
        name="filtered-fetch",
        case="after-one",
        what="A range in the middle of the log is left out of fetches once it has been read.",
        seen_in="Bufstream #5",
        must=(found("vanished-record"),),
        may=ORDER,
        probes={"reader": {"assign": 1}},
        play=VanishedTail,
    ),
    Drill(
        name="filtered-fetch",
        case="a-groups-reader",
        what="A range in the middle of the log is left out of what a group's only reader fetches; others have read it.",
        seen_in="Bufstream #5",
        must=(found("poll-skip", "int-poll-skip", severity="critical"),),
        probes={"reader": {"assign": 1, "group": 1}},
        play=lambda: OneLie(HideRange(OF_A_GROUP, length=5, skip=40)),
    ),
    Drill(
        name="stuck-fetch",
        what="One partition's fetches never advance.",
        seen_in="Bufstream #1",
        must=(found("stuck-consumer"),),
        play=lambda: OneLie(HideFrom(FIRST, ends=True), ends=True),
    ),
    Drill(
        name="silent-empty-poll",
        case="empty-answers",
        what="Every fetch of a reader comes back empty, and says that there is no more.",
        seen_in="Redpanda, consumer behaviour",
        must=(found("stuck-consumer"),),
        play=lambda: OneLie(HideFrom(READER), ends=True),
    ),
    Drill(
        name="silent-empty-poll",
        case="dead-cluster",
        what="The only broker is gone: a consumer's polls return empty without a word.",
        seen_in="Redpanda, consumer behaviour",
        must=(found("stuck-consumer"),),
        changes_cluster=True,
        play=DeadCluster,
    ),
)
