"""Writers: plain ones, with and without idempotence, and transactional ones, which may read in their transactions.

A batch takes effect at once; its answer may be late, lost, or an error. A transaction lasts over several turns, so that
others write in between, and ends in one of five ways: committed; aborted; committed, or not, with the answer lost; or
its process is killed in it, and the next life aborts it (or finds it committed).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from rules.vocabulary.slices import Run
from tests.rules.model.clients import Client, assigned_to
from tests.rules.model.cluster import Seen, Transaction, told
from tests.rules.model.journal import Where

if TYPE_CHECKING:
    from tests.rules.model.world import World

TIMEOUT = 20.0
"""transaction.timeout.ms of every transactional client, in seconds."""


class Writer(Client):
    """Sends plain batches. Each life is a new writer, and counts its values per partition."""

    kind = "writer"

    def __init__(self, world: World, name: str, host: str, *, idempotent: bool = True) -> None:
        self.idempotent = idempotent
        self.next: dict[Where, int] = {}
        self.unsure: set[Where] = set()
        """Where its last call had no answer: it tries again before long."""
        super().__init__(world, name, host)

    @property
    def id(self) -> int:
        return self.process.number

    def settings(self) -> dict[str, str]:
        return {"writer": str(self.id), "idempotent": str(self.idempotent).lower()}

    def open(self) -> None:
        self.next, self.unsure = {}, set()
        super().open()

    def take(self, where: Where, count: int) -> list[int]:
        """The next sequence numbers there: reserved, whatever becomes of them."""
        first = self.next.get(where, 0)
        self.next[where] = first + count
        return list(range(first, first + count))

    def append(self, where: Where, count: int, transaction: Transaction | None = None) -> Run:
        """Write the next values; returns their run."""
        seqs = self.take(where, count)
        offset = self.world.cluster.partitions[where].append(self.id, seqs, transaction)
        return Run(self.id, seqs[0], offset, count)

    def send(self, where: Where, count: int, **more: Any) -> Run:
        """A batch that is acknowledged."""
        run = self.append(where, count)
        self.write("send", {where: {"sent": [run]}}, **more)
        self.unsure.discard(where)
        return run

    def turn(self, dice: Random) -> None:
        if self.busy:
            return
        trouble = dice.random()
        if trouble < 0.02:
            self._killed(dice)
            return
        places = dice.sample(self.world.places, dice.choice((1, 1, 1, 2)))
        count = dice.choice((1, 2, 5, 8)) if dice.random() < 0.97 else dice.choice((900, 1500))
        present = trouble > 0.12 or trouble < 0.05
        runs = {where: self._written(where, count, present) for where in places}
        if trouble < 0.08:  # the answer is lost
            self._tell(runs, known=False, type="info", error="_MSG_TIMED_OUT", **self.span(dice))
        elif trouble < 0.12:
            self._tell(runs, known=False, type="fail", error="UNSUPPORTED_COMPRESSION_TYPE", **self.span(dice))
        else:
            self._tell(runs, known=True, **self.span(dice))

    def _written(self, where: Where, count: int, present: bool) -> Run:
        if present:
            return self.append(where, count)
        return Run(self.id, self.take(where, count)[0], None, count)

    def _tell(self, runs: dict[Where, Run], *, known: bool, **more: Any) -> None:
        parts = {where: {"sent": [run if known else run._replace(offset=None)]} for where, run in runs.items()}
        self.write("send", parts, **more)
        self.unsure = self.unsure | set(runs) if more.get("type") == "info" else self.unsure - set(runs)

    def _killed(self, dice: Random) -> None:
        """Killed with a batch in flight; its journal tells the next life what was reserved."""
        where = dice.choice(self.world.places)
        run = self._written(where, 3, dice.random() < 0.5)
        self._tell({where: run}, known=False, type="info", error="process-died", **self.span(dice))
        self.world.journal.time = max(self.world.journal.time, self.process.free)
        self.restart(killed=True)

    def rest(self, dice: Random) -> None:
        """Try again where there was no answer."""
        if not self.busy:
            for where in sorted(self.unsure):
                self.send(where, 1)


class Transactor(Writer):
    """Writes in transactions; with `reads`, reads some partitions in them, and seeks back after every one that did
    not certainly commit."""

    kind = "transactions"

    def __init__(self, world: World, name: str, host: str, *, reads: tuple[Where, ...] = ()) -> None:
        self.transactional_id = f"id-{name}"
        self.reads = reads
        self.position: dict[Where, int] = dict.fromkeys(reads, 0)
        self.transaction: Transaction | None = None
        self.began = 0.0
        self.sent: dict[Where, list[Run]] = {}
        self.seen: dict[Where, list[Seen]] = {}
        self.reached: dict[Where, int] = {}
        super().__init__(world, name, host)

    def settings(self) -> dict[str, str]:
        return super().settings() | {"transaction.timeout.ms": str(int(TIMEOUT * 1000))}

    def open(self) -> None:
        super().open()
        self.world.cluster.init(self.transactional_id)
        self.write("init", transactional_id=self.transactional_id)
        self.hold()

    def hold(self) -> None:
        """Take the partitions that it reads."""
        if self.reads:
            self.write("assign", assigned_to(set(self.reads), self.world.places), mode="assign")

    def begin(self) -> Transaction:
        journal = self.world.journal
        self.transaction = self.world.cluster.begin(self.transactional_id, self.process.name, journal.time)
        self.began = self.process.pending = journal.time
        self.sent, self.seen, self.reached = {}, {}, {}
        return self.transaction

    def add(self, where: Where, count: int) -> None:
        """Send to the open transaction."""
        run = self.append(where, count, self.transaction)
        runs = self.sent.setdefault(where, [])
        if runs and runs[-1].offset is not None and runs[-1].offset + runs[-1].length == run.offset:
            runs[-1] = runs[-1]._replace(length=runs[-1].length + count)
        else:
            runs.append(run)

    def poll(self, limit: int) -> None:
        """Read on in the open transaction."""
        for where in self.reads:
            at = self.reached.get(where, self.position.get(where, 0))
            seen, after = self.world.fetch(self.process.name, where, at, limit)
            if seen:
                self.seen.setdefault(where, []).extend(seen)
                self.reached[where] = after

    def finish(self, *, intent: str = "commit", takes_effect: bool = True, type: str = "ok", **more: Any) -> None:
        """End the open transaction; the client hears `type`."""
        assert self.transaction is not None
        transaction, ended = self.transaction, self.world.journal.time
        if transaction.state == "open":
            self.world.cluster.end(transaction, commit=intent == "commit" and takes_effect)
        self.transaction = self.process.pending = None
        self.tell(transaction, type, intent, ended=ended, **more)
        self.unsure = self.unsure | set(self.sent) if type == "info" else self.unsure - set(self.sent)
        if type == "ok":
            self.position.update(self.reached)

    def tell(self, transaction: Transaction, type: str, intent: str, **more: Any) -> int | None:
        """Write the operation's rows."""
        parts: dict[Where, dict[str, Any]] = {}
        touched = sorted({*self.sent, *self.seen})
        for where in touched:
            polled, odd = told(self.seen.get(where, []), where)
            parts[where] = {"sent": self.sent.get(where, []), "polled": polled, "irregular": odd}
            if where in self.reached:
                parts[where] |= {"position_before": self.position.get(where), "position_after": self.reached[where]}
            parts[where] |= self.also(where)
        if not touched:
            return None
        more.setdefault("completed", self.world.journal.time)
        return self.write(
            "txn",
            parts,
            type=type,
            txn=transaction.number,
            txn_intent=intent,
            invoked=self.began,
            mode=self.mode,
            txn_partitions=[tuple(where) for where in touched],
            transactional_id=self.transactional_id,
            isolation="read_committed",
            **more,
        )

    mode = "assign"

    def also(self, where: Where) -> dict[str, Any]:
        """What else a row of this partition says."""
        return {}

    def turn(self, dice: Random) -> None:
        if self.busy:
            return
        if self.transaction is None:
            self.begin()
        roll = dice.random()
        if roll < 0.45 or not self.sent:
            self.add(dice.choice(self.world.places), dice.randint(1, 4))
        elif roll < 0.6:
            self.poll(dice.choice((1, 5, 100)))
        else:
            self.end(dice)

    def end(self, dice: Random) -> None:
        """End the open transaction in one way or another."""
        roll, completed = dice.random(), self.world.journal.time + dice.choice((0.001, 0.3))
        if roll < 0.55:
            self.finish(completed=completed)
        elif roll < 0.75:
            self.finish(intent="abort", type="fail", completed=completed)
        elif roll < 0.9:
            self.finish(takes_effect=dice.random() < 0.5, type="info", error="_TIMED_OUT", completed=completed)
        else:
            self.killed(committing=dice.random() < 0.5, takes_effect=dice.random() < 0.5)

    def killed(self, *, committing: bool = False, takes_effect: bool = False) -> None:
        """Killed in its transaction; the next life writes what its journal knows, and takes its id over."""
        assert self.transaction is not None
        transaction = self.transaction
        ended = self.world.journal.time if committing else None
        if committing and takes_effect:
            self.world.cluster.end(transaction, commit=True)
        self.transaction, self.down = None, True
        self.world.tick(0.7)
        self.down = False
        type = "info" if committing else "fail"
        self.tell(transaction, type, "commit", ended=ended, error="process-died")
        self.restart(killed=True)

    def rest(self, dice: Random) -> None:
        if self.busy:
            return
        if self.transaction is None and self.unsure:
            self.begin()
            for where in sorted(self.unsure):
                self.add(where, 1)
        if self.transaction is None and self.reads:
            self.begin()
        if self.transaction is not None:
            self.poll(1_000_000)
            self.finish()
