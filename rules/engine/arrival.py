"""The first half of a step, on arrival: rules about what was seen, in whatever order the rows came.

Sets only grow here. What needs the order of times is noted for the other half (`rules.engine.log_time`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import FAIL, INFO, OK, Columns, Runs
from rules.arrays.intervals import Bools, some
from rules.engine import order
from rules.kept.check import News
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import Places, State, concat
from rules.settling import moves, strangers, window
from rules.settling.clocks import measure


def arrive(
    state: State, chunks: Chunks, columns: Columns, fresh: Bools, visible: set[tuple[int, int]] | None, report: Report
) -> None:
    """Rules about what was seen, and the bookkeeping for the other half. `visible` is None for a live partition."""
    new = _news(state, chunks, columns, fresh, visible, report)
    measure(state, columns, new.sent, new.polled, finished=visible is not None)
    strangers.note_runs(state, columns)
    order.arrive(new)
    committed, proven = new.committed, new.proven
    state.moves = concat(state.moves, moves.moves_of(columns, fresh, committed, state.runs))
    state.sends = concat(state.sends, moves.sends_of(columns, moves.sent_to(columns, new.sent, new.visible)))
    if len(proven):
        state.polled += sum(proven.length.tolist())
        state.highest_polled = max(state.highest_polled, max((proven.offset + proven.length).tolist()) - 1)
        state.polls = concat(state.polls, moves.polls_of(columns, proven))
    if len(committed) != len(new.polled):
        unproven = ~columns.committed_only[new.polled.row] & (columns.type[new.polled.row] == OK)
        state.uncommitted = concat(state.uncommitted, moves.polls_of(columns, new.polled.take(unproven)))
    stand = [_part(runs, runs.offset >= 0) for runs in (committed, new.acknowledged)]
    start = np.concatenate([runs.offset for runs in stand])
    window.note_index(state, start, start + np.concatenate([runs.length for runs in stand]))
    state.log_end = max([state.log_end, *columns.log_end[fresh].tolist()])


def _news(
    state: State, chunks: Chunks, columns: Columns, fresh: Bools, visible: set[tuple[int, int]] | None, report: Report
) -> News:
    sent, polled = columns.sent, columns.polled
    if some(~fresh):
        sent, polled = sent.take(fresh[sent.row]), polled.take(fresh[polled.row])
    outcome = columns.type[sent.row]
    acknowledged, failed, indefinite = sent, _NONE, _NONE
    if some(outcome != OK):
        acknowledged, failed, indefinite = (sent.take(outcome == one) for one in (OK, FAIL, INFO))
    committed = _part(polled, columns.committed_only[polled.row])
    proven = _part(committed, columns.type[committed.row] == OK)
    stand = [_part(runs, runs.offset >= 0) for runs in (polled, acknowledged)]
    when = np.concatenate([columns.completed[runs.row] for runs in stand])
    placed = window.place(state, chunks, concat(_places(stand[0]), _places(stand[1])), when)
    return News(
        state,
        columns,
        fresh,
        sent,
        polled,
        acknowledged,
        failed,
        indefinite,
        committed,
        proven,
        placed,
        chunks,
        report,
        visible is not None,
        visible or set(),
    )


_NONE: Final = Runs.empty()


def _part(runs: Runs, mask: Bools) -> Runs:
    return runs.take(mask) if some(~mask) else runs


def _places(runs: Runs) -> Places:
    return Places(runs.offset, runs.writer, runs.seq, runs.length)
