"""Drills about offsets that are listed or told, and about consumers that go back or away."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from monitor.drill.actors.actors import closing_reader, rewinding
from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.groups import CommittedOffset, ListedEnd, StaleEnds
from monitor.drill.lies.plays import OneLie
from monitor.drill.lies.produce import NeverAnswered
from monitor.drill.proxy import ONCE, Api, Lie, When, Where
from probes.running.supervisor import Spec

STALE_S: Final = 15.0


class StaleEnd(Play):
    """Listings are remembered from the first, and told late when none would be that of an empty log."""

    def __init__(self) -> None:
        self._lie = StaleEnds(age=STALE_S)

    def lies(self) -> Sequence[Lie]:
        return [self._lie]

    def act(self, stage: Stage) -> None:
        stage.pause(STALE_S)
        self._lie.told.set()
        stage.wait(lambda: self._lie.acts, 30, "that anybody asked where a log ends")

    def undo(self, stage: Stage) -> None:
        self._lie.disarm()


class HangingClose(Play):
    """A client closes while nobody answers what it asks for in closing."""

    def __init__(self) -> None:
        theirs = Where(client_id="offsetwatch-reader-closing")
        self._commit = NeverAnswered(theirs, api=Api.OFFSET_COMMIT, armed=False)
        self._find = NeverAnswered(theirs, api=Api.FIND_COORDINATOR, armed=False)
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


class RewindInTransaction(Play):
    """A consumer's positions move back inside a transaction; `told`: its log tells of a rebalance there."""

    def __init__(self, *, told: bool) -> None:
        self._told = told
        self._rewind = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [rewinding(self._rewind, told=self._told)]

    def act(self, stage: Stage) -> None:
        stage.act("positions move back inside transactions")
        self._rewind.set()
        stage.pause(5.0)
        self._rewind.clear()


DRILLS: Final = (
    Drill(
        name="zero-offset",
        case="listed",
        what="The end of a log is listed as 0.",
        seen_in="Bufstream #3",
        must=(found("spurious-zero-offset"),),
        may=ORDER | {"duplicate", "inconsistent-offsets"},
        play=lambda: OneLie(ListedEnd(Where(client_id="offsetwatch-observer"), ONCE, told=0)),
    ),
    Drill(
        name="zero-offset",
        case="committed",
        what="A group's committed offset is told as 0.",
        seen_in="Bufstream #3",
        must=(found("spurious-zero-offset"),),
        may=ORDER | {"duplicate", "inconsistent-offsets"},
        play=lambda: OneLie(
            CommittedOffset(Where(client_id="offsetwatch-reader-1"), When(times=3), change=lambda group, real: 0)
        ),
    ),
    Drill(
        name="stale-end",
        what="ListOffsets answers are 15 s old, for everybody: logs seem to end before what was acknowledged and read.",
        seen_in="the field's checkers",
        must=(found("stale-log-end"),),
        play=StaleEnd,
    ),
    Drill(
        name="hanging-close",
        what="An OffsetCommit is outstanding, answers to OffsetCommit and FindCoordinator are swallowed, the client"
        " closes.",
        seen_in="KAFKA-17734, librdkafka 3740",
        must=(found("stuck-close"),),
        limit=90.0,
        play=HangingClose,
    ),
    Drill(
        name="rewind-in-transaction",
        case="untold",
        what="A consumer's positions move back inside a transaction, as in a rebalance, and its log does not tell of"
        " one.",
        seen_in="Redpanda #10",
        must=(found("int-nonmonotonic-poll"),),
        may=ORDER,
        probes={"transaction": {"count": 1, "rate": 4.0, "timeouts": [10.0]}},
        play=lambda: RewindInTransaction(told=False),
    ),
    Drill(
        name="rewind-in-transaction",
        case="told",
        what="A consumer's positions move back inside a transaction, in a rebalance that its log tells of.",
        seen_in="Redpanda #10",
        probes={"transaction": {"count": 1, "rate": 4.0, "timeouts": [10.0]}},
        play=lambda: RewindInTransaction(told=True),
    ),
)
