"""What clients really saw, looked up by value: the entries of every life, those that never reached the table too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rules.vocabulary.slices import Run
from tests.rules.world.cluster import Value
from tests.rules.world.kernel import SECOND
from tests.rules.world.life import Entry, Life
from tests.rules.world.world import World

READERS = ("reader", "group", "audit")
ASTRAY_FOR = 40 * SECOND + 2 * SECOND
"""For so long after a wall clock was ahead nobody knows by which of the two marks tell of times."""
NEVER = 1 << 60


@dataclass(slots=True)
class Seen:
    """One operation's view of one value."""

    life: Life
    entry: Entry
    offset: int | None


@dataclass(slots=True)
class Pass:
    """An ok poll in assign mode that read on from `before`, where the reader had read to, to below `after`."""

    life: Life
    entry: Entry
    before: int
    after: int


class Truth:
    """Of a world that was run, for one topic id."""

    def __init__(self, world: World, topic_id: str = "t1") -> None:
        self.world = world
        self.sends: dict[Value, Seen] = {}
        self.polls: dict[tuple[int, int], list[tuple[Run, Life, Entry]]] = defaultdict(list)
        """(partition, writer) -> what was polled of that."""
        self.passes: dict[int, list[Pass]] = defaultdict(list)
        self._read_to: dict[tuple[int, int], int] = {}
        self.listings: dict[int, list[Entry]] = defaultdict(list)
        self.told: dict[int, list[tuple[Run, int]]] = defaultdict(list)
        """What rows of the table tell of a partition's offsets, with when it came: what was written counts where that
        is visible; of other outcomes a poll has to tell it."""
        self.positions: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        """(process, partition) -> (when an ok poll completed, where it left the reader)."""
        self.commits: dict[int, list[Entry]] = defaultdict(list)
        """Writes (`commit`) and reads (`offsets`) of committed offsets."""
        for life in world.lives:
            if life.topic_id == topic_id:
                for entry in [*life.entries, *life.gone]:
                    self._take(life, entry)

    def _take(self, life: Life, entry: Entry) -> None:
        row = entry.row
        p = row.partition
        for run in row.sent:
            for i in range(run.length):
                offset = None if run.offset is None else run.offset + i
                known = self.sends.get((p, run.writer, run.seq + i))
                if known is None or known.entry.row.type != "ok":
                    self.sends[p, run.writer, run.seq + i] = Seen(life, entry, offset)
        if entry.arrived is not None and not entry.rejected:
            told = [*(row.sent if row.type == "ok" else ()), *row.polled]
            self.told[p] += [(run, entry.arrived) for run in told if run.offset is not None]
        for run in row.polled:
            self.polls[p, run.writer].append((run, life, entry))
        if row.f == "poll" and row.type == "ok" and row.mode == "assign" and row.isolation == "read_committed":
            self._pass(life, entry)
        if row.f == "poll" and row.type == "ok" and row.position_after is not None:
            self.positions[life.process, p].append((entry.completed, row.position_after))
        if row.committed is not None:
            self.commits[p].append(entry)
        if row.f == "offsets" and row.log_end is not None:
            self.listings[p].append(entry)

    def _pass(self, life: Life, entry: Entry) -> None:
        """A reader has passed what lies below the last record that it was given; an empty poll passes nothing."""
        row, key = entry.row, (life.process, entry.row.partition)
        assert row.position_before is not None
        if row.polled:
            last = row.polled[-1]
            after = (last.offset or 0) + last.length
            self.passes[row.partition].append(Pass(life, entry, self._read_to.get(key, row.position_before), after))
            self._read_to[key] = after
        if entry.rejected:
            self._read_to.pop(key, None)  # what comes next tells where it stood

    def told_between(self, partition: int, start: int, end: int) -> dict[int, dict[Value, int]]:
        """The values that rows of the table tell at the offsets of [start, end), with when the first of them came."""
        found: dict[int, dict[Value, int]] = defaultdict(dict)
        for run, arrived in self.told[partition]:
            assert run.offset is not None
            for offset in range(max(start, run.offset), min(end, run.offset + run.length)):
                value = partition, run.writer, run.seq + offset - run.offset
                found[offset][value] = min(found[offset].get(value, arrived), arrived)
        return found

    def polled(self, value: Value) -> list[Seen]:
        """Every poll of a value, whatever its outcome."""
        partition, writer, seq = value
        return [
            Seen(life, entry, (run.offset or 0) + seq - run.seq)
            for run, life, entry in self.polls.get((partition, writer), ())
            if run.seq <= seq < run.seq + run.length
        ]

    def polled_ok(self, value: Value) -> Iterator[Seen]:
        return (s for s in self.polled(value) if s.entry.row.type == "ok")

    def polled_by(self, life: Life, partition: int) -> list[int]:
        """The offsets that a life polled in rows that the table holds."""
        return [
            run.offset + i
            for e in life.entries
            if e.arrived is not None and not e.rejected and e.row.partition == partition
            for run in e.row.polled
            if run.offset is not None
            for i in (0, run.length - 1)
        ]

    def past(self, process: int, partition: int, offset: int) -> int:
        """When a reader had gone past an offset for the first time; `NEVER` where it has not."""
        return min((at for at, position in self.positions[process, partition] if position > offset), default=NEVER)

    def anybody_past(self, partition: int, offset: int) -> int:
        """When the first reader had gone past an offset; `NEVER` where none has."""
        here = {process for process, p in self.positions if p == partition}
        return min((self.past(process, partition, offset) for process in here), default=NEVER)

    def read_whole(self, life: Life, partition: int, start: int, end: int) -> int | None:
        """When the table knew that a life's ok polls in assign mode, without a hole, had covered [start, end)."""
        at, arrived = start, 0
        for p in sorted((p for p in self.passes[partition] if p.life is life), key=lambda p: p.entry.completed):
            if p.before <= at < p.after and p.entry.arrived is not None and not p.entry.rejected:
                at, arrived = p.after, max(arrived, p.entry.arrived)
                if at >= end:
                    return arrived
        return None

    def passed(self, partition: int, offset: int) -> list[Pass]:
        """The passes over an offset that reached the table, in the order in which they ended."""
        over = [
            p
            for p in self.passes[partition]
            if p.before <= offset < p.after and p.entry.arrived is not None and not p.entry.rejected
        ]
        return sorted(over, key=lambda p: p.entry.completed)

    def acknowledged(self, partition: int, above: int, listing: Entry) -> list[int]:
        """Offsets at or above that were acknowledged on the listing's own boot before it was invoked."""
        return [
            s.offset
            for (p, _, _), s in self.sends.items()
            if p == partition
            and s.offset is not None
            and s.offset >= above
            and s.entry.row.type == "ok"
            and s.entry.arrived is not None
            and not s.entry.rejected
            and s.entry.row.boot == listing.row.boot
            and s.entry.completed < listing.invoked
        ]

    def given_again(self, partition: int, start: int, end: int, listing: Entry) -> int | None:
        """When the table knew that a write that was invoked on the listing's own boot after it got an offset in
        [start, end]: by another clock nobody knows whether it came after."""
        came = [
            s.entry.arrived
            for (p, _, _), s in self.sends.items()
            if p == partition
            and s.offset is not None
            and start <= s.offset <= end
            and s.entry.row.type == "ok"
            and s.entry.arrived is not None
            and not s.entry.rejected
            and s.entry.row.boot == listing.row.boot
            and s.entry.invoked > listing.completed
        ]
        return min(came, default=None)

    def exchanged_within(self, partition: int, until: int) -> int:
        """How long what one boot sent had taken at the least to be polled by another one, of those two that were the
        slowest by then: by so much more than they are their clocks may be apart, as far as the table tells."""
        least: dict[tuple[str | None, str | None], int] = {}
        for (number, writer), polls in self.polls.items():
            for run, _, entry in polls if number == partition else ():
                if (entry.arrived or NEVER) > until:
                    continue
                for seq in range(run.seq, run.seq + run.length):
                    sent = self.sends.get((number, writer, seq))
                    if sent is not None and sent.entry.row.boot != entry.row.boot:
                        pair, took = (sent.entry.row.boot, entry.row.boot), entry.completed - sent.entry.invoked
                        least[pair] = min(least.get(pair, took), took)
        return max(least.values(), default=0)

    def observed(self, partition: int, since: int) -> int | None:
        """When a listing invoked at or after `since` reached the table."""
        came = [
            e.arrived
            for e in self.listings[partition]
            if e.invoked >= since and e.arrived is not None and not e.rejected
        ]
        return min(came, default=None)

    def committed_reads(self, partition: int, since: int) -> list[Entry]:
        """The reads of committed offsets invoked since then that reached the table, in order."""
        reads = [e for e in self.commits[partition] if e.row.f == "offsets" and e.invoked >= since]
        return sorted((e for e in reads if e.arrived is not None and not e.rejected), key=lambda e: e.invoked)

    def known(self, life: Life, partition: int, since: int, until: int) -> int | None:
        """When the table held all that a life did in a partition between two times.

        Nothing where it never will: the life was lost in between, or a row between two others is missing. A life that
        was over at `since` did nothing."""
        if life.began > until:
            return 0
        doubt = self.doubt(life, until)
        if any(start - doubt <= until and end >= since for start, end in self._holes(life, partition)):
            return None
        for told in life.told:
            if told.through >= until + doubt:
                return told.arrived
        over, arrived = self._over(life)
        if over is not None and arrived is not None and over <= since:
            return arrived
        return None

    @staticmethod
    def doubt(life: Life, time: int) -> int:
        """By how much too early a time the marks of this time may be taken to tell of: they tell it by the wall clock,
        which had been ahead, and nobody knows by which of the two."""
        jumps = life.host.clock.jumps
        return max((j.by for j in jumps if j.by > 0 and j.start <= time <= j.end + ASTRAY_FOR), default=0)

    @staticmethod
    def _holes(life: Life, partition: int) -> list[tuple[int, int]]:
        """When missing rows can have happened: between the rows before and after them."""
        rows = [e for e in life.entries if e.row.partition == partition]
        holes = []
        for i, e in enumerate(rows):
            if e.rejected:
                before = [b.completed for b in rows[:i] if not b.rejected]
                after = [a.invoked for a in rows[i + 1 :] if not a.rejected]
                holes.append((max(before, default=0), min(after, default=1 << 60)))
        return holes

    def _over(self, life: Life) -> tuple[int | None, int | None]:
        """By when a life was over, as the table tells, and when it told so: its last mark, or the first that is known
        of the next boot of its host."""
        if life.finally_marked:
            return life.ended_at, life.told[-1].arrived
        if life.crashed is not None:
            boots = [b for b in life.host.boots if b > life.crashed]
            if boots:
                came = (a.arrived for a in self.world.appends if a.host == life.host.name and a.arrived >= boots[0])
                first = min(came, default=None)
                if first is not None:
                    later = (other for other in life.host.lives if other.began >= boots[0])
                    return min([first, *(e.completed for other in later for e in other.entries)]), first
        return None, None
