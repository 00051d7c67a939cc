"""Which operation wrote a value: intervals of sequence numbers, each with its one writer, and who meets them.

Sequence numbers count per (partition, writer), a *group*. An `Axis` lays the groups that were sent to side by side on
one line of integers, so that one sorted array answers for all of them. The line is as long as the spans of sequence
numbers that were sent, which writers number without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules.arrays.intervals import EMPTY, Bools, Ints, deeper, merge_grouped


def overlaps(low: Ints, high: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """All pairs (query, member) that share a point. Queries are [low, high) in any order, members [start, end) sorted
    and disjoint. Sorted by query, then member."""
    first = np.searchsorted(end, low, side="right")
    count = np.maximum(np.searchsorted(start, high, side="left") - first, 0)
    query = np.repeat(np.arange(len(low)), count)
    ends = np.cumsum(count)
    member = np.arange(len(query)) - np.repeat(ends - count, count) + np.repeat(first, count)
    return query, member


@dataclass(slots=True)
class Axis:
    """Groups on one line. `group` holds their labels, sorted; `low` and `high` the span of each, `base` its place."""

    group: Ints
    low: Ints
    high: Ints
    base: Ints

    @classmethod
    def of(cls, group: Ints, start: Ints, end: Ints) -> Axis:
        """The line for these intervals."""
        labels, number = np.unique(group, return_inverse=True)
        low = np.full(len(labels), np.iinfo(np.int64).max)
        high = np.full(len(labels), np.iinfo(np.int64).min)
        np.minimum.at(low, number, start)
        np.maximum.at(high, number, end)
        spans = high - low + 1
        if sum(map(int, spans)) >= 2**62:
            raise OverflowError("sequence numbers span too much to be compared")
        return cls(labels, low, high, np.cumsum(spans) - spans)

    def lay(self, group: Ints, start: Ints, end: Ints) -> tuple[Bools, Ints, Ints]:
        """(whether any of it can have been sent, where it begins, where it ends), cut to the group's span."""
        if not len(self.group):
            return np.zeros(len(group), bool), np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
        number = np.minimum(np.searchsorted(self.group, group), len(self.group) - 1)
        low, high, shift = self.low[number], self.high[number], self.base[number] - self.low[number]
        known = (self.group[number] == group) & (start < high) & (end > low)
        return known, np.maximum(start, low) + shift, np.minimum(end, high) + shift

    def seq(self, at: Ints) -> Ints:
        """The sequence numbers of places on the line."""
        number = np.searchsorted(self.base, at, side="right") - 1
        return at - self.base[number] + self.low[number]


@dataclass(slots=True)
class Written:
    """Disjoint, sorted stretches of an axis, each with the operation that alone wrote it."""

    axis: Axis
    start: Ints
    end: Ints
    owner: Ints

    def meet(self, group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Where intervals meet what was written: (interval, owner, first seq, seq after the last) of each meeting,
        sorted by interval, then seq."""
        known, low, high = self.axis.lay(group, start, end)
        asked = np.flatnonzero(known)
        low, high = low[asked], high[asked]
        query, member = overlaps(low, high, self.start, self.end)
        first = np.maximum(low[query], self.start[member])
        length = np.minimum(high[query], self.end[member]) - first
        seq = self.axis.seq(first) if len(first) else EMPTY
        return asked[query], self.owner[member], seq, seq + length


def written(group: Ints, start: Ints, end: Ints, owner: Ints) -> Written:
    """Who wrote what: `owner` wrote [start, end) of `group`. What several owners wrote is left out."""
    axis = Axis.of(group, start, end) if len(group) else Axis(EMPTY, EMPTY, EMPTY, EMPTY)
    if not len(group):
        return Written(axis, EMPTY, EMPTY, EMPTY)
    _, low, high = axis.lay(group, start, end)
    order = np.argsort(low, kind="stable")
    low, high, owner = low[order], high[order], owner[order]
    if (low[1:] < high[:-1]).any() or (low[1:] < np.maximum.accumulate(high)[:-1]).any():
        owner, low, high = merge_grouped(owner, low, high)  # what one operation sent twice is sent once
        shared = deeper(low, high)
        if len(shared[0]):
            free_start = np.concatenate((low.min(keepdims=True), shared[1]))
            free_end = np.concatenate((shared[0], high.max(keepdims=True)))
            wide = free_start < free_end
            free_start, free_end = free_start[wide], free_end[wide]
            query, member = overlaps(low, high, free_start, free_end)
            low = np.maximum(low[query], free_start[member])
            high = np.minimum(high[query], free_end[member])
            owner = owner[query]
        order = np.argsort(low, kind="stable")
        low, high, owner = low[order], high[order], owner[order]
    return Written(axis, low, high, owner)
