"""`sequence-loss`: the client reports a broken sequence, and the log still reaches back to what it had acknowledged.

A broker that forgets a producer's sequence numbers has lost records, or retention has deleted them. The errors are
`OUT_OF_ORDER_SEQUENCE_NUMBER`, `UNKNOWN_PRODUCER_ID` and librdkafka's `_GAPLESS_GUARANTEE`. If the log start, as
observed after the error, lies at or below the last offset that was acknowledged to that process before the error, the
records that the broker should remember are not deleted: loss. If it lies above, the same error is `benign-retention`.
Retention between the error and the observation can only make a loss look benign.

A transaction over several partitions reports one error for all of them; which of them it came from is not known, and
nothing is concluded. A writer that had nothing acknowledged proves nothing either. Nor does one that had given up since
then on something that it had sent, because its operation ended without an answer, or was aborted with a record that had
none: its client may go on with the sequence number after those that the broker never saw.

State: the errors that wait for their log start, the newest `KEPT` beside those that log time has not come to; what each
living process had acknowledged; and operations without an answer, all of them: a writer that gave up must not be called
one that did not. Of more than `KEPT` those go that their process was acknowledged something after, and each process's
others become one (`_in_brief`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import FAIL, FEW, INFO, SEND, TXN, Columns
from rules.arrays.intervals import EMPTY, Bools, Ints, among, each, heads, indices, newest
from rules.kept.check import Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.state import Listed
from rules.settling.gate import only

ERRORS: Final = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_GAPLESS_GUARANTEE")
KEPT: Final = 64


def rows_with(columns: Columns, errors: tuple[str, ...], among: Bools) -> Ints:
    """The rows among these whose error is one of `errors`."""
    if not columns.tells("error"):
        return EMPTY
    column = columns.arrays["error"]
    if len(column) < FEW:
        told = column.to_pylist()
        return np.array([row for row in indices(among).tolist() if told[row] in errors], np.int64)
    return indices(among & pc.is_in(column, value_set=pa.array(errors)).to_numpy(zero_copy_only=False))


@dataclass(slots=True)
class Acknowledged(Table):
    """The highest offset acknowledged to each living process, and when the newest was, as far as log time has come."""

    process: Ints = field(default_factory=lambda: EMPTY)
    highest: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Unanswered(Table):
    """Operations that sent, and of which something had no answer; or some in a row, from the first to the last."""

    process: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Broken:
    """A broken sequence, reported at `at`; `acknowledged` before, -1 for nothing, and `last`, when that was. `known`:
    is all here that its process did before?"""

    at: int
    process: int
    op: int
    error: str
    acknowledged: int = -1
    last: int = -1
    known: bool = False


@dataclass(slots=True)
class Sequences:
    """`waiting`: errors whose log start is not known yet, by "process:op"."""

    waiting: dict[str, Broken] = field(default_factory=dict, metadata={"of": Broken})
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    unanswered: Unanswered = field(default_factory=Unanswered)


def arrive(own: Sequences, new: News) -> None:
    """Remember the new rows' broken sequences, and what else had no answer."""
    columns = new.columns
    unanswered = new.fresh & columns.where(SEND, TXN) & ((columns.type == INFO) | _without_an_offset(columns))
    broken = rows_with(columns, ERRORS, new.fresh & columns.where(SEND, TXN))
    unanswered[broken] = False
    if unanswered.any():
        rows = indices(unanswered)
        more = Unanswered(columns.process[rows], columns.invoked[rows], columns.completed[rows])
        own.unanswered = concat(own.unanswered, more)
    for row in broken.tolist():
        touched = columns.table["txn_partitions"][row].as_py()
        if touched and len(touched) > 1:
            continue
        process, op = int(columns.process[row]), int(columns.op[row])
        error = columns.table["error"][row].as_py()
        own.waiting[f"{process}:{op}"] = Broken(int(columns.completed[row]), process, op, error)
    if len(own.waiting) > KEPT:
        at = np.array([one.at for one in own.waiting.values()], np.int64)
        keep = newest(at, KEPT, new.state.tick)
        new.report.drop("broken sequences", len(keep) - int(keep.sum()))
        own.waiting = {key: one for (key, one), kept in zip(own.waiting.items(), keep.tolist(), strict=True) if kept}


def _without_an_offset(columns: Columns) -> Bools:
    """Which rows tell of an operation that failed, and of a record of it that was sent and not acknowledged."""
    found = np.zeros(len(columns.type), bool)
    found[columns.sent.row[columns.sent.offset < 0]] = True
    found &= columns.type == FAIL
    return found


