"""`vanished-record` and `late-record`: how two readers came to see one range of the log differently.

Digests (`rules.audit.digests`) and skips (`rules.checks.order.poll_order`) only tell that they did. Here are the rows
of that range: what each operation polled, and what it passed over. At each offset

- two values are `inconsistent-offsets`;
- a value that was polled before an operation began that passed the offset without it is a `vanished-record`;
- a value that was polled by an operation that began after another had passed the offset without it is a `late-record`,
  unless it was sent there after that: a log that was cut gives offsets again.

A value whose write certainly failed was exposed (`G1a`), and vanished nowhere.

"Before" is concluded within one boot's monotonic clock (in a file: its own time), and between boots when the gap
exceeds `rules.audit.readings.SKEW_BOUND`. A pass proves a hole only where a reader went over it in an ok operation at
read_committed that no rebalance can have moved: in assign mode, or in a poll before which its client said where it
stood. And only where the log start, as it was observed first after it, is not above the offset: retention sends a
reader forward, and what it removes later it says nothing of.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules.arrays import intervals
from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    FAIL,
    POLL,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
    Runs,
)
from rules.arrays.intervals import Ints, indices
from rules.audit.leader_epochs import epoch_of, epochs_around
from rules.audit.readings import Excerpt, Read, Readings, around_each_log_start
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Place

SHOWN: Final = 100
"""Findings of each name that one explanation lists; the last one of a name says how many there are beyond."""


def concerns(rows: pa.Table, ranges: Sequence[tuple[int, int]]) -> pa.Array:
    """Which rows of a partition `explain` needs for these ranges [start, end): a mask. Those that polled there or went
    over it, those that sent there, or nobody knows where, those that begin or end a reader's hold, and the first and
    the last of each log start that observers saw."""
    readings = Readings(rows)
    columns, first, last = readings.columns, readings.first, readings.last
    low = np.where(columns.position_before >= 0, np.minimum(columns.position_before, first), first)
    high = np.maximum(last + 1, columns.position_after)
    wanted = intervals.merge(*np.array(ranges, np.int64).reshape(-1, 2).T)
    reads = columns.where(POLL, TXN) & (first >= 0) & intervals.touched(*wanted, low, high)
    others = np.asarray((columns.type == FAIL) & (_sent(columns) > 0))
    others |= columns.where(ASSIGN, SUBSCRIBE, REVOKE, CLOSE)
    others[around_each_log_start(columns)] = True
    sent = columns.sent
    there = (sent.offset < 0) | intervals.touched(*wanted, sent.offset, sent.offset + sent.length)
    others[sent.row[there]] = True
    return pa.array(reads | others)


def _sent(columns: Columns) -> Ints:
    return np.bincount(columns.sent.row, minlength=len(columns))


def explain(readings: Readings, place: Place, start: int, end: int, *, finished: bool = True) -> list[Finding] | None:
    """What the offsets [start, end) of one partition hold, by what was read of it. None where the log start was not
    observed after the last read and the history goes on: ask again."""
    columns, excerpt = readings.columns, readings.excerpt(start, end)
    if not len(excerpt.rows):
        return []
    if not finished and readings.observed < int(columns.completed[excerpt.rows].max()):
        return None
    topic = columns.table["topic"][0].as_py()
    findings: list[Finding] = []
    counts: Counter[str] = Counter()
    shown: dict[str, int] = {}
    for first, length, differences in _differences(readings, excerpt, start):
        kind = differences(first)[0]
        for offset in range(first, first + max(0, min(length, SHOWN - counts[kind]))):
            name, subject, message, evidence, at = differences(offset)
            shown[kind] = len(findings)
            findings.append(
                Finding(
                    anomaly=name,
                    cluster=place.cluster,
                    topic_id=place.topic_id,
                    topic=topic,
                    partition=place.partition,
                    subject=subject,
                    message=message,
                    evidence=evidence,
                    at=at,
                    decidable=at,
                )
            )
        counts[kind] += length
    for kind, i in shown.items():
        if counts[kind] > SHOWN:
            evidence = {**findings[i].evidence, "more_of_the_same": counts[kind] - SHOWN}
            findings[i] = replace(findings[i], evidence=evidence)
    return findings


Difference = tuple[str, tuple[int, ...], str, dict[str, Any], int]
"""A finding's anomaly, subject, message, evidence and time."""
Label = tuple[int, int]
"""A writer, and the distance from its sequence numbers to the offsets: what all records of a run share."""
Entry = tuple[int, int, int, Label | None]
"""Offsets [start, end) in which a read (its number in the excerpt) polled values of a label, or (None) nothing."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [start, end) of which the same is known at each: who has which values, and who passed with none. Reads
    are numbers of the excerpt."""

    start: int
    end: int
    having: list[tuple[int, Label]]
    without: list[int]


