"""What observers read of a partition's ends, as steps in time, and the times during which nobody read any.

For those who judge by it later than it came: what was known at a time is looked up for that time.

Ends do not go back, unless the log is cut. Where observers have read lower ones than before for `CUT_AFTER`, it was,
and what lay above is there no more: from then on only what has been read since the first of these counts
(`Observed.look`).

State: the newest watermarks, and those since the earliest time that somebody may still ask for, at most `KEPT`: of
more, every other one is dropped, so that times are taken for later than they were. Those of before the newest cut,
while somebody may ask for them, and those of `CUT_AFTER` that may be the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np

from rules.arrays.columns import OFFSETS
from rules.arrays.intervals import EMPTY, Ints, indices
from rules.kept.codec import Table, concat, take
from rules.kept.state import Moves, Spans
from rules.vocabulary.objectives import SECOND

KEPT: Final = 1024
FOREVER: Final = 2**62
CUT_AFTER: Final = 10 * SECOND
"""A leader that is new may tell less for a moment, and so does an observer whose clock is ahead of another one's."""


@dataclass(slots=True)
class Watermarks(Table):
    """What observers read, in the order of time; `stable` and `end` are the highest so far, the last stable offset only
    where the log end was read with it. `value` and `last_value`: the highest offset below each of them at which the log
    was known to hold a value, -1 for none."""

    at: Ints = field(default_factory=lambda: EMPTY)
    stable: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    value: Ints = field(default_factory=lambda: EMPTY)
    last_value: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Sight:
    """The watermarks as steps in time, the times during which nobody saw any (FOREVER: still), and the log starts of
    this step, the highest so far."""

    marks: Watermarks
    gaps: list[tuple[int, int]]
    low_at: Ints
    low: Ints

    def by(self, ahead: int) -> Sight:
        """The same by a clock that is ahead of the observers' by so much at most: nothing is seen too early."""
        if not ahead:
            return self
        gaps = [(lost + ahead, min(back + ahead, FOREVER)) for lost, back in self.gaps]
        return Sight(replace(self.marks, at=self.marks.at + ahead), gaps, self.low_at + ahead, self.low)

    def beyond(self, offset: int, uncommitted: int) -> bool:
        """Has what can be read gone past this offset by now?"""
        values = self.marks.end if uncommitted else self.marks.stable
        return bool(len(values)) and int(values[-1]) > offset

    def gone(self, offset: int) -> tuple[int, int]:
        """When the log start had gone past this offset, and to where; FOREVER if it has not."""
        index = int(self.low.searchsorted(offset, side="right"))
        return (int(self.low_at[index]), int(self.low[index])) if index < len(self.low) else (FOREVER, -1)

    def end_after(self, time: int) -> int:
        """The log's end as observed first from this time on, -1 while it has not been."""
        index = int(self.marks.at.searchsorted(time))
        return int(self.marks.end[index]) if index < len(self.marks) else -1

    def past(self, offset: int, uncommitted: int) -> int:
        """When what can be read had gone past this offset; -1 if it has not."""
        return self._first(self.marks.end if uncommitted else self.marks.stable, offset + 1)[0]

    def readable(self, offset: int, uncommitted: int) -> tuple[int, int]:
        """Since when a value at or past this offset is known that can be read, and one such value; -1 if none is."""
        return self._first(self.marks.last_value if uncommitted else self.marks.value, offset)

    def _first(self, values: Ints, at_least: int) -> tuple[int, int]:
        index = int(values.searchsorted(at_least))
        return (int(self.marks.at[index]), int(values[index])) if index < len(values) else (-1, -1)

    def end_when_past(self, offset: int) -> int:
        """The log's end when the last stable offset had first gone past this offset; -1 if it has not."""
        index = int(self.marks.stable.searchsorted(offset, side="right"))
        return int(self.marks.end[index]) if index < len(self.marks) else -1


