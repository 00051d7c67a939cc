"""Drills about transactions: what their ends do, what belongs to them, and who may still write to them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from monitor.drill.actors.actors import Hold, alternating, held_transactions, scripted
from monitor.drill.actors.java_client import JavaClients
from monitor.drill.actors.java_probe import java_transactions
from monitor.drill.definition.drill import OLD_KAFKA, ONE_OLD, ORDER, SHORT, ClusterKind, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.plays import OneLie
from monitor.drill.lies.transactions import (
    CommitSays,
    HoldEndTxn,
    LateProduce,
    LoseInTransaction,
    ServeZombies,
    SwallowCommit,
    Unfenced,
)
from monitor.drill.proxy import ONCE, Lie, When, Where
from probes.running.supervisor import Spec
from probes.workloads.transactional.transaction_course import Outline
from rules.vocabulary.objectives import SECOND

THEIRS: Final = Where(client_id="offsetwatch-transactions-1")
SCRIPTED: Final = Where(client_id="offsetwatch-transactions-scripted")
SKIPS: Final = frozenset({"poll-skip", "int-poll-skip"})
"""What follows by definition where readers pass over records that count as written."""
COMMITS: Final = {"transaction": {"count": 1, "rate": 5.0, "abort_share": 0.0, "timeouts": [10.0]}}
ONLY_SCRIPTED: Final = {"transaction": {"rate": 4.0}}
ZOMBIES: Final = {"zombies": {"count": 1, "interval": 2.0}}

both_commit = alternating("commit", "commit")
one_aborts = alternating("commit", "abort")


def in_one_partition(number: int, targets: Sequence[tuple[str, int]]) -> Outline:
    """Commit and abort in turn, all to one partition."""
    return Outline(({targets[0]: 2},), "commit" if number % 2 == 0 else "abort")


def elsewhere_later(number: int, targets: Sequence[tuple[str, int]]) -> Outline:
    """A commit and an abort in one partition, then only commits in another: no marker ends what hangs in the first."""
    if number < 2:
        return Outline(({targets[0]: 2},), "commit" if number == 0 else "abort")
    return Outline(({targets[1]: 1},), "commit")


def delayed_commit() -> OneLie:
    """A copy of EndTxn(commit) is kept, and then delivered. The producer polls nothing, or it would read its own
    records before they are committed."""
    return OneLie(HoldEndTxn(SCRIPTED, ONCE), actors=[scripted(one_aborts, polls=False)], acts=2)


class DelayedCommitOfJava(OneLie):
    """The same with Kafka's own client."""

    def __init__(self) -> None:
        super().__init__(HoldEndTxn(Where(client_id="offsetwatch-transactions-java"), ONCE), acts=2)
        self._java = JavaClients(say=lambda line: None)

    def prepare(self, stage: Stage) -> None:
        self._java.__enter__()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [java_transactions(self._java, one_aborts)]

    def act(self, stage: Stage) -> None:
        super().act(stage)
        stage.say(self.lie.acts[-1].what + f": {self.lie.acts[-1].facts}")
        stage.pause(5.0)

    def end(self) -> None:
        self._java.__exit__(None, None, None)


class Zombie(Play):
    """An old life goes on after the next life of its transactional id has begun. With a lie it is not fenced."""

    def __init__(self, lie: Lie | None = None) -> None:
        self._gate = threading.Event()
        self._lie = lie

    def lies(self) -> Sequence[Lie]:
        return [self._lie] if self._lie else []

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [self._life("transactions-old", stage, self._gate)]

    def _life(self, name: str, stage: Stage, gate: threading.Event | None = None) -> Spec:
        own_id = f"{stage.config.topics.prefix}-contested"
        return scripted(both_commit, name=name, own_id=own_id, polls=False, gate=gate)

    def act(self, stage: Stage) -> None:
        stage.probes.add(self._life("transactions-new", stage))
        stage.wait(lambda: stage.counters("transactions-new").transactions_committed, 30, "that the new life commits")
        stage.act("the old life goes on")
        if self._lie is None:
            self._gate.set()
            stage.wait(lambda: stage.counters("transactions-old").errors, 30, "that the old life was fenced")
            return
        acts = self._lie.acts
        self._lie.arm()
        self._gate.set()
        stage.wait(lambda: acts, 30, "that the old life sent anything")
        self._gate.clear()

    def undo(self, stage: Stage) -> None:
        if self._lie is not None:
            self._lie.disarm()


