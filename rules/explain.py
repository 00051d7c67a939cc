"""`vanished-record` and `late-record`: how two readers came to see one range of the log differently.

Digests (`rules.audit`) and skips (`rules.polls`) only tell that they did. Here are the rows of that range: what each
operation polled, and what it passed over. At each offset

- two values are `inconsistent-offsets`;
- a value that was polled before an operation began that passed the offset without it is a `vanished-record`;
- a value that was polled by an operation that began after another had passed the offset without it is a `late-record`.

A value whose write certainly failed was exposed (`G1a`), and vanished nowhere.

"Before" is concluded within one boot's monotonic clock (in a file: its own time), and between boots when the gap
exceeds `SKEW_BOUND`. A pass proves a hole only where a reader in assign mode went over it in an ok operation at
read_committed, and where the log start, observed after it, is not above the offset: retention sends a reader forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules.chunks import Values, values
from rules.columns import (
    ASSIGN,
    CLOSE,
    FAIL,
    OFFSETS,
    OK,
    POLL,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
    from_table,
    irregulars,
)
from rules.finding import Finding
from rules.history import Place
from rules.intervals import Ints
from rules.objectives import SECOND

SKEW_BOUND: Final = 300 * SECOND
"""Microseconds by which the clocks of two boots are taken to differ at most."""
SHOWN: Final = 100
"""Offsets that one explanation lists; the last finding says how many there are beyond."""


@dataclass(slots=True)
class Read:
    """One operation's reading of the range. `values`: offset -> (writer, seq), None for an irregular record; `spans`:
    each [low, high) that it went over, none where that proves nothing. Times in microseconds; `mono` in nanoseconds."""

    process: int
    op: int
    boot: str
    invoked: int
    completed: int
    mono_invoked: int
    mono_completed: int
    ok: bool
    values: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def passed(self, offset: int) -> bool:
        """Did it go over this offset and get nothing there?"""
        return offset not in self.values and any(low <= offset < high for low, high in self.spans)

    def before(self, other: Read) -> bool:
        """Had this operation certainly ended when the other began?"""
        if self.boot == other.boot and self.mono_completed >= 0 and other.mono_invoked >= 0:
            return self.mono_completed < other.mono_invoked
        margin = 0 if self.boot == other.boot else SKEW_BOUND
        return self.completed + margin < other.invoked

    def left_behind(self, offset: int, other: Read) -> bool:
        """Did this operation read the offset for the same process and fail, and the process go on without going back?
        A consumer does not go back by itself."""
        return not self.ok and self.process == other.process and self.op < other.op and offset in self.values


def concerns(rows: pa.Table, start: int, end: int) -> pa.Array:
    """Which rows of a partition `explain` needs for [start, end): a mask. Those that polled there or went over it,
    those that begin or end a reader's hold, and what observers saw of the log start."""
    columns = from_table(rows)
    first, last = _extent(columns)
    low = np.where(columns.position_before >= 0, np.minimum(columns.position_before, first), first)
    high = np.maximum(last, columns.position_after - 1)
    reads = columns.where(POLL, TXN) & (first >= 0) & (low < end) & (high >= start)
    others = np.asarray((columns.type == FAIL) & (_sent(columns) > 0))
    others |= columns.where(ASSIGN, SUBSCRIBE, REVOKE, CLOSE) | (columns.where(OFFSETS) & (columns.log_start >= 0))
    return pa.array(reads | others)


def _sent(columns: Columns) -> Ints:
    return np.bincount(columns.sent.row, minlength=len(columns))


def _extent(columns: Columns) -> tuple[Ints, Ints]:
    """The lowest and the highest offset that each row polled, -1 for none."""
    n = len(columns)
    first, last = np.full(n, 2**62, np.int64), np.full(n, -1, np.int64)
    runs = columns.polled
    known = runs.offset >= 0
    np.minimum.at(first, runs.row[known], runs.offset[known])
    np.maximum.at(last, runs.row[known], (runs.offset + runs.length)[known] - 1)
    for row, record in irregulars(columns):
        first[row], last[row] = min(first[row], record["offset"]), max(last[row], record["offset"])
    return np.where(last < 0, -1, first), last


def explain(
    rows: pa.Table, place: Place, start: int, end: int, *, finished: bool = True
) -> list[Finding] | None:  # fmt: skip
    """What the offsets [start, end) of one partition hold, by these rows (`SLICE_SCHEMA`; at least those that
    `concerns` picks). None where the log start was not observed after the last read and the history goes on: ask again.
    """
    columns = from_table(rows)
    reads = _reads(columns, start, end)
    if not reads:
        return []
    seen = np.flatnonzero(columns.where(OFFSETS) & (columns.log_start >= 0))
    log_start = int(columns.log_start[seen].max(initial=-1))
    if not finished and int(columns.invoked[seen].max(initial=-1)) < max(r.completed for r in reads):
        return None
    topic = rows["topic"][0].as_py()
    failed = columns.sent.take(columns.type[columns.sent.row] == FAIL)
    found = list(_differences(reads, values(failed.writer, failed.seq, failed.length), max(start, log_start), end))
    findings = [
        Finding(
            anomaly=name, cluster=place.cluster, topic_id=place.topic_id, topic=topic, partition=place.partition,
            subject=subject, message=message, evidence=evidence, at=at, decidable=at,
        )
        for name, subject, message, evidence, at in found[:SHOWN]
    ]  # fmt: skip
    if len(found) > SHOWN:
        last = findings[-1]
        findings[-1] = Finding(
            **{
                **{name: getattr(last, name) for name in last.__slots__},
                "evidence": {**last.evidence, "more_of_the_same": len(found) - SHOWN},
            }
        )
    return findings


