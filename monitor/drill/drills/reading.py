"""Drills on the fetch path: records that change, vanish, come late, or never come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

from monitor.drill.actors.actors import held_reader
from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.drill import Lying
from monitor.drill.lies.fetch import (
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
from monitor.drill.proxy import ONCE, Lie, Where
from monitor.drill.proxy.lies import EmptyAbortedTransactions
from probes.running.supervisor import Spec

FIRST = Where(client_id="offsetwatch-reader-1", topic="*-records", partitions={0})
HELD = Where(client_id="offsetwatch-reader-held-1", topic="*-records", partitions={0})
READERS = Where(client_id="offsetwatch-reader-*", topic="*-records", partitions={0})
TRANSACTIONS = {"transaction": {"count": 1, "rate": 5.0, "abort_share": 0.5, "timeouts": [10.0]}}


class RewrittenRecord(Lying):
    """One consumer is shown another value, one that was really sent, at the same offset."""

    name = "rewritten-record"
    seen_in = "Redpanda 3003"
    must = (found("inconsistent-offsets"),)
    may = ORDER | {"duplicate"}

    def make(self) -> Lie:
        return RewriteRecord(predecessor, FIRST, ONCE, armed=False)


class CorruptedRecord(Lying):
    """A byte of a value changes for one reader, and the batch's checksum is made to fit."""

    name = "corrupted-record"
    seen_in = "the field's oldest fear"
    must = (found("corrupted-record"),)
    may = frozenset({"lost-write"})

    def make(self) -> Lie:
        return RewriteRecord(flipped, FIRST, ONCE, armed=False)


class RewrittenTimestamps(Lying):
    """Every timestamp of a batch is shown as of 1970."""

    name = "rewritten-timestamps"
    case = "timestamps"
    seen_in = "the field's oldest fear"
    must = (found("altered-record", what="timestamp"),)
    change: ClassVar = staticmethod(of_1970)

    def make(self) -> Lie:
        return RewriteBatch(self.change, FIRST, ONCE, armed=False)


class RewrittenTimestampType(RewrittenTimestamps):
    """A batch is shown with the broker's time, in a topic that keeps the sender's. It is judged when the topic's
    settings were told again."""

    case = "timestamp-type"
    must = (found("altered-record", what="timestamp-type"),)
    change: ClassVar = staticmethod(of_the_broker)
    limit = 90.0


class RewrittenKey(RewrittenTimestamps):
    """The records of a batch are shown without their keys."""

    case = "key"
    must = (found("altered-record", what="key"),)
    change: ClassVar = staticmethod(keyless)


class RewrittenHeader(RewrittenTimestamps):
    """The records of a batch are shown with a header that nobody sent."""

    case = "header"
    must = (found("altered-record", what="headers"),)
    change: ClassVar = staticmethod(with_header)


class VanishedTail(Lying):
    """Records are shown once, then left out of every later fetch."""

    name = "vanished-tail"
    seen_in = "Redpanda (value 567), Bufstream (101-106)"
    must = (found("vanished-record"),)
    may = ORDER | {"lost-write"}
    probes: ClassVar = {"reader": {"assign": 1}}

    def __init__(self) -> None:
        super().__init__()
        self._held = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [held_reader(1, self._held)]

    def make(self) -> Lie:
        return HideRange(
            5, Where(client_id="offsetwatch-reader-held-1", topic="*-records", partitions={0}), armed=False
        )

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


class StaleTail(Lying):
    """The newest records stay hidden from every reader for some seconds, then show."""

    name = "stale-tail"
    seen_in = "Redpanda #6"
    must = (found("unseen"), found("unseen", event="closed"))

    def make(self) -> Lie:
        return HideFrom(READERS, armed=False)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        stage.wait(lambda: stage.found("unseen"), 30, "that anything was missed")
        self.lie.disarm()

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class ExposedAbort(Lying):
    """The list of aborted transactions is taken out of what one reader fetches, from its first fetch on.

    A lie that began or ended inside a transaction would show one part of it and hide another: torn-transaction."""

    name = "exposed-abort"
    seen_in = "Redpanda 3036"
    must = (found("G1a"),)
    may = ORDER
    probes: ClassVar = TRANSACTIONS

    def make(self) -> Lie:
        return EmptyAbortedTransactions(Where(client_id="offsetwatch-reader-1"))


class LsoOffByOne(Lying):
    """Records past the last stable offset are handed out.

    One reader's fetches are forwarded as read_uncommitted: what the broker keeps back, a proxy cannot make up."""

    name = "lso-off-by-one"
    seen_in = "Redpanda 3036"
    must = (found("G1a", "precommitted-read", "G1c"),)
    may = ORDER | {"G1a", "precommitted-read", "G1c"}
    probes: ClassVar = TRANSACTIONS

    def make(self) -> Lie:
        return ReadUncommitted(Where(client_id="offsetwatch-reader-1"))


class FilteredFetch(Lying):
    """A range in the middle of the log is left out of everybody's fetches, from the first read on."""

    name = "filtered-fetch"
    case = "from-the-first"
    seen_in = "Bufstream #5"
    must = (found("lost-write"), found("poll-skip", "int-poll-skip"))

    def make(self) -> Lie:
        return HideRange(5, READERS, armed=False, skip=40)


class FilteredLater(VanishedTail):
    """A range in the middle of the log is left out of fetches once it has been read."""

    name = "filtered-fetch"
    case = "after-one"
    seen_in = "Bufstream #5"
    may = ORDER


class StuckFetch(Lying):
    """One partition's fetches never advance."""

    name = "stuck-fetch"
    seen_in = "Bufstream #1"
    must = (found("stuck-consumer"),)

    def make(self) -> Lie:
        return HideFrom(FIRST, armed=False, ends=True)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class SilentEmptyPoll(Lying):
    """Every fetch of a reader comes back empty, and says that there is no more."""

    name = "silent-empty-poll"
    case = "empty-answers"
    seen_in = "Redpanda, consumer behaviour"
    must = (found("stuck-consumer"),)

    def make(self) -> Lie:
        return HideFrom(Where(client_id="offsetwatch-reader-1"), armed=False)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class DeadCluster(Drill):
    """The only broker is gone: a consumer's polls return empty without a word."""

    name = "silent-empty-poll"
    case = "dead-cluster"
    seen_in = "Redpanda, consumer behaviour"
    must = (found("stuck-consumer"),)
    changes_cluster = True

    def act(self, stage: Stage) -> None:
        stage.cluster.broker(1).kill()
        stage.act("killed the only broker")

    def undo(self, stage: Stage) -> None:
        stage.cluster.broker(1).start()
