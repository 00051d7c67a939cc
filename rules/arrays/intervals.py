"""Half-open intervals in numpy arrays: union, overlap, containment. Every function is O(n log n) and allocates O(n).

Intervals are given as two int64 arrays `start`, `end`, with `start < end`; grouped ones have a third, `group`, whose
members alone can touch each other. *Merged* means sorted by (group, start), disjoint and not adjacent.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SMALL: Final = 256
"""Fewer entries than this are sorted rather than hashed."""

EMPTY: Final[Ints] = np.empty(0, np.int64)


def distinct(values: Ints) -> Ints:
    """The different values, ascending. By hashing: most columns hold few, and many times each."""
    if len(values) < SMALL:
        return np.unique(values)
    found = pc.unique(pa.array(values)).to_numpy()
    return np.asarray(np.sort(found), np.int64)


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """The different values, ascending, and for each entry the index of its value among them."""
    if len(values) < SMALL:
        labels, codes = np.unique(values, return_inverse=True)
        return labels, codes
    encoded = pa.array(values).dictionary_encode()
    labels, codes = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    order = np.argsort(labels)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return np.asarray(labels[order], np.int64), rank[codes]


def _lifted(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The intervals shifted so that those of different groups lie apart, and order by group comes first.

    `group` must hold small numbers 0 .. n-1, as np.unique's inverse gives them."""
    low = start.min()
    width = int(end.max() - low) + 2
    if (int(group.max()) + 1) * width >= 2**62:
        raise OverflowError("intervals span too much to be handled in one piece")
    base = group * width - low
    return start + base, end + base


def merge(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The union, merged."""
    if len(start) <= 1:
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.empty(len(start), bool)
    first[0] = True
    np.greater(start[1:], end[:-1], out=first[1:])
    heads = np.flatnonzero(first)
    return start[heads], end[np.append(heads[1:] - 1, len(end) - 1)]


def merge_grouped(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """The union within each group, merged. `group` is any int64 label."""
    if len(start) <= 1:
        return group, start, end
    labels, numbers = numbered(group)
    if len(labels) == 1:
        s, e = merge(start, end)
        return np.full(len(s), labels[0], np.int64), s, e
    low = start.min()
    width = int(end.max() - low) + 2
    s, e = merge(*_lifted(numbers, start, end))
    number = (s) // width
    base = number * width - low
    return labels[number], s - base, e - base


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
    s, e = _lifted(numbers, np.concatenate((of[1], without[1])), np.concatenate((of[2], without[2])))
    left, right = subtract(s[:n], e[:n], s[n:], e[n:])
    low = min(int(of[1].min()), int(without[1].min()))
    width = max(int(of[2].max()), int(without[2].max())) - low + 2
    number = left // width
    base = number * width - low
    return labels[number], left - base, right - base


def intersect(start: Ints, end: Ints, other_start: Ints, other_end: Ints) -> tuple[Ints, Ints]:
    """What is in both of two merged sets."""
    return deeper(np.concatenate((start, other_start)), np.concatenate((end, other_end)), 2)


def touched(start: Ints, end: Ints, low: Ints, high: Ints) -> Bools:
    """For each query [low, high): does the merged set hold any point of it? Empty queries hold none."""
    if not len(start):
        return np.zeros(len(low), bool)
    after = np.searchsorted(end, low, side="right")  # the first interval that ends beyond `low`
    inside = after < len(start)
    found = np.zeros(len(low), bool)
    found[inside] = start[after[inside]] < high[inside]
    return found & (low < high)


def contained(start: Ints, end: Ints, low: Ints, high: Ints) -> Bools:
    """For each query [low, high): does one interval of the merged set hold all of it?"""
    if not len(start):
        return np.zeros(len(low), bool)
    at = np.searchsorted(start, low, side="right") - 1
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
    s, e = _lifted(numbers, np.concatenate((start, low)), np.concatenate((end, high)))
    n = len(start)
    return contained(s[:n], e[:n], s[n:], e[n:])
