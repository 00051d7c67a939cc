"""Drills about what clients do: they are killed, and they abort."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Final

from monitor.drill.actors.actors import Hold, careless_aborts, held_transactions
from monitor.drill.definition.drill import Drill, Must, found
from monitor.drill.definition.play import Play, Watched
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillFailed
from monitor.drill.lies.groups import CommittedOffset
from monitor.drill.lies.plays import OneLie
from monitor.drill.lies.transactions import FakedInit
from monitor.drill.proxy import Where
from probes.running.supervisor import Spec

KILLS: Final = 12


class KilledInTransaction(Play):
    """Kills the producer's process until a kill has met an open transaction."""

    def act(self, stage: Stage) -> None:
        for _ in range(KILLS):
            pid = stage.probes.pids()["transactions-1"]
            os.kill(pid, signal.SIGKILL)
            stage.act("killed the transactional producer's process")
            stage.wait(
                lambda pid=pid: (
                    stage.probes.pids()["transactions-1"] != pid  # type: ignore[misc]
                    and stage.counters("transactions-1").transactions_committed
                ),
                30,
                "that the producer's next life commits",
            )
            stage.pause(1.5)
            if stage.logged("select 1 from history where f = 'txn' and type = 'info' and end_invoked is null limit 1"):
                return
        raise DrillFailed(f"none of {KILLS} kills met an open transaction")


class UnrecoveredTransaction(OneLie):
    """The client is abandoned with its records in the log, for long enough that the observer has seen them held, and
    with no further word to the broker."""

    def __init__(self) -> None:
        super().__init__(FakedInit(Where(client_id="offsetwatch-transactions-dying")), ends=True)
        self._hold = Hold()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [held_transactions("transactions-dying", self._hold, {0: 2, 1: 2}, ("crash", "commit"), timeout=60.0)]

    def act(self, stage: Stage) -> None:
        self._hold.set.set()
        stage.wait(lambda: self._hold.holds("transactions-dying"), 30, "that a transaction was held open")
        stage.pause(3.0)
        self.lie.arm()
        stage.act("a producer dies with a transaction open")
        self._hold.set.clear()
        stage.wait(lambda: self.lie.acts, 30, "that the next life began")


def abort_position(told: str) -> Must:
    return Must(names=("abort-position",), evidence={"class": told})


DRILLS: Final = (
    # The next life's init_transactions aborts what is open: nothing holds the last stable offset any longer.
    Drill(
        name="killed-in-transaction",
        case="recovered",
        what="A producer's process is killed with a transaction open; its next life takes the same transactional id.",
        seen_in="KIP-98",
        never=frozenset({"unrecovered-transaction", "hanging-transaction"}),
        probes={
            "writer": {"count": 1, "rate": 20.0},
            "reader": {"assign": 1},
            "transaction": {"count": 1, "rate": 50.0, "timeouts": [60.0], "abort_share": 0.1},
            "supervision": {"host": "processes"},
        },
        play=KilledInTransaction,
    ),
    Drill(
        name="killed-in-transaction",
        case="init-faked",
        what="A producer dies with a transaction open, and its next life's InitProducerId is answered by nobody who"
        " knows: what is open stays open.",
        seen_in="KIP-98",
        must=(found("unrecovered-transaction"),),
        limit=40.0,
        probes={"transaction": {"rate": 4.0}},
        play=UnrecoveredTransaction,
    ),
    # One of them goes back after each abort; the other goes on from where it is, so that a rebalance takes it back by
    # more than one transaction.
    Drill(
        name="abort-positions",
        case="by-itself",
        what="Transactions are aborted, some with a rebalance inside, and their consumers are asked where they stand.",
        seen_in="KAFKA-17582",
        must=tuple(abort_position(told) for told in ("advance", "rewind", "rewind-further")),
        limit=90.0,
        probes={
            "transaction": {"count": 1, "timeouts": [10.0]},
            "aborts": {"count": 1, "rate": 2.0, "rebalance_share": 0.5},
        },
        play=lambda: Watched("two probes abort and do not seek back", actors=[careless_aborts()]),
    ),
    Drill(
        name="abort-positions",
        case="other",
        what="After an abort with a rebalance, OffsetFetch answers with an offset inside the aborted range.",
        seen_in="KAFKA-17582",
        must=(abort_position("other"),),
        limit=90.0,
        probes={
            "transaction": {"count": 1, "timeouts": [10.0]},
            "aborts": {"count": 1, "rate": 2.0, "rebalance_share": 0.7},
        },
        play=lambda: OneLie(
            CommittedOffset(Where(client_id="offsetwatch-aborts-1"), change=lambda group, real: real + 1), ends=True
        ),
    ),
)