class HeldBehindAborted(Play):
    """One transaction is held open, then one behind it, and the first one's producer is abandoned."""

    def __init__(self) -> None:
        self._killed, self._behind = Hold(), Hold()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [
            held_transactions("transactions-killed", self._killed, {0: 3}, ("crash", "commit")),
            held_transactions("transactions-behind", self._behind, {0: 1}, ("commit", "commit")),
        ]

    def act(self, stage: Stage) -> None:
        self._killed.set.set()
        stage.wait(lambda: self._killed.holds("transactions-killed"), 30, "that a transaction was held open")
        self._behind.set.set()
        stage.wait(lambda: self._behind.holds("transactions-behind"), 30, "that one was open behind it")
        lives = stage.counters("transactions-killed").lives
        stage.act("the first transaction's producer is abandoned")
        self._killed.set.clear()
        stage.wait(lambda: stage.counters("transactions-killed").lives > lives, 30, "that its next life began")
        stage.pause(3 * SHORT.liveness / SECOND)

    def undo(self, stage: Stage) -> None:
        self._killed.set.clear()
        self._behind.set.clear()
        stage.work_goes_on()


class FencedByTimeout(Play):
    """One producer's transactions stay open for longer than their timeout, another's do not."""

    def __init__(self) -> None:
        self._slow = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        slow = scripted(both_commit, "transactions-slow", 1.0, open_for=4.0, gate=self._slow)
        return [slow, scripted(both_commit, "transactions-quick")]

    def act(self, stage: Stage) -> None:
        stage.act("transactions stay open beyond their timeout")
        self._slow.set()


delayed_end = partial(Drill, name="delayed-end-txn", seen_in="KAFKA-17754, KIP-890", probes=ONLY_SCRIPTED)