def fold(own: Sequences, passage: Passage) -> None:
    """Fill in what the waiting errors' processes had acknowledged, and decide those whose log start is known."""
    sends, before = passage.sends, own.acknowledged
    for one in own.waiting.values():
        if one.at > passage.end or one.known:
            continue
        # What came in an earlier step is among those before; what comes late is here now.
        for process, at, highest in (
            (before.process, before.at, before.highest),
            (sends.process, sends.at, sends.last),
        ):
            mine = (process == one.process) & (at <= one.at) & (highest >= 0)
            one.acknowledged = max(one.acknowledged, int(highest[mine].max(initial=-1)))
            one.last = max(one.last, int(at[mine].max(initial=-1)))
        one.known = passage.gate.known_through(only(one.process)) >= one.at
    if len(sends):
        _note_acknowledged(own, passage)
    if own.waiting:
        _judge(own, passage)
    if len(own.unanswered) > KEPT:
        own.unanswered = _in_brief(own, passage)


def _note_acknowledged(own: Sequences, passage: Passage) -> None:
    told = take(passage.sends, passage.sends.last >= 0)
    process = np.concatenate((own.acknowledged.process, told.process))
    highest = np.concatenate((own.acknowledged.highest, told.last))
    at = np.concatenate((own.acknowledged.at, told.at))
    if not len(process):
        return
    order = process.argsort(kind="stable")
    process = process[order]
    first = heads(process)
    who = process[first]
    tops, newest = (np.maximum.reduceat(column[order], first) for column in (highest, at))
    living = among(who, passage.state.processes)
    own.acknowledged = Acknowledged(who[living], tops[living], newest[living])


def _listed(passage: Passage) -> Listed:
    """What observers listed of the log start, in the order of time: now, and before, for errors that come late."""
    moves = passage.moves
    seen = indices(moves.low >= 0)
    told = Listed(moves.invoked[seen], moves.at[seen], moves.boot[seen], moves.low[seen], moves.end[seen])
    every = concat(passage.state.listed, told)
    return take(every, every.at.argsort(kind="stable"))


def _judge(own: Sequences, passage: Passage) -> None:
    listed = _listed(passage)
    for key, one in list(own.waiting.items()):
        later = indices(listed.at > one.at)
        if one.at > passage.end or not len(later) or not one.known:
            continue
        del own.waiting[key]
        if one.acknowledged < 0 or _gave_up(own, one):
            continue
        low, when = int(listed.low[later[0]]), int(listed.at[later[0]])
        passage.report.add(
            "benign-retention" if low > one.acknowledged else "sequence-loss",
            (one.process, one.op),
            f"{passage.state.called(one.process)} reports {one.error}; it had offset {one.acknowledged} acknowledged,"
            f" the log starts at {low}",
            at=when,
            evidence={
                "process": one.process,
                "op": one.op,
                "error": one.error,
                "log_start": low,
                "acknowledged": one.acknowledged,
            },
        )


def _gave_up(own: Sequences, one: Broken) -> bool:
    """Has its process had no answer to something since it was last acknowledged anything?"""
    told = own.unanswered
    mine = (told.process == one.process) & (told.invoked <= one.at) & (told.completed > one.last)
    return bool(mine.any())


def _in_brief(own: Sequences, passage: Passage) -> Unanswered:
    """Of each process's as many as tell the same: those that some error would be explained by, and no other one, are
    one. What its process was acknowledged something after, and of which all errors up to that are judged, explains none
    that may come; and nothing does of a process that is over."""
    told, living = own.unanswered, passage.state.processes
    acknowledged = dict(zip(own.acknowledged.process.tolist(), own.acknowledged.at.tolist(), strict=True))
    parts = [take(told, told.completed > passage.end)]
    for process in each(told.process[told.completed <= passage.end]):
        mine = take(told, (told.process == process) & (told.completed <= passage.end))
        errors = [one for one in own.waiting.values() if one.process == process]
        if process not in living and not errors:
            continue
        last = acknowledged.get(process, -1)
        if not errors and passage.gate.known_through(only(process)) >= last:
            mine = take(mine, mine.completed > last)
        alike = np.zeros(len(mine), np.int64)
        for one in errors:
            for tells in (mine.invoked <= one.at, mine.completed > one.last):
                alike = np.unique(alike * 2 + tells, return_inverse=True)[1].ravel()
        for label in each(alike):
            same = take(mine, alike == label)
            parts.append(Unanswered(same.process[:1], np.array([same.invoked.min()]), np.array([same.completed.max()])))
    return reduce(concat, parts)


CHECK: Final = Check("sequence-loss", Sequences, arrive=arrive, fold=fold, rows=frozenset({SEND, TXN}))
