"""Drills about what clients do: they are killed, and they abort."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import ClassVar

from monitor.drill.actors.actors import careless_aborts
from monitor.drill.definition.drill import Drill, Must
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillFailed
from probes.running.supervisor import Spec

KILLS = 12


class KilledInTransaction(Drill):
    """A producer's process is killed with a transaction open; its next life takes the same transactional id.

    That life's init_transactions aborts what is open: nothing holds the last stable offset any longer."""

    name = "killed-in-transaction"
    case = "recovered"
    seen_in = "KIP-98"
    never = frozenset({"unrecovered-transaction", "hanging-transaction"})
    probes: ClassVar = {
        "writer": {"count": 1, "rate": 20.0},
        "reader": {"assign": 1},
        "transaction": {"count": 1, "rate": 50.0, "timeouts": [60.0], "abort_share": 0.1},
        "supervision": {"host": "processes"},
    }

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


class AbortPositions(Drill):
    """Transactions are aborted, some with a rebalance inside, and their consumers are asked where they stand.

    One of them goes back after each abort; the other goes on from where it is, so that a rebalance takes it back by
    more than one transaction."""

    name = "abort-positions"
    case = "by-itself"
    seen_in = "KAFKA-17582"
    must = tuple(
        Must(names=("abort-position",), evidence={"class": name}) for name in ("advance", "rewind", "rewind-further")
    )
    limit = 90.0
    probes: ClassVar = {
        "transaction": {"count": 1, "timeouts": [10.0]},
        "aborts": {"count": 1, "rate": 2.0, "rebalance_share": 0.5},
    }

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [careless_aborts()]

    def act(self, stage: Stage) -> None:
        stage.act("two probes abort and do not seek back")
