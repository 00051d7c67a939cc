"""What observers listed of the log start, and what that proves of earlier moments.

The log start only rises. A listing that was *invoked* after a reader's poll had completed, and tells a start at or
below an offset, proves that the offset was still there when the reader went over it: retention had not sent the reader
forward. One whose answer merely came later proves nothing, since its request may have been served before. "After" is by
one boot's clock, or beyond the measured bound of two (`rules.settling.clocks`). One whose log end does not lie above
what the reader was given by then is older than that, whenever it was asked for, and so is the log start that it tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import OFFSETS, OK, POLL, TXN
from rules.arrays.intervals import Ints, each, indices, some, tails
from rules.kept import dropped
from rules.kept.state import Listed, Moves, Passed, Proven, State, concat, take
from rules.settling import strangers
from rules.settling.clocks import UNKNOWN, ahead
from rules.settling.frontier import FOREVER, TICK, forgets

UNPROVEN_FEW: Final = 512
UNPROVEN_KEPT: Final = 8192
WHAT: Final = "stretches that readers went over"
LISTED_KEPT: Final = 64
"""Of a log start that rose more often than that while polls are late, a later one proves less, and nothing false."""


@dataclass(frozen=True, slots=True)
class Listings:
    """Observations of the log start, in the order of their invocations; `at` is when each was answered, `end` the log
    end that it told, -1 for none."""

    invoked: Ints
    at: Ints
    boot: Ints
    low: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.at)

    @classmethod
    def of(cls, state: State, moves: Moves) -> Listings:
        """Those among these moves, and those that are kept for polls that come late."""
        rows = indices((moves.f == OFFSETS) & (moves.low >= 0))
        made = Listed(moves.invoked[rows], moves.at[rows], moves.boot[rows], moves.low[rows], moves.end[rows])
        every = concat(state.listed, made)
        every = take(every, every.invoked.argsort(kind="stable"))
        if len(rows):
            state.listed = _thinned(every)
        return cls(every.invoked, every.at, every.boot, every.low, every.end)

    def after(self, state: State, at: Ints, boot: Ints, given: Ints) -> Ints:
        """For each moment, `at` by the clock of `boot`, the first listing that was certainly invoked after it, and is
        no older than what had been given by then, up to this offset; -1 while there is none."""
        first = np.full(len(at), -1, np.int64)
        if not len(self):
            return first
        observers = each(self.boot)
        for other in each(boot):
            own = indices(boot == other)
            for observer in observers:
                bound = ahead(state, observer, other)
                if bound >= UNKNOWN:
                    continue
                rows = indices(self.boot == observer)
                index = np.searchsorted(self.invoked[rows], at[own] + bound, side="right")
                index = self._no_older(rows, index, given[own])
                found = index < len(rows)
                which = np.where(found, rows[np.minimum(index, len(rows) - 1)], -1)
                better = found & ((first[own] < 0) | (which < first[own]))
                first[own[better]] = which[better]
        return first

    def _no_older(self, rows: Ints, index: Ints, given: Ints) -> Ints:
        """For each of some places among these listings the next whose end lies above what was given."""
        end = np.append(np.where(self.end[rows] < 0, FOREVER, self.end[rows]), FOREVER)
        older = end[index] <= given
        while older.any():  # as for as long as a broker tells of a log that was
            index = index + older
            older = end[index] <= given
        return index


def _thinned(every: Listed) -> Listed:
    """The last of each boot's that tell one log start: it proves of an earlier moment what those before it do."""
    last = np.ones(len(every), bool)
    for boot in each(every.boot):
        own = indices(every.boot == boot)
        last[own[:-1]] = every.low[own[1:]] != every.low[own[:-1]]
    return take(every, indices(last)[-LISTED_KEPT:])


def prove_passes(state: State, fresh: Passed, listings: Listings) -> Proven:
    """Which of the offsets that readers went over (`fresh`, and those that waited) are proven to have been above the
    log start then. The others wait, for as long as nobody lists the log start: of more than `UNPROVEN_FEW` those are
    one that one reader went straight on in within a second, as they are once they are proven, and of more than
    `UNPROVEN_KEPT` the oldest are dropped, which is told (`rules.kept.dropped`)."""
    waiting = concat(state.unproven, fresh)
    if not len(waiting):
        return Proven()
    first = listings.after(state, waiting.at, waiting.boot, waiting.end - 1)
    told = first >= 0
    state.unproven = _bounded(state, take(waiting, ~told))
    if not some(told):
        return Proven()
    went, first = take(waiting, told), first[told]
    went.start = np.maximum(went.start, listings.low[first])
    at = _tick(_by_either_clock(state, went, listings.boot[first]))
    keep = went.start < went.end
    return _merged(take(went, keep), at[keep])


