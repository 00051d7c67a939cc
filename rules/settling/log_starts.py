"""The log start as it is known: it rises, until the log is cut below it.

A leader that was long behind its partition, or has nothing of it, goes on from where its own log ends, which may be
below where the log began before. What was listed of the log that was says nothing of this one.
"""

from __future__ import annotations

import numpy as np

from rules.arrays.intervals import Bools, Ints, indices
from rules.kept.state import Moves, State


def observe(state: State, moves: Moves) -> None:
    """Take in what observers listed."""
    lows = indices(moves.low >= 0)
    if len(lows):
        state.log_start = max(state.log_start, int(moves.low[lows].max()))
        state.log_start_at = max(state.log_start_at, int(moves.at[lows].max()))


def of_the_log_that_was(cut_at: Ints, again: Ints, at: Ints, low: Ints) -> Bools:
    """Which of the log starts `low`, listed `at`, are of before a cut: it was known by then of `cut_at`, and the log
    went on from `again`."""
    if not len(cut_at):
        return np.zeros(len(at), bool)
    return np.asarray(((at[:, None] < cut_at) & (low[:, None] > again)).any(axis=1))


def set_back(state: State, at: int, again: int) -> None:
    """The log was cut, as a listing of this log time showed, and went on from `again`: where that is below the log
    start, that is as it was listed since."""
    if again < state.log_start:
        listed = state.listed
        since = (listed.at >= at) & (listed.low <= again)
        state.log_start = int(listed.low[since].max(initial=-1))
