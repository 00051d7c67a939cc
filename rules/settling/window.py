"""The open window of the log: which value stands where, above the settled frontier, from polls and acknowledgements.

A *placement* is a value at an offset: polled there by an operation of any outcome (a consumer must never be shown
unsafe data, whatever became of its own transaction), or acknowledged there by a visible write.

Runs are intervals under a label (writer, offset - seq). A log that keeps its promises has at each offset one label, and
at each (writer, seq) one offset; sorting by the one and by the other, both are a comparison of neighbours.

The *index* is the log with its holes removed: the offsets that hold a value. Transaction markers and aborted records
occupy offsets and are holes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import EMPTY, Bools, Ints, among, indices, some, tails
from rules.kept import dropped
from rules.kept.chunks import NO_VALUES, Chunks, Values, values
from rules.kept.state import Moved, Places, Spans, State, concat, take

INDEX_KEPT: Final = 65_536
"""Stretches of offsets that hold values, kept for readers whose rows come late: each transaction's marker begins one,
and a partition may have ten a second."""
RELAID_KEPT: Final = 1_024
"""Of the runs below the frontier that stand where a log that was cut goes on, the newest: a value that stands twice
does so within what one producer has in flight."""
WHAT: Final = "offsets that late readers may have gone over"


@dataclass(frozen=True, slots=True)
class Placed:
    """What new placements made of the window. `places` as they came, one entry a run, with the log time at which each
    was known (`at`); the window `before` and `after`. `again`: values of them that stand elsewhere, too; `late`: where,
    below the frontier, as far as the new placements tell; `clashing`: do any two values stand at one offset?"""

    places: Places
    at: Ints
    before: Places
    after: Places
    again: Values = NO_VALUES
    clashing: bool = False
    late: Places = field(default_factory=Places)

    def __len__(self) -> int:
        return len(self.places)

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


def place(state: State, chunks: Chunks, new: Places, at: Ints, settled: int | None = None) -> Placed:
    """Take in new placements, known at the log times `at`. What lies below the settled frontier is left to the audit
    (`rules.audit.digests`), save what contradicts itself, or the log where that is kept for readers whose rows come
    late; `settled`: where the frontier was, if this step has moved it on already."""
    before, frontier = state.log, state.settled if settled is None else settled
    below = concat(_contradicting(before, new, frontier), _moved_to_holes(chunks, before, new, frontier))
    above = concat(below, _above(new, frontier))
    late, twice = _late_duplicates(state, chunks, new, frontier)
    if not len(above):
        return Placed(new, at, before, before, twice, late=late)
    above, torn = merged(above)
    after, clashing = merged(concat(before, above))
    state.log = after
    if torn or clashing:
        start, end = intervals.deeper(after.offset, after.offset + after.length)
        state.unclear = Spans(
            *intervals.merge(np.append(state.unclear.start, start), np.append(state.unclear.end, end))
        )
    placed = values(above.writer, above.seq, above.length)
    again = _again(state, chunks, placed, Placed(new, at, before, after))
    if len(late):
        again = intervals.merge_grouped(*(np.concatenate(pair) for pair in zip(again, twice, strict=True)))
    chunks.add("placed", placed)
    return Placed(new, at, before, after, again, torn or clashing, late)


def _late_duplicates(state: State, chunks: Chunks, new: Places, frontier: int) -> tuple[Places, Values]:
    """Of what is placed below the frontier, the values that the same rows place elsewhere as well, and their places: a
    reader that is late, or an audit, shows by itself that they stand twice. Where a log was cut below the frontier, and
    goes on, values come there that nobody had placed before: these are compared whichever rows tell of them
    (`State.relaid`), as are those that the frontier passed since."""
    if not len(new) or int(new.offset.min()) >= frontier:
        return Places(), NO_VALUES
    low = take(new, new.offset < frontier)
    unknown = chunks.lacking("placed", values(low.writer, low.seq, low.length))
    relaid = take(low, intervals.touched_grouped(unknown, low.writer, low.seq, low.seq + low.length))
    all_new, _ = merged(concat(state.relaid, new))
    state.relaid = _newest(state, relaid)
    if not _repeats(all_new):
        return Places(), NO_VALUES
    twice = _among(_twice(all_new, np.lexsort((all_new.seq, all_new.writer))), values(new.writer, new.seq, new.length))
    below = take(all_new, all_new.offset < frontier)
    mine = intervals.touched_grouped(twice, below.writer, below.seq, below.seq + below.length)
    late = take(below, mine)
    return late, twice if len(late) else NO_VALUES


def _newest(state: State, below: Places) -> Places:
    """What was placed below the frontier, and these, as far as the log still has it."""
    both = concat(state.relaid, below)
    return take(take(both, both.offset + both.length > state.log_start), slice(-RELAID_KEPT, None))


def _contradicting(known: Places, new: Places, frontier: int) -> Places:
    """What was placed below the frontier where something else is known to stand."""
    if not len(known) or not len(new) or max(known.offset[0], new.offset.min()) >= frontier:
        return Places()
    run = known.offset.searchsorted(new.offset, side="right") - 1
    label, end = known.offset - known.seq, known.offset + known.length
    same = (run >= 0) & (known.writer[run] == new.writer) & (label[run] == new.offset - new.seq)
    found: list[tuple[int, int, int, int]] = []
    for i in indices((new.offset < frontier) & ~(same & (new.offset + new.length <= end[run]))).tolist():
        offset, writer, seq = int(new.offset[i]), int(new.writer[i]), int(new.seq[i])
        others = (known.writer != writer) | (label != offset - seq)
        low = np.maximum(known.offset[others], offset)
        high = np.minimum(end[others], min(offset + int(new.length[i]), frontier))
        for a, b in zip(*intervals.merge(low[low < high], high[low < high]), strict=True):
            found.append((int(a), writer, seq + int(a) - offset, int(b - a)))
    return Places(*np.array(found, np.int64).reshape(-1, 4).T)


def _moved_to_holes(chunks: Chunks, known: Places, new: Places, frontier: int) -> Places:
    """What was placed below the frontier where the log is still kept and nothing is known to stand, of values that were
    placed before: these stand elsewhere, since whatever stood here would be known."""
    if not len(known) or not len(new) or max(kept_from := int(known.offset[0]), int(new.offset.min())) >= frontier:
        return Places()
    below = _above(new, kept_from)
    below, _ = merged(take(below, below.offset < frontier))
    length = np.minimum(below.length, frontier - below.offset)
    stood = intervals.merge(known.offset, known.offset + known.length)
    rows: list[tuple[int, int, int, int]] = []
    for i in indices(~intervals.contained(*stood, below.offset, below.offset + length)).tolist():
        offset, writer, seq = int(below.offset[i]), int(below.writer[i]), int(below.seq[i])
        hole = intervals.subtract(np.array([offset]), np.array([offset + int(length[i])]), *stood)
        of = np.full(len(hole[0]), writer, np.int64)
        _, start, end = chunks.having("placed", (of, hole[0] - offset + seq, hole[1] - offset + seq))
        rows += [(a - seq + offset, writer, a, b - a) for a, b in zip(start.tolist(), end.tolist(), strict=True)]
    return Places(*np.array(rows, np.int64).reshape(-1, 4).T)


def _again(state: State, chunks: Chunks, new: Values, placed: Placed) -> Values:
    """The new values that stand elsewhere, too: in the window, or, placed before and not in it, below the frontier."""
    known, before, after = chunks.having("placed", new), placed.before, placed.after
    again = intervals.subtract_grouped(known, _around(known, before)) if len(known[0]) else known
    if _repeats(after):
        order = np.lexsort((after.seq, after.writer))
        twice = _twice(after, order[among(after.writer, new[0])[order]])
        _note_moved(state, placed, twice)
        twice = _among(twice, new)
        again = intervals.merge_grouped(*(np.concatenate(pair) for pair in zip(again, twice, strict=True)))
    return again


def _among(twice: Values, new: Values) -> Values:
    """Of what stands twice the new values: the others were told when they came, and are of other chunks than those
    asked for now."""
    return intervals.subtract_grouped(twice, intervals.subtract_grouped(twice, new))


def _around(few: Values, places: Places) -> Values:
    """The values of these places, as far as they may be among the few: those are of neighbouring numbers."""
    _, start, end = few
    near = (places.seq < max(end.tolist())) & (places.seq + places.length > min(start.tolist()))
    return values(places.writer[near], places.seq[near], places.length[near])


def merged(places: Places) -> tuple[Places, bool]:
    """Runs of one label joined where they overlap or touch, sorted by offset; and whether labels disagree anywhere."""
    if len(places) <= 1:
        return places, False
    order = places.offset.argsort(kind="stable")
    offset, writer = places.offset[order], places.writer[order]
    seq, length = places.seq[order], places.length[order]
    end = np.maximum.accumulate(offset + length)
    same = (writer[1:] == writer[:-1]) & ((offset - seq)[1:] == (offset - seq)[:-1])
    if some(~same & (offset[1:] < end[:-1])):
        return _merged_by_label(offset, writer, seq, length), True
    head = np.concatenate(([True], ~same | (offset[1:] > end[:-1])))
    heads = indices(head)
    ends = end[tails(heads, len(end))]
    return Places(offset[heads], writer[heads], seq[heads], ends - offset[heads]), False


def _merged_by_label(offset: Ints, writer: Ints, seq: Ints, length: Ints) -> Places:
    pairs, label = np.unique(np.stack((writer, offset - seq)), axis=1, return_inverse=True)
    label, start, end = intervals.merge_grouped(label.ravel(), offset, offset + length)
    order = start.argsort(kind="stable")
    label, start, end = label[order], start[order], end[order]
    return Places(start, pairs[0][label], start - pairs[1][label], end - start)


def _above(places: Places, frontier: int) -> Places:
    """What lies at or above the frontier."""
    if not len(places) or min(places.offset.tolist()) >= frontier:
        return places
    cut = np.maximum(frontier - places.offset, 0)
    keep = cut < places.length
    cut = cut[keep]
    return Places(places.offset[keep] + cut, places.writer[keep], places.seq[keep] + cut, places.length[keep] - cut)


def _repeats(places: Places) -> bool:
    """Does any value stand at two places?"""
    order = np.lexsort((places.seq, places.writer))
    writer, seq = places.writer[order], places.seq[order]
    end = seq + places.length[order]
    return some((writer[1:] == writer[:-1]) & (seq[1:] < end[:-1]))


def _twice(places: Places, order: Ints) -> Values:
    """The values that stand at two or more places of those that `order` lists, sorted by writer and seq."""
    found: list[Values] = []
    writer = places.writer[order]
    heads = indices(np.diff(writer, prepend=writer[0] - 1 if len(writer) else 0))
    for head, end in zip(heads.tolist(), np.append(heads[1:], len(writer)).tolist(), strict=True):
        own = order[head:end]
        start, stop = intervals.deeper(places.seq[own], places.seq[own] + places.length[own])
        found.append((np.full(len(start), writer[head], np.int64), start, stop))
    if not found:
        return EMPTY, EMPTY, EMPTY
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _note_moved(state: State, placed: Placed, again: Values) -> None:
    """Remember the earlier places of duplicated values in the window: their index is that of the last place."""
    both, rows = placed.after, list[tuple[int, ...]]()
    for writer, start, end in zip(*(a.tolist() for a in again), strict=True):
        own = indices((both.writer == writer) & (both.seq < end) & (both.seq + both.length > start))
        first, stop = both.seq[own], both.seq[own] + both.length[own]
        shift = both.offset[own] - first
        # Between two neighbouring cuts every value stands at the same places, and is known to since the same time.
        told = [take(places, places.writer == writer) for places in (placed.places, state.moved)]
        told_ends = [end for places in told for end in (places.seq, places.seq + places.length)]
        cuts = np.unique(np.clip(np.concatenate((first, stop, *told_ends, [start, end])), start, end))
        for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            shifts = shift[(first <= low) & (stop >= high)].tolist()
            last = low + max(shifts, default=0)
            for offset in (low + s for s in shifts if low + s < last):
                known = _known_to_move(state.moved, placed, (writer, low, offset), last)
                rows.append((writer, low, offset, high - low, last, known))
    if rows:
        others = take(state.moved, ~among(state.moved.writer, again[0]))
        state.moved = concat(others, Moved(*np.array(rows, np.int64).T))


def _known_to_move(moved: Moved, placed: Placed, value: tuple[int, int, int], last: int) -> int:
    """Since when it is known that this (writer, seq, offset) stands at `last`, or stood further on before that."""
    writer, seq, offset = value
    before: Bools = (moved.writer == writer) & (moved.offset - moved.seq == offset - seq)
    before &= (moved.offset <= offset) & (offset < moved.offset + moved.length)
    if before.any():
        return int(moved.known[before].min())
    return placed.proven([value, (writer, seq, last)])


def known_by(moved: Moved, at: int) -> Moved:
    """Those that were known by this log time."""
    return moved if int(moved.known.max(initial=-1)) <= at else take(moved, moved.known <= at)


def note_index(state: State, start: Ints, end: Ints) -> None:
    """The offsets [start, end) hold values."""
    new, known = end > state.index_from, state.index
    state.index = Spans(
        *intervals.merge(np.concatenate((known.start, start[new])), np.concatenate((known.end, end[new])))
    )


def forget_below(state: State, frontier: int, index_from: int) -> None:
    """Drop what the settled frontier has passed, and of the index what no late reader may still be compared with. What
    is dropped beside that, for want of room, is told (`rules.kept.dropped`)."""
    log = state.log
    if len(log) and int(log.offset[0]) < frontier:
        again = state.given_again
        below = take(log, log.offset < frontier) if len(again) else Places()
        below = take(below, intervals.touched(again.start, again.end, below.offset, below.offset + below.length))
        state.relaid = _newest(state, below)
        state.log = _above(log, frontier)
    if len(state.index.start) > INDEX_KEPT:
        least = min(int(state.index.start[-INDEX_KEPT]), frontier)
        dropped.note(
            state, WHAT, int(state.index.start.searchsorted(least) - state.index.start.searchsorted(index_from))
        )
        index_from = max(index_from, least)
    state.index_from = max(state.index_from, min(index_from, frontier))
    for name, low in (("index", state.index_from), ("unclear", state.index_from)):
        spans: Spans = getattr(state, name)
        if len(spans.start) and int(spans.start[0]) < low:
            keep = spans.end > low
            setattr(state, name, Spans(np.maximum(spans.start[keep], low), spans.end[keep]))
    if len(state.moved.offset):
        keep = state.moved.last >= state.index_from
        state.moved = take(state.moved, keep)


def indexed(state: State, moved: Moved, first: Ints, previous: Ints) -> tuple[Spans, Ints, Ints, Bools]:
    """For steps from `previous` to `first`: the offsets that have an index, both ends at the last places of their
    values, and whether both have an index. A value that stands at several offsets, as far as it is known to have
    `moved`, counts at the last of them, unless that is unclear or was seen at read_uncommitted alone; an offset with
    several values concludes nothing."""
    index = state.index
    stood = first, previous
    if len(moved.offset):
        gone = intervals.merge(moved.offset, moved.offset + moved.length)
        index = Spans(*intervals.subtract(index.start, index.end, *gone))
        first, previous = _at_last_place(moved, first), _at_last_place(moved, previous)
    sure = np.ones(len(first), bool)
    if len(state.unclear.start):
        index = Spans(*intervals.subtract(index.start, index.end, state.unclear.start, state.unclear.end))
        for offset in stood:
            sure &= ~intervals.touched(state.unclear.start, state.unclear.end, offset, offset + 1)
    for offset, original in zip((first, previous), stood, strict=True):
        sure &= (offset == original) | intervals.touched(index.start, index.end, offset, offset + 1)
    return index, first, previous, sure


def _at_last_place(moved: Moved, offset: Ints) -> Ints:
    mapped = offset.copy()
    for start, length, last in zip(moved.offset, moved.length, moved.last, strict=True):
        inside = (offset >= start) & (offset < start + length)
        mapped[inside] = np.maximum(mapped[inside], last + offset[inside] - start)
    return mapped


def duplicate_in(state: State, moved: Moved, first: int, previous: int) -> dict[str, str]:
    """Where an end of the step from `previous` to `first` is a value with several offsets: how bad that duplicate is,
    for the policy."""
    for offset in (first, previous):
        stands = _stands_twice(moved, offset)
        if stands.any():
            writers = moved.writer[stands].tolist()
            return {"duplicate": "warning" if all(w in state.not_idempotent for w in writers) else "critical"}
    return {}


def duplicate_at(moved: Moved, first: int, previous: int) -> tuple[int, int] | None:
    """The value (writer, seq) with several offsets that stands at an end of that step; None where there is none."""
    for offset in (first, previous):
        for i in indices(_stands_twice(moved, offset)).tolist():
            here = moved.offset[i] if moved.offset[i] <= offset < moved.offset[i] + moved.length[i] else moved.last[i]
            return int(moved.writer[i]), int(moved.seq[i] + offset - here)
    return None


def _stands_twice(moved: Moved, offset: int) -> Bools:
    """Which of these have a value at this offset."""
    stands: Bools = (moved.offset <= offset) & (offset < moved.offset + moved.length)
    return stands | ((moved.last <= offset) & (offset < moved.last + moved.length))
