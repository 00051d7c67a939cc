"""`vanished-record` and `late-record`: how two readers came to see one range of the log differently.

Digests (`rules.audit.digests`) and skips (`rules.checks.poll_order`) only tell that they did. Here are the rows of that
range: what each operation polled, and what it passed over. At each offset

- two values are `inconsistent-offsets`;
- a value that was polled before an operation began that passed the offset without it is a `vanished-record`;
- a value that was polled by an operation that began after another had passed the offset without it is a `late-record`.

A value whose write certainly failed was exposed (`G1a`), and vanished nowhere.

"Before" is concluded within one boot's monotonic clock (in a file: its own time), and between boots when the gap
exceeds `rules.audit.readings.SKEW_BOUND`. A pass proves a hole only where a reader in assign mode went over it in an ok
operation at read_committed, and where the log start, observed after it, is not above the offset: retention sends a
reader forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules.arrays import intervals
from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    FAIL,
    OFFSETS,
    POLL,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
)
from rules.arrays.intervals import Ints
from rules.audit.readings import Read, Readings
from rules.kept.chunks import Values, values
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Place

SHOWN: Final = 100
"""Findings of each name that one explanation lists; the last one of a name says how many there are beyond."""


def concerns(rows: pa.Table, ranges: Sequence[tuple[int, int]]) -> pa.Array:
    """Which rows of a partition `explain` needs for these ranges [start, end): a mask. Those that polled there or went
    over it, those that begin or end a reader's hold, and what observers saw of the log start."""
    readings = Readings(rows)
    columns, first, last = readings.columns, readings.first, readings.last
    low = np.where(columns.position_before >= 0, np.minimum(columns.position_before, first), first)
    high = np.maximum(last + 1, columns.position_after)
    wanted = intervals.merge(*np.array(ranges, np.int64).reshape(-1, 2).T)
    reads = columns.where(POLL, TXN) & (first >= 0) & intervals.touched(*wanted, low, high)
    others = np.asarray((columns.type == FAIL) & (_sent(columns) > 0))
    others |= columns.where(ASSIGN, SUBSCRIBE, REVOKE, CLOSE) | (columns.where(OFFSETS) & (columns.log_start >= 0))
    return pa.array(reads | others)


def _sent(columns: Columns) -> Ints:
    return np.bincount(columns.sent.row, minlength=len(columns))


def explain(
    readings: Readings, place: Place, start: int, end: int, *, finished: bool = True
) -> list[Finding] | None:  # fmt: skip
    """What the offsets [start, end) of one partition hold, by what was read of it. None where the log start was not
    observed after the last read and the history goes on: ask again."""
    columns, reads = readings.columns, readings.in_range(start, end)
    if not reads:
        return []
    seen = np.flatnonzero(columns.where(OFFSETS) & (columns.log_start >= 0))
    log_start = int(columns.log_start[seen].max(initial=-1))
    if not finished and int(columns.invoked[seen].max(initial=-1)) < max(r.completed for r in reads):
        return None
    topic = columns.table["topic"][0].as_py()
    failed = columns.sent.take(columns.type[columns.sent.row] == FAIL)
    findings: list[Finding] = []
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for name, subject, message, evidence, at in _differences(
        reads, values(failed.writer, failed.seq, failed.length), max(start, log_start), end
    ):
        counts[name] += 1
        if counts[name] <= SHOWN:
            last[name] = len(findings)
            findings.append(
                Finding(
                    anomaly=name, cluster=place.cluster, topic_id=place.topic_id, topic=topic,
                    partition=place.partition, subject=subject, message=message, evidence=evidence, at=at, decidable=at,
                )
            )  # fmt: skip
    for name, i in last.items():
        if counts[name] > SHOWN:
            evidence = {**findings[i].evidence, "more_of_the_same": counts[name] - SHOWN}
            findings[i] = replace(findings[i], evidence=evidence)
    return findings


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
