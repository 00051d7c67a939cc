"""The true log: what a cluster holds, and what it does wrong where a fault is planted.

A partition is a list of records by offset. Control records (transaction markers) and records that a fault removed
leave holes. A read_committed fetch ends at the last stable offset and passes over aborted records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from rules.vocabulary.slices import Run

Value = tuple[int, int, int]
"""(partition, writer, seq)."""


@dataclass(slots=True)
class Record:
    offset: int
    writer: int
    seq: int
    txn: int | None
    at: int
    exposed: bool = False
    """Given to read_committed readers whatever became of its transaction."""
    only: str | None = None
    """The one probe that it is given to, where a fault hides it from all others."""


@dataclass(slots=True)
class Txn:
    id: int
    transactional_id: str
    state: str = "open"
    first: dict[int, int] = field(default_factory=dict)
    """Partition -> the first offset that it wrote there."""
    began: int = 0
    zombie: bool = False
    """A fault: neither its timeout nor a later life ends it."""


@dataclass(slots=True)
class Partition:
    number: int
    records: list[Record] = field(default_factory=list)
    end: int = 0
    start: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """Open transaction -> its first offset here."""

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def since(self, offset: int) -> int:
        return bisect_left(self.records, offset, key=lambda r: r.offset)


@dataclass(slots=True)
class Fetched:
    records: list[Record]
    position: int
    reset: bool = False


def runs_of(records: list[Record]) -> list[Run]:
    """Records as runs, in their order."""
    runs: list[Run] = []
    begun, length = 0, 0
    for i, r in enumerate(records):
        first = records[begun]
        if length and r.writer == first.writer and r.seq - first.seq == length == r.offset - first.offset:
            length += 1
            continue
        if length:
            runs.append(Run(first.writer, first.seq, first.offset, length))
        begun, length = i, 1
    if length:
        first = records[begun]
        runs.append(Run(first.writer, first.seq, first.offset, length))
    return runs


class Group:
    """Members in the order in which they joined; each partition goes to one of them, once nobody else holds it."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.members: dict[int, set[int]] = {}
        """Process -> the partitions it holds."""

    def given(self, process: int) -> set[int]:
        """What `process` is to hold; it never holds what another has not given back."""
        order = list(self.members)
        if process not in order:
            return set()
        mine = {p for p in range(self.partitions) if order[p % len(order)] == process}
        taken = {p for other, held in self.members.items() if other != process for p in held}
        return mine - taken

    def leave(self, process: int) -> None:
        self.members.pop(process, None)