def _reads(columns: Columns, start: int, end: int) -> list[Read]:
    """The operations that read in the range, each process's in order."""
    first, last = _extent(columns)
    boots = columns.table["boot"]
    mono = [columns.table[name] for name in ("mono_invoked", "mono_completed")]
    runs = columns.polled
    odd: dict[int, list[int]] = {}
    for row, record in irregulars(columns):
        odd.setdefault(row, []).append(record["offset"])
    reads: list[Read] = []
    position = -1
    process = None
    for row in np.lexsort((columns.slice, columns.process)).tolist():
        if columns.process[row] != process:
            process, position = columns.process[row], -1
        f, ok = columns.f[row], columns.type[row] == OK
        if f == CLOSE or (
            f in (ASSIGN, SUBSCRIBE, REVOKE) and columns.assigned[row] == 0 and columns.type[row] != FAIL
        ):
            position = -1
            continue
        if f not in (POLL, TXN) or first[row] < 0 or not columns.committed_only[row]:
            continue
        stood = int(columns.position_before[row]) if columns.position_before[row] >= 0 else position
        low = int(first[row]) if stood < 0 or stood > first[row] else stood
        own = np.flatnonzero((runs.row == row) & (runs.offset >= 0))
        if ok:  # where it went back inside, the last run tells; else the last record, regular or not
            ends = runs.offset[own] + runs.length[own]
            back = bool((runs.offset[own][1:] < ends[:-1]).any())
            position = int(ends[-1]) if back else int(last[row]) + 1
        if min(first[row], low) >= end or last[row] < start:
            continue
        read = Read(
            int(columns.process[row]), int(columns.op[row]), boots[row].as_py() or "", int(columns.invoked[row]),
            int(columns.completed[row]), _known(mono[0][row].as_py()), _known(mono[1][row].as_py()),
            bool(ok),
        )  # fmt: skip
        if ok and not columns.subscribed[row] and not columns.rebalanced[row]:
            read.spans = _upward(stood, low, int(last[row]) + 1, runs.offset[own], (runs.offset + runs.length)[own])
        for i in own[(runs.offset[own] < end) & (runs.offset[own] + runs.length[own] > start)].tolist():
            shift = int(runs.seq[i] - runs.offset[i])
            for offset in range(max(start, int(runs.offset[i])), min(end, int(runs.offset[i] + runs.length[i]))):
                read.values[offset] = (int(runs.writer[i]), offset + shift)
        read.values.update((offset, None) for offset in odd.get(row, ()) if start <= offset < end)
        reads.append(read)
    return reads


def _upward(stood: int, low: int, high: int, starts: Ints, ends: Ints) -> list[tuple[int, int]]:
    """What a poll went over that `stood` somewhere (-1: unknown) and got runs [start, end) in this order, all of them
    in [low, high). Where it went back inside, it did not pass what lies between."""
    if not len(starts) or bool((starts[1:] >= ends[:-1]).all()):
        return [(low, high)]
    breaks = np.flatnonzero(starts[1:] < ends[:-1]) + 1
    heads, tails = np.append(0, breaks), np.append(breaks, len(starts)) - 1
    spans = list(zip(starts[heads].tolist(), ends[tails].tolist(), strict=True))
    begun = stood if 0 <= stood <= spans[0][0] else spans[0][0]
    return [(begun, spans[0][1]), *spans[1:]]


def _known(time: int | None) -> int:
    return -1 if time is None else time


Difference = tuple[str, tuple[int, ...], str, dict[str, Any], int]


def _differences(reads: list[Read], failed: Values, start: int, end: int) -> Iterator[Difference]:
    offsets = sorted({offset for read in reads for offset in read.values if start <= offset < end})
    for offset in offsets:
        having = [read for read in reads if read.values.get(offset) is not None]
        found = sorted({read.values[offset] for read in having})  # type: ignore[type-var]
        if len(found) > 1:
            yield _inconsistent(offset, found, having)  # type: ignore[arg-type]
            continue
        without = [r for r in reads if r.passed(offset)]
        without = [r for r in without if not any(s.left_behind(offset, r) for s in having)]
        if not having or not without:
            continue
        (value,) = found
        assert value is not None
        if _holds(failed, *value):
            continue
        later = [(a, b) for b in without for a in having if a.before(b)]
        if later:
            yield _missing(
                "vanished-record", offset, value, *min(later, key=lambda p: (p[1].completed, p[0].completed))
            )
            continue
        earlier = [(a, b) for b in without for a in having if b.before(a)]
        if earlier:
            yield _missing("late-record", offset, value, *min(earlier, key=lambda p: (p[0].completed, p[1].completed)))


def _holds(of: Values, writer: int, seq: int) -> bool:
    return bool(((of[0] == writer) & (of[1] <= seq) & (seq < of[2])).any())


def _inconsistent(offset: int, found: list[tuple[int, int]], having: list[Read]) -> Difference:
    at = max(min(r.completed for r in having if r.values[offset] == value) for value in found)
    told = {"offset": offset, "values": [{"writer": w, "seq": s} for w, s in found]}
    both = " and ".join(f"{w}/{s}" for w, s in found)
    return "inconsistent-offsets", (offset,), f"offset {offset} holds {len(found)} values: {both}", told, at


def _missing(name: str, offset: int, value: tuple[int, int], saw: Read, passed: Read) -> Difference:
    writer, seq = value
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
    evidence = {
        "writer": writer, "seq": seq, "offset": offset, "process": saw.process, "op": saw.op,
        "passed_process": passed.process, "passed_op": passed.op,
        "apart_s": round(abs(passed.completed - saw.completed) / 1e6, 6),
    }  # fmt: skip
    return name, (offset, writer, seq), message, evidence, max(saw.completed, passed.completed)
