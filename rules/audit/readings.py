"""Readings: what each operation polled in a range of one partition's offsets, and what it went over without it.

Where every row began and ended is found once for all ranges (`Readings`). An excerpt of one range (`Excerpt`) holds
runs and intervals, never single offsets, and costs as much as the rows that read there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays import intervals
from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    FAIL,
    FOREIGN,
    OFFSETS,
    OK,
    POLL,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
    Runs,
    from_table,
    integers,
    irregulars,
    said_to_stand_here,
)
from rules.arrays.intervals import EMPTY, Ints, among, each, indices
from rules.kept.chunks import values
from rules.settling import strangers
from rules.vocabulary.objectives import SECOND

SKEW_BOUND: Final = 300 * SECOND
"""Microseconds by which the clocks of two boots are taken to differ at most."""
_NEVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Read:
    """One operation that read. Times in microseconds; `mono` in nanoseconds, -1 where unknown."""

    process: int
    op: int
    boot: str
    invoked: int
    completed: int
    mono_invoked: int
    mono_completed: int
    ok: bool
    row: int = -1
    """Its row's place among all that were given."""

    def before(self, other: Read) -> bool:
        """Had this operation certainly ended when the other began?"""
        if self.boot == other.boot and self.mono_completed >= 0 and other.mono_invoked >= 0:
            return self.mono_completed < other.mono_invoked
        margin = 0 if self.boot == other.boot else SKEW_BOUND
        return self.completed + margin < other.invoked

    def begun_before(self, other: Read) -> bool:
        """Had this operation certainly begun when the other ended?"""
        if self.boot == other.boot and self.mono_invoked >= 0 and other.mono_completed >= 0:
            return self.mono_invoked < other.mono_completed
        margin = 0 if self.boot == other.boot else SKEW_BOUND
        return self.invoked + margin < other.completed


@dataclass(slots=True)
class Excerpt:
    """What was read in one range. `rows` are the operations that read there, each process's in order; in the other
    columns they are numbered by their places in it.

    `values`: the runs that they polled, cut to the range. `odd_read`, `odd_offset`: irregular records. `over_read`,
    `over_start`, `over_end`: the intervals that they went over, none of those whose going over proves nothing."""

    rows: Ints
    values: Runs
    odd_read: Ints
    odd_offset: Ints
    over_read: Ints
    over_start: Ints
    over_end: Ints

    def holes(self) -> tuple[Ints, Ints, Ints]:
        """What each went over and got nothing: merged (read, start, end)."""
        had = intervals.merge_grouped(
            np.concatenate((self.values.row, self.odd_read)),
            np.concatenate((self.values.offset, self.odd_offset)),
            np.concatenate((self.values.offset + self.values.length, self.odd_offset + 1)),
        )
        return intervals.subtract_grouped(intervals.merge_grouped(self.over_read, self.over_start, self.over_end), had)


class _Steps(NamedTuple):
    """A number as it was told at some times, in their order."""

    at: Ints
    told: Ints
    highest: Ints

    @classmethod
    def of(cls, at: Ints, told: Ints) -> _Steps:
        order = at.argsort(kind="stable")
        return cls(at[order], told[order], np.maximum.accumulate(told[order]))

    def around(self, times: Ints) -> tuple[Ints, Ints]:
        """The highest up to each time, -1 for none, and the first after it, `_NEVER` for none."""
        next_ = self.at.searchsorted(times, side="right")
        return np.append(-1, self.highest)[next_], np.append(self.told, _NEVER)[next_]


class _Observed(NamedTuple):
    """The log start as the observers of one boot told it, by the boot's monotonic clock (None where not all of them
    tell theirs) and by its wall clock."""

    boot: int
    by_mono: _Steps | None
    by_wall: _Steps


