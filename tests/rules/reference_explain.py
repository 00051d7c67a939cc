"""What the rows tell of a range of offsets, offset by offset and read by read: slow, and by the letter of
`rules.audit.explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rules.audit.readings import SKEW_BOUND
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros

Value = tuple[int, int]
Told = tuple[str, tuple[int, ...], dict[str, Any], int]
"""Anomaly, subject, evidence, time."""


@dataclass
class Reading:
    """One operation's: offset -> the values it got there (none of an irregular record), and what it went over."""

    row: Slice
    values: dict[int, set[Value]] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)

    @property
    def completed(self) -> int:
        return micros(self.row.completed)

    def before(self, other: Reading) -> bool:
        same = (self.row.boot or "") == (other.row.boot or "")
        if same and self.row.mono_completed is not None and other.row.mono_invoked is not None:
            return self.row.mono_completed < other.row.mono_invoked
        return self.completed + (0 if same else SKEW_BOUND) < micros(other.row.invoked)

    def begun_before(self, other: Reading) -> bool:
        same = (self.row.boot or "") == (other.row.boot or "")
        if same and self.row.mono_invoked is not None and other.row.mono_completed is not None:
            return self.row.mono_invoked < other.row.mono_completed
        return micros(self.row.invoked) + (0 if same else SKEW_BOUND) < other.completed


def readings(rows: Iterable[Slice]) -> list[Reading]:
    found: list[Reading] = []
    stands: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: (row.process, row.slice)):
        stood = row.position_before if row.position_before is not None else stands.get(row.process)
        if row.f == "close" or (
            row.f in ("assign", "subscribe", "revoke") and row.assigned is False and row.type != "fail"
        ):
            stands.pop(row.process, None)
        if row.f not in ("poll", "txn") or row.isolation == "read_uncommitted" or not (row.polled or row.irregular):
            continue
        read = Reading(row)
        for run in row.polled:
            assert run.offset is not None
            for i in range(run.length):
                read.values.setdefault(run.offset + i, set()).add((run.writer, run.seq + i))
        for record in row.irregular:
            read.values.setdefault(record.offset, set())
        spans = _stretches(row, stood, min(read.values), max(read.values) + 1)
        if row.type == "ok":
            ends = [run.offset + run.length for run in row.polled if run.offset is not None]
            stands[row.process] = ends[-1] if len(spans) > 1 else max(read.values) + 1
            stayed = row.mode != "subscribe" or (row.f == "poll" and row.position_before is not None)
            if stayed and not row.rebalanced:
                read.over = {offset for low, high in spans for offset in range(low, high)}
        found.append(read)
    return found


def _stretches(row: Slice, stood: int | None, first: int, end: int) -> list[tuple[int, int]]:
    """What a poll went over: upward without a break, or from each place to which it went back."""
    runs = [(run.offset, run.offset + run.length) for run in row.polled if run.offset is not None]
    parts: list[list[tuple[int, int]]] = []
    for run in runs:
        if parts and run[0] >= parts[-1][-1][1]:
            parts[-1].append(run)
        else:
            parts.append([run])
    if len(parts) < 2:
        return [(stood if stood is not None and stood <= first else first, end)]
    spans = [(part[0][0], part[-1][1]) for part in parts]
    if stood is not None and stood <= spans[0][0]:
        spans[0] = stood, spans[0][1]
    return spans


def explained(rows: Sequence[Slice], start: int, end: int) -> Iterator[Told]:
    reads = readings(rows)
    failed = {
        (run.writer, run.seq + i) for row in rows if row.type == "fail" for run in row.sent for i in range(run.length)
    }
    listed = [row for row in rows if row.f == "offsets" and row.log_start is not None]
    low = {id(read): _log_start_after(read, listed) for read in reads}
    for offset in range(start, end):
        having = [read for read in reads if read.values.get(offset)]
        found = sorted({value for read in having for value in read.values[offset]})
        if len(found) > 1:
            seen = [min(r.completed for r in having if value in r.values[offset]) for value in found]
            told = {"offset": offset, "values": [{"writer": w, "seq": s} for w, s in found]}
            yield "inconsistent-offsets", (offset,), told, max(seen)
            continue
        without = [read for read in reads if offset in read.over and offset not in read.values]
        without = [read for read in without if low[id(read)] <= offset]
        without = [read for read in without if not any(_left_behind(one, read) for one in having)]
        if not having or not without or found[0] in failed:
            continue
        late = _that_tell_of(found[0], without, rows)
        for name, first, second in (("vanished-record", having, without), ("late-record", late, having)):
            pairs = [(a, b) for a in first for b in second if a.before(b)]
            if pairs:
                a, b = min(pairs, key=lambda pair: (pair[1].completed, pair[0].completed))
                saw, passed = (a, b) if name == "vanished-record" else (b, a)
                yield _missing(name, offset, found[0], saw, passed)
                break


def _log_start_after(read: Reading, listed: Sequence[Slice]) -> int:
    """As it was observed first after the read, by the observers of each boot, or higher before."""
    later = [Reading(row) for row in listed if read.before(Reading(row))]
    first = {one.row.boot or "": one for one in sorted(later, key=lambda one: -micros(one.row.invoked))}
    rest = [row.log_start or 0 for row in listed if not read.before(Reading(row))]
    if not first:
        return max(rest, default=0)
    return max([min(one.row.log_start or 0 for one in first.values()), *rest])


def _that_tell_of(value: Value, without: list[Reading], rows: Sequence[Slice]) -> list[Reading]:
    """Where somebody had passed the offset before the value was sent, those that certainly came after that."""
    sent = [
        (run.seq, micros(row.invoked), i, Reading(row))
        for i, row in enumerate(rows)
        for run in row.sent
        if run.writer == value[0] and run.seq <= value[1] < run.seq + run.length
    ]
    if not sent or not any(read.before(min(sent, key=lambda one: one[:3])[3]) for read in without):
        return without
    return [read for read in without if min(sent, key=lambda one: one[:3])[3].begun_before(read)]


def _left_behind(read: Reading, other: Reading) -> bool:
    """It read here and failed, and its process went on without going back."""
    return read.row.type != "ok" and read.row.process == other.row.process and read.row.op < other.row.op


def _missing(name: str, offset: int, value: Value, saw: Reading, passed: Reading) -> Told:
    evidence = {
        "writer": value[0],
        "seq": value[1],
        "offset": offset,
        "process": saw.row.process,
        "op": saw.row.op,
        "passed_process": passed.row.process,
        "passed_op": passed.row.op,
        "apart_s": round(abs(passed.completed - saw.completed) / 1e6, 6),
    }
    return name, (offset, *value), evidence, max(saw.completed, passed.completed)
