"""The newest values of many keys, and what each new entry follows."""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.intervals import Bools, Ints, heads, tails

MOST: Final = 65_536
"""Keys that are remembered: of those heard last."""


class Latest:
    """By key, the newest entry of some columns of integers."""

    def __init__(self, columns: int) -> None:
        self._keys: Ints = np.empty(0, np.int64)
        self._values: Ints = np.empty((columns, 0), np.int64)

    def follow(self, keys: Ints, *values: Ints, keep: Bools | None = None) -> Ints:
        """Take in entries, those of a key in their order; for each, the entry before it of its key, -1 where there was
        none: an array of one row per column. `keep`: which of them are remembered; the others are only asked about."""
        if not len(keys):
            return np.stack(values)
        known = len(self._keys)
        every, told = np.concatenate((self._keys, keys)), np.concatenate((self._values, np.stack(values)), axis=1)
        kept = np.ones(len(every), bool)
        if keep is not None:
            kept[known:] = keep
        order = every.argsort(kind="stable")
        begin = heads(every[order])
        group = np.repeat(begin, np.diff(begin, append=len(order)))  # where each one's key begins
        newest = np.maximum.accumulate(np.where(kept[order], np.arange(len(order)), -1))
        before = np.append(-1, newest[:-1])
        there = before >= group
        found = np.full_like(told, -1)
        found[:, order[there]] = told[:, order[before[there]]]
        last = tails(begin, len(order))
        last = newest[last[newest[last] >= group[last]]]
        remembered = np.sort(order[last])[-MOST:]
        self._keys, self._values = every[remembered], told[:, remembered]
        return found[:, known:]

    def grow(self, keys: Ints, values: Ints) -> None:
        """Take in entries of one column, of which a key keeps the largest."""
        if not len(keys):
            return
        keys, values = np.concatenate((self._keys, keys)), np.concatenate((self._values[0], values))
        order = np.lexsort((values, keys))
        newest = np.sort(order[tails(heads(keys[order]), len(keys))])[-MOST:]
        self._keys, self._values = keys[newest], values[newest][None, :]

    def of(self, keys: Ints) -> Ints:
        """The value of each of these keys in the first column, -1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        order = self._keys.argsort()
        found = order[np.minimum(self._keys[order].searchsorted(keys), len(order) - 1)]
        return np.where(self._keys[found] == keys, self._values[0][found], -1)