def _differences(
    readings: Readings, excerpt: Excerpt, start: int
) -> Iterator[tuple[int, int, Callable[[int], Difference]]]:
    """(first offset, how many, what is told of each) where readers saw the log differently at or above `start`, in the
    order of the offsets."""
    values, holes = excerpt.values, excerpt.holes()
    ends = values.offset + values.length
    shift = values.offset - values.seq
    where = _interesting(values, shift, holes)
    where = where[0][where[1] > start], where[1][where[1] > start]
    if not len(where[0]):
        return
    where[0][0] = max(where[0][0], start)
    seen = indices(intervals.touched(*where, values.offset, ends))
    passed = indices(intervals.touched(*where, holes[1], holes[2]))
    labels = list(zip(values.writer[seen].tolist(), shift[seen].tolist(), strict=True))
    reads = {i: readings.read(int(excerpt.rows[i])) for i in {*values.row[seen].tolist(), *holes[0][passed].tolist()}}
    entries: list[Entry] = [
        *zip(values.offset[seen].tolist(), ends[seen].tolist(), values.row[seen].tolist(), labels, strict=True),
        *((a, b, r, None) for r, a, b in zip(*(column[passed].tolist() for column in holes), strict=True)),
    ]
    for stretch in _stretches(entries, where):
        yield from _told(stretch, reads, readings)


def _interesting(values: Runs, shift: Ints, holes: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints]:
    """The offsets that have several values, or a value for some and none for others: merged intervals."""
    _, writer = intervals.numbered(values.writer)
    shifts, number = intervals.numbered(shift)
    _, start, end = intervals.merge_grouped(writer * len(shifts) + number, values.offset, values.offset + values.length)
    several = intervals.deeper(start, end)
    missed = intervals.intersect(*intervals.merge(start, end), *intervals.merge(holes[1], holes[2]))
    return intervals.merge(*(np.concatenate(pair) for pair in zip(several, missed, strict=True)))


def _stretches(entries: list[Entry], where: tuple[Ints, Ints]) -> Iterator[Stretch]:
    """The offsets of `where` (merged), cut at the bounds of all entries."""
    entries.sort(key=lambda entry: entry[0])
    bounds = np.array([entry[:2] for entry in entries], np.int64).reshape(-1)
    cuts = np.unique(np.concatenate((bounds, *where)))
    wanted = intervals.touched(*where, cuts[:-1], cuts[1:]).tolist()
    begun = np.searchsorted(bounds[::2], cuts, side="right").tolist()
    active: list[tuple[int, int]] = []  # (end, place in entries) as a heap
    at = 0
    for start, end, inside, until in zip(cuts[:-1].tolist(), cuts[1:].tolist(), wanted, begun[:-1], strict=True):
        for i in range(at, until):
            heapq.heappush(active, (entries[i][1], i))
        at = until
        while active and active[0][0] <= start:
            heapq.heappop(active)
        if inside:
            own = [entries[i] for _, i in active]
            having = sorted((read, label) for _, _, read, label in own if label is not None)
            yield Stretch(start, end, having, sorted(read for _, _, read, label in own if label is None))


def _told(
    stretch: Stretch, reads: Mapping[int, Read], readings: Readings
) -> Iterator[tuple[int, int, Callable[[int], Difference]]]:
    """What a stretch tells: see `_differences`."""
    labels = sorted({label for _, label in stretch.having}, key=lambda label: (label[0], -label[1]))
    if len(labels) > 1:
        first = {
            label: min((reads[r] for r, own in stretch.having if own == label), key=lambda read: read.completed)
            for label in labels
        }
        yield stretch.start, stretch.end - stretch.start, lambda offset: _inconsistent(readings, first, offset)
        return
    having = [reads[read] for read, _ in stretch.having]
    left = _left_behind(having)
    without = [read for read in map(reads.__getitem__, stretch.without) if left.get(read.process, read.op) >= read.op]
    if not having or not without:
        return
    ((writer, shift),) = labels
    vanished = _earliest(having, without)
    if not vanished and not _earliest(without, having):
        return
    for low, high in _not_in(readings.failed.get(writer), stretch.start - shift, stretch.end - shift):
        if vanished:
            yield low + shift, high - low, partial(_missing, readings, "vanished-record", (writer, shift), *vanished)
            continue
        for begin, until, sent in readings.sent(writer, low, high):
            if pair := _earliest(_counting(without, sent), having):
                told = partial(_missing, readings, "late-record", (writer, shift), pair[1], pair[0])
                yield begin + shift, until - begin, told


