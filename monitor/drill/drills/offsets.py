"""Drills about offsets: committed, listed, and what comes of a consumer that is sent back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

from monitor.drill.actors.actors import alternating, closing_reader, rewinding, scripted
from monitor.drill.definition.drill import ORDER, Drill, Must, found
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.drill import Lying
from monitor.drill.lies.groups import CommittedOffset, ForcedRebalance, ListedEnd, StaleEnds, SwallowTxnOffsets
from monitor.drill.lies.produce import NeverAnswered
from monitor.drill.lies.transactions import FakedInit
from monitor.drill.proxy import Api, Lie, When, Where
from probes.running.supervisor import Spec

THRICE = When(times=3)
STALE_S = 15.0


class ZeroListed(Lying):
    """The end of a log is listed as 0."""

    name = "zero-offset"
    case = "listed"
    seen_in = "Bufstream #3"
    must = (found("spurious-zero-offset"),)
    may = ORDER | {"duplicate", "inconsistent-offsets"}

    def make(self) -> Lie:
        return ListedEnd(0, Where(client_id="offsetwatch-observer"), When(times=1), armed=False)


class ZeroCommitted(Lying):
    """A group's committed offset is told as 0."""

    name = "zero-offset"
    case = "committed"
    seen_in = "Bufstream #3"
    must = (found("spurious-zero-offset"),)
    may = ORDER | {"duplicate", "inconsistent-offsets"}

    def make(self) -> Lie:
        return CommittedOffset(lambda group, real: 0, Where(client_id="offsetwatch-reader-1"), THRICE, armed=False)


class StaleEnd(Drill):
    """ListOffsets answers are 15 s old, for everybody: logs seem to end before what was acknowledged and read."""

    name = "stale-end"
    seen_in = "the field's checkers"
    must = (found("stale-log-end"),)

    def __init__(self) -> None:
        self._lie = StaleEnds(STALE_S)

    def lies(self) -> Sequence[Lie]:
        return [self._lie]

    def act(self, stage: Stage) -> None:
        stage.pause(STALE_S)  # so that no end is told that was one of an empty log
        self._lie.told.set()
        stage.wait(lambda: self._lie.acts, 30, "that anybody asked where a log ends")

    def undo(self, stage: Stage) -> None:
        self._lie.disarm()


class OffsetRollback(Drill):
    """OffsetFetch answers with an older committed offset, to the observer too, and a member is made to join anew."""

    name = "offset-rollback"
    seen_in = "Redpanda, Bufstream"
    must = (found("offset-regression", severity="warning"),)
    may = frozenset({"lost-commit", "foreign-commit"})  # what was committed last is not told, and what is, nobody did
    probes: ClassVar = {"reader": {"assign": 1, "group": 1}}

    def __init__(self) -> None:
        group = Where(group="*-group")
        self._older = CommittedOffset(lambda name, real: max(real - 25, 1), group, armed=False)
        self._again = ForcedRebalance(Where(client_id="offsetwatch-reader-group-1"), When(times=1), armed=False)

    def lies(self) -> Sequence[Lie]:
        return [self._older, self._again]

    def act(self, stage: Stage) -> None:
        stage.pause(3.0)
        self._older.arm()
        stage.wait(lambda: len(self._older.acts) > 1, 30, "that anybody asked for the committed offset")
        self._again.arm()
        stage.wait(lambda: self._again.acts, 30, "that the member joined anew")
        stage.pause(3.0)

    def undo(self, stage: Stage) -> None:
        self._older.disarm()
        self._again.disarm()


class HangingClose(Drill):
    """An OffsetCommit is outstanding, answers to OffsetCommit and FindCoordinator are swallowed, the client closes."""

    name = "hanging-close"
    seen_in = "KAFKA-17734, librdkafka 3740"
    must = (found("stuck-close"),)
    limit = 90.0

    def __init__(self) -> None:
        theirs = Where(client_id="offsetwatch-reader-closing")
        self._commit = NeverAnswered(Api.OFFSET_COMMIT, theirs, armed=False)
        self._find = NeverAnswered(Api.FIND_COORDINATOR, theirs, armed=False)
        self._close = threading.Event()

    def lies(self) -> Sequence[Lie]:
        return [self._commit, self._find]

    def may_be_idle(self, lie: Lie) -> bool:
        return lie is self._find  # a client that still knows its coordinator does not ask

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [closing_reader(self._close)]

    def act(self, stage: Stage) -> None:
        self._commit.arm()
        self._find.arm()
        stage.wait(lambda: self._commit.acts, 30, "that an offset was committed")
        self._close.set()

    def undo(self, stage: Stage) -> None:
        self._commit.disarm()
        self._find.disarm()
        self._close.clear()


