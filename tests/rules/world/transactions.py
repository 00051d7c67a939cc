"""Transactional writers: one transaction per period, over every partition, committed or aborted."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from tests.rules.world.cluster import Cluster
from tests.rules.world.kernel import SECOND, Sleep
from tests.rules.world.life import Life, Op
from tests.rules.world.probes import Probe

TIMEOUT = 15 * SECOND
"""The transaction timeout of every transactional writer."""


class TransactionalWriter(Probe):
    """Its transactional id is its name. After an indefinite end it closes and a new life takes over."""

    writes = True

    def do(self, life: Life) -> Sleep:
        cluster = self.cluster
        init = life.invoke("init", range(life.partitions), transactional_id=self.name)
        there, back = self.request()
        yield there
        cluster.fence(self.name)
        cluster.latest[self.name] = life.process
        yield back
        life.complete(init)
        while True:
            sure = yield from self._transaction(life)
            if not sure:
                self.restarting = True
            yield self.rest()

    def _transaction(self, life: Life) -> Generator[int, None, bool]:
        """One transaction; tells whether its outcome is known."""
        cluster, txn = self.cluster, self.world.new_txn()
        cluster.begin(txn, self.name)
        self.world.kernel.at(self.now + TIMEOUT, partial(self._expire, cluster, txn))
        op = life.invoke(
            "txn",
            self.partitions,
            transactional_id=self.name,
            txn=txn,
            txn_partitions=[("topic", p) for p in self.partitions],
        )
        commit = self.random.random() >= self.habits.aborts
        op.more["txn_intent"] = "commit" if commit else "abort"
        fenced = False
        for p in self.partitions:
            run = life.take(p, self.random.randrange(1, self.habits.batch + 1))
            op.sent[p] = [run]
            there, back = self.request()
            yield there
            if cluster.txns[txn].state != "open" or cluster.latest[self.name] != life.process:
                fenced = True
                break
            offsets = [cluster.append(p, life.process, run.seq + i, txn) for i in range(run.length)]
            op.results[p] = {"sent": [run._replace(offset=offsets[0])]}
            yield back
        return (yield from self._end(life, op, txn, commit and not fenced))

    def _end(self, life: Life, op: Op, txn: int, commit: bool) -> Generator[int, None, bool]:
        op.more["end_invoked"] = self.host.clock.at(self.now)
        op.more["mono_end_invoked"] = self.host.boot.mono(self.now)
        indefinite = self.random.random() < self.habits.indefinite
        there, back = self.request()
        yield there
        lost = indefinite and self.random.random() < 0.5
        ended = False if lost else self.cluster.end(txn, commit=commit)
        yield back + (5 * SECOND if indefinite else 0)
        each = {p: op.results.get(p, {"sent": runs}) for p, runs in op.sent.items()}
        for p in op.partitions:
            each.setdefault(p, {})
        if indefinite or not ended:
            life.complete(op, "info", each, error="_TIMED_OUT")
            return False
        life.complete(op, "ok" if commit else "fail", each)
        return True

    @staticmethod
    def _expire(cluster: Cluster, txn: int) -> None:
        if not cluster.txns[txn].zombie:
            cluster.end(txn, commit=False)
