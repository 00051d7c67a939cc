"""Readings: what each operation polled in a range of one partition's offsets, and what it went over without it.

Where every row began and ended is found once for all ranges (`Readings`), in arrays; only the operations that read in
a range become objects (`Read`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    FAIL,
    OK,
    POLL,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
    Runs,
    from_table,
    irregulars,
)
from rules.arrays.intervals import Ints
from rules.vocabulary.objectives import SECOND

SKEW_BOUND: Final = 300 * SECOND
"""Microseconds by which the clocks of two boots are taken to differ at most."""


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


class Readings:
    """Every row's reading of one partition, by rows of `SLICE_SCHEMA`: at least those that
    `rules.audit.explain.concerns` picks for the ranges that are asked for."""

    def __init__(self, rows: pa.Table | Columns) -> None:
        self.columns = columns = rows if isinstance(rows, Columns) else from_table(rows)
        self.odd: dict[int, list[int]] = {}
        odd = irregulars(columns)
        for row, offset in zip(odd.row.tolist(), odd.offset.tolist(), strict=True):
            self.odd.setdefault(row, []).append(offset)
        self._runs = columns.polled.take(columns.polled.offset >= 0)
        self.first, self.last = self._extent()
        self._order = np.lexsort((columns.slice, columns.process))
        self._reads = columns.where(POLL, TXN) & (self.first >= 0) & columns.committed_only
        carried = self._carried()
        self._stood = np.where(columns.position_before >= 0, columns.position_before, carried)
        unknown = (self._stood < 0) | (self._stood > self.first)
        self._low = np.where(unknown, self.first, self._stood)

    def in_range(self, start: int, end: int) -> list[Read]:
        """The operations that read in [start, end), each process's in order."""
        inside = self._reads & (np.minimum(self.first, self._low) < end) & (self.last >= start)
        return [self._read(row, start, end) for row in self._order[inside[self._order]].tolist()]

    def _extent(self) -> tuple[Ints, Ints]:
        """The lowest and the highest offset that each row polled, -1 for none."""
        n, runs = len(self.columns), self._runs
        first, last = np.full(n, 2**62, np.int64), np.full(n, -1, np.int64)
        np.minimum.at(first, runs.row, runs.offset)
        np.maximum.at(last, runs.row, runs.offset + runs.length - 1)
        for row, offsets in self.odd.items():
            first[row], last[row] = min(first[row], *offsets), max(last[row], *offsets)
        return np.where(last < 0, -1, first), last

    def _carried(self) -> Ints:
        """Where each row's process stood before it, by what that process had read; -1 where that is not known."""
        columns, order = self.columns, self._order
        gone = columns.where(ASSIGN, SUBSCRIBE, REVOKE) & (columns.assigned == 0) & (columns.type != FAIL)
        gone |= columns.where(CLOSE)
        read = self._reads & (columns.type == OK)
        after = np.where(read & ~gone, self._positions(), -1)[order]
        tells = (read | gone)[order]
        process = columns.process[order]
        # The last row before this one that tells; it has to be of the same process.
        latest = np.maximum.accumulate(np.where(tells, np.arange(len(order)), -1))
        before = np.append(-1, latest[:-1])[: len(order)]
        known = before >= 0
        known[known] = process[before[known]] == process[known]
        carried = np.full(len(order), -1, np.int64)
        carried[order[known]] = after[before[known]]
        return carried

    def _positions(self) -> Ints:
        """Where each row's poll left its consumer. Where it went back inside, the last run tells; else the last record,
        regular or not."""
        runs, positions = self._runs, self.last + 1
        ends = runs.offset + runs.length
        same = runs.row[1:] == runs.row[:-1]
        back = np.unique(runs.row[1:][same & (runs.offset[1:] < ends[:-1])])
        positions[back] = ends[np.searchsorted(runs.row, back, side="right") - 1]
        return positions

    def _own(self, row: int) -> Runs:
        low, high = np.searchsorted(self._runs.row, [row, row + 1])
        return self._runs.take(slice(int(low), int(high)))

    def _read(self, row: int, start: int, end: int) -> Read:
        columns, own = self.columns, self._own(row)
        boot, begun, ended = (columns.table[name][row].as_py() for name in ("boot", "mono_invoked", "mono_completed"))
        read = Read(
            process=int(columns.process[row]), op=int(columns.op[row]), boot=boot or "",
            invoked=int(columns.invoked[row]), completed=int(columns.completed[row]),
            mono_invoked=-1 if begun is None else begun, mono_completed=-1 if ended is None else ended,
            ok=bool(columns.type[row] == OK),
        )  # fmt: skip
        if read.ok and not columns.subscribed[row] and not columns.rebalanced[row]:
            low, high = int(self._low[row]), int(self.last[row]) + 1
            read.spans = _upward(int(self._stood[row]), low, high, own.offset, own.offset + own.length)
        own = own.take((own.offset < end) & (own.offset + own.length > start))
        for writer, seq, length, offset in zip(
            own.writer.tolist(), own.seq.tolist(), own.length.tolist(), own.offset.tolist(), strict=True
        ):
            for at in range(max(start, offset), min(end, offset + length)):
                read.values[at] = (writer, seq + at - offset)
        read.values.update((at, None) for at in self.odd.get(row, ()) if start <= at < end)
        return read


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
