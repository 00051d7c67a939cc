"""`sequence-loss`: the client reports a broken sequence, and the log still reaches back to what it had acknowledged.

A broker that forgets a producer's sequence numbers has lost records, or retention has deleted them. The errors are
`OUT_OF_ORDER_SEQUENCE_NUMBER`, `UNKNOWN_PRODUCER_ID` and librdkafka's `_GAPLESS_GUARANTEE`. If the log start, as
observed after the error, lies at or below the last offset that was acknowledged to that process before the error, the
records that the broker should remember are not deleted: loss. If it lies above, the same error is `benign-retention`.
Retention between the error and the observation can only make a loss look benign.

A transaction over several partitions reports one error for all of them; which of them it came from is not known, and
nothing is concluded. A writer that had nothing acknowledged proves nothing either.

State: the errors that wait for their log start, at most `KEPT`, and what each living process had acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import SEND, TXN, Columns
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.kept.check import Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.state import Listed
from rules.settling.gate import only

ERRORS: Final = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_GAPLESS_GUARANTEE")
KEPT: Final = 64
UNKNOWN: Final = -1
NOTHING: Final = -2


def rows_with(columns: Columns, errors: tuple[str, ...], among: Bools) -> Ints:
    """The rows among these whose error is one of `errors`."""
    column = columns.table["error"]
    if column.null_count == len(column):
        return np.empty(0, np.int64)
    named = pc.is_in(column, value_set=pa.array(errors)).to_numpy()
    return np.flatnonzero(among & named)


@dataclass(slots=True)
class Acknowledged(Table):
    """The highest offset acknowledged to each living process, as far as log time has come."""

    process: Ints = field(default_factory=lambda: EMPTY)
    highest: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Sequences:
    """`waiting`: [at, process, op, error, acknowledged] of errors whose log start is not known yet, at most `KEPT`; the
    last of them is `UNKNOWN` until all that the process did before is here, and `NOTHING` where that was none."""

    waiting: list[list[Any]] = field(default_factory=list)
    acknowledged: Acknowledged = field(default_factory=Acknowledged)


def arrive(own: Sequences, new: News) -> None:
    """Remember the new rows' broken sequences."""
    columns = new.columns
    for row in rows_with(columns, ERRORS, new.fresh & columns.where(SEND, TXN)).tolist():
        touched = columns.table["txn_partitions"][row].as_py()
        if touched and len(touched) > 1:
            continue
        error = columns.table["error"][row].as_py()
        own.waiting.append(
            [int(columns.completed[row]), int(columns.process[row]), int(columns.op[row]), error, UNKNOWN]
        )
        own.waiting.sort()
        del own.waiting[:-KEPT]


def fold(own: Sequences, passage: Passage) -> None:
    """Fill in what the waiting errors' processes had acknowledged, and decide those whose log start is known."""
    sends, end = passage.sends, passage.end
    known = dict(zip(own.acknowledged.process.tolist(), own.acknowledged.highest.tolist(), strict=True))
    for entry in own.waiting:
        if entry[0] <= end and entry[4] == UNKNOWN and passage.gate.told_through(only(entry[1])) >= entry[0]:
            mine = (sends.process == entry[1]) & (sends.at <= entry[0])
            entry[4] = max(known.get(entry[1], -1), int(sends.last[mine].max(initial=-1)))
            if entry[4] < 0:
                entry[4] = NOTHING
    if len(sends):
        _note_acknowledged(own, passage)
    if own.waiting:
        _judge(own, passage)


def _note_acknowledged(own: Sequences, passage: Passage) -> None:
    process = np.concatenate((own.acknowledged.process, passage.sends.process))
    highest = np.concatenate((own.acknowledged.highest, passage.sends.last))
    order = np.argsort(process, kind="stable")
    process, highest = process[order], highest[order]
    heads = np.flatnonzero(np.diff(process, prepend=-1))
    top, who = np.maximum.reduceat(highest, heads), process[heads]
    living = np.isin(who, np.fromiter(passage.state.processes, np.int64, len(passage.state.processes)))
    own.acknowledged = Acknowledged(who[living], top[living])


def _listed(passage: Passage) -> Listed:
    """What observers listed of the log start, in the order of time: now, and before, for errors that come late."""
    moves = passage.moves
    seen = np.flatnonzero(moves.low >= 0)
    every = concat(passage.state.listed, Listed(moves.invoked[seen], moves.at[seen], moves.boot[seen], moves.low[seen]))
    return take(every, np.argsort(every.at, kind="stable"))


def _judge(own: Sequences, passage: Passage) -> None:
    listed, kept = _listed(passage), []
    for entry in own.waiting:
        at, process, op, error, acknowledged = entry
        later = np.flatnonzero(listed.at > at)
        if at > passage.end or not len(later) or acknowledged == UNKNOWN:
            kept.append(entry)
            continue
        if acknowledged < 0:
            continue
        low, when = int(listed.low[later[0]]), int(listed.at[later[0]])
        passage.report.add(
            "benign-retention" if low > acknowledged else "sequence-loss",
            (process, op),
            f"process {process} reports {error}; it had offset {acknowledged} acknowledged, the log starts at {low}",
            at=when,
            evidence={"process": process, "op": op, "error": error, "log_start": low, "acknowledged": acknowledged},
        )
    own.waiting = kept


CHECK: Final = Check("sequence-loss", Sequences, arrive=arrive, fold=fold)