@dataclass(slots=True)
class Observed:
    """`marks`: the watermarks kept, of the log as it has been `since` it was cut last, -1 for always; `cut`: when that
    was known, and `before` those of before. `short`: what was read last, as it was, while it is less than before.
    `gaps`: [last read, read again], with vain questions between; `blind`: since when none can be read, -1 while they
    can. `boot`: whose clock that is, a number of `State.boot_names`, -1 for none."""

    marks: Watermarks = field(default_factory=Watermarks)
    since: int = -1
    before: Watermarks = field(default_factory=Watermarks)
    cut: int = -1
    short: Watermarks = field(default_factory=Watermarks)
    gaps: list[list[int]] = field(default_factory=list)
    blind: int = -1
    boot: int = -1

    def look(self, moves: Moves, index: Spans) -> list[tuple[int, Sight]]:
        """Take in the observers' rows: watermarks as steps in time, and spells without any. What is seen, and, where
        the log was cut, what was seen before: each with the time from which it counts, -1 for always, in this order.
        """
        rows = indices(moves.f == OFFSETS)
        if len(rows):
            self.boot = int(moves.boot[rows[-1]])
        seeing = (moves.stable[rows] >= 0) | (moves.end[rows] >= 0)
        last = int(self.marks.at[-1]) if len(self.marks) else -1
        self._note_gaps(last, moves.at[rows[~seeing]], moves.at[rows[seeing]])
        some = rows[seeing]
        epochs = [(-1, self.before)] if len(self.before) else []
        if len(some):
            # Where the log begins there is nothing to read below: retention went past an open transaction.
            told = (moves.end[some] >= 0) & (moves.stable[some] > moves.low[some])
            stable = np.where(told, moves.stable[some], -1)
            end = np.maximum(moves.end[some], stable)  # it was read first, and the log may have gone on since
            new = Watermarks(moves.at[some], stable, end, _below(index, stable), _below(index, end))
            late = new.at < last  # of a host that was late: by then the log may have been another one
            self._grow(take(new, late & (new.at >= self.since)))
            epochs += self._follow(take(new, ~late))
        lows = rows[moves.low[rows] >= 0]
        gaps = [(lost, back) for lost, back in self.gaps]
        if self.blind >= 0:
            last = int(self.marks.at[-1]) if len(self.marks) else -1
            gaps.append((last if last >= 0 else self.blind, FOREVER))
        low = moves.at[lows], np.maximum.accumulate(moves.low[lows])
        epochs.append((self.cut, self.marks))
        return [(at, Sight(marks, gaps, *low)) for at, marks in epochs]

    def _grow(self, new: Watermarks) -> None:
        if not len(new):
            return
        seen = concat(self.marks, new)
        if len(self.marks) and int(new.at[0]) < int(self.marks.at[-1]):
            seen = take(seen, seen.at.argsort(kind="stable"))
        self.marks = _highest(seen)

    def _follow(self, new: Watermarks) -> Iterator[tuple[int, Watermarks]]:
        """Take these in, which come in the order of time. Those of before each time that it is known from them that the
        log was cut, with the time from which they count."""
        while True:
            i = self._cut_by(new)
            self._grow(take(new, slice(0, i + 1)))
            if i == len(new):
                return
            yield self.cut, self.marks
            self.before, self.cut, self.since = self.marks, int(new.at[i]), int(self.short.at[0])
            self.marks, self.short = _highest(self.short), Watermarks()
            new = take(new, slice(i + 1, None))

    def _cut_by(self, new: Watermarks) -> int:
        """Which of them is the first by which it is known that the log was cut; their number where none is."""
        stable = np.concatenate((self.marks.stable[-1:], new.stable))
        end = np.concatenate((self.marks.end[-1:], new.end))
        if len(stable) == len(new):
            stable, end = np.append(-1, stable), np.append(-1, end)
        less = (new.stable >= 0) & (new.stable < np.maximum.accumulate(stable)[:-1])
        less |= (new.end >= 0) & (new.end < np.maximum.accumulate(end)[:-1])
        if not less.any():
            self.short = Watermarks() if len(new) else self.short
            return len(new)
        for i, shorter in enumerate(less.tolist()):
            self.short = concat(self.short, take(new, slice(i, i + 1))) if shorter else Watermarks()
            if shorter and int(self.short.at[-1] - self.short.at[0]) >= CUT_AFTER:
                return i
        return len(new)

    def _note_gaps(self, last: int, blind: Ints, seen: Ints) -> None:
        """`last`: when a watermark was read last before these rows; `blind`, `seen`: when none was, and when one."""
        blind, seen = blind[blind > last], seen[seen > last]
        if self.blind >= 0:
            blind = np.append(self.blind, blind)
        if not len(blind):
            return
        self.blind = -1
        for left, right in pairwise([last, *seen.tolist(), FOREVER]):
            inside = blind[(blind > left) & (blind <= right)]
            if len(inside) and right < FOREVER:
                self.gaps.append([left if left >= 0 else int(inside.min()), right])
            elif len(inside):
                self.blind = int(inside.min())

    def forget(self, before: int) -> None:
        """Nobody will ask for what was known before this time, save for the last of it."""
        self.gaps = [gap for gap in self.gaps if gap[1] > before]
        if self.cut <= before and len(self.before):
            self.before = Watermarks()
        first = max(0, int(self.marks.at.searchsorted(before, side="right")) - 1)
        self.marks = take(self.marks, slice(first, None))
        if len(self.marks) > KEPT:
            self.marks = take(self.marks, np.append(np.arange(0, len(self.marks) - 1, 2), len(self.marks) - 1))


def _highest(seen: Watermarks) -> Watermarks:
    columns = (np.maximum.accumulate(column) for column in (seen.stable, seen.end, seen.value, seen.last_value))
    return Watermarks(seen.at, *columns)


def _below(index: Spans, offsets: Ints) -> Ints:
    """The highest offset below each of these at which the log is known to hold a value; -1 for none."""
    if not len(index):
        return np.full(len(offsets), -1, np.int64)
    i = index.start.searchsorted(offsets) - 1
    return np.where(i < 0, -1, np.minimum(index.end[i], offsets) - 1)
