"""`duplicate` and `inconsistent-offsets`: what stands where in the log, from polls and acknowledgements.

A *placement* is a value at an offset: polled there by an operation of any outcome (a consumer must never be shown
unsafe data, whatever became of its own transaction), or acknowledged there by a visible write. One value at two offsets
is a duplicate; two values at one offset are inconsistent. Both are proven by what is seen, at once and for ever.

Runs are intervals under a label (writer, offset - seq). A log that keeps its promises has at each offset one label, and
at each (writer, seq) one offset; sorting by the one and by the other, both are a comparison of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.kept.chunks import Chunks, Values, values
from rules.kept.report import Report
from rules.kept.state import Moved, Places, Spans, State, concat, take

INDEX_KEPT: Final = 16_384
"""Stretches of offsets that hold values, kept for readers whose rows come late."""


def merged(places: Places) -> tuple[Places, bool]:
    """Runs of one label joined where they overlap or touch, sorted by offset; and whether labels disagree anywhere."""
    if len(places) <= 1:
        return places, False
    order = np.argsort(places.offset, kind="stable")
    offset, writer = places.offset[order], places.writer[order]
    seq, length = places.seq[order], places.length[order]
    end = np.maximum.accumulate(offset + length)
    same = (writer[1:] == writer[:-1]) & ((offset - seq)[1:] == (offset - seq)[:-1])
    if bool(np.any(~same & (offset[1:] < end[:-1]))):
        return _merged_by_label(offset, writer, seq, length), True
    head = np.concatenate(([True], ~same | (offset[1:] > end[:-1])))
    heads = np.flatnonzero(head)
    ends = end[np.append(heads[1:] - 1, len(end) - 1)]
    return Places(offset[heads], writer[heads], seq[heads], ends - offset[heads]), False


def _merged_by_label(offset: Ints, writer: Ints, seq: Ints, length: Ints) -> Places:
    pairs, label = np.unique(np.stack((writer, offset - seq)), axis=1, return_inverse=True)
    label, start, end = intervals.merge_grouped(label.ravel(), offset, offset + length)
    order = np.argsort(start, kind="stable")
    label, start, end = label[order], start[order], end[order]
    return Places(start, pairs[0][label], start - pairs[1][label], end - start)


@dataclass(frozen=True, slots=True)
class Seen:
    """New placements as they came, one entry a run, with the log time at which each was known; and what was known
    before."""

    places: Places
    at: Ints
    before: Places

    def proven(self, found: list[tuple[int, int, int]]) -> int:
        """When the second of these (writer, seq, offset) was known: two places of a value, or two values of a place."""
        times = []
        for writer, seq, offset in found:
            if _covering(self.before, writer, seq, offset).any():
                times.append(-1)
                continue
            own = _covering(self.places, writer, seq, offset)
            times.append(int(self.at[own].min()) if own.any() else -1)
        times.sort()
        # One place alone: the other is below the frontier, and was known before.
        return times[1] if len(times) > 1 and times[1] >= 0 else max(times)


def _covering(places: Places, writer: int, seq: int, offset: int) -> Bools:
    """Which runs hold this value at this offset."""
    mask: Bools = (places.writer == writer) & (places.offset - places.seq == offset - seq)
    return mask & (places.offset <= offset) & (offset < places.offset + places.length)


def place(state: State, chunks: Chunks, new: Places, at: Ints, report: Report) -> None:
    """Take new placements in, known at the log times `at`, and report what they prove."""
    seen = Seen(new, at, state.log)
    new = _above(new, state.settled)
    if not len(new):
        return
    new, torn = merged(new)
    both, conflict = merged(concat(seen.before, new))
    state.log = both
    if conflict or torn:
        _report_inconsistent(state, seen, both, report)
    _report_duplicates(state, chunks, seen, new, both, report)
    chunks.add("placed", values(new.writer, new.seq, new.length))


def _above(places: Places, frontier: int) -> Places:
    """What lies at or above the frontier; below it polls are compared by the audit alone."""
    cut = np.maximum(frontier - places.offset, 0)
    keep = cut < places.length
    cut = cut[keep]
    return Places(places.offset[keep] + cut, places.writer[keep], places.seq[keep] + cut, places.length[keep] - cut)


def _report_inconsistent(state: State, seen: Seen, both: Places, report: Report) -> None:
    old = seen.before
    start, end = intervals.deeper(both.offset, both.offset + both.length)
    known = intervals.deeper(old.offset, old.offset + old.length)
    state.unclear = Spans(*intervals.merge(np.append(state.unclear.start, start), np.append(state.unclear.end, end)))
    for a, b in zip(*intervals.subtract(start, end, *known), strict=True):
        for offset in report.each("inconsistent-offsets", int(a), int(b)):
            here = np.flatnonzero((both.offset <= offset) & (offset < both.offset + both.length))
            found = sorted((int(both.writer[i]), int(both.seq[i] + offset - both.offset[i])) for i in here)
            report.add(
                "inconsistent-offsets",
                (offset,),
                f"offset {offset} holds {len(found)} values: {' and '.join(f'{w}/{s}' for w, s in found)}",
                at=seen.proven([(w, s, offset) for w, s in found]),
                evidence={"offset": offset, "values": [{"writer": w, "seq": s} for w, s in found]},
            )


def _report_duplicates(state: State, chunks: Chunks, seen: Seen, new: Places, both: Places, report: Report) -> None:
    old = seen.before
    # What was placed before and is not in the window stands below the settled frontier, and now here as well.
    before = chunks.having("placed", values(new.writer, new.seq, new.length))
    again = intervals.subtract_grouped(before, values(old.writer, old.seq, old.length))
    if _repeats(both):
        order = np.lexsort((both.seq, both.writer))
        twice = _twice(both, order[np.isin(both.writer, new.writer)[order]])
        again = intervals.merge_grouped(*(np.concatenate(pair) for pair in zip(again, twice, strict=True)))
        _note_moved(state, both, twice)
    if not len(again[0]):
        return
    again = chunks.lacking("duplicated", again)
    chunks.add("duplicated", again)
    for writer, start, end in zip(*(a.tolist() for a in again), strict=True):
        for seq in report.each("duplicate", start, end):
            own = (both.writer == writer) & (both.seq <= seq) & (seq < both.seq + both.length)
            offsets = sorted((both.offset[own] + seq - both.seq[own]).tolist())
            listed = " and ".join(str(o) for o in offsets)
            where = f"offsets {listed}" if len(offsets) > 1 else f"offset {listed} and below the settled frontier"
            report.add(
                "duplicate",
                (writer, seq),
                f"value {writer}/{seq} stands at {where}",
                at=seen.proven([(writer, seq, offset) for offset in offsets]),
                evidence={"writer": writer, "seq": seq, "offsets": offsets},
                context={"idempotent": "false" if writer in state.not_idempotent else "true"},
            )


def _repeats(places: Places) -> bool:
    """Does any value stand at two places?"""
    order = np.lexsort((places.seq, places.writer))
    writer, seq = places.writer[order], places.seq[order]
    end = seq + places.length[order]
    return bool(np.any((writer[1:] == writer[:-1]) & (seq[1:] < end[:-1])))


def _twice(places: Places, order: Ints) -> Values:
    """The values that stand at two or more places of those that `order` lists, sorted by writer and seq."""
    found: list[Values] = []
    writer = places.writer[order]
    heads = np.flatnonzero(np.diff(writer, prepend=writer[0] - 1 if len(writer) else 0))
    for head, end in zip(heads.tolist(), np.append(heads[1:], len(writer)).tolist(), strict=True):
        own = order[head:end]
        start, stop = intervals.deeper(places.seq[own], places.seq[own] + places.length[own])
        found.append((np.full(len(start), writer[head], np.int64), start, stop))
    if not found:
        return EMPTY, EMPTY, EMPTY
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _note_moved(state: State, both: Places, again: Values) -> None:
    """Remember the earlier places of duplicated values in the window: their index is that of the last place."""
    rows: list[tuple[int, int, int, int, int]] = []
    for writer, start, end in zip(*(a.tolist() for a in again), strict=True):
        own = np.flatnonzero((both.writer == writer) & (both.seq < end) & (both.seq + both.length > start))
        first, stop = both.seq[own], both.seq[own] + both.length[own]
        shift = both.offset[own] - first
        # Between two neighbouring cuts every value stands at the same places.
        cuts = np.unique(np.clip(np.concatenate((first, stop, [start, end])), start, end))
        for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            shifts = shift[(first <= low) & (stop >= high)].tolist()
            rows.extend((writer, low, low + s, high - low, low + max(shifts)) for s in shifts if s < max(shifts))
    if rows:
        others = take(state.moved, ~np.isin(state.moved.writer, again[0]))
        state.moved = concat(others, Moved(*np.array(rows, np.int64).T))


def forget_below(state: State, frontier: int, index_from: int) -> None:
    """Drop what the settled frontier has passed, and of the index what no late reader may still be compared with."""
    log = state.log
    if len(log) and int(log.offset[0]) < frontier:
        state.log = _above(log, frontier)
    if len(state.index.start) > INDEX_KEPT:
        index_from = max(index_from, int(state.index.start[-INDEX_KEPT]))
    state.index_from = max(state.index_from, min(index_from, frontier))
    for name, low in (("index", state.index_from), ("unclear", state.index_from)):
        spans: Spans = getattr(state, name)
        if len(spans.start) and int(spans.start[0]) < low:
            keep = spans.end > low
            setattr(state, name, Spans(np.maximum(spans.start[keep], low), spans.end[keep]))
    if len(state.moved.offset):
        keep = state.moved.last >= state.index_from
        state.moved = take(state.moved, keep)
