"""One process's life and its part of the host's journal.

A life invokes operations and completes them; a completed operation is one journal entry per partition, numbered
without a gap. What was in flight when the process died is finished by its host (see `host`). Every entry keeps the
true times beside the row, so that the oracle knows what the checker cannot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rules.vocabulary.slices import Run, Slice

if TYPE_CHECKING:
    from tests.rules.world.clocks import Boot
    from tests.rules.world.host import Host


@dataclass(slots=True)
class Entry:
    """One row and when it truly happened."""

    row: Slice
    invoked: int
    completed: int
    arrived: int | None = None
    """When it reached the table, true time; absent while it did not."""
    rejected: bool = False


@dataclass(slots=True)
class Op:
    """An operation in flight."""

    number: int
    f: Any
    partitions: list[int]
    invoked: int
    wall: datetime
    mono: int
    sent: dict[int, list[Run]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What the cluster did for it, known to the process only when the call returns."""


@dataclass(slots=True)
class Block:
    """Sequence numbers [start, end) that the journal held, on disk, before any of them was sent."""

    start: int
    end: int
    invoked: int
    wall: datetime
    mono: int


@dataclass(slots=True)
class Told:
    """The truth about one mark of this life: by `arrived` the table held all that it invoked before `through`."""

    arrived: int
    through: int


class Life:
    """`through` of its marks, and its entries in the order of the journal."""

    def __init__(self, host: Host, process: int, name: str, kind: str, partitions: int, topic_id: str) -> None:
        self.host, self.process, self.name, self.kind = host, process, name, kind
        self.partitions, self.topic_id = partitions, topic_id
        self.boot: Boot = host.boot
        self.began = host.kernel.now
        self.entries: list[Entry] = []
        self.appended = 0
        """How many entries have been handed to the table."""
        self.synced = 0
        """How many entries would outlive the host."""
        self.synced_at = host.kernel.now
        self.gone: list[Entry] = []
        """Entries that were lost with the host, or with its disk."""
        self.in_flight: dict[int, Op] = {}
        self.blocks: dict[int, list[Block]] = defaultdict(list)
        """Writers: partition -> the ranges of sequence numbers that were reserved, in order."""
        self.next_seq: dict[int, int] = defaultdict(int)
        self.died: int | None = None
        """When the process was killed; a clean end completes a `close` instead."""
        self.closed: int | None = None
        self.crashed: int | None = None
        """When the host went down under it: its journal may lack an end."""
        self.diskless = False
        self.recovered = False
        self.ended_at: int | None = None
        """True time by when the life was over, as the mark that ends it says."""
        self.lost = False
        self.told: list[Told] = []
        self.finally_marked = False
        self.counted: dict[int, int] = defaultdict(int)
        """Partition -> how many of its slices have been handed to the table."""
        self._ops = 0
        self._slices: dict[int, int] = defaultdict(int)

    # The process.

    def invoke(self, f: Any, partitions: Iterable[int], **more: Any) -> Op:
        now = self.host.kernel.now
        op = Op(self._ops, f, list(partitions), now, self.host.clock.at(now), self.boot.mono(now), more=more)
        self._ops += 1
        self.in_flight[op.number] = op
        return op

    def complete(self, op: Op, type: Any = "ok", each: dict[int, dict[str, Any]] | None = None, **all_: Any) -> None:
        """The call returned: one entry for each of the operation's partitions."""
        del self.in_flight[op.number]
        self._journal(op, type, each or {}, self.boot, **all_)

    def everywhere(self, f: Any, type: Any = "ok", **more: Any) -> None:
        """A row about the process as a whole, at once, in every partition."""
        self.complete(self.invoke(f, range(self.partitions)), type, **more)

    def take(self, partition: int, count: int, size: int = 50) -> Run:
        """The next sequence numbers, reserved in the journal before anything is sent."""
        seq = self.next_seq[partition]
        self.next_seq[partition] += count
        blocks = self.blocks[partition]
        while not blocks or blocks[-1].end < seq + count:
            end = blocks[-1].end if blocks else 0
            now = self.host.kernel.now
            blocks.append(Block(end, end + size, now, self.host.clock.at(now), self.boot.mono(now)))
        return Run(self.process, seq, None, count)

    # The journal.

    def _journal(self, op: Op, type: Any, each: dict[int, dict[str, Any]], boot: Boot, **all_: Any) -> None:
        now = self.host.kernel.now
        completed = self.host.clock.at(now)
        same = boot is self.boot
        for p in op.partitions:
            row = Slice(
                cluster="c",
                topic_id=self.topic_id,
                topic="topic",
                partition=p,
                run="run",
                process=self.process,
                op=op.number,
                slice=self._slices[p],
                f=op.f,
                type=type,
                invoked=op.wall,
                completed=completed,
                boot=self.boot.id,
                mono_invoked=op.mono,
                mono_completed=boot.mono(now) if same else None,
                **{**op.more, **all_, **each.get(p, {})},
            )
            self._slices[p] += 1
            self.entries.append(Entry(row, op.invoked, now))

    def recover_in_flight(self) -> None:
        """The process died and its host did not: the committer finishes what was in flight, then closes the life."""
        for op in sorted(self.in_flight.values(), key=lambda o: o.number):
            each = {p: {"sent": runs} for p, runs in op.sent.items()}
            self._journal(op, "info", each, self.host.boot, error="process-died")
        self.in_flight.clear()
        close = self.invoke("close", range(self.partitions))
        self.complete(close, "info", error="process-died")
        self.recovered = True
        self.ended_at = self.host.kernel.now + 1

    def recover_reserved(self) -> None:
        """The host went down: what was reserved and is in no entry may have been sent."""
        known: dict[int, int] = defaultdict(int)
        for e in self.entries:
            for run in e.row.sent:
                known[e.row.partition] = max(known[e.row.partition], run.seq + run.length)
        self.in_flight.clear()
        for p, blocks in sorted(self.blocks.items()):
            for block in blocks:
                first = max(block.start, known[p])
                if first < block.end:
                    op = Op(self._ops, "send", [p], block.invoked, block.wall, block.mono)
                    self._ops += 1
                    sent = [Run(self.process, first, None, block.end - first)]
                    self._journal(op, "info", {p: {"sent": sent}}, self.host.boot)
        self.recovered = True
        self.lost = True
        self.ended_at = self.host.kernel.now + 1

    def lose(self, kept: int) -> None:
        """The host went down, and all but the first `kept` entries of the journal were not on its disk."""
        self.gone = self.entries[kept:]
        del self.entries[kept:]
        self._slices.clear()
        for e in self.entries:
            self._slices[e.row.partition] = e.row.slice + 1
