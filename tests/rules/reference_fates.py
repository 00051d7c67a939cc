"""The reference checker's second half: what became of writes, what readers saw at different times, what was told.

As plain as `tests.rules.reference`, whose history and logs it takes: one function an anomaly, dictionaries and sets.
All times are compared on one host's clock, which is what the random histories have.

The terms, beside those:

- A value is *shown* if an ok operation polled it at read_committed.
- A reader in assign mode *passed* an offset in an ok operation at read_committed if two records that it polled one
  after the other lie on both sides of it, within the operation or from the last one that polled to this.
- A transaction's *values* are those of its operation, in all partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from rules.checks.transactions.transaction_runs import SAYS_FAILURE
from tests.rules.reference import Found, Log, Part, Record, Value

Operation = tuple[int, int]


def shown_values(log: Log) -> set[Value]:
    """Of all partitions."""
    return {r.value for p in log.history.parts if p.ok and p.committed_only for r in p.polled if r.value}


def passes(log: Log) -> Iterator[tuple[Part, Record, Record]]:
    """Steps upward of readers in assign mode: the operation that went on, and the records on both sides."""
    for parts in log.processes():
        last: Record | None = None
        for part in parts:
            moved = part.row.f in ("assign", "subscribe", "revoke") and part.row.type != "fail"
            if moved and part.row.assigned is False:
                last = None
            if not part.ok or not part.committed_only or not part.polled:
                continue
            for one, other in pairwise([*([last] if last else []), *part.polled]):
                if part.row.mode != "subscribe" and one.offset is not None and other.offset is not None:
                    yield part, one, other
            last = part.polled[-1]


def passed(log: Log, offset: int) -> list[Part]:
    """The operations that passed this offset."""
    return [p for p, one, other in passes(log) if one.offset < offset < other.offset]  # type: ignore[operator]


# What became of writes.


def phantom_read(log: Log) -> Iterator[Found]:
    highest: dict[int, int] = {}
    for part in log.parts:
        for record in part.sent:
            assert record.value is not None
            highest[record.value.writer] = max(highest.get(record.value.writer, -1), record.value.seq)
    for part in log.parts:
        if part.ok:
            for record in part.polled:
                value = record.value
                if value is None or record.irregular is not None or value.writer not in highest:
                    continue
                if value.seq > highest[value.writer]:
                    yield "phantom-read", log.subject(value)


def transactions(log: Log) -> dict[int, list[Part]]:
    """The parts of every transaction that wrote, in all partitions."""
    found: dict[int, list[Part]] = defaultdict(list)
    for part in log.history.parts:
        if part.row.txn is not None and part.row.f == "txn" and part.sent:
            found[part.row.txn].append(part)
    return found


def torn_transaction(log: Log) -> Iterator[Found]:
    """Reported once a transaction: by the first of the partitions that it wrote to."""
    shown = shown_values(log)
    for number, parts in transactions(log).items():
        if min(p.row.place for p in parts) != log.place:
            continue
        if not any(record.value in shown for part in parts for record in part.sent):
            continue
        if any(_absent(log.history.logs[part.row.place], record, shown) for part in parts for record in part.sent):
            yield "torn-transaction", (number,)


def _absent(log: Log, record: Record, shown: set[Value]) -> bool:
    if record.value in shown or record.offset is None or record.offset < log.log_start():
        return False
    return bool(passed(log, record.offset)) or record.offset in read_over(log)


def read_over(log: Log) -> set[int]:
    """Offsets at which a reader in assign mode got something, in ok operations."""
    readers = [p for p in log.parts if p.ok and p.committed_only and p.row.mode != "subscribe"]
    return {r.offset for p in readers for r in p.polled if r.offset is not None}


def zombie_write(log: Log) -> Iterator[Found]:
    shown = shown_values(log)
    for parts in transactions(log).values():
        for part in parts:
            seen = part.row.type != "fail" and any(r.value in shown for r in part.sent)
            if part.row.place == log.place and seen and _is_zombie(log, part):
                yield "zombie-write", part.operation


def _is_zombie(log: Log, part: Part) -> bool:
    ended: datetime | None = part.row.end_invoked
    inits = [p for p in log.parts if p.row.f == "init" and p.ok and p.row.transactional_id == part.row.transactional_id]
    own = [p.row.completed for p in inits if p.row.process == part.row.process]
    if ended is None:
        return bool(own) and part.row.type == "info"
    begun = max((time for time in own if time <= ended), default=None)
    if begun is None:
        return False
    return any(begun < p.row.completed < ended for p in inits if p.row.process != part.row.process)


def dirty_read(log: Log) -> Iterator[Found]:
    for part in log.parts:
        row = part.row
        asked = row.end_invoked if row.f == "txn" and row.type != "fail" and row.txn_intent == "commit" else None
        if asked is None or row.txn is None:
            continue
        sent = {record.value for record in part.sent}
        for reader in log.parts:
            early = reader.ok and reader.committed_only and reader.row.completed < asked
            if early and any(record.value in sent for record in reader.polled if record.value is not None):
                yield "dirty-read", (row.txn, *reader.operation)


def misleading_error(log: Log) -> Iterator[Found]:
    shown = shown_values(log)
    for part in log.parts:
        told = part.row.type == "info" and part.row.error in SAYS_FAILURE
        if told and part.row.f in ("send", "txn") and any(r.value in shown for r in part.sent):
            yield "misleading-error", part.operation


def eos_violation_twice(log: Log) -> Iterator[Found]:
    """An input that two committed outputs of a group in this partition name, or one of them twice."""
    counts: dict[tuple[str, int, int], int] = defaultdict(int)
    for part in log.parts:
        if part.operation in log.history.visible_operations:
            for run in part.row.sources:
                for i in range(run.length):
                    counts[part.row.group or "", run.writer, run.seq + i] += 1
    for (group, writer, seq), count in counts.items():
        if count > 1:
            yield "eos-violation", ("twice", group, writer, seq)


# What readers saw at different times.


def vanished_or_late(log: Log) -> Iterator[Found]:
    """Where both hold, it is said that the record vanished."""
    seen: dict[tuple[int, Value], list[Part]] = defaultdict(list)
    for part in log.parts:
        if part.committed_only:
            for record in part.polled:
                if record.offset is not None and record.value is not None and record.irregular is None:
                    seen[record.offset, record.value].append(part)
    for (offset, value), having in seen.items():
        if "fail" in log.history.outcomes[value] or len({v for o, v in seen if o == offset}) > 1:
            continue
        without = [
            p
            for p in passed(log, offset)
            if offset not in {r.offset for r in p.polled}
            and offset >= log.log_start()
            and not p.row.rebalanced
            and not any(_left_behind(a, p) for a in having)
        ]
        subject = (offset, value.writer, value.seq)
        if any(a.row.completed < b.row.invoked for a in having for b in without):
            yield "vanished-record", subject
        elif any(b.row.completed < a.row.invoked for a in having for b in _that_tell_of(log, value, without)):
            yield "late-record", subject


def _that_tell_of(log: Log, value: Value, without: list[Part]) -> list[Part]:
    """Where somebody had passed the offset before the value was sent, those that came after that."""
    sent = [part.row for part in log.parts if any(record.value == value for record in part.sent)]
    first = min(sent, key=lambda row: row.invoked, default=None)
    if first is None or not any(part.row.completed < first.invoked for part in without):
        return without
    return [part for part in without if first.invoked < part.row.completed]


def _left_behind(failed: Part, later: Part) -> bool:
    """A consumer does not go back by itself to what an operation read that did not succeed."""
    return not failed.ok and failed.row.process == later.row.process and failed.row.op < later.row.op


# What offsets told.


def offset_regression(log: Log) -> Iterator[Found]:
    reads = [p.row for p in log.parts if p.row.f == "offsets" and p.ok and p.row.committed and p.row.group]
    invoked = {(p.row.group, p.row.committed) for p in log.parts if p.row.f == "commit"}
    for row in reads:
        before = [r for r in reads if r.group == row.group and r.completed <= row.invoked and r is not row]
        if before:
            last = max(before, key=lambda r: (r.completed, r.committed))
            assert last.committed is not None and row.committed is not None and row.group is not None
            if row.committed < last.committed and (row.group, row.committed) not in invoked:
                yield "offset-regression", (row.group, last.committed, row.committed)


def lost_commit(log: Log) -> Iterator[Found]:
    """All commits and reads of these histories are one process's, on one host. What had been acknowledged when the same
    offset was told before was lost with that."""
    losses: list[tuple[str, int, Any]] = []
    for read, commits in _told(log):
        told = -1 if read.committed is None else read.committed
        if told == 0 and not any(c.committed == 0 for c in commits):
            continue
        if told >= 0 and any(c.type == "info" and c.committed == told for c in commits):
            continue
        missed = []
        for one in commits:
            if one.type != "ok" or one.completed > read.invoked or one.committed <= told:
                continue
            lower = [
                c
                for c in commits
                if c.committed < one.committed and c.completed >= one.invoked and c.invoked <= read.completed
            ]
            if told < 0 or not lower:
                missed.append(one)
        if missed:
            newest = max(missed, key=lambda c: c.completed)
            if not any((g, t) == (read.group, told) and newest.completed <= asked for g, t, asked in losses):
                losses.append((read.group, told, read.invoked))
                yield "lost-commit", (read.group, newest.committed, told)


def foreign_commit(log: Log) -> Iterator[Found]:
    """What is told of a group when nothing else is known of it may be from before the log."""
    known: dict[str, set[int]] = defaultdict(set)
    earlier: list[Any] = []
    for read, commits in _told(log):
        group = known[read.group]
        before = [
            r
            for r in (*earlier, *(c for c in commits if c.type == "ok"))
            if r.completed <= read.invoked and r.group == read.group
        ]
        earlier.append(read)
        if not read.committed or read.committed in group or any(c.committed == read.committed for c in commits):
            continue
        if not before:
            group.add(read.committed)
        elif max(before, key=lambda r: r.completed).committed != read.committed:
            yield "foreign-commit", (read.group, read.committed)


def _told(log: Log) -> Iterator[tuple[Any, list[Any]]]:
    """What was told of groups, in the order of times, each with all commits of its group, whenever they were."""
    rows = sorted((p.row for p in log.parts), key=lambda row: row.completed)
    for read in rows:
        if read.f == "offsets" and read.type == "ok" and read.group:
            commits = [r for r in rows if r.f == "commit" and r.group == read.group and r.committed is not None]
            yield read, commits


def log_truncation(log: Log) -> Iterator[Found]:
    """A listing short of what was known, and a write invoked after it that got an offset between the two, before a
    listing was above all that was known. An end of 0 is short only where the next listing bears it out."""
    listings = [p.row for p in log.parts if p.row.f == "offsets" and p.row.type != "fail" and p.row.log_end is not None]
    listings.sort(key=lambda row: row.completed)
    above = [row.log_end > _known(log, row.invoked) for row in listings]  # type: ignore[operator]
    for i, row in enumerate(listings):
        known = _known(log, row.invoked)
        if above[i] or (row.log_end == 0 and known > 0 and (above[i + 1 : i + 2] or [True])[0]):
            continue
        until = next((later.invoked for j, later in enumerate(listings) if j > i and above[j]), None)
        written = [
            record.offset
            for part in log.parts
            if _acknowledged(part) and part.row.invoked > row.invoked and (until is None or part.row.invoked < until)
            for record in part.sent
            if record.offset is not None
        ]
        assert row.log_end is not None
        if any(row.log_end <= offset <= known for offset in written):
            yield "log-truncation", (known,)


def _acknowledged(part: Any) -> bool:
    """Do the offsets of what it sent tell where the log stood? In a transaction each record was acknowledged by itself,
    whatever became of the transaction."""
    return bool(part.ok or part.row.f == "txn")


def _known(log: Log, time: datetime) -> int:
    """The highest offset polled, or acknowledged, before this time."""
    offsets = [
        record.offset
        for part in log.parts
        if part.row.completed < time
        for record in [*(r for r in part.polled if r.irregular is None), *(part.sent if _acknowledged(part) else [])]
    ]
    return max((offset for offset in offsets if offset is not None), default=-1)


FATES: tuple[Callable[[Log], Iterator[Found]], ...] = (
    phantom_read,
    torn_transaction,
    zombie_write,
    dirty_read,
    misleading_error,
    eos_violation_twice,
    vanished_or_late,
    offset_regression,
    lost_commit,
    foreign_commit,
    log_truncation,
)
