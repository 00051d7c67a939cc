"""How a probe measures what it does: it knows the clock and who leads what, and keeps the numbers in `Levels`.

Durations are read off the monotonic clock. Who leads a partition is as old as the last look at the topics, half a
minute at most (`probes.running.fleet`): an operation in the moment of a leader's move may be told of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from probes.clock import Clock
from probes.kafka.errors import NOT_THERE
from probes.levels import Levels, Place
from probes.log.life_log import Instant
from probes.records.delivery import Batch, Fate, acknowledged_after
from probes.topology import Layout, Partition

OVERTAKEN: Final = frozenset(
    {
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "_ASSIGNMENT_LOST",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
    }
)
"""What a commit ends with where the group has been rebalanced meanwhile."""


class Measure:
    """What one probe measures with."""

    def __init__(self, levels: Levels, clock: Clock, layout: Callable[[], Layout]) -> None:
        self.levels, self._clock, self._layout = levels, clock, layout
        self._began_in = layout()
        self._unassigned: Instant | None = None

    @property
    def in_place(self) -> bool:
        """Are the topics still those in which this probe began to work? Else its life ends, and what it is told of them
        says nothing about the cluster."""
        return self._layout().same_places(self._began_in)

    def place(self, where: Partition) -> Place:
        """The partition's topic and its leader."""
        leader = self._layout().leaders.get(where)
        return where[0], "" if leader is None else str(leader)

    def took(self, operation: str, invoked: Instant, completed: Instant) -> None:
        """An operation that concerns no single partition has succeeded."""
        self.levels.took(operation, (completed.mono - invoked.mono) / 1e9)
        self.levels.tried(operation, 1, 0, completed.at.timestamp())

    def failed(self, operation: str) -> None:
        """Such an operation has failed."""
        self.tried(operation, 1, 1, ("", ""))

    def committed(self, invoked: Instant, completed: Instant, errors: Sequence[str]) -> None:
        """An offset commit has ended, with these errors. One that a rebalance overtook was neither done nor refused:
        it is not counted."""
        if not errors:
            self.took("offset-commit", invoked, completed)
        elif not OVERTAKEN.issuperset(errors):
            self.failed("offset-commit")

    def joining(self, now: Instant) -> None:
        """It asks its group for partitions."""
        self._unassigned = now

    def unassigned(self, now: Instant) -> None:
        """It has given up the partitions that its group had given it."""
        self._unassigned = self._unassigned or now

    def assigned(self, now: Instant) -> None:
        """The group has given it some, or has told it that there are none for it."""
        if self._unassigned is not None:
            self.took("rebalance", self._unassigned, now)
            self._unassigned = None

    def tried(self, operation: str, total: int, failed: int, where: Place, *, late: int = 0) -> None:
        """So many operations on a partition were tried."""
        self.levels.tried(operation, total, failed, self._clock.now().timestamp(), where, late=late)

    def produced(self, batch: Batch, result: Mapping[Partition, Sequence[Fate]]) -> None:
        """What became of the records of a batch, and how long those took that were acknowledged.

        A latency ends when the client is asked for its reports: a probe that does something else meanwhile, as those
        that work in transactions do, would measure that. What was sent to a topic that is not there any more was
        failed by nobody: somebody has deleted it."""
        for where, seconds in acknowledged_after(batch).items():
            self.levels.took("produce", seconds, self.place(where))
        for where, parts in result.items() if self.in_place else ():
            told = [part for part in parts if part.error not in NOT_THERE]
            total = sum(part.records for part in told)
            failed = sum(part.records for part in told if part.type != "ok")
            self.tried("produce", total, failed, self.place(where))
