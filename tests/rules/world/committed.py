"""What must be found of the offsets that groups have committed, from the definitions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rules.world.faults import Planted
from tests.rules.world.kernel import SECOND
from tests.rules.world.life import Entry, Life
from tests.rules.world.must import GIVEN_UP, GRACE, MEASURED, Must

if TYPE_CHECKING:
    from tests.rules.world.oracle import Oracle

NEVER = 1 << 60
"""A true time that does not come."""


class CommittedOffsets:
    """The part of the oracle that knows them, for the topic id that it looks at."""

    def __init__(self, oracle: Oracle) -> None:
        self._world, self._truth, self._skews = oracle.world, oracle.truth, oracle.skews
        self._slack, self._spread = oracle.slack, oracle.spread

    def told(self, planted: Planted, anomaly: str) -> Must:
        """A read of a committed offset that no commit explains, once the logs of the group's members are there."""
        must = Must(anomaly, planted.partition, None, None, True, planted.kind)
        reads = self._truth.committed_reads(planted.partition, planted.at)
        if planted.kind != "dropped-commit":
            reads = [e for e in reads if e.row.committed == planted.offsets[0]]
        if anomaly == "foreign-commit":  # somebody may have committed as much meanwhile, or right after
            invoked = self._world.cluster.commits[reads[0].row.group or "", planted.partition] if reads else {}
            reads = [e for e in reads if invoked.get(planted.offsets[0], NEVER) > e.completed + MEASURED]
        if anomaly == "lost-commit":
            reads = [e for e in reads if self._had_to_be_told(planted.partition, e)]
        else:
            told = [(self._told_before(planted.partition, e), e) for e in reads]
            low = anomaly == "offset-regression"
            reads = [e for before, e in told if before is not None and (not low or before > _committed(e))]
        if not reads or not self._held(planted.at - GRACE, reads[0].completed):
            return must
        # One that is assigned elsewhere may commit here too: it is waited for by its own clock.
        members = [life for life in self._world.lives if life.kind == "group" and _is_known(life, planted)]
        observing = {life.host.name for life in self._world.lives if life.kind == "observer"}
        if not all(self._skews.known(planted.partition, m.host.name, b) for m in members for b in observing):
            return must
        observed = self._truth.observed(planted.partition, reads[0].completed + GRACE)
        if observed is None:
            must.why = "the topic may have been made anew"
            return must
        came = [reads[0].arrived, observed]
        since = planted.at - 5 * SECOND if anomaly == "lost-commit" else 0
        for life in self._world.lives:
            if life.kind == "group":
                came.append(self._truth.known(life, planted.partition, since, reads[0].completed + GRACE))
        if all(c is not None for c in came):
            came.append(self.given_up(planted.partition, reads[0].completed, {"group", "observer"}))
            must.by = max(c for c in came if c is not None) + self._slack + GRACE + 2 * self._spread
            must.optional = must.by > self._world.plan.length
        return must

    def _told_before(self, partition: int, read: Entry) -> int | None:
        """What had been told last, by the clock of the same boot: from there the offset went up or down."""
        reads = self._truth.committed_reads(partition, 0)
        before = [e for e in reads if e.row.boot == read.row.boot and e.completed <= read.invoked]
        return _committed(max(before, key=lambda e: e.completed)) if before else None

    def given_up(self, partition: int, until: int, kinds: set[str]) -> int:
        """By when nobody waits any more for rows up to a time that never come: what was told, in which order, and what
        was known by one clock, rests on all of them."""
        gone = [
            e.arrived
            for life in self._world.lives
            if life.kind in kinds
            for e in life.entries
            if e.rejected and e.row.partition == partition and e.invoked <= until and e.arrived is not None
        ]
        return max(gone) + GIVEN_UP if gone else 0

    def _held(self, since: int, until: int) -> bool:
        """Whether members that the log knows have held the group all the while: others may have committed else."""
        lives = [life for life in self._world.lives if life.kind == "group"]
        ends = {
            life.process: min((t for t in (life.died, life.crashed, life.closed) if t), default=until + 1)
            for life in lives
        }
        changes = [t for life in lives for t in (life.began, ends[life.process]) if since <= t <= until]
        return not changes and any(life.began < since and ends[life.process] > until for life in lives)

    def _had_to_be_told(self, partition: int, read: Entry) -> bool:
        """Whether a read tells less than a commit that had been acknowledged, by a clock of the same boot.

        A coordinator that was deposed, and does not know it yet, tells what had been committed before: that is no fault
        (no drill that cuts a broker off may find one). So it must be told to who had made that commit, or had been told
        as much; unless nobody ever committed what it tells, which no coordinator can know."""
        told = _committed(read)
        entries = [e for e in self._truth.commits[partition] if e.invoked <= read.completed]
        ever = {e.row.committed for e in entries if e.row.f == "commit"}
        for commit in entries:
            if commit.row.f != "commit" or commit.row.type != "ok" or commit.arrived is None or commit.rejected:
                continue
            if commit.completed >= read.invoked or _committed(commit) <= told or commit.row.boot != read.row.boot:
                continue
            if any(
                e.row.f == "commit" and _committed(e) < _committed(commit) and commit.invoked <= e.completed
                for e in entries
                if e is not commit
            ):
                continue
            heard = (e for e in self._truth.committed_reads(partition, 0) if e.row.process == read.row.process)
            if (
                told not in ever
                or commit.row.process == read.row.process
                or any(
                    _committed(e) >= _committed(commit) and commit.invoked <= e.completed < read.invoked for e in heard
                )
            ):
                return True
        return False


def _is_known(life: Life, planted: Planted) -> bool:
    """Whether the log of the partition tells of a life."""
    return life.topic_id == planted.topic_id and any(e.row.partition == planted.partition for e in life.entries)


def _committed(entry: Entry) -> int:
    assert entry.row.committed is not None
    return entry.row.committed
