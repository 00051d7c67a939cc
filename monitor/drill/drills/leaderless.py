"""A defect of Kafka itself: transactions that end while a partition has no leader (KAFKA-20734)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from monitor.drill.actors.actors import Hold, held_transactions
from monitor.drill.definition.drill import OLD_KAFKA, THREE, ClusterKind, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.faults.processes import KillBroker
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.replicas import leaderless
from monitor.drill.faults.roles import LeaderOf
from probes.running.supervisor import Spec

ABORTED, COMMITTED = "transactions-aborted", "transactions-committed"
LEADERLESS_WITHIN: Final = 40.0
TIMEOUT_S: Final = 40.0
"""A transaction's timeout that outlasts the fault, and after which, and some seconds, it is said to hang."""


class LeaderlessTransactions(Play):
    """Transactions of these `producers` are held open, the leader of a partition that they wrote is killed, and when no
    other leads it they end."""

    def __init__(self, producers: Callable[[Hold], Sequence[Spec]]) -> None:
        self._hold = Hold()
        self._specs = producers(self._hold)
        self._fault: KillBroker | None = None

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return self._specs

    def act(self, stage: Stage) -> None:
        self._hold.set.set()
        names = [spec.name for spec in self._specs]
        stage.wait(lambda: self._hold.holds(*names), 30, "that the producers held transactions open")
        fault = self._fault = KillBroker(LeaderOf(stage.transactions, PLACES.aborted))
        fault.preconditions(stage.cluster)
        fault.begin()
        stage.act(fault.describe())
        stage.wait(lambda: self._leaderless(stage), LEADERLESS_WITHIN, "that the partition was left without a leader")
        stage.act("the open transactions end while partitions have no leader")
        self._hold.set.clear()
        stage.wait(lambda: self._hold.over(*names), 30, "that the transactions ended")
        fault.end()

    def undo(self, stage: Stage) -> None:
        self._hold.set.clear()
        if self._fault is not None:
            self._fault.end()
            stage.say(f"whole again after {await_recovered(stage.cluster):.1f} s")
            stage.work_goes_on()

    def _leaderless(self, stage: Stage) -> bool:
        return leaderless(stage.cluster, stage.transactions, (PLACES.aborted, PLACES.committed))


@dataclass(frozen=True, slots=True)
class Places:
    """Partitions that the producers write to: `aborted` and `committed` have one leader, `elsewhere` has another."""

    aborted: int
    committed: int
    elsewhere: int


# Topics are laid out over three brokers in turn.
PLACES: Final = Places(aborted=0, committed=3, elsewhere=1)


def two_producers(
    hold: Hold, places: Places = PLACES, names: tuple[str, str] = (ABORTED, COMMITTED)
) -> tuple[Spec, Spec]:
    """The first aborts the transaction that it held open and commits the next one, so that what it aborted is read; the
    second commits and aborts, so that what it committed is lost, in one of two partitions."""
    aborted, committed = names
    return (
        held_transactions(aborted, hold, {places.aborted: 2}, ("abort", "commit")),
        held_transactions(committed, hold, {places.committed: 2, places.elsewhere: 2}, ("commit", "abort")),
    )


def one_producer(hold: Hold) -> Sequence[Spec]:
    """It aborts, and makes no other transaction."""
    return [held_transactions(ABORTED, hold, {PLACES.aborted: 2}, ("abort", "commit"), timeout=TIMEOUT_S, last=True)]


_drill = partial(
    Drill,
    name="leaderless-transaction",
    seen_in="KAFKA-20734",
    changes_cluster=True,
    probes={
        "topics": {"replication": 1, "min_in_sync": 1, "partitions": 6},
        "writer": {"rate": 10.0, "partitions_per_batch": 1},
        "transaction": {"rate": 4.0},
    },
)

DRILLS: Final = (
    _drill(
        case="4.3.1",
        what="Transactions end while a partition that they wrote has no leader: the only replica's broker is killed."
        " The coordinator of 4.3.1 takes the partition for deleted, writes no marker there and completes them; the next"
        " marker of the same producer decides over their records.",
        # The next transaction's own outcome may be told after the loss, where its end is slow: nobody waits for that.
        must=(found("G1a", told="aborted"), found("lost-write", told="committed"), found("torn-transaction")),
        may=frozenset({"poll-skip", "int-poll-skip"}),
        cluster=THREE,
        play=lambda: LeaderlessTransactions(two_producers),
    ),
    _drill(
        case="abandoned",
        what="A transaction is aborted while its partition has no leader, and its producer makes no other: no marker"
        " ever ends it, and the last stable offset stands at its first record for good.",
        must=(found("hanging-transaction"),),
        cluster=THREE,
        spoils_cluster=True,
        limit=120.0,
        play=lambda: LeaderlessTransactions(one_producer),
    ),
    _drill(
        case=OLD_KAFKA,
        what="The same on an older broker, whose coordinator waits for the partition's leader. Nothing is found.",
        cluster=ClusterKind(brokers=3, version=OLD_KAFKA),
        play=lambda: LeaderlessTransactions(two_producers),
    ),
)
