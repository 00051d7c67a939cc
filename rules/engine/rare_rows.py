"""The rules about rare rows and about what does not happen, put into the order in which a step calls them.

`arrive` takes in new rows, in whatever order they came. `fold` lets log time pass to the end of the ticks `at`: before
anything of them is folded into the readers' positions, so that what lies ahead of them is still known. `finish` gives
the verdicts of a finished history; conditions have no end there, and are not reported.
"""

from __future__ import annotations

from rules.arrays.columns import Columns, Runs
from rules.arrays.intervals import Bools, Ints
from rules.checks import told_offsets, unsafe_settings
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import Moves, SendMoves, State
from rules.settling.frontier import FOREVER


def arrive(
    state: State, chunks: Chunks, columns: Columns, fresh: Bools, sent: Runs, polled: Runs, report: Report
) -> None:
    """`sent` and `polled`: the new rows' runs."""
    told_offsets.note_committed(state, chunks, columns, fresh)


def watch(state: State, columns: Columns, fresh: Bools, report: Report) -> None:
    """The part of `arrive` that only a live partition needs."""
    unsafe_settings.judge_settings(state, columns, fresh, report)


def fold(state: State, chunks: Chunks, at: Ints, moves: Moves, sent: SendMoves, report: Report) -> None:
    """Through the ticks `at`: `moves` are those up to the last of them in canonical order, `sent` the sends."""
    _judge(state, chunks, int(at[-1]), report)


def finish(state: State, chunks: Chunks, moves: Moves, sent: SendMoves, report: Report) -> None:
    """Nothing more will come. `moves` in canonical order."""
    _judge(state, chunks, FOREVER, report)


def _judge(state: State, chunks: Chunks, end: int, report: Report) -> None:
    told_offsets.judge_committed(state, chunks, end, report)
