"""The audit reader: reads every probe partition again from its beginning, so that a log that changes later is found.

A *pass* goes through all partitions, one after the other, each from the log's start to where it ended when the pass
began, at read_committed and at most at the configured rate; once a period. What it polls is logged as by every reader,
and the checks compare it with what stood there before. One partition at a time, because a reader that is assigned all
of them and reads slowly would leave some unread for long, and look stuck there.

A pass begins anew in the middle of what this process has read before, which would be a fault of any other reader. So
at its start `assign` rows are logged for every partition with `assigned` false; each partition's turn is an assignment
of that partition alone: the checks forget where the process stood there before. At its end it gives everything up
(`revoke`), and holds up nobody until the next pass.

It commits nothing. Its client is abandoned between two partitions only, and the next life goes on with those that the
pass is not through with: a pass takes longer than most lives, and its last partitions would never be read. It fetches
little ahead, so that the cluster's other clients do not feel it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from probes.kafka.calls import bounded, listed
from probes.kafka.client import admin_settings, open_admin
from probes.kafka.errors import Crash
from probes.kafka.starting_positions import ASK_WITHIN
from probes.topology import Partition
from probes.workloads.reader import SECOND, Reader

POLLS_A_SECOND: Final = 5.0
"""The records of a second come in this many polls."""
IDLE_ENDS_TURN: Final = 60.0
"""Seconds without a record after which a partition is passed over: one that nobody can read must not keep the audit
from all others."""


class Audit(Reader):
    """One life of the audit reader."""

    kind: ClassVar[str] = "audit"

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, group=group, from_start=True, **kwargs)
        self._audit = self.world.config.audit
        self._due = 0
        self._begun = False
        self._poll_due = 0
        self._heard = 0
        self._ends: dict[Partition, int] = {}
        """Where each partition ended when the pass began, of those that the pass is not through with. The first of them
        is being read, once it is assigned."""
        self.passes = 0

    @property
    def poll_records(self) -> int:
        return max(1, min(int(self._audit.rate / POLLS_A_SECOND), self._config.poll_records))

    def settings(self) -> Mapping[str, str]:
        # It reads what is there, a little at a time: brokers that wait for more would slow it down for nothing.
        few = {
            "fetch.min.bytes": "1",
            "queued.max.messages.kbytes": "2048",
            "queued.min.messages": "1000",
            "fetch.message.max.bytes": "524288",
        }
        return {**super().settings(), **few, "enable.partition.eof": "true"}

    def labels(self) -> dict[str, str]:
        return super().labels() | {"audit": "true"}

    def turn(self) -> None:
        now = self.world.clock.monotonic_ns()
        if left := self._left_over():
            self._set_out(left)
            return
        if not self._ends:
            if now < self._due:
                self.pause(min((self._due - now) / SECOND, 0.5))
                return
            self._begin_pass()
            return
        if now < self._poll_due:
            self.pause((self._poll_due - now) / SECOND)
            return
        came = self.poll()
        # What a poll may bring is paid for with the time that its records take at the configured rate.
        self._poll_due = now + int(came / self._audit.rate * SECOND)
        if came:
            self._heard = now
        reading = next(iter(self._ends), None)
        behind = reading is not None and self.position.get(reading, 0) < self._ends[reading]
        if reading is None or not behind or now - self._heard > IDLE_ENDS_TURN * SECOND:
            if reading is not None:
                del self._ends[reading]
            self._next_turn()
            if self._ends and self.unrest.due():
                raise Crash("the audit's client is abandoned")
        elif now >= self._position_due:
            self._position_due = now + int(self._config.position_interval * SECOND)
            self._log_positions()

    def open(self) -> None:
        self._open_consumer()

    def finish(self) -> None:
        """A pass that is not over is given up."""

    def ended(self, where: Partition) -> None:
        """What is beyond the last record, if anything, are markers and aborted records."""
        if where in self.assigned and where in self._ends:
            self._ends[where] = 0

    def _left_over(self) -> dict[Partition, int]:
        """What the life before this one was not through with; nothing once this one has begun."""
        unread = {} if self._begun else self.carried.unread
        return {where: unread[place] for where in self._all if (place := self.topic_place(where)) in unread}

    def _begin_pass(self) -> None:
        self._set_out(bounded(self._ends_now, ASK_WITHIN * 2, self.log.alive, "list offsets"))

    def _set_out(self, ends: dict[Partition, int]) -> None:
        """Read these partitions, up to where they ended."""
        self._begun = True
        self._due = self.world.clock.monotonic_ns() + int(self._audit.period * SECOND)
        self.assigned, self.position = set(), {}
        self.log.append(self._assignment_rows("assign", self.log.begin()))
        self._ends = ends
        if ends:
            self._next_turn()

    def _next_turn(self) -> None:
        """Go on with the next partition, or end the pass."""
        self.carried.unread = {self.topic_place(where): end for where, end in self._ends.items()}
        now = self.world.clock.monotonic_ns()
        self._poll_due, self._heard, self._position_due = now, now, now + int(self._config.position_interval * SECOND)
        if self._ends:
            self._assign([next(iter(self._ends))])
            return
        invoked = self.log.begin()
        self.consumer.unassign()
        self.assigned, self.position = set(), {}
        self.log.append(self._assignment_rows("revoke", invoked))
        self.passes += 1

    def _ends_now(self) -> dict[Partition, int]:
        """The last stable offset of each partition that its leader tells."""
        admin = open_admin(admin_settings(self._connection, client=f"{self.client}-admin"))
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for topic, p in self._all}
        ends: dict[Partition, int] = {}
        level = IsolationLevel.READ_COMMITTED
        for tp, future in admin.list_offsets(asked, isolation_level=level, request_timeout=ASK_WITHIN).items():
            try:
                ends[tp.topic, tp.partition] = listed(future)
            except Exception:
                continue
        return ends