def _by_either_clock(state: State, went: Passed, observer: Ints) -> Ints:
    """By when each pass had happened, by the clock of its reader or of who listed the log start after it, whichever
    tells less. The time of the listing says nothing of it: one that is known late may be much newer than it need be."""
    at = went.at.copy()
    for boot in each(went.boot):
        for other in each(observer[went.boot == boot]):
            rows = (went.boot == boot) & (observer == other)
            at[rows] += min(ahead(state, other, boot), 0)
    return at


def _bounded(state: State, waiting: Passed) -> Passed:
    if len(waiting) <= UNPROVEN_FEW:
        return waiting
    waiting = take(waiting, np.lexsort((waiting.at, waiting.process)))
    second = waiting.at // TICK
    on = (waiting.process[1:] == waiting.process[:-1]) & (waiting.boot[1:] == waiting.boot[:-1])
    on &= (second[1:] == second[:-1]) & (waiting.start[1:] == waiting.end[:-1])
    first = indices(np.append(True, ~on))
    last = tails(first, len(waiting))
    waiting = Passed(
        waiting.start[first],
        waiting.end[last],
        waiting.since[first],
        waiting.at[last],
        waiting.process[first],
        waiting.boot[first],
    )
    waiting = take(waiting, waiting.at.argsort(kind="stable"))
    dropped.note(state, WHAT, len(waiting) - UNPROVEN_KEPT)
    return take(waiting, slice(-UNPROVEN_KEPT, None))


def _tick(at: Ints) -> Ints:
    return np.asarray(-(-at // TICK) * TICK)


def _merged(went: Passed, at: Ints) -> Proven:
    """Passes that had happened by the ticks `at`. What one reader went over within a second is one pass, and the last
    of its times is its time, as long as it went straight on; since the first, where offsets are given again."""
    order = np.lexsort((went.at, went.process, at))
    went, at = take(went, order), at[order]
    if not len(at):
        return Proven()
    second = went.at // TICK
    new = (at[1:] != at[:-1]) | (went.process[1:] != went.process[:-1]) | (second[1:] != second[:-1])
    first = indices(np.concatenate(([True], new | (went.start[1:] != went.end[:-1]))))
    last = tails(first, len(at))
    return Proven(went.start[first], went.end[last], at[first], went.since[first], went.at[last], went.boot[first])


def prove_held(state: State, end: int, listings: Listings) -> Proven:
    """The same for what readers went over in polls that are not followed yet, because a row before them is missing.
    They tell from where to where they went; each from where the one before it left off, if nothing is missing
    between."""
    held = take(state.moves, state.moves.at <= end)
    polls = (held.first >= 0) & (held.type == OK) & ((held.f == POLL) | (held.f == TXN))
    held = take(held, polls | forgets(held))
    held = take(held, np.lexsort((held.slice, held.process)))
    start = np.where((held.before >= 0) & (held.before <= held.first), held.before, held.first)
    stretch = _stretches(state, held)
    before = indices((stretch[1:] == stretch[:-1]) & ~forgets(held)[:-1])
    start[before + 1] = np.minimum(start[before + 1], held.last[before] + 1)
    reach = np.maximum(held.first, held.last) + 1
    assigned = (held.subscribed == 0) & (held.first >= 0) & ~forgets(held) & ~strangers.note(state, held, start, reach)
    held = take(held, assigned)
    went = Passed(start[assigned], reach[assigned], held.at, held.at, held.process, held.boot)
    if not len(went):
        return Proven()
    known = state.passed.since >= went.at.min()
    spans = intervals.merge(state.passed.start[known], state.passed.end[known])
    went = take(went, ~intervals.contained(*spans, went.start, went.end))
    first = listings.after(state, went.at, went.boot, went.end - 1)
    went, first = take(went, first >= 0), first[first >= 0]
    went.start = np.maximum(went.start, listings.low[first])
    went = take(went, went.start < went.end)
    return _merged(went, _tick(went.at))


def _stretches(state: State, held: Moves) -> Ints:
    """Numbers that are the same for moves of one process between which none of its rows is missing."""
    number, first = np.zeros(len(held), np.int64), 0
    for process in each(held.process):
        mine = held.process == process
        begins = [one[0] for one in state.processes[process].ahead] if process in state.processes else []
        number[mine] = first + np.searchsorted(np.array(begins, np.int64), held.slice[mine], side="right")
        first += len(begins) + 1
    return number
