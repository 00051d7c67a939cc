"""Where something was known to stand only when it was polled, and since when: for verdicts about an earlier time, which
are the same in however large pieces the log comes.

State: what polls tell that were made after the last tick, at most `KEPT` runs. Of those beyond it is not known when
they were polled: they count at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import EMPTY, Ints, indices
from rules.kept.check import News
from rules.kept.codec import Table, concat, take

KEPT: Final = 4_096


@dataclass(slots=True)
class Later(Table):
    """Runs of offsets at which nothing was known to stand before they were polled at this log time."""

    offset: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)


def note(own: Later, new: News) -> Later:
    """With what new polls show of which nothing else tells that anything stands there, neither the index of before nor
    who sent it."""
    polled = new.committed.take(new.committed.offset >= 0)
    told = new.acknowledged.take(new.acknowledged.offset >= 0)
    index = new.state.index
    known = intervals.merge(
        np.concatenate((index.start, told.offset)), np.concatenate((index.end, told.offset + told.length))
    )
    end = polled.offset + polled.length
    new_here = ~intervals.contained(*known, polled.offset, end)
    if not new_here.any():
        return own
    at = new.columns.completed[polled.row]
    partly = new_here & intervals.touched(*known, polled.offset, end)
    whole = new_here & ~partly
    own = concat(own, Later(polled.offset[whole], polled.length[whole], at[whole]))
    for i in indices(partly).tolist():
        start, stop = intervals.subtract(polled.offset[i : i + 1], end[i : i + 1], *known)
        own = concat(own, Later(start, stop - start, np.full(len(start), at[i])))
    return own


def than(own: Later, at: int) -> tuple[Ints, Ints]:
    """The offsets, merged, at which something was known to stand only after this log time."""
    after, ends = own.at > at, own.offset + own.length
    late = intervals.merge(own.offset[after], ends[after])
    return intervals.subtract(*late, *intervals.merge(own.offset[~after], ends[~after]))


def after(own: Later, end: int) -> Later:
    """What verdicts of times after the last tick, `end`, may still need."""
    return take(take(own, own.at > end), slice(KEPT))
