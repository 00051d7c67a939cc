"""Of many reads of committed offsets at once: what had been committed, or told, before each of them.

Few are compared each with each. Where a host of several is late, reads wait for its log, for ten minutes at most, and
commits with them: thousands of each, at each step. They are put in one order then, and looked through once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.intervals import Bools, Ints, numbered
from rules.checks.committed.commit_rows import NEVER, Commits, Reads

MANY: Final = 4_096
"""So many pairs are compared each with each no longer."""


def familiar(commits: Commits, reads: Reads) -> Bools:
    """Which reads tell what one of these commits of their group asked for before, by the same clock."""
    if len(commits) * len(reads) < MANY:
        same = (reads.group[:, None] == commits.group) & (reads.offset[:, None] == commits.offset)
        same &= (reads.domain[:, None] == commits.domain) & (commits.since <= reads.at[:, None])
        return np.asarray(same.any(axis=1), dtype=bool)
    codes = _together(
        np.concatenate((commits.group, reads.group)),
        np.concatenate((commits.domain, reads.domain)),
        np.concatenate((commits.offset, reads.offset)),
    )
    first: Ints = np.full(int(codes.max()) + 1, NEVER, np.int64)
    np.minimum.at(first, codes[: len(commits)], commits.since)
    return np.asarray(first[codes[len(commits) :]] <= reads.at, dtype=bool)


def less(earlier: Commits | Reads, reads: Reads) -> Bools:
    """Which reads tell less than one of these had, which had completed before they were invoked, by the same clock."""
    if len(earlier) * len(reads) < MANY:
        before = (earlier.group == reads.group[:, None]) & (earlier.domain == reads.domain[:, None])
        before &= (earlier.completed <= reads.invoked[:, None]) & (earlier.offset > reads.offset[:, None])
        return np.asarray(before.any(axis=1), dtype=bool)
    code = _together(np.concatenate((earlier.group, reads.group)), np.concatenate((earlier.domain, reads.domain)))
    rank = numbered(np.concatenate((earlier.offset, reads.offset)))[1]
    asks = np.concatenate((np.zeros(len(earlier), bool), np.ones(len(reads), bool)))
    order = np.lexsort((asks, np.concatenate((earlier.completed, reads.invoked)), code))
    # The highest rank so far of each group and clock: those that come later stand higher than all of those before.
    base = code * (int(rank.max()) + 2)
    highest: Ints = np.empty(len(order), np.int64)
    highest[order] = np.maximum.accumulate((base + np.where(asks, 0, rank + 1))[order])
    return np.asarray((highest - base - 1 > rank)[len(earlier) :], dtype=bool)


def _together(*columns: Ints) -> Ints:
    """For each entry a small number that tells apart what differs in any of these columns."""
    code = numbered(columns[0])[1]
    for column in columns[1:]:
        other = numbered(column)[1]
        code = numbered(code * (int(other.max()) + 1) + other)[1]
    return code