DRILLS: Final = (
    Drill(
        name="commit-says-invalid-state",
        what="A commit takes effect, and the client gets InvalidTxnState.",
        seen_in="Redpanda 3616-a",
        must=(found("misleading-error"),),
        probes=COMMITS,
        play=lambda: OneLie(CommitSays(THEIRS, ONCE, error=ErrorCode.invalid_txn_state)),
    ),
    Drill(
        name="swallowed-commit",
        what="EndTxn(commit) is answered, and an abort is carried out. Readers pass over records that were committed.",
        seen_in="Bufstream #4",
        must=(found("lost-write"),),
        may=SKIPS,
        probes=COMMITS,
        play=lambda: OneLie(SwallowCommit(THEIRS, ONCE)),
    ),
    Drill(
        name="lost-in-transaction",
        what="One batch of a committed transaction goes to a transaction of the proxy's own, which aborts; its real"
        " offset is acknowledged, and the producer's later batches are renumbered.",
        seen_in="Redpanda 3616-b",
        must=(found("lost-write"), found("torn-transaction")),
        may=SKIPS,
        probes=ONLY_SCRIPTED,
        play=lambda: OneLie(
            LoseInTransaction(
                Where(client_id=SCRIPTED.client_id, topic="*-transactions", partitions={0}), When(after=4, times=1)
            ),
            actors=[scripted(both_commit)],
            at_once=True,
        ),
    ),
    delayed_end(
        case="4.3.1",
        what="A copy of EndTxn(commit) reaches the broker when the producer's next transaction has sent its first"
        " records; that one aborts, and its first records are visible. librdkafka speaks the transactions of before"
        " KIP-890.",
        must=(found("G1a"), found("torn-transaction")),
        may=ORDER,
        play=delayed_commit,
    ),
    delayed_end(
        case=OLD_KAFKA,
        what="The same on an older broker, with the older transaction protocol.",
        must=(found("G1a"), found("torn-transaction")),
        may=ORDER,
        cluster=ONE_OLD,
        play=delayed_commit,
    ),
    delayed_end(
        case="java-4.3.1",
        what="The same with a client that speaks the transactions of KIP-890, in which each has an epoch of its own:"
        " the broker refuses the copy.",
        play=DelayedCommitOfJava,
    ),
    Drill(
        name="delayed-abort",
        what="A copy of EndTxn(abort) hits the producer's next transaction after its first records; that one then adds"
        " a partition and commits.",
        seen_in="KAFKA-17754",
        must=(found("lost-write"), found("torn-transaction")),
        may=SKIPS,
        probes=ONLY_SCRIPTED,
        play=lambda: OneLie(HoldEndTxn(SCRIPTED, ONCE, committed=False), actors=[scripted(one_aborts)], acts=2),
    ),
    Drill(
        name="delayed-produce",
        what="A Produce of an aborted transaction is delivered inside the producer's next one, which commits.",
        seen_in="Bufstream report, open questions",
        must=(found("G1a"),),
        may=ORDER,
        probes=ONLY_SCRIPTED,
        play=lambda: OneLie(
            LateProduce(SCRIPTED, ONCE, inside_next=True), actors=[scripted(in_one_partition)], at_once=True
        ),
    ),
    Drill(
        name="hanging-transaction",
        what="A Produce lands after its transaction's abort marker, on a broker that does not verify partitions: nobody"
        " will ever end what it opens.",
        seen_in="KIP-98, KIP-890",
        must=(found("hanging-transaction"),),
        cluster=ClusterKind(version=OLD_KAFKA, settings=(("transaction.partition.verification.enable", False),)),
        changes_cluster=True,
        spoils_cluster=True,
        limit=75.0,
        probes=ONLY_SCRIPTED,
        play=lambda: OneLie(
            LateProduce(SCRIPTED, ONCE, inside_next=False),
            actors=[scripted(elsewhere_later, timeout=5.0)],
            at_once=True,
        ),
    ),
    Drill(
        name="zombie",
        case="unfenced",
        what="An old life's batch is appended without producer id and transaction, and its requests are answered with"
        " success, although the next life of its transactional id has begun.",
        seen_in="KIP-98",
        must=(found("zombie-write"),),
        may=ORDER | {"dirty-read"},  # what stands outside of any transaction shows at once
        probes=ONLY_SCRIPTED,
        play=lambda: Zombie(Unfenced(Where(client_id="offsetwatch-transactions-old"), armed=False)),
    ),
    Drill(
        name="zombie",
        case="fenced",
        what="An old life goes on after the next life of its transactional id has begun. The broker fences it.",
        seen_in="KIP-98",
        probes=ONLY_SCRIPTED,
        play=Zombie,
    ),
    Drill(
        name="held-behind-aborted",
        what="A transactional producer is killed while another transaction is open behind its own: what its next life"
        " aborts lies below the last stable offset, and the marker that says so above it. Readers have nothing to read,"
        " and that is no fault.",
        seen_in="this canary",
        never=frozenset({"stuck-consumer", "hanging-transaction", "unrecovered-transaction"}),
        probes=ONLY_SCRIPTED,
        play=HeldBehindAborted,
    ),
    Drill(
        name="zombie-request",
        case="producer",
        what="What an earlier life of a transactional id asks of its coordinator is granted.",
        seen_in="franz-go's kfake",
        must=(found("unfenced-zombie"),),
        probes=ZOMBIES,
        play=lambda: OneLie(ServeZombies(), ends=True),
    ),
    Drill(
        name="fenced-by-timeout",
        what="A transaction times out, its client hears that it was fenced, and nobody else has its transactional id.",
        seen_in="KIP-588",
        must=(found("misleading-fence"),),
        probes=ONLY_SCRIPTED,
        play=FencedByTimeout,
    ),
)
