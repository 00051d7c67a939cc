"""`misleading-fence`: a client heard that its producer was fenced, and nobody else had used its transactional id.

A transactional operation ended with such an error, and no other process had called init_transactions with that
transactional id between this one's own call and the error, as happens when the transaction timed out at the broker.
Decided once the log is complete up to the error: then every init that was invoked before it is known. It is reported
once an operation, in the first of the partitions that its transaction touched; where this process's own init is not
known, nothing is concluded, nor where somebody's log will never be complete there.

State: the fencing errors that wait for the log to be complete, at most `KEPT` beside those that log time has not come
to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rules.arrays.columns import COMMIT, SEND, TXN
from rules.arrays.intervals import newest
from rules.checks.order.sequence_loss import rows_with
from rules.kept.check import Check, News, Passage
from rules.settling.gate import Evidence
from rules.settling.transactional_ids import inits

FENCED: Final = ("PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH")
KEPT: Final = 64


@dataclass(slots=True)
class Fences:
    """`waiting`: [at, process, op, transactional id, error], in any order; at most `KEPT` beside those that log time
    has not come to."""

    waiting: list[list[Any]] = field(default_factory=list)


def arrive(own: Fences, new: News) -> None:
    """Remember the new rows' fencing errors."""
    columns = new.columns
    for row in rows_with(columns, FENCED, new.fresh & columns.where(TXN, SEND, COMMIT)).tolist():
        name = columns.table["transactional_id"][row].as_py()
        touched = columns.table["txn_partitions"][row].as_py() or []
        here = (columns.table["topic"][row].as_py(), columns.table["partition"][row].as_py())
        if name and (not touched or min((t["topic"], t["partition"]) for t in touched) == here):
            error = columns.table["error"][row].as_py()
            own.waiting.append(
                [int(columns.completed[row]), int(columns.process[row]), int(columns.op[row]), name, error]
            )
    if len(own.waiting) > KEPT:
        own.waiting.sort()
        keep = newest(np.array([entry[0] for entry in own.waiting], np.int64), KEPT, new.state.tick)
        new.report.drop("fencing errors", len(keep) - int(keep.sum()))
        own.waiting = [entry for entry, kept in zip(own.waiting, keep.tolist(), strict=True) if kept]


def fold(own: Fences, passage: Passage) -> None:
    """Decide the fencing errors up to which everybody's log is here."""
    kept = []
    for entry in own.waiting:
        at, process, op, name, error = entry
        calls = inits(passage.state, name)
        begun = [one.invoked for one in calls if one.process == process]
        evidence = passage.gate.ask(begun[-1] if begun else 0, at) if at <= passage.end else Evidence.NOT_YET
        if evidence is Evidence.NOT_YET:
            kept.append(entry)
            continue
        if evidence is Evidence.UNVERIFIABLE or not begun:
            continue
        if any(one.process != process and begun[-1] <= one.invoked <= at for one in calls):
            continue
        passage.report.add(
            "misleading-fence",
            (process, op),
            f"{passage.state.called(process)} heard {error}, and no other probe has used its transactional id {name}"
            " since it began",
            at=at,
            evidence={"transactional_id": name, "process": process, "op": op, "error": error},
        )
    own.waiting = kept


CHECK: Final = Check("misleading-fence", Fences, arrive=arrive, fold=fold, rows=frozenset({"error"}), rests=True)
