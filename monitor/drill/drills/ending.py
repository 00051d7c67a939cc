"""Drills about transactions: what their ends do, what belongs to them, and who may still write to them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode

from monitor.drill.actors.actors import Hold, alternating, held_transactions, scripted
from monitor.drill.actors.java_client import JavaClients
from monitor.drill.actors.java_probe import java_transactions
from monitor.drill.definition.drill import OLD_KAFKA, ONE_OLD, ORDER, ClusterKind, Drill, Must, found
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.drill import Lying
from monitor.drill.lies.transactions import CommitSays, LateProduce, LoseInTransaction, SwallowCommit, Unfenced
from monitor.drill.proxy import Lie, When, Where
from monitor.drill.proxy.lies import HoldEndTxn
from probes.running.supervisor import Spec
from probes.workloads.transactional.transaction_course import Outline
from rules.vocabulary.objectives import SECOND

THEIRS = Where(client_id="offsetwatch-transactions-1")
SCRIPTED = Where(client_id="offsetwatch-transactions-scripted")
SKIPS = frozenset({"poll-skip", "int-poll-skip"})
"""What follows by definition where readers pass over records that count as written."""
COMMITS = {"transaction": {"count": 1, "rate": 5.0, "abort_share": 0.0, "timeouts": [10.0]}}
ONLY_SCRIPTED = {"transaction": {"rate": 4.0}}


class CommitSaysInvalidState(Lying):
    """A commit takes effect, and the client gets InvalidTxnState."""

    name = "commit-says-invalid-state"
    seen_in = "Redpanda 3616-a"
    must = (found("misleading-error"),)
    probes: ClassVar = COMMITS

    def make(self) -> Lie:
        return CommitSays(ErrorCode.invalid_txn_state, THEIRS, When(times=1), armed=False)


class SwallowedCommit(Lying):
    """EndTxn(commit) is answered, and an abort is carried out. Readers pass over records that were committed."""

    name = "swallowed-commit"
    seen_in = "Bufstream #4"
    must = (found("lost-write"),)
    may = SKIPS
    probes: ClassVar = COMMITS

    def make(self) -> Lie:
        return SwallowCommit(THEIRS, When(times=1), armed=False)


class LostInTransaction(Lying):
    """One batch of a committed transaction goes to a transaction of the proxy's own, which aborts; its real offset is
    acknowledged, and the producer's later batches are renumbered."""

    name = "lost-in-transaction"
    seen_in = "Redpanda 3616-b"
    must = (found("lost-write"), found("torn-transaction"))
    may = SKIPS
    probes: ClassVar = ONLY_SCRIPTED

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [scripted(alternating("commit", "commit"))]

    def make(self) -> Lie:
        where = Where(client_id="offsetwatch-transactions-scripted", topic="*-transactions", partitions={0})
        return LoseInTransaction(where, When(after=4, times=1))


class DelayedEndTxn(Lying):
    """A copy of EndTxn(commit) reaches the broker when the producer's next transaction has sent its first records; that
    one aborts, and its first records are visible. librdkafka speaks the transactions of before KIP-890."""

    name = "delayed-end-txn"
    case = "4.3.1"
    seen_in = "KAFKA-17754, KIP-890"
    must: ClassVar[tuple[Must, ...]] = (found("G1a"), found("torn-transaction"))
    may = ORDER
    probes: ClassVar = ONLY_SCRIPTED

    def actors(self, stage: Stage) -> Sequence[Spec]:
        # It polls nothing, or it would read its own records before they are committed.
        return [scripted(alternating("commit", "abort"), polls=False)]

    def make(self) -> Lie:
        return HoldEndTxn(SCRIPTED, When(times=1), committed=True, armed=False)

    def act(self, stage: Stage) -> None:
        self.lie.arm()
        stage.wait(lambda: len(self.lie.acts) > 1, 30, "that the copy of EndTxn was delivered")


class DelayedEndTxnOld(DelayedEndTxn):
    """The same on an older broker, with the older transaction protocol."""

    case = OLD_KAFKA
    cluster = ONE_OLD


class DelayedEndTxnOfJava(DelayedEndTxn):
    """The same with a client that speaks the transactions of KIP-890, in which each has an epoch of its own: the broker
    refuses the copy."""

    case = "java-4.3.1"
    must = ()
    may = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self._java = JavaClients(say=lambda line: None)

    def prepare(self, stage: Stage) -> None:
        self._java.__enter__()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [java_transactions(self._java, alternating("commit", "abort"))]

    def make(self) -> Lie:
        return HoldEndTxn(Where(client_id="offsetwatch-transactions-java"), When(times=1), committed=True, armed=False)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        stage.say(self.lie.acts[-1].what + f": {self.lie.acts[-1].facts}")
        stage.pause(5.0)

    def end(self) -> None:
        self._java.__exit__(None, None, None)


class DelayedAbort(DelayedEndTxn):
    """A copy of EndTxn(abort) hits the producer's next transaction after its first records; that one then adds a
    partition and commits."""

    name = "delayed-abort"
    case = ""
    seen_in = "KAFKA-17754"
    must = (found("lost-write"), found("torn-transaction"))
    may = SKIPS

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [scripted(alternating("commit", "abort"))]

    def make(self) -> Lie:
        return HoldEndTxn(SCRIPTED, When(times=1), committed=False, armed=False)