class AbortPositionOther(Lying):
    """After an abort with a rebalance, OffsetFetch answers with an offset inside the aborted range."""

    name = "abort-positions"
    case = "other"
    seen_in = "KAFKA-17582"
    must = (Must(names=("abort-position",), evidence={"class": "other"}),)
    limit = 90.0
    probes: ClassVar = {
        "transaction": {"count": 1, "timeouts": [10.0]},
        "aborts": {"count": 1, "rate": 2.0, "rebalance_share": 0.7},
    }

    def make(self) -> Lie:
        return CommittedOffset(lambda group, real: real + 1, Where(client_id="offsetwatch-aborts-1"), armed=False)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class DoubleTransform(Drill):
    """TxnOffsetCommit is answered and not forwarded, then the group rebalances: inputs are transformed again."""

    name = "double-transform"
    seen_in = "exactly-once"
    must = (found("eos-violation"),)
    probes: ClassVar = {"transform": {"count": 2, "timeouts": [10.0], "rate": 4.0, "abort_share": 0.0}}

    def __init__(self) -> None:
        theirs = Where(client_id="offsetwatch-transform-*")
        self._offsets = SwallowTxnOffsets(theirs, armed=False)
        self._again = ForcedRebalance(theirs, When(times=2), armed=False)

    def lies(self) -> Sequence[Lie]:
        return [self._offsets, self._again]

    def act(self, stage: Stage) -> None:
        self._offsets.arm()
        stage.wait(lambda: len(self._offsets.acts) >= 4, 30, "that offsets were committed")
        self._again.arm()
        stage.wait(lambda: self._again.acts, 30, "that the group rebalanced")
        stage.pause(4.0)

    def undo(self, stage: Stage) -> None:
        self._offsets.disarm()
        self._again.disarm()


class UnrecoveredTransaction(Lying):
    """A producer dies with a transaction open, and its next life's InitProducerId is answered by nobody who knows: what
    is open stays open.

    Its client is abandoned with its records in the log, for long enough that the observer has seen them held, and with
    no further word to the broker."""

    name = "killed-in-transaction"
    case = "init-faked"
    seen_in = "KIP-98"
    must = (found("unrecovered-transaction"),)
    limit = 40.0
    probes: ClassVar = {"transaction": {"rate": 4.0}}

    def __init__(self) -> None:
        super().__init__()
        self._crash = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [scripted(alternating("commit", "commit"), timeout=60.0, open_for=3.0, crash=self._crash)]

    def make(self) -> Lie:
        return FakedInit(Where(client_id="offsetwatch-transactions-scripted"), armed=False)

    def act(self, stage: Stage) -> None:
        self.lie.arm()
        self._crash.set()
        stage.wait(lambda: not self._crash.is_set(), 30, "that the producer died in a transaction")
        stage.act("a producer died with a transaction open")
        stage.wait(lambda: self.lie.acts, 30, "that the next life began")

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class RewindInTransaction(Drill):
    """A consumer's positions move back inside a transaction, as in a rebalance, and its log does not tell of one."""

    name = "rewind-in-transaction"
    case = "untold"
    seen_in = "Redpanda #10"
    must: ClassVar[tuple[Must, ...]] = (found("int-nonmonotonic-poll"),)
    may = ORDER
    told: ClassVar[bool] = False
    probes: ClassVar = {"transaction": {"count": 1, "rate": 4.0, "timeouts": [10.0]}}

    def __init__(self) -> None:
        self._rewind = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [rewinding(self._rewind, told=self.told)]

    def act(self, stage: Stage) -> None:
        stage.act("positions move back inside transactions")
        self._rewind.set()
        stage.pause(5.0)
        self._rewind.clear()


class RewindTold(RewindInTransaction):
    """A consumer's positions move back inside a transaction, in a rebalance that its log tells of."""

    case = "told"
    must = ()
    may = frozenset()
    told = True
