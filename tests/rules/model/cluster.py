"""The log itself: partitions, transactions, markers, retention, and what a fetch shows of them.

A record's fate is its transaction's: open, committed or aborted. A transaction that ends leaves a marker in each
partition that it wrote to; the last stable offset stands at the first record of the oldest open one. Retention moves
the log start, never past an open transaction. `Lie`s are what a broken cluster would show instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rules.vocabulary.slices import Irregular, Run
from tests.rules.model.journal import Where


@dataclass
class Transaction:
    """`began` is true time; `touched`: partitions that it wrote to."""

    number: int
    id: str
    owner: str
    began: float
    state: Literal["open", "committed", "aborted"] = "open"
    touched: set[Where] = field(default_factory=set)


@dataclass
class Record:
    """One record; `writer` 0 is a transaction's marker. `home` is where its tag says that it belongs."""

    writer: int
    seq: int
    home: Where
    transaction: Transaction | None = None
    broken: bool = False

    @property
    def marker(self) -> bool:
        return self.writer == 0

    @property
    def state(self) -> Literal["open", "committed", "aborted"]:
        return self.transaction.state if self.transaction else "committed"


class Seen(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    record: Record


@dataclass
class Lie:
    """What is shown at one offset instead of what stands there: nothing (`record` None), or this record. `to` tells
    for a reader's name whether it is lied to; `always`: whatever the record's transaction and the stable offset."""

    record: Record | None
    to: Callable[[str], bool] = lambda _: True
    always: bool = True


@dataclass
class Partition:
    """One log."""

    where: Where
    log: list[Record] = field(default_factory=list)
    start: int = 0
    open: dict[int, int] = field(default_factory=dict)  # transaction number -> first offset
    lies: dict[int, Lie] = field(default_factory=dict)
    stuck_at: int | None = None  # the last stable offset does not go past this
    veiled: int | None = None  # nobody is shown what lies from here on

    @property
    def end(self) -> int:
        return len(self.log)

    @property
    def stable(self) -> int:
        held = min(self.open.values(), default=self.end)
        return held if self.stuck_at is None else min(held, self.stuck_at)

    def keep_from(self, offset: int) -> None:
        """Delete what lies below."""
        self.start = max(self.start, offset)

    def append(self, writer: int, seqs: list[int], transaction: Transaction | None = None) -> int:
        """Append these values of one writer; returns the first offset."""
        first = self.end
        self.log.extend(Record(writer, seq, self.where, transaction) for seq in seqs)
        if transaction is not None:
            transaction.touched.add(self.where)
            self.open.setdefault(transaction.number, first)
        return first

    def fetch(self, reader: str, position: int, limit: int, *, committed: bool) -> tuple[list[Seen], int]:
        """Up to `limit` records from `position` on, and the position after them: past the markers and aborted records
        that follow the last one, as far as they can be read."""
        offset, end = max(position, self.start), self.stable if committed else self.end
        last = self.end if self.veiled is None else self.veiled
        found: list[Seen] = []
        while offset < last:
            record: Record | None = self.log[offset]
            assert record is not None
            readable = not record.marker and (not committed or record.state == "committed")
            reached = offset < end
            lie = self.lies.get(offset)
            if lie is not None and lie.to(reader):
                record = lie.record
                readable = record is not None and (lie.always or readable)
                reached = reached or (readable and lie.always)
            if not reached or (readable and len(found) == limit):
                break
            if readable and record is not None:
                found.append(Seen(offset, record))
            offset += 1
        return found, offset


class Cluster:
    """All partitions, and the transactions' coordinator."""

    def __init__(self, places: tuple[Where, ...]) -> None:
        self.partitions = {where: Partition(where) for where in places}
        self._transactions = 0
        self.current: dict[str, Transaction] = {}
        """Transactional id -> its open transaction."""

    def begin(self, id: str, owner: str, time: float) -> Transaction:
        self._transactions += 1
        self.current[id] = Transaction(self._transactions, id, owner, time)
        return self.current[id]

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Write the markers, and let everybody read on."""
        transaction.state = "committed" if commit else "aborted"
        for where in sorted(transaction.touched):
            partition = self.partitions[where]
            partition.open.pop(transaction.number, None)
            partition.log.append(Record(0, 0, where))
        if self.current.get(transaction.id) is transaction:
            del self.current[transaction.id]

    def init(self, id: str) -> None:
        """init_transactions: whatever an earlier life left open is aborted."""
        if id in self.current:
            self.end(self.current[id], commit=False)


def told(seen: list[Seen], where: Where) -> tuple[list[Run], list[Irregular]]:
    """What a poll's row says of these records: runs, and singly what is in none."""
    runs: list[Run] = []
    odd: list[Irregular] = []
    for index, (offset, record) in enumerate(seen):
        if record.broken:
            odd.append(Irregular(index, offset, "corrupted", checksum(record)))
        elif record.home != where:
            odd.append(
                Irregular(
                    index,
                    offset,
                    "relocated",
                    checksum(record),
                    record.writer,
                    record.seq,
                    record.home.topic,
                    record.home.partition,
                )
            )
        else:
            last = runs[-1] if runs else None
            follows = last is not None and not (odd and odd[-1].index == index - 1)
            if (
                follows
                and last is not None
                and last.offset is not None
                and (last.writer, last.seq + last.length, last.offset + last.length)
                == (record.writer, record.seq, offset)
            ):
                runs[-1] = last._replace(length=last.length + 1)
            else:
                runs.append(Run(record.writer, record.seq, offset, 1))
    return runs, odd


def checksum(record: Record) -> int:
    """Stands for the checksum of the record's bytes."""
    return (record.writer * 31 + record.seq) % 2**31