class DelayedProduce(Lying):
    """A Produce of an aborted transaction is delivered inside the producer's next one, which commits."""

    name = "delayed-produce"
    seen_in = "Bufstream report, open questions"
    must = (found("G1a"),)
    may = ORDER
    probes: ClassVar = ONLY_SCRIPTED

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [scripted(_one_partition)]

    def make(self) -> Lie:
        return LateProduce(SCRIPTED, When(times=1), inside_next=True, armed=True)


def _one_partition(number: int, targets: Sequence[tuple[str, int]]) -> Outline:
    """Commit and abort in turn, all to one partition."""
    return Outline(({targets[0]: 2},), "commit" if number % 2 == 0 else "abort")


class HangingTransaction(Lying):
    """A Produce lands after its transaction's abort marker, on a broker that does not verify partitions: nobody will
    ever end what it opens."""

    name = "hanging-transaction"
    seen_in = "KIP-98, KIP-890"
    must = (found("hanging-transaction"),)
    cluster = ClusterKind(version=OLD_KAFKA, settings=(("transaction.partition.verification.enable", False),))
    spoils_cluster = True
    changes_cluster = True
    limit = 75.0
    probes: ClassVar = ONLY_SCRIPTED

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [scripted(_elsewhere_later, timeout=1.0)]

    def make(self) -> Lie:
        return LateProduce(SCRIPTED, When(times=1), inside_next=False, armed=True)


def _elsewhere_later(number: int, targets: Sequence[tuple[str, int]]) -> Outline:
    """A commit and an abort in one partition, then only commits in another: no marker ends what hangs in the first."""
    if number < 2:
        return Outline(({targets[0]: 2},), "commit" if number == 0 else "abort")
    return Outline(({targets[1]: 1},), "commit")


class Zombie(Lying):
    """An old life's batch is appended without producer id and transaction, and its requests are answered with success,
    although the next life of its transactional id has begun."""

    name = "zombie"
    case = "unfenced"
    seen_in = "KIP-98"
    must = (found("zombie-write"),)
    may = ORDER
    probes: ClassVar = ONLY_SCRIPTED

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [self._life("transactions-old", stage, gate=self._gate)]

    def _life(self, name: str, stage: Stage, **options: Any) -> Spec:
        own_id = f"{stage.config.topics.prefix}-contested"
        return scripted(alternating("commit", "commit"), name=name, own_id=own_id, polls=False, **options)

    def make(self) -> Lie:
        return Unfenced(Where(client_id="offsetwatch-transactions-old"), armed=False)

    def act(self, stage: Stage) -> None:
        stage.probes.add(self._life("transactions-new", stage))
        stage.wait(lambda: stage.counters("transactions-new").transactions_committed, 30, "that the new life commits")
        self.lie.arm()
        self._gate.set()
        stage.wait(lambda: self.lie.acts, 30, "that the old life sent anything")
        self._gate.clear()

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class ZombieFenced(Drill):
    """An old life goes on after the next life of its transactional id has begun. The broker fences it."""

    name = "zombie"
    case = "fenced"
    seen_in = "KIP-98"
    probes: ClassVar = ONLY_SCRIPTED

    def __init__(self) -> None:
        self._gate = threading.Event()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [self._life("transactions-old", stage, gate=self._gate)]

    def _life(self, name: str, stage: Stage, **options: Any) -> Spec:
        own_id = f"{stage.config.topics.prefix}-contested"
        return scripted(alternating("commit", "commit"), name=name, own_id=own_id, polls=False, **options)

    def act(self, stage: Stage) -> None:
        stage.probes.add(self._life("transactions-new", stage))
        stage.wait(lambda: stage.counters("transactions-new").transactions_committed, 30, "that the new life commits")
        stage.act("the old life goes on")
        self._gate.set()
        stage.wait(lambda: stage.counters("transactions-old").errors, 30, "that the old life was fenced")


class HeldBehindAborted(Drill):
    """A transactional producer is killed while another transaction is open behind its own: what its next life aborts
    lies below the last stable offset, and the marker that says so above it. Readers have nothing to read, and that is
    no fault."""

    name = "held-behind-aborted"
    seen_in = "this canary"
    never = frozenset({"stuck-consumer", "hanging-transaction", "unrecovered-transaction"})
    probes: ClassVar = ONLY_SCRIPTED

    def __init__(self) -> None:
        self._killed, self._behind = Hold(), Hold()

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return [
            held_transactions("transactions-killed", self._killed, {0: 3}, "crash", "commit"),
            held_transactions("transactions-behind", self._behind, {0: 1}, "commit", "commit"),
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
        stage.pause(3 * self.objectives.liveness / SECOND)

    def undo(self, stage: Stage) -> None:
        self._killed.set.clear()
        self._behind.set.clear()
        stage.work_goes_on()


class FencedByTimeout(Drill):
    """A transaction times out, its client hears that it was fenced, and nobody else has its transactional id."""

    name = "fenced-by-timeout"
    seen_in = "KIP-588"
    must = (found("misleading-fence"),)
    probes: ClassVar = ONLY_SCRIPTED

    def actors(self, stage: Stage) -> Sequence[Spec]:
        self._slow = threading.Event()
        slow = scripted(alternating("commit", "commit"), "transactions-slow", 1.0, open_for=4.0, gate=self._slow)
        return [slow, scripted(alternating("commit", "commit"), "transactions-quick")]

    def act(self, stage: Stage) -> None:
        stage.act("transactions stay open beyond their timeout")
        self._slow.set()
