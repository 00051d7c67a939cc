"""Where the log ended, and when: the observers' listings of the last `KEPT` half minutes, one for each.

What was appended before a time lies below every end that was listed later, and what was appended after it at or above
every end that was listed before. So a write whose acknowledgement told no offset lies between two listings. It is the
read_uncommitted end that counts, and a listing's invocation or completion, whichever proves more.

State: `KEPT` listings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays.columns import OFFSETS
from rules.arrays.intervals import EMPTY, Ints
from rules.kept.check import Check, News
from rules.kept.codec import Table, concat, take
from rules.kept.state import State
from rules.vocabulary.objectives import SECOND

NAME: Final = "log-ends"
KEPT: Final = 40
APART: Final = 30 * SECOND


@dataclass(slots=True)
class Ends(Table):
    """Listings in the order of their invocations."""

    invoked: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class LogEnds:
    """The first listing of each half minute, at most `KEPT`."""

    listed: Ends = field(default_factory=Ends)


def arrive(own: LogEnds, new: News) -> None:
    """Take the new rows' listings in; the first of each half minute is kept, whatever order they come in."""
    columns = new.columns
    rows = np.flatnonzero(new.fresh & columns.where(OFFSETS) & (columns.log_end >= 0))
    if not len(rows):
        return
    both = concat(own.listed, Ends(columns.invoked[rows], columns.completed[rows], columns.log_end[rows]))
    both = take(both, np.lexsort((both.end, both.completed, both.invoked)))
    first = np.diff(both.invoked // APART, prepend=-1) > 0
    own.listed = take(take(both, first), slice(-KEPT, None))


def _listed(state: State) -> Ends:
    known = state.checks.get(NAME)
    return Ends() if known is None else known.listed


def end_before(state: State, time: int) -> int:
    """What is appended after `time` lies at or above this offset; 0 where nothing is known."""
    listed = _listed(state)
    return max(0, int(listed.end[listed.completed <= time].max(initial=0)))


def end_after(state: State, time: int) -> int:
    """What was appended before `time` lies below this offset; -1 where no later listing is known."""
    listed = _listed(state)
    later = np.flatnonzero(listed.invoked >= time)
    return int(listed.end[later[0]]) if len(later) else -1


CHECK: Final = Check(NAME, LogEnds, arrive=arrive)
"""It finds nothing itself; those that do ask `end_before` and `end_after`."""