class Readings:
    """Every row's reading of one partition, by rows of `SLICE_SCHEMA`: at least those that
    `rules.audit.explain.concerns` picks for the ranges that are asked for."""

    def __init__(self, rows: pa.Table | Columns) -> None:
        self.columns = columns = rows if isinstance(rows, Columns) else from_table(rows)
        self._odd = irregulars(columns)
        self._runs = columns.polled.take(columns.polled.offset >= 0)
        self.first, self.last = self._extent()
        self._order = np.lexsort((columns.slice, columns.process))
        self._reads = columns.where(POLL, TXN) & (self.first >= 0) & columns.committed_only
        self._back = self._went_back()
        self._apart = self._who_calls_ours_foreign()
        carried = self._carried()
        self._stood = np.where(columns.position_before >= 0, columns.position_before, carried)
        unknown = (self._stood < 0) | (self._stood > self.first)
        self._low = np.where(unknown, self.first, self._stood)
        self._index()
        self._listed = listed = indices(columns.where(OFFSETS) & (columns.log_start >= 0))
        self._log_start = int(columns.log_start[listed].max(initial=-1))
        self.observed = int(columns.invoked[listed].max(initial=-1))
        """When the log start was observed last."""
        sent = columns.sent.take(columns.type[columns.sent.row] == FAIL)
        writer, low, high = values(sent.writer, sent.seq, sent.length)
        writers, heads = np.unique(writer, return_index=True)
        parts = zip(np.split(low, heads[1:]), np.split(high, heads[1:]), strict=True)
        self.failed: dict[int, tuple[Ints, Ints]] = dict(zip(writers.tolist(), parts, strict=False))
        """The values of each writer whose write certainly failed: merged intervals of seqs."""
        order = np.lexsort((columns.invoked[columns.sent.row], columns.sent.seq, columns.sent.writer))
        self._sent = columns.sent.take(order)

    def _who_calls_ours_foreign(self) -> Ints:
        """The processes that list as a stranger's what others polled there as one of ours, or what bears a run of this
        log: they do not know that run, of which they need not list everything. What they went over proves nothing."""
        odd, runs = self._odd, self._runs
        if not (odd.status == FOREIGN).any():
            return EMPTY
        here, writer, seq = said_to_stand_here(self.columns, odd)
        odd, writer, seq = odd.take(here), writer[here], seq[here]
        labels = np.stack((np.append(runs.writer, writer), np.append(runs.offset - runs.seq, odd.offset - seq)))
        label = np.unique(labels, axis=1, return_inverse=True)[1].ravel()
        ours = intervals.merge_grouped(label[: len(runs)], runs.offset, runs.offset + runs.length)
        known = intervals.contained_grouped(*ours, label[len(runs) :], odd.offset, odd.offset + 1)
        ours_by_run = among(strangers.listed(self.columns, self._runs_of_the_log), self._runs_of_the_log)
        return np.unique(np.append(self.columns.process[odd.row[known]], self.columns.process[ours_by_run]))

    @cached_property
    def _runs_of_the_log(self) -> list[int]:
        """Whose rows these are."""
        return [strangers.number_of(run) for run in pc.unique(self.columns.table["run"]).to_pylist() if run]

    def _index(self) -> None:
        """For `excerpt`: the rows that read, by where they began, with the highest offset that any of them or of those
        before reached; and each row's rank among its process's."""
        rank = np.empty(len(self._order), np.int64)
        rank[self._order] = np.arange(len(rank))
        self._rank = rank
        rows = indices(self._reads)
        low = np.minimum(self.first, self._low)[rows]
        order = low.argsort(kind="stable")
        self._by_low, self._lows = rows[order], low[order]
        self._reached = np.maximum.accumulate(self.last[self._by_low])

    def excerpt(self, start: int, end: int) -> Excerpt:
        """What was read in [start, end)."""
        low = int(self._reached.searchsorted(start, side="left"))
        high = int(self._lows.searchsorted(end, side="left"))
        rows = self._by_low[low:high]
        rows = rows[self.last[rows] >= start]
        rows = rows[np.argsort(self._rank[rows])]
        read, at = _gathered(self._runs.row, rows)
        values = _cut(replace(self._runs.take(at), row=read), start, end)
        read_odd, at = _gathered(self._odd.row, rows)
        inside = (self._odd.offset[at] >= start) & (self._odd.offset[at] < end)
        over = self._went_over(rows)
        there = np.maximum(start, self._log_start_after(rows))
        over_start, over_end = np.maximum(over[1], there[over[0]]), np.minimum(over[2], end)
        some = over_start < over_end
        return Excerpt(
            rows,
            values,
            read_odd[inside],
            self._odd.offset[at][inside],
            over[0][some],
            over_start[some],
            over_end[some],
        )

    def read(self, row: int) -> Read:
        """The operation of a row."""
        columns = self.columns
        boot, begun, ended = (columns.table[name][row].as_py() for name in ("boot", "mono_invoked", "mono_completed"))
        return Read(
            process=int(columns.process[row]),
            op=int(columns.op[row]),
            boot=boot or "",
            invoked=int(columns.invoked[row]),
            completed=int(columns.completed[row]),
            mono_invoked=-1 if begun is None else begun,
            mono_completed=-1 if ended is None else ended,
            ok=bool(columns.type[row] == OK),
            row=row,
        )

    def sent(self, writer: int, start: int, end: int) -> Iterator[tuple[int, int, Read | None]]:
        """The values [start, end) of a writer by the operations that sent them, the first ones where several did; None
        where no row tells."""
        sent = self._sent
        low, high = sent.writer.searchsorted([writer, writer + 1])
        for i in range(int(low), int(high)):
            first, last = int(sent.seq[i]), int(sent.seq[i] + sent.length[i])
            if last <= start or end <= first:
                continue
            if start < first:
                yield start, first, None
            yield max(start, first), min(end, last), self.read(int(sent.row[i]))
            start = min(end, last)
        if start < end:
            yield start, end, None

    def _log_start_after(self, rows: Ints) -> Ints:
        """The log start as it was observed first after each of these rows had certainly completed, or higher before:
        what lay above had not been removed by then. Where none was observed after it, the highest there ever was."""
        columns, boots = self.columns, self._boots[rows]
        ended, completed = self._ended[rows], columns.completed[rows]
        before, after = np.full(len(rows), -1, np.int64), np.full(len(rows), _NEVER)
        for seen in self._log_starts:
            by_mono = (boots == seen.boot) & (ended >= 0) & (seen.by_mono is not None)
            by_wall = (boots == seen.boot) & ~by_mono
            for which, by, since in (
                (by_mono, seen.by_mono, ended),
                (by_wall, seen.by_wall, completed),
                (boots != seen.boot, seen.by_wall, completed + SKEW_BOUND),
            ):
                if by is not None and which.any():
                    last, next_ = by.around(since[which])
                    before[which] = np.maximum(before[which], last)
                    after[which] = np.minimum(after[which], next_)
        return np.where(after < _NEVER, np.maximum(before, after), self._log_start)

    @cached_property
    def _log_starts(self) -> list[_Observed]:
        """What the observers of each boot told of the log start."""
        listed, told = self._listed, self.columns.log_start
        begun = integers(self.columns.arrays["mono_invoked"])
        found = []
        for boot in each(self._boots[listed]):
            own = listed[self._boots[listed] == boot]
            by_mono = _Steps.of(begun[own], told[own]) if (begun[own] >= 0).all() else None
            found.append(_Observed(boot, by_mono, _Steps.of(self.columns.invoked[own], told[own])))
        return found

    @cached_property
    def _ended(self) -> Ints:
        return integers(self.columns.arrays["mono_completed"])

    @cached_property
    def _boots(self) -> Ints:
        return boots_of(self.columns)

    def _extent(self) -> tuple[Ints, Ints]:
        """The lowest and the highest offset that each row polled, -1 for none."""
        n, runs = len(self.columns), self._runs
        first, last = np.full(n, 2**62, np.int64), np.full(n, -1, np.int64)
        np.minimum.at(first, runs.row, runs.offset)
        np.maximum.at(last, runs.row, runs.offset + runs.length - 1)
        np.minimum.at(first, self._odd.row, self._odd.offset)
        np.maximum.at(last, self._odd.row, self._odd.offset)
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

    def _went_back(self) -> Ints:
        """The rows whose runs do not ascend, sorted."""
        runs = self._runs
        same = runs.row[1:] == runs.row[:-1]
        return np.unique(runs.row[1:][same & (runs.offset[1:] < (runs.offset + runs.length)[:-1])])

    def _positions(self) -> Ints:
        """Where each row's poll left its consumer. Where it went back inside, the last run tells; else the last record,
        regular or not."""
        runs, positions = self._runs, self.last + 1
        ends = runs.offset + runs.length
        positions[self._back] = ends[runs.row.searchsorted(self._back, side="right") - 1]
        return positions

    def _went_over(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """(read, start, end) of what these rows went over, where that proves that nothing was there."""
        columns = self.columns
        # Whoever says itself that it stood there, in a group, was moved there by no rebalance.
        stayed = ~columns.subscribed[rows] | ((columns.f[rows] == POLL) & (columns.position_before[rows] >= 0))
        proves = (columns.type[rows] == OK) & stayed & ~columns.rebalanced[rows]
        proves &= ~np.isin(columns.process[rows], self._apart)
        back = np.isin(rows, self._back)
        plain = indices(proves & ~back)
        read, start, end = [plain], [self._low[rows[plain]]], [self.last[rows[plain]] + 1]
        for i in indices(proves & back).tolist():
            own = slice(*self._runs.row.searchsorted([rows[i], rows[i] + 1]).tolist())
            offset = self._runs.offset[own]
            low, high = _upward(int(self._stood[rows[i]]), offset, offset + self._runs.length[own])
            read, start, end = [*read, np.full(len(low), i)], [*start, low], [*end, high]
        return np.concatenate(read), np.concatenate(start), np.concatenate(end)


def boots_of(columns: Columns) -> Ints:
    """A number for each row's boot, the same for all that have none."""
    encoded = pc.dictionary_encode(pc.fill_null(columns.arrays["boot"], ""))
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)


