"""The rules about rare rows and about what does not happen, put into the order in which a step calls them.

`arrive` takes in new rows, in whatever order they came. `fold` lets log time pass to the end of the ticks `at`: before
anything of them is folded into the readers' positions, so that what lies ahead of them is still known.
"""

from __future__ import annotations

from rules.arrays.columns import INIT, TXN, Columns
from rules.arrays.intervals import Bools, Ints
from rules.checks import (
    hanging_transactions,
    stuck_consumers,
    stuck_producers,
    unsafe_settings,
)
from rules.kept.report import Report
from rules.kept.state import Moves, State
from rules.settling import transactional_ids


def arrive(state: State, columns: Columns, fresh: Bools) -> None:
    """What the new rows say of transactional ids."""
    transactional_ids.note_inits(state, columns, fresh)
    _note_transacting(state, columns, fresh)


def watch(state: State, columns: Columns, fresh: Bools, report: Report) -> None:
    """The part of `arrive` that only a live partition needs."""
    sent = columns.sent if fresh.all() else columns.sent.take(fresh[columns.sent.row])
    hanging_transactions.note_transactions(state, columns, fresh, sent, report.objectives)
    stuck_producers.follow_producers(state, columns, fresh, sent, report.objectives, report)
    unsafe_settings.judge_settings(state, columns, fresh, report)


def fold(state: State, at: Ints, moves: Moves, report: Report) -> None:
    """Through the ticks `at`: `moves` are those up to the last of them in canonical order."""
    stuck_consumers.follow_readers(state, at, moves, report.objectives, report)
    hanging_transactions.follow_stable(state, at, moves, report.objectives, report)


def _note_transacting(state: State, columns: Columns, fresh: Bools) -> None:
    """Which of the living processes write transactions."""
    rows = fresh & columns.where(INIT, TXN)
    if not rows.any():
        return
    known = set(state.notes.get(stuck_consumers.TRANSACTING, []))
    new = {int(number) for number in set(columns.process[rows].tolist())} - known
    if new:
        state.notes[stuck_consumers.TRANSACTING] = sorted(number for number in known | new if number in state.processes)
