"""Is there one order of a register's operations that fits their times and ids? Decided as they come, in small memory.

An operation takes effect at one point between its invocation and its completion. `write` sets the register to an id
that nobody else writes; `cas` does so if the register holds `expected`, and is refused otherwise; `read`, and a cas
that was refused, tell the id held. A history is *linearizable* if such points can be chosen, one for each operation
that was completed, and for some of those whose outcome is unknown. The latter may take effect at any time after they
were invoked, or never; a failed one never does.

**What is known.** The operations that touch one id are its *cluster*: its write, and what read it. An accepted cas
must follow the last of its `expected`'s cluster with no other write between, so clusters that replace one another
form a chain, a *block*, which no other write can interrupt. What a block's operations say in real time is said by two
of them for each clock: the one that completed first, and the one that was invoked last.

**Theorem.** Let every id be written once, and all times be of one clock. Let an operation of unknown outcome count as
part of the history if its id was read or replaced, with no end, and be left out otherwise. The history is
linearizable if and only if (1) every id that was read or replaced was written, by an operation that may have
happened, or is the first one; (2) no id was replaced twice, and no cas was refused by the id it expected; (3) no read
of an id completed before its write was invoked; (4) in a block, no operation on a later id completed before one on an
earlier id was invoked; (5) of two blocks, not each has an operation that completed before one of the other was
invoked, and none has one that completed before one of the first id's block was invoked.
*Only if* is plain. *If*: let block A come before B where an operation of A completed before one of B was invoked. A
cycle of blocks would hold two that contradict (5): if A has the earliest completion on the cycle, its predecessor C
completed before A's last invocation, and A before C's, for A completed no later than the block that precedes C. So
the blocks have an order; inside a block the chain is one, by (4); in a cluster, the write and then the reads by
invocation (3). For reads and writes alone this is the theorem of Gibbons and Korach (Testing Shared Memories, 1997):
(5) says that forward zones do not overlap, and that no backward zone lies inside one.

**Clocks.** Times of different boots are not compared. For a register that only reads and cas touch there is a single
block whose order is known, and the check stays exact. With plain writes of several boots it stays sound (what it says
is true), and may miss a cycle of three blocks or more.

**Memory.** Operations are taken in the order of their invocations. A cluster that is *dead*, that is, to touch it
from now on would contradict what has completed, is forgotten; what touches it later touches an id that nobody knows,
which is a violation all the same. What remains is what is concurrent now: as many clusters as clients have operations
in flight. A write of unknown outcome is kept until its cas can no longer be accepted; plain ones for ever. Caps bound
both, and `blind` says that ids may be unknown because a cap was reached: such an id is then not judged.
Once a contradiction is reported, the operation is left out (a read), or counts as a plain write (a cas), so that what
follows is judged by itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rules.registers.blocks import (
    NEVER,
    Block,
    Cluster,
    Contradiction,
    Gone,
    Op,
    Shown,
    Waiting,
    because,
    distinct,
    earliest,
    fold,
    precedes,
)

__all__ = ["NEVER", "Op", "Register"]

CLUSTERS_KEPT: Final = 256
PENDING_KEPT: Final = 1_024
WAITING_KEPT: Final = 4_096
REMEMBERED: Final = 32
"""Beyond that a violation is told without the write that had replaced the value, or once more where the register had
contradicted itself as often already."""


@dataclass(slots=True)
class Register:
    """One register. `floor`: by boot, the time after which every forgotten id is dead; a boot that is not in it proves
    nothing once `forgot` is set. `let_go`: how many writes and reads a cap has taken since that was told."""

    blocks: list[Block] = field(default_factory=list)
    pending: dict[int, Op] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    floor: dict[str, int] = field(default_factory=dict)
    forgot: bool = False
    blind: bool = False
    gone: list[Gone] = field(default_factory=list)
    tainted: list[int] = field(default_factory=list)  # ids of writes that contradicted; what touches them is not judged
    began: int = -1
    seen: int = -1
    where: dict[int, tuple[Block, Cluster]] = field(default_factory=dict)
    found: list[Contradiction] = field(default_factory=list)
    let_go: int = 0
    _woken: deque[int] = field(default_factory=deque)

    def begin(self, initial: int | None, at: int) -> None:
        """The first operation was invoked at log time `at`; `initial` is the first id, None where it is not known."""
        self.began = at
        if initial is not None:
            cluster = Cluster(initial, None)
            block = Block([cluster], initial=True)
            self.blocks.append(block)
            self.where[initial] = (block, cluster)

    def take(self, op: Op, grace: int) -> None:
        """Take the next operation by invocation. Its writer's log must be there `grace` after it completed."""
        self.seen = op.at
        shown = Shown(op.done + grace, self._late(op))
        if op.action == "read" or op.type == "fail":
            if op.type != "info":
                self._told(op, shown)
        elif op.id is not None:
            self._written(op, op.id, shown)
        self._wake()
        if len(self.where) > 1 and op.boot:
            self._forget_dead(op.boot, op.start)
        self._bound()

    def decide(self, before: int, *, assume: int = 0) -> None:
        """Judge what has waited until log time `before` for a write that is not there. Unknown ids that operations
        before log time `assume` touched are taken as written by somebody whose log is lost."""
        while True:
            due = [w for w in self.waiting if w.shown.until < before]
            if not due:
                return
            one = min(due, key=lambda w: (w.shown.until, w.op[:4]))
            self.waiting.remove(one)
            self._unknown(one, assume)
            self._wake()

    # What operations say

    def _told(self, op: Op, shown: Shown) -> None:
        """A read, or a cas that was refused or failed."""
        if op.type == "fail" and op.id is not None:
            self._remember(Gone(op.id, op, None))
        if op.observed is None or (op.type == "fail") != (op.action == "cas"):
            return
        if op.action == "cas" and op.observed == op.expected:
            self._found("refused-by-expected", (op,), "it was refused, and found the very id that it expected")
        self._touch(op, op.observed, shown)

    def _touch(self, op: Op, id: int, shown: Shown) -> None:
        if id in self.tainted:
            return
        if id in self.pending:
            self._happened(id, shown)
        known = self.where.get(id)
        if known is None:
            self._wait(op, id, shown)
        else:
            self._join(op, *known)

    def _written(self, op: Op, id: int, shown: Shown) -> None:
        if id in self.where or id in self.pending or id in self.tainted:
            if (known := self.where.get(id)) is None or known[1].write is not None:
                self._taint(id)  # an id that is written twice tells nothing
            return
        if op.type == "info":
            self.pending[id] = op
            self._woken.append(id)
        elif op.action == "write":
            self._new_block(op, id)
        else:
            self._replace(op, id, shown)

    def _happened(self, id: int, shown: Shown) -> None:
        """A write of unknown outcome was seen: it took effect, and so did those that it builds on."""
        line = [self.pending.pop(id)]
        while line[-1].action == "cas" and line[-1].expected in self.pending:
            line.append(self.pending.pop(line[-1].expected))
        for op in reversed(line):
            assert op.id is not None
            if op.action == "write":
                self._new_block(op, op.id)
            else:
                self._replace(op, op.id, shown)

    def _replace(self, op: Op, id: int, shown: Shown) -> None:
        """A cas that was accepted, as `shown` tells."""
        if op.expected is None:
            self._new_block(op, id)
            return
        if op.expected in self.tainted:
            self._taint(id)
            return
        if op.expected in self.pending:
            self._happened(op.expected, shown)
        known = self.where.get(op.expected)
        if known is None:
            self._wait(op, op.expected, shown)
            return
        block, cluster = known
        at = block.clusters.index(cluster)
        if at + 1 < len(block.clusters):
            other = block.clusters[at + 1].write
            assert other is not None
            self._found("replaced-twice", (op, other), f"both were accepted as the one that replaced id {op.expected}")
            self._new_block(op, id)
            return
        follower = Cluster(id, op)
        block.clusters.append(follower)
        why = self._contradiction(op, block, follower)
        if why is not None:
            block.clusters.pop()
            self.found.append(why)
            self._new_block(op, id)
            return
        self._put(op, id, block, follower)
        self._refute(op.expected, op)

    def _new_block(self, op: Op, id: int) -> None:
        cluster = Cluster(id, op)
        block = Block([cluster])
        why = self._contradiction(op, block, cluster)
        if why is not None:
            self._found(*why[:3])
            self._taint(id)
            return
        self.blocks.append(block)
        self._put(op, id, block, cluster)

    def _put(self, op: Op, id: int, block: Block, cluster: Cluster) -> None:
        self.where[id] = (block, cluster)
        fold(cluster.first, cluster.last, op)
        fold(block.first, block.last, op)
        self._woken.append(id)

    def _join(self, op: Op, block: Block, cluster: Cluster) -> None:
        why = self._contradiction(op, block, cluster)
        if why is not None:
            self.found.append(why)
            return
        fold(cluster.first, cluster.last, op)
        fold(block.first, block.last, op)

    # Why not

    def _contradiction(self, op: Op, block: Block, cluster: Cluster) -> Contradiction | None:
        """What forbids that the operation touches this cluster, by (3), (4) and (5)."""
        boot, write = op.boot, cluster.write
        if not boot:
            return None
        if write is not None and write.boot == boot and op.end < write.start:
            return because("before-its-write", (op, write), f"it ended before id {cluster.id} was written")
        later = False
        for other in block.clusters:
            if other is cluster:
                later = True
            elif later:
                done = other.first.get(boot)
                if done is not None and done.end < op.start:
                    said = f"id {cluster.id} had been replaced by id {other.id}, which was there before it began"
                    return because("stale", distinct(op, done, other.write), said)
            else:
                begun = other.last.get(boot)
                if begun is not None and op.end < begun.start:
                    said = f"id {other.id} was there after it had ended, and is older than id {cluster.id}"
                    return because("stale", distinct(op, begun, write), said)
        for rival in self.blocks:
            if rival is block:
                continue
            begun, done = rival.last.get(boot), rival.first.get(boot)
            if (begun is None or op.end >= begun.start) and (done is None or done.end >= op.start):
                continue
            before, after = precedes(block, rival, op, block), precedes(rival, block, op, block)
            if before is not None and after is not None:
                said = f"id {cluster.id} would have to be both before and after id {rival.clusters[-1].id}"
                return because("two-orders", distinct(op, *before, *after, write, rival.clusters[-1].write), said)
        return None

    def _unknown(self, one: Waiting, assume: int) -> None:
        """The time is over in which a write of this id might have turned up."""
        op, id, until = one.op, one.id, one.shown.until
        if id in self.tainted or id in self.where:
            self._again(op, id, one.shown)
            return
        gone = next((g for g in reversed(self.gone) if g.id == id), None)
        proven = one.shown.proven or (gone is not None and gone.by is None)
        if proven and gone is None and op.at < assume and not self.blind:
            self._assumed(one)
            return
        if not proven or (gone is None and self.blind):
            self._without_expected(op)
            return
        if gone is None:
            self._found("never-written", (op,), f"nobody wrote id {id}, or it was replaced long before", until)
        elif gone.by is None:
            self._found("never-written", distinct(op, gone.write), f"the write of id {id} failed", until)
        else:
            said = f"id {id} had been replaced, as an operation shows that ended before it began"
            self._found("stale", distinct(op, gone.by, gone.write), said, until)
        self._without_expected(op)

    def _without_expected(self, op: Op) -> None:
        """What is not known to be right of an accepted cas is left out: it counts as a plain write."""
        if op.action != "read" and op.type != "fail" and op.id is not None:
            self._new_block(op, op.id)

    def _assumed(self, one: Waiting) -> None:
        cluster = Cluster(one.id, None)
        block = Block([cluster])
        self.blocks.append(block)
        self.where[one.id] = (block, cluster)
        self._again(one.op, one.id, one.shown)
        self._woken.append(one.id)

    # What waits, and what is forgotten

    def _wait(self, op: Op, id: int, shown: Shown) -> None:
        self.waiting.append(Waiting(id, op, Shown(shown.until, shown.proven or self._late(op))))

    def _late(self, op: Op) -> bool:
        """Was it invoked when all that is forgotten was dead?"""
        return not self.forgot or (op.boot in self.floor and op.start > self.floor[op.boot])

    def _wake(self) -> None:
        """What waited for the ids that are known now goes on."""
        while self._woken:
            id = self._woken.popleft()
            woken = [w for w in self.waiting if w.id == id]
            if woken:
                self.waiting = [w for w in self.waiting if w.id != id]
                for one in woken:
                    self._again(one.op, id, one.shown)

    def _again(self, op: Op, id: int, shown: Shown) -> None:
        if op.action == "read" or op.type == "fail":
            self._touch(op, id, shown)
        elif op.id is not None:
            self._replace(op, op.id, shown)

    def _forget_dead(self, boot: str, now: int) -> None:
        """Forget the clusters that nothing that is invoked after `now` can touch without contradiction."""
        for block in list(self.blocks):
            over: dict[str, Op] = {}
            for rival in self.blocks:
                if rival is not block and precedes(block, rival) is not None:
                    earliest(over, rival.first)
            dead, by = 0, {}
            for at in range(len(block.clusters) - 1, -1, -1):
                killer = over.get(boot)
                if killer is not None and killer.end < now:
                    dead, by = at + 1, dict(over)
                    break
                earliest(over, block.clusters[at].first)
            if dead:
                self._forget(block, dead, by, boot)

    def _forget(self, block: Block, dead: int, by: dict[str, Op], boot: str) -> None:
        for cluster in block.clusters[:dead]:
            del self.where[cluster.id]
            self._remember(Gone(cluster.id, cluster.write, by[boot]))
            self._refute(cluster.id, by[boot])
        del block.clusters[:dead]
        if not block.clusters:
            self.blocks.remove(block)
        if self.forgot:
            self.floor = {b: max(t, by[b].end) for b, t in self.floor.items() if b in by}
        else:
            self.floor = {b: op.end for b, op in by.items()}
        self.forgot = True

    def _refute(self, id: int, by: Op) -> None:
        """The id was replaced: a pending cas that expects it cannot be accepted any more."""
        for refuted in [p for p in self.pending.values() if p.action == "cas" and p.expected == id]:
            assert refuted.id is not None
            del self.pending[refuted.id]
            self._remember(Gone(refuted.id, refuted, by))
            self._refute(refuted.id, by)

    def _remember(self, gone: Gone) -> None:
        self.gone.append(gone)
        del self.gone[:-REMEMBERED]

    def _taint(self, id: int) -> None:
        self.pending.pop(id, None)
        if id not in self.tainted:
            self.tainted.append(id)
            del self.tainted[:-REMEMBERED]
        self._woken.append(id)

    def _bound(self) -> None:
        if len(self.pending) > PENDING_KEPT:
            del self.pending[next(iter(self.pending))]
            self._go_blind()
        if len(self.waiting) > WAITING_KEPT:
            self.waiting.pop(0)
            self._go_blind()
        if len(self.where) > CLUSTERS_KEPT:
            block = self.blocks[0]
            del self.where[block.clusters.pop(0).id]
            if not block.clusters:
                self.blocks.remove(block)
            self._go_blind()

    def _go_blind(self) -> None:
        self.blind = True
        self.let_go += 1

    def _found(self, reason: str, ops: tuple[Op, ...], sentence: str, at: int = -1) -> None:
        self.found.append(because(reason, ops, sentence, at))