class Cluster:
    """One topic's partitions, its transactions and its groups' committed offsets. Times are true times."""

    def __init__(self, partitions: int, topic_id: str, now: Callable[[], int]) -> None:
        self.now = now
        self.topic_id = topic_id
        self.partitions = [Partition(i) for i in range(partitions)]
        self.txns: dict[int, Txn] = {}
        self.latest: dict[str, int] = {}
        """transactional id -> the life (process) that initialised it last."""
        self.groups: dict[str, Group] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.commits: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)  # what was ever committed, since when
        """Every offset whose commit was ever invoked."""
        self.appended: dict[Value, list[int]] = defaultdict(list)
        """Every offset that a value was ever written at."""
        self.on_append: list[Callable[[Partition, Record], bool]] = []
        """Faults that wait for a record: called before it is stored; true keeps it out of the log."""
        self.on_commit: list[Callable[[str, int, int, int | None], bool]] = []
        """Faults that wait for a committed offset (group, partition, offset, what was there); true drops it."""
        self.on_end: list[Callable[[Txn, bool], bool]] = []
        """Faults that wait for the end of a transaction."""
        self.told_committed: dict[tuple[str, int], int | None] = {}
        """A fault in OffsetFetch: what is told of a group and partition in place of the truth."""
        self.listed: Callable[[Partition], tuple[int, int, int] | None] = lambda partition: None
        """A fault in ListOffsets: (log start, log end, last stable) in place of the truth."""

        self.on_refusal: list[Callable[[int, Run], None]] = []
        """Faults that wait for a send that is refused."""

    # Writes.

    def refuse(self, number: int, run: Run) -> None:
        """A send that certainly fails: nothing is stored, but for a fault."""
        for fault in self.on_refusal:
            fault(number, run)

    def append(self, number: int, writer: int, seq: int, txn: int | None = None) -> int:
        p = self.partitions[number]
        record = Record(p.end, writer, seq, txn, self.now())
        p.end += 1
        if txn is not None:
            t = self.txns[txn]
            t.first.setdefault(number, record.offset)
            p.open.setdefault(txn, record.offset)
        self.appended[number, writer, seq].append(record.offset)
        struck = [fault(p, record) for fault in self.on_append] if self.on_append else ()
        if not any(struck):
            p.records.append(record)
        return record.offset

    def begin(self, txn: int, transactional_id: str) -> None:
        self.txns[txn] = Txn(txn, transactional_id, began=self.now())

    def end(self, txn: int, *, commit: bool) -> bool:
        """Writes the markers; false where the transaction is over already."""
        t = self.txns[txn]
        if t.state != "open":
            return False
        for fault in list(self.on_end):
            fault(t, commit)
        t.state = "committed" if commit else "aborted"
        for number in t.first:
            p = self.partitions[number]
            p.open.pop(txn, None)
            p.end += 1
        return True

    def fence(self, transactional_id: str) -> None:
        """`init_transactions`: what an earlier life left open is aborted."""
        for t in self.txns.values():
            if t.transactional_id == transactional_id and t.state == "open" and not t.zombie:
                self.end(t.id, commit=False)

    # Reads.

    def fetch(self, number: int, position: int, isolation: str, most: int, reader: str = "") -> Fetched:
        p = self.partitions[number]
        reset = position < p.start or position > p.end
        if position < p.start:
            position = p.start
        position = min(position, p.end)
        until = p.stable if isolation == "read_committed" else p.end
        out: list[Record] = []
        for record in p.records[p.since(position) :]:
            if record.offset >= until:
                break
            if isolation == "read_committed" and not self._committed(record):
                continue
            if record.only not in (None, reader):
                continue
            if len(out) == most:
                return Fetched(out, out[-1].offset + 1, reset)
            out.append(record)
        return Fetched(out, max(position, until), reset)

    def _committed(self, record: Record) -> bool:
        return record.txn is None or record.exposed or self.txns[record.txn].state == "committed"

    def listing(self, number: int) -> tuple[int, int, int]:
        """(log start, log end, last stable offset)."""
        p = self.partitions[number]
        lie = self.listed(p)
        return lie if lie is not None else (p.start, p.end, p.stable)

    # Committed offsets.

    def commit(self, group: str, number: int, offset: int) -> None:
        before = self.committed.get((group, number))
        self.commits[group, number].setdefault(offset, self.now())
        struck = [fault(group, number, offset, before) for fault in self.on_commit]
        if not any(struck):
            self.committed[group, number] = offset

    def read_committed_offset(self, group: str, number: int) -> int | None:
        if (group, number) in self.told_committed:
            return self.told_committed[group, number]
        return self.committed[group, number]

    # What an operator does.

    def delete_to(self, number: int, offset: int) -> None:
        """DeleteRecords, or retention: the log starts at `offset` from now on (not past the last stable offset)."""
        p = self.partitions[number]
        p.start = max(p.start, min(offset, p.stable))
        del p.records[: p.since(p.start)]

    # Faults.

    def remove(self, number: int, offset: int) -> Record | None:
        """The record at `offset` is gone and leaves a hole."""
        p = self.partitions[number]
        i = p.since(offset)
        if i < len(p.records) and p.records[i].offset == offset:
            return p.records.pop(i)
        return None

    def insert(self, number: int, record: Record) -> None:
        p = self.partitions[number]
        p.records.insert(p.since(record.offset), record)

    def cut(self, number: int, to: int) -> list[Record]:
        """An unclean election: the log ends at `to` from now on, and goes on from there."""
        p = self.partitions[number]
        i = p.since(to)
        gone = p.records[i:]
        del p.records[i:]
        p.end = min(p.end, to)
        return gone

    def put_back(self, number: int, records: list[Record], to: int, end: int) -> list[Record]:
        """A disk is put back: from `to` on the log holds what it held before, and ends at `end`. What took its place is
        gone."""
        gone, p = self.cut(number, to), self.partitions[number]
        p.records.extend(record for record in records if record.offset >= p.start)
        p.end = end
        return gone
