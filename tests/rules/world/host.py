"""A host that runs probes: its clock, its boots, its journal and its committer.

The committer appends about once a second what the journal holds, with a mark for each process and partition. It may be
away (no table), catch up in pieces, or be killed; after a reboot its next life recovers what the last boot left.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from rules.vocabulary.slices import Mark, Slice
from tests.rules.world.clocks import Boot, WallClock
from tests.rules.world.kernel import SECOND, Kernel, Sleep, Task
from tests.rules.world.life import Entry, Life, Told

MARKED_ON = 60 * SECOND


@dataclass(slots=True)
class Append:
    """Rows that reached the table in one commit, in true time."""

    host: str
    number: int
    arrived: int
    entries: list[Entry]
    marks: list[Slice]

    @property
    def rows(self) -> list[Slice]:
        return [e.row for e in self.entries if not e.rejected] + self.marks


@dataclass(slots=True)
class Away:
    """From `start` to `end` the committer has no table; then it catches up in `pieces`, `apart` from each other."""

    start: int
    end: int
    pieces: int = 1
    apart: int = 2 * SECOND
    killed: bool = False
    """The committer was down rather than waiting: nothing was synced meanwhile."""


@dataclass(slots=True)
class Reboot:
    at: int
    down: int
    disk_lost: bool = False
    by: int = 0
    """So much more than before its clock is off in the next boot."""


@dataclass(slots=True)
class Host:
    kernel: Kernel
    name: str
    number: int
    clock: WallClock
    random: random.Random
    deliver: Callable[[Append], None]
    drift: float = 0.0
    away: list[Away] = field(default_factory=list)
    frozen: list[tuple[int, int]] = field(default_factory=list)
    """From when to when nothing runs: a machine that is paused, a container that is frozen."""
    boot: Boot = field(init=False)
    lives: list[Life] = field(default_factory=list)
    up: bool = True
    boots: list[int] = field(default_factory=list)
    sync_every: int = SECOND
    _task: Task | None = None
    _appends: int = 0
    _slices: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    _read: datetime | None = None
    """Through when the committer had read all journals to their ends, as it told last."""
    _marked: dict[tuple[str, int], int] = field(default_factory=dict)
    """The partitions marked last, and when each had a process last: they stay for `MARKED_ON` after that, and while no
    process lives at all, so that the log's clock goes on."""

    def __post_init__(self) -> None:
        self.start()

    @property
    def process(self) -> int:
        """The committer's process id: the same in every boot."""
        return 900_000 + self.number

    def start(self) -> None:
        self.boots.append(self.kernel.now)
        self.boot = Boot(f"{self.name}-boot-{len(self.boots)}", self.kernel.now, self.drift)
        self.up = True
        self._task = self.kernel.spawn(self._commit(), self.random.randrange(SECOND), self.frozen)

    def crash(self, *, disk_lost: bool) -> None:
        """Everything stops at once. Of the journal only what was synced is left, or nothing."""
        assert self._task is not None
        self._task.kill()
        self.up = False
        for life in self.lives:
            if life.finally_marked or life.diskless:
                continue
            life.lose(life.appended if disk_lost else life.synced)
            life.diskless = disk_lost
            if life.gone or life.ended_at is None:
                life.crashed, life.closed, life.ended_at = self.kernel.now, None, None

    # The committer.

    def _commit(self) -> Sleep:
        for life in self.lives:
            if life.crashed is not None and not life.recovered and not life.diskless:
                life.recover_reserved()
        while True:
            now = self.kernel.now
            out = next((a for a in self.away if a.start <= now < a.end), None)
            if out is None or not out.killed:
                self._recover()
                self._sync()
            if out is None:
                late = next((a for a in self.away if a.end <= now < a.end + a.pieces * a.apart and a.pieces > 1), None)
                if late is None:
                    self._append(now)
                else:
                    self._append(
                        late.start + (late.end - late.start) * ((now - late.end) // late.apart + 1) // late.pieces
                    )
                    yield late.apart
                    continue
            yield self.random.randrange(900_000, 1_100_000)

    def _recover(self) -> None:
        for life in self.lives:
            if life.died is not None and not life.recovered and life.crashed is None:
                life.recover_in_flight()

    def _sync(self) -> None:
        for life in self.lives:
            if life.crashed is None:
                life.synced = len(life.entries)
                life.synced_at = self.kernel.now

    def _append(self, until: int) -> None:
        """Hands over every entry completed by `until`, with the marks that this allows."""
        now = self.kernel.now
        entries: list[Entry] = []
        marks: dict[tuple[str, int], list[Mark]] = defaultdict(list)
        read = [self.clock.at(now)]
        for life in self.lives:
            if life.finally_marked or life.diskless:
                continue
            first = life.appended
            # Of each journal a part is read: of one that is new at least the beginning.
            while life.appended < len(life.entries) and (
                life.entries[life.appended].completed <= until or not life.appended
            ):
                life.counted[life.entries[life.appended].row.partition] += 1
                life.appended += 1
            new = life.entries[first : life.appended]
            entries.extend(new)
            if not life.appended:
                continue
            if life.appended < len(life.entries):
                read.append(max(e.row.invoked for e in life.entries[: life.appended]))
            over = life.appended == len(life.entries) and (life.recovered or life.closed is not None)
            through, true = self._through(life, over)
            ended = None
            if over:
                assert life.ended_at is not None
                ended = self.clock.at(life.ended_at)
                life.finally_marked = True
                true = true if life.lost else max(true, 1 << 60)
            life.told.append(Told(now, true))
            for p in range(life.partitions):
                marks[life.topic_id, p].append(Mark(life.process, life.counted[p], through, ended, life.lost))
        for e in entries:
            e.arrived = now
        self._appends += 1
        kept = {place: held for place, held in self._marked.items() if not marks or now - held < MARKED_ON}
        self._read = min(read) if self._read is None else max(self._read, min(read))
        self._marked = dict.fromkeys(marks, now) | {place: held for place, held in kept.items() if place not in marks}
        self.deliver(Append(self.name, self._appends, now, entries, self._mark_rows(marks)))

    def _through(self, life: Life, over: bool) -> tuple[datetime, int]:
        """Up to when the table holds all that the life invoked: as the host's clock says, and truly."""
        now = self.kernel.now
        walls, trues = [self.clock.at(now)], [now]
        if life.lost:
            last = max((e.completed for e in life.entries[: life.synced]), default=life.began)
            trues.append(max(last, life.synced_at) if not life.gone else min(e.invoked for e in life.gone))
            trues.append(life.synced_at)
            walls.append(self.clock.at(min(trues)))
        if 0 < life.appended < len(life.entries):  # nobody looks ahead in a journal: a clock may have been set since
            last_read = life.entries[life.appended - 1]
            walls.append(last_read.row.completed)
            trues.append(last_read.completed)
        for e in life.entries[life.appended :]:
            walls.append(e.row.invoked)
            trues.append(e.invoked)
        for op in life.in_flight.values():
            walls.append(op.wall)
            trues.append(op.invoked)
        return min(walls), min(trues)

    def _mark_rows(self, marks: dict[tuple[str, int], list[Mark]]) -> list[Slice]:
        now = self.kernel.now
        rows = []
        wall, mono = self.clock.at(now), self.boot.mono(now)
        assert self._read is not None
        for topic_id, p in self._marked:
            slice_number = self._slices[topic_id, p]
            self._slices[topic_id, p] += 1
            rows.append(
                Slice(
                    cluster="c",
                    topic_id=topic_id,
                    topic="topic",
                    partition=p,
                    run="run",
                    process=self.process,
                    op=self._appends,
                    slice=slice_number,
                    f="mark",
                    type="ok",
                    invoked=min(self._read, wall),
                    completed=wall,
                    boot=self.boot.id,
                    mono_invoked=mono,
                    mono_completed=mono,
                    marks=marks.get((topic_id, p), []),
                )
            )
        return rows