def _counting(without: list[Read], sent: Read | None) -> list[Read]:
    """Those that passed an offset and tell of what was sent there. One that had passed it before proves that the log
    was cut and gave the offset again: then only those count that certainly came after."""
    if sent is None or not any(read.before(sent) for read in without):
        return without
    return [read for read in without if sent.begun_before(read)]


def _left_behind(having: list[Read]) -> dict[int, int]:
    """Of each process that read here in an operation that failed, the first of those operations: it goes on without
    going back, for a consumer does not go back by itself."""
    left: dict[int, int] = {}
    for read in having:
        if not read.ok:
            left[read.process] = min(read.op, left.get(read.process, read.op))
    return left


def _earliest(firsts: list[Read], seconds: list[Read]) -> tuple[Read, Read] | None:
    """Of all pairs whose first had certainly ended when its second began, the one whose second ended soonest, then
    whose first did."""
    # If any operation of one boot ended before another began, the one did that ended soonest by the clock they share.
    soonest: dict[tuple[str, bool, bool], Read] = {}
    for read in firsts:
        timed = read.mono_completed >= 0
        for by_mono in (False, True):
            known = soonest.get((read.boot, timed, by_mono))
            if known is None or (
                read.mono_completed < known.mono_completed if by_mono else read.completed < known.completed
            ):
                soonest[read.boot, timed, by_mono] = read
    later = [read for read in seconds if any(one.before(read) for one in soonest.values())]
    if not later:
        return None
    ended = min(read.completed for read in later)
    pairs = [(one, read) for read in later if read.completed == ended for one in firsts if one.before(read)]
    return min(pairs, key=lambda pair: pair[0].completed)


def _not_in(failed: tuple[Ints, Ints] | None, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What of [start, end) is in none of these merged intervals."""
    if failed is not None:
        low, high = np.searchsorted(failed[1], start, side="right"), np.searchsorted(failed[0], end, side="left")
        for a, b in zip(failed[0][low:high].tolist(), failed[1][low:high].tolist(), strict=True):
            if start < a:
                yield start, a
            start = b
    if start < end:
        yield start, end


def _inconsistent(readings: Readings, first: Mapping[Label, Read], offset: int) -> Difference:
    """`first`: who was given which value first."""
    values = []
    for (writer, shift), read in first.items():
        epoch = epoch_of(readings.columns.table, read.row, offset)
        values.append({"writer": writer, "seq": offset - shift} | ({} if epoch is None else {"leader_epoch": epoch}))
    both = " and ".join(f"{one['writer']}/{one['seq']}" for one in values)
    message = f"offset {offset} holds {len(values)} values: {both}"
    at = max(read.completed for read in first.values())
    return "inconsistent-offsets", (offset,), message, {"offset": offset, "values": values}, at


def _missing(readings: Readings, name: str, label: Label, saw: Read, passed: Read, offset: int) -> Difference:
    writer, seq = label[0], offset - label[1]
    if name == "vanished-record":
        message = (
            f"value {writer}/{seq} was polled at offset {offset} by process {saw.process}, and process {passed.process}"
            " passed that offset later without it"
        )
    else:
        message = (
            f"value {writer}/{seq} was polled at offset {offset} by process {saw.process}, and process {passed.process}"
            " had passed that offset before, when nothing was there"
        )
    evidence: dict[str, Any] = {
        "writer": writer,
        "seq": seq,
        "offset": offset,
        "process": saw.process,
        "op": saw.op,
        "passed_process": passed.process,
        "passed_op": passed.op,
        "apart_s": round(abs(passed.completed - saw.completed) / 1e6, 6),
    }
    if (epoch := epoch_of(readings.columns.table, saw.row, offset)) is not None:
        evidence["leader_epoch"] = epoch
    if epochs := epochs_around(readings.columns.table, passed.row, offset):
        evidence["passed_leader_epochs"] = epochs
    return name, (offset, writer, seq), message, evidence, max(saw.completed, passed.completed)
