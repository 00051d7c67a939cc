"""`sequence-loss`: the client reports a broken sequence, and the log still reaches back to what it had acknowledged.

A broker that forgets a producer's sequence numbers has lost records, or retention has deleted them. The errors are
`OUT_OF_ORDER_SEQUENCE_NUMBER`, `UNKNOWN_PRODUCER_ID` and librdkafka's `_GAPLESS_GUARANTEE`. If the log start, as
observed after the error, lies at or below the last offset that was acknowledged to that process before the error, the
records that the broker should remember are not deleted: loss. If it lies above, the same error is `benign-retention`.
Retention between the error and the observation can only make a loss look benign.

A transaction over several partitions reports one error for all of them; which of them it came from is not known, and
nothing is concluded. A writer that had nothing acknowledged proves nothing either.

State: the errors that wait for their log start, at most `KEPT`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import SEND, TXN, Columns
from rules.arrays.intervals import Bools, Ints
from rules.kept.report import Report
from rules.kept.state import Moves, SendMoves, State

ERRORS: Final = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_GAPLESS_GUARANTEE")
KEPT: Final = 64
WAITING: Final = "sequence-errors"


def rows_with(columns: Columns, errors: tuple[str, ...], among: Bools) -> Ints:
    """The rows among these whose error is one of `errors`."""
    column = columns.table["error"]
    if column.null_count == len(column):
        return np.empty(0, np.int64)
    named = pc.is_in(column, value_set=pa.array(errors)).to_numpy()
    return np.flatnonzero(among & named)


def note_errors(state: State, columns: Columns, fresh: Bools) -> None:
    """Remember the new rows' broken sequences: [at, process, op, error, acknowledged], the last of them -1 for now."""
    for row in rows_with(columns, ERRORS, fresh & columns.where(SEND, TXN)).tolist():
        touched = columns.table["txn_partitions"][row].as_py()
        if touched and len(touched) > 1:
            continue
        error = columns.table["error"][row].as_py()
        waiting = state.notes.setdefault(WAITING, [])
        waiting.append([int(columns.completed[row]), int(columns.process[row]), int(columns.op[row]), error, -1])
        waiting.sort()
        del waiting[:-KEPT]


def note_acknowledged(state: State, sends: SendMoves, end: int) -> None:
    """Operations up to log time `end` sent these: fill in what the waiting errors' processes had acknowledged."""
    for entry in state.notes.get(WAITING, []):
        if entry[0] <= end and entry[4] < 0:
            known = state.processes.get(entry[1])
            own = (sends.process == entry[1]) & (sends.at <= entry[0])
            entry[4] = max(known.acked if known else -1, int(sends.last[own].max(initial=-1)))
            if entry[4] < 0:
                entry[4] = -2  # nothing at all
    if not len(sends):
        return
    order = np.argsort(sends.process, kind="stable")
    process, last = sends.process[order], sends.last[order]
    heads = np.flatnonzero(np.diff(process, prepend=-1))
    for number, top in zip(process[heads].tolist(), np.maximum.reduceat(last, heads).tolist(), strict=True):
        if number in state.processes:
            state.processes[number].acked = max(state.processes[number].acked, top)


def judge_sequences(state: State, moves: Moves, end: int, report: Report) -> None:
    """Decide the errors up to log time `end` for which these moves tell a log start after them."""
    waiting = state.notes.get(WAITING)
    if not waiting:
        return
    seen = np.flatnonzero(moves.low >= 0)
    kept = []
    for entry in waiting:
        at, process, op, error, acknowledged = entry
        later = seen[moves.at[seen] > at]
        if at > end or not len(later):
            kept.append(entry)
            continue
        if acknowledged < 0:
            continue
        first = int(later[0])
        low, when = int(moves.low[first]), int(moves.at[first])
        benign = low > acknowledged
        report.add(
            "benign-retention" if benign else "sequence-loss",
            (process, op),
            f"process {process} reports {error}; it had offset {acknowledged} acknowledged, the log starts at {low}",
            at=when,
            evidence={"process": process, "op": op, "error": error, "log_start": low, "acknowledged": acknowledged},
        )
    state.notes[WAITING] = kept
