"""Half-open intervals in numpy arrays: union, overlap, containment. Every function is O(n log n) and allocates O(n).

Intervals are given as two int64 arrays `start`, `end`, with `start < end`; grouped ones have a third, `group`, whose
members alone can touch each other. *Merged* means sorted by (group, start), disjoint and not adjacent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SMALL: Final = 256
"""Fewer entries than this are sorted rather than hashed."""
FEW: Final = 24
"""No more entries than this are merged one by one: a quiet second has a handful, and every call of numpy has its
price."""

_LINE: Final = 2**62
"""What numbers on a line stay below."""

EMPTY: Final[Ints] = np.empty(0, np.int64)
_FIRST: Final[Ints] = np.zeros(1, np.int64)


def indices(mask: Bools) -> Ints:
    """Where the mask is true: `numpy.flatnonzero` without the time that it takes to ask what it was given."""
    return mask.nonzero()[0]


def distinct(values: Ints) -> Ints:
    """The different values, ascending. By hashing: most columns hold few, and many times each."""
    if len(values) <= FEW:
        return np.array(sorted(set(values.tolist())), np.int64)
    if len(values) < SMALL:
        ordered = np.sort(values)
        return ordered[heads(ordered)]
    found = pc.unique(pa.array(values)).to_numpy()
    return np.asarray(np.sort(found), np.int64)


def each(values: Ints) -> list[int]:
    """The different values, ascending, to go through them one by one."""
    return sorted(set(values.tolist())) if values.size <= FEW else distinct(values).tolist()


def some(mask: Bools) -> bool:
    """Is it true anywhere? `mask.any()` takes three times as long to come to the same question."""
    return bool(mask.nonzero()[0].size)


def newest(at: Ints, most: int, through: int) -> Bools:
    """Which to keep of what happened at these times: all after `through`, which nobody has been able to judge yet, and
    the newest `most` of the others."""
    kept: Bools = at > through
    if len(at) - int(kept.sum()) <= most:
        return np.ones(len(at), bool)
    judged = indices(~kept)
    kept[judged[at[judged].argsort(kind="stable")[-most:]]] = True
    return kept


def heads(labels: Ints) -> Ints:
    """Where each stretch of one label begins."""
    if not labels.size:
        return EMPTY
    return np.concatenate((_FIRST, (labels[1:] != labels[:-1]).nonzero()[0] + 1))


def tails(heads: Ints, size: int) -> Ints:
    """Where the stretches that begin there end: at their last entries, of `size` in all."""
    return np.concatenate((heads[1:], [size])) - 1


def among(values: NDArray[np.signedinteger[Any]], of: Ints | Collection[int]) -> Bools:
    """Which of the values are among these."""
    if len(values) + len(of) > 4 * SMALL:
        return np.isin(values, of if isinstance(of, np.ndarray) else np.fromiter(of, np.int64, len(of)))
    known = set(of.tolist() if isinstance(of, np.ndarray) else of)
    return np.fromiter(map(known.__contains__, values.tolist()), bool, len(values))


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """The different values, ascending, and for each entry the index of its value among them."""
    if len(values) <= FEW:
        listed = values.tolist()
        known = sorted(set(listed))
        place = {label: i for i, label in enumerate(known)}
        return np.array(known, np.int64), np.array([place[label] for label in listed], np.int64)
    if len(values) < SMALL:
        order = values.argsort(kind="stable")
        ordered = values[order]
        first = np.concatenate((_FIRST, ordered[1:] != ordered[:-1]))
        codes: Ints = np.empty(len(values), np.int64)
        codes[order] = first.cumsum()
        return ordered[heads(ordered)], codes
    encoded = pa.array(values).dictionary_encode()
    labels, codes = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    order = np.argsort(labels)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return np.asarray(labels[order], np.int64), rank[codes]


@dataclass(slots=True)
class _Line:
    """One line of numbers on which each group's intervals have a stretch of their own, in the order of the groups.

    Stretches are as wide as all intervals together. Where there are too many such stretches for 64 bits, a number
    stands there by its rank among all bounds (`points`): order and touch of intervals are the same."""

    low: int
    width: int
    points: Ints | None

    @classmethod
    def of(cls, groups: int, *bounds: Ints) -> _Line:
        """A line for this many groups, and intervals with these bounds: start and end by turns, none of them empty."""
        low, high = int(bounds[0].min()), int(bounds[1].max())
        if len(bounds) > 2:
            low, high = min(low, int(bounds[2].min())), max(high, int(bounds[3].max()))
        if groups * (high - low + 2) < _LINE:
            return cls(low, high - low + 2, None)
        points = np.unique(np.concatenate(bounds))
        return cls(0, len(points) + 1, points)

    def place(self, number: Ints, *bounds: Ints) -> list[Ints]:
        """Where these bounds stand. `number` are those of their groups, 0 .. groups-1."""
        base = number * self.width - self.low
        if self.points is not None:
            return [self.points.searchsorted(bound) + base for bound in bounds]
        return [bound + base for bound in bounds]

    def back(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """(number of the group, start, end) of intervals on the line."""
        number = start // self.width
        base = number * self.width - self.low
        start, end = start - base, end - base
        return (number, start, end) if self.points is None else (number, self.points[start], self.points[end])


def merge(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The union, merged."""
    if start.size <= 1:
        return start, end
    order = start.argsort(kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.empty(len(start), bool)
    first[0] = True
    np.greater(start[1:], end[:-1], out=first[1:])
    heads = indices(first)
    return start[heads], end[tails(heads, len(end))]


def merge_grouped(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """The union within each group, merged. `group` is any int64 label."""
    if len(start) <= 1:
        return group, start, end
    if len(start) <= FEW:
        return _merge_few(group, start, end)
    labels, numbers = numbered(group)
    if len(labels) == 1:
        s, e = merge(start, end)
        return np.full(len(s), labels[0], np.int64), s, e
    line = _Line.of(len(labels), start, end)
    number, start, end = line.back(*merge(*line.place(numbers, start, end)))
    return labels[number], start, end


def _merge_few(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    merged: list[list[int]] = []
    for label, low, high in sorted(zip(group.tolist(), start.tolist(), end.tolist(), strict=True)):
        last = merged[-1] if merged else None
        if last is not None and last[0] == label and low <= last[2]:
            last[2] = max(last[2], high)
        else:
            merged.append([label, low, high])
    labels, lows, highs = np.array(merged, np.int64).T
    return labels, lows, highs


def deeper(start: Ints, end: Ints, depth: int = 2) -> tuple[Ints, Ints]:
    """Where at least `depth` of the intervals overlap, merged."""
    if len(start) < depth:
        return EMPTY, EMPTY
    points = np.concatenate((start, end))
    change = np.concatenate((np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)))
    order = np.lexsort((change, points))
    points, height = points[order], np.cumsum(change[order])
    inside = height[:-1] >= depth
    wide = points[1:] > points[:-1]
    keep = inside & wide
    return merge(points[:-1][keep], points[1:][keep])


def subtract(start: Ints, end: Ints, without_start: Ints, without_end: Ints) -> tuple[Ints, Ints]:
    """What of the merged first is not in the merged second."""
    if not len(start) or not len(without_start):
        return start, end
    s, e = deeper(
        np.concatenate((start, without_start)), np.concatenate((end, without_end)), 2
    )  # the intersection: both sides are merged, so that depth 2 means one of each
    if not len(s):
        return start, end
    points = np.sort(np.concatenate((start, e, end, s)))
    left, right = points[0::2], points[1::2]
    keep = left < right
    return left[keep], right[keep]


def subtract_grouped(of: tuple[Ints, Ints, Ints], without: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """`subtract` within groups; both sides merged, as (group, start, end)."""
    if not len(of[0]) or not len(without[0]):
        return of
    labels, numbers = numbered(np.concatenate((of[0], without[0])))
    n = len(of[0])
    line = _Line.of(len(labels), *of[1:], *without[1:])
    left = subtract(*line.place(numbers[:n], *of[1:]), *line.place(numbers[n:], *without[1:]))
    number, start, end = line.back(*left)
    return labels[number], start, end


def intersect(start: Ints, end: Ints, other_start: Ints, other_end: Ints) -> tuple[Ints, Ints]:
    """What is in both of two merged sets."""
    return deeper(np.concatenate((start, other_start)), np.concatenate((end, other_end)), 2)


def touched(start: Ints, end: Ints, low: Ints, high: Ints) -> Bools:
    """For each query [low, high): does the merged set hold any point of it? Empty queries hold none."""
    if not len(start):
        return np.zeros(len(low), bool)
    after = end.searchsorted(low, side="right")  # the first interval that ends beyond `low`
    inside = after < len(start)
    found = np.zeros(len(low), bool)
    found[inside] = start[after[inside]] < high[inside]
    return found & (low < high)


def contained(start: Ints, end: Ints, low: Ints, high: Ints) -> Bools:
    """For each query [low, high): does one interval of the merged set hold all of it?"""
    if not len(start):
        return np.zeros(len(low), bool)
    at = start.searchsorted(low, side="right") - 1
    inside = at >= 0
    found = np.zeros(len(low), bool)
    found[inside] = end[at[inside]] >= high[inside]
    return found


def contained_grouped(group: Ints, start: Ints, end: Ints, query_group: Ints, low: Ints, high: Ints) -> Bools:
    """`contained` within groups: the set is merged by group; queries look into their own group only."""
    if not len(start) or not len(low):
        return np.zeros(len(low), bool)
    labels, numbers = numbered(np.concatenate((group, query_group)))
    if len(labels) == 1:
        return contained(start, end, low, high)
    line, n = _Line.of(len(labels), start, end, low, high), len(start)
    return contained(*line.place(numbers[:n], start, end), *line.place(numbers[n:], low, high))


def touched_grouped(of: tuple[Ints, Ints, Ints], query_group: Ints, low: Ints, high: Ints) -> Bools:
    """`touched` within groups: does any interval of (group, start, end), merged or not, hold a point of [low, high)?"""
    if not len(of[0]) or not len(low):
        return np.zeros(len(low), bool)
    labels, numbers = numbered(np.concatenate((of[0], query_group)))
    line, n = _Line.of(len(labels), *of[1:], low, high), len(of[0])
    return touched(*merge(*line.place(numbers[:n], *of[1:])), *line.place(numbers[n:], low, high))