def around_each_log_start(columns: Columns) -> Ints:
    """Of what each boot observed of the log start, one after the other, the first and the last row that tell each:
    those suffice to say what was observed before and after any time."""
    listed = indices(columns.where(OFFSETS) & (columns.log_start >= 0))
    if not len(listed):
        return listed
    boot, mono = boots_of(columns)[listed], integers(columns.arrays["mono_invoked"])[listed]
    order = np.lexsort((np.where(mono >= 0, mono, columns.invoked[listed]), boot))
    boot, told = boot[order], columns.log_start[listed[order]]
    other = (boot[1:] != boot[:-1]) | (told[1:] != told[:-1])
    chosen: Ints = listed[order[np.append(other, True) | np.append(True, other)]]
    return chosen


def _gathered(row: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The entries of a column sorted by `row` that belong to these rows: (place in `rows`, place in the column)."""
    heads, tails = row.searchsorted(rows, side="left"), row.searchsorted(rows, side="right")
    count = tails - heads
    place = np.repeat(np.arange(len(rows)), count)
    return place, np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count) + heads[place]


def _cut(runs: Runs, start: int, end: int) -> Runs:
    """What of these runs lies in [start, end)."""
    low, high = np.maximum(runs.offset, start), np.minimum(runs.offset + runs.length, end)
    some = low < high
    return Runs(runs.row, runs.writer, runs.seq + low - runs.offset, low, high - low).take(some)


def _upward(stood: int, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """What a poll went over that `stood` somewhere (-1: unknown), got runs [start, end) in this order and went back
    inside: it did not pass what lies between."""
    breaks = indices(starts[1:] < ends[:-1]) + 1
    heads, tails = np.append(0, breaks), np.append(breaks, len(starts)) - 1
    low, high = starts[heads], ends[tails]
    if 0 <= stood <= low[0]:
        low[0] = stood
    return low, high
