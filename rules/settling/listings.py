"""What observers listed of the log start, and what that proves of earlier moments.

The log start only rises. A listing that was *invoked* after a reader's poll had completed, and tells a start at or
below an offset, proves that the offset was still there when the reader went over it: retention had not sent the reader
forward. One whose answer merely came later proves nothing, since its request may have been served before. "After" is by
one boot's clock, or beyond the measured bound of two (`rules.settling.clocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import OFFSETS, OK, POLL, TXN
from rules.arrays.intervals import Ints, distinct
from rules.kept.state import Listed, Moves, Passed, Spans, State, concat, take
from rules.settling.clocks import UNKNOWN, ahead
from rules.settling.frontier import TICK

UNPROVEN_KEPT: Final = 4096
PASSED_KEPT: Final = 4096
LISTED_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Listings:
    """Observations of the log start, in the order of their invocations; `at` is when each was answered."""

    invoked: Ints
    at: Ints
    boot: Ints
    low: Ints

    def __len__(self) -> int:
        return len(self.at)

    @classmethod
    def of(cls, state: State, moves: Moves) -> Listings:
        """Those among these moves, and those that are kept for polls that come late."""
        rows = np.flatnonzero((moves.f == OFFSETS) & (moves.low >= 0))
        made = Listed(moves.invoked[rows], moves.at[rows], moves.boot[rows], moves.low[rows])
        every = concat(state.listed, made)
        every = take(every, np.argsort(every.invoked, kind="stable"))
        if len(rows):
            state.listed = _thinned(every)
        return cls(every.invoked, every.at, every.boot, every.low)

    def after(self, state: State, at: Ints, boot: Ints) -> Ints:
        """For each moment, `at` by the clock of `boot`, the first listing that was certainly invoked after it; -1 while
        there is none."""
        first = np.full(len(at), -1, np.int64)
        if not len(self):
            return first
        observers = distinct(self.boot).tolist()
        for other in distinct(boot).tolist():
            own = np.flatnonzero(boot == other)
            for observer in observers:
                bound = ahead(state, observer, other)
                if bound >= UNKNOWN:
                    continue
                rows = np.flatnonzero(self.boot == observer)
                index = np.searchsorted(self.invoked[rows], at[own] + bound, side="right")
                found = index < len(rows)
                which = np.where(found, rows[np.minimum(index, len(rows) - 1)], -1)
                better = found & ((first[own] < 0) | (which < first[own]))
                first[own[better]] = which[better]
        return first


def _thinned(every: Listed) -> Listed:
    """The last of each boot's that tell one log start: it proves of an earlier moment what those before it do."""
    last = np.ones(len(every), bool)
    for boot in distinct(every.boot).tolist():
        own = np.flatnonzero(every.boot == boot)
        last[own[:-1]] = every.low[own[1:]] != every.low[own[:-1]]
    return take(every, np.flatnonzero(last)[-LISTED_KEPT:])


def prove_passes(state: State, fresh: Passed, listings: Listings) -> Passed:
    """Which of the offsets that readers went over (`fresh`, and those that waited) are proven to have been above the
    log start then; `at` is the tick by which they had. The others wait, the newest `UNPROVEN_KEPT` of them."""
    waiting = concat(state.unproven, fresh)
    if not len(waiting):
        return waiting
    first = listings.after(state, waiting.at, waiting.boot)
    told = first >= 0
    state.unproven = take(waiting, np.flatnonzero(~told)[-UNPROVEN_KEPT:])
    if not told.any():
        return take(waiting, slice(0, 0))
    first = first[told]
    start = np.maximum(waiting.start[told], listings.low[first])
    end, keep = waiting.end[told], start < waiting.end[told]
    # Both clocks say by when it had happened; a listing that is kept for late polls may be much newer than it need be.
    at = -(-np.minimum(waiting.at[told], listings.at[first]) // TICK) * TICK
    at, start, end = intervals.merge_grouped(at[keep], start[keep], end[keep])
    return Passed(start, end, at, np.full(len(at), -1, np.int64))


def prove_held(state: State, end: int, listings: Listings) -> Passed:
    """The same for what readers went over in polls that are not followed yet, because a row before them is missing.
    Each tells by itself from where to where it went."""
    held = state.moves
    polls = (held.at <= end) & (held.first >= 0) & (held.type == OK) & (held.subscribed == 0)
    held = take(held, polls & np.isin(held.f, (POLL, TXN)))
    start = np.where((held.before >= 0) & (held.before <= held.first), held.before, held.first)
    went = Passed(start, np.maximum(held.first, held.last) + 1, held.at, held.boot)
    went = take(went, ~intervals.contained(state.passed.start, state.passed.end, went.start, went.end))
    first = listings.after(state, went.at, went.boot)
    went, first = take(went, first >= 0), first[first >= 0]
    went.start = np.maximum(went.start, listings.low[first])
    went.at, went.boot = -(-went.at // TICK) * TICK, np.full(len(went), -1, np.int64)
    return take(went, went.start < went.end)


def keep_passes(state: State, proven: Passed) -> None:
    """Remember what readers went over: a handful of intervals, since readers go on where they were. They are facts
    whatever becomes of the log start; of more than `PASSED_KEPT` the lowest are forgotten."""
    if len(proven):
        start, end = np.append(state.passed.start, proven.start), np.append(state.passed.end, proven.end)
        start, end = intervals.merge(start, end)
        state.passed = Spans(start[-PASSED_KEPT:], end[-PASSED_KEPT:])
