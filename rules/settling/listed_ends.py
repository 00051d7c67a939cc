"""Where the log ended, and when: the observers' listings of the last `KEPT` minutes, one for each.

What was appended before a time lies below every end that was listed later, and what was appended after it at or above
every end that was listed before. So a write whose acknowledgement told no offset lies between two listings. It is the
read_uncommitted end that counts, and a listing's invocation or completion, whichever proves more; before and after are
by one boot's clock, or beyond the measured bound of two (`rules.settling.clocks`).

State: `KEPT` listings of each observer, at most `BOOTS` times as many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays.columns import OFFSETS
from rules.arrays.intervals import EMPTY, Ints, each, indices
from rules.kept.check import Check, News
from rules.kept.codec import Table, concat, take
from rules.kept.state import State
from rules.settling.clocks import ahead
from rules.vocabulary.objectives import SECOND

NAME: Final = "listed-ends"
KEPT: Final = 20
"""Of what is older the first that is kept tells: a place that is wider, so that a run is called absent later."""
BOOTS: Final = 4
"""Observers whose listings are all kept; of more, the newest of all of them."""
APART: Final = 60 * SECOND


@dataclass(slots=True)
class Ends(Table):
    """Listings in the order of their invocations, by the clock of `boot`; `took`: until they completed."""

    invoked: Ints = field(default_factory=lambda: EMPTY)
    took: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class ListedEnds:
    """The first listing of each boot in each minute, of the last `KEPT` minutes, and of those for which log time is
    held back."""

    listed: Ends = field(default_factory=Ends)


def arrive(own: ListedEnds, new: News) -> None:
    """Take the new rows' listings in; the first of each minute is kept, whatever order they come in."""
    columns = new.columns
    rows = new.where(OFFSETS)
    rows = rows[columns.log_end[rows] >= 0]
    if not len(rows):
        return
    took = columns.completed[rows] - columns.invoked[rows]
    listings = Ends(columns.invoked[rows], took, columns.boot[rows], columns.log_end[rows])
    both = concat(own.listed, listings)
    both = take(both, np.lexsort((both.end, both.took, both.invoked, both.boot)))
    minute, boot = both.invoked // APART, both.boot
    first = np.concatenate(([True], (minute[1:] != minute[:-1]) | (boot[1:] != boot[:-1])))
    both = take(both, first)
    both = take(both, both.invoked.argsort(kind="stable"))
    minutes = KEPT + new.state.held // APART
    recent = np.zeros(len(both), bool)
    for number in each(both.boot[-minutes * BOOTS :]):
        recent[indices(both.boot == number)[-minutes:]] = True
    own.listed = take(take(both, recent), slice(-minutes * BOOTS, None))


def _listed(state: State) -> Ends:
    known = state.checks.get(NAME)
    return Ends() if known is None else known.listed


def end_before(state: State, time: int, boot: int) -> int:
    """What is appended after `time`, by the clock of `boot`, lies at or above this offset; 0 where nothing is known."""
    listed = _listed(state)
    bound = _each(listed, lambda other: ahead(state, boot, other))
    return max(0, int(listed.end[time - listed.invoked - listed.took >= bound].max(initial=0)))


def end_after(state: State, time: int, boot: int) -> int:
    """What was appended before `time`, by the clock of `boot`, lies below this offset; -1 where no later listing is
    known."""
    listed = _listed(state)
    later = _after(listed, state, time, boot)
    return int(listed.end[later[0]]) if len(later) else -1


def highest_before(state: State, time: int, boot: int) -> int:
    """The highest end of all that were listed up to the first one after `time`, by the clock of `boot`; -1 where no
    later listing is known. Of a log that was cut since, too, nobody had been told of an offset above it."""
    listed = _listed(state)
    later = _after(listed, state, time, boot)
    return int(listed.end[: later[0] + 1].max()) if len(later) else -1


def _after(listed: Ends, state: State, time: int, boot: int) -> Ints:
    """Which of the listings were asked for after `time`, by the clock of `boot`."""
    bound = _each(listed, lambda other: ahead(state, other, boot))
    return indices(listed.invoked - time >= bound)


def _each(listed: Ends, bound: Callable[[int], int]) -> Ints:
    """The bound of each listing's clock."""
    boots, numbers = np.unique(listed.boot, return_inverse=True)
    return np.array([bound(boot) for boot in boots.tolist()], np.int64)[numbers]


CHECK: Final = Check(NAME, ListedEnds, arrive=arrive, rows=frozenset({OFFSETS}))
"""It finds nothing itself; those that do ask `end_before` and `end_after`."""
