"""What is classified and not judged: `misleading-fence`, `rebalance`, `abort-position`.

`misleading-fence`: a transactional operation ended with an error that says that the producer was fenced, and no other
process had called init_transactions with that transactional id between this one's own call and the error, as happens
when the transaction timed out at the broker. Decided once the log is complete up to the error: then every init that was
invoked before it is known. It is reported once an operation, in the first of the partitions that its transaction
touched; where this process's own init is not known, or the log of any process is incomplete, nothing is concluded.

`rebalance`: a group reader was given this partition, or it was taken away; each is counted once.

`abort-position`: where a consumer stands after its transaction was aborted: `advance` (where its polls had ended),
`rewind` (where the transaction began), `rewind-further` (before that), `other`; the context says whether a rebalance
fell into it.

State: the fencing errors that wait for the log to be complete, at most `KEPT`, and the group readers that hold the
partition.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import ASSIGN, CLOSE, COMMIT, POSITION, REVOKE, SEND, SUBSCRIBE, TXN, Columns
from rules.arrays.intervals import Bools
from rules.checks.sequence_loss import rows_with
from rules.kept.report import Report
from rules.kept.state import Moves, State
from rules.settling.transactional_ids import inits

FENCED: Final = ("PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH")
KEPT: Final = 64
WAITING: Final = "fenced"
HOLDING: Final = "group-readers"


def note_fences(state: State, columns: Columns, fresh: Bools) -> None:
    """Remember the new rows' fencing errors: [at, process, op, transactional id, error]."""
    for row in rows_with(columns, FENCED, fresh & columns.where(TXN, SEND, COMMIT)).tolist():
        name = columns.table["transactional_id"][row].as_py()
        touched = columns.table["txn_partitions"][row].as_py() or []
        here = (columns.table["topic"][row].as_py(), columns.table["partition"][row].as_py())
        if name and (not touched or min((t["topic"], t["partition"]) for t in touched) == here):
            waiting = state.notes.setdefault(WAITING, [])
            error = columns.table["error"][row].as_py()
            waiting.append([int(columns.completed[row]), int(columns.process[row]), int(columns.op[row]), name, error])
            waiting.sort()
            del waiting[:-KEPT]


def judge_fences(state: State, end: int, report: Report) -> None:
    """Decide the fencing errors up to log time `end`."""
    waiting = state.notes.get(WAITING)
    if not waiting:
        return
    incomplete = any(process.unverifiable for process in state.processes.values())
    for at, process, op, name, error in waiting:
        if at > end or incomplete:
            continue
        calls = inits(state, name)
        own = [one.invoked for one in calls if one.process == process]
        if not own or any(one.process != process and own[-1] <= one.invoked <= at for one in calls):
            continue
        report.add(
            "misleading-fence",
            (process, op),
            f"process {process} heard {error}, and nobody else has used its transactional id {name} since it began",
            at=at,
            evidence={"transactional_id": name, "process": process, "op": op, "error": error},
        )
    state.notes[WAITING] = [entry for entry in waiting if entry[0] > end]


def count_rebalances(state: State, moves: Moves, report: Report) -> None:
    """`rebalance`, from moves in canonical order."""
    f = moves.f
    rows = np.flatnonzero((f == ASSIGN) | (f == SUBSCRIBE) | (f == REVOKE) | (f == CLOSE))
    if not len(rows):
        return
    holding = set(state.notes.get(HOLDING, []))
    for i in rows.tolist():
        process, op = int(moves.process[i]), int(moves.op[i])
        if moves.f[i] == CLOSE:
            holding.discard(process)
            continue
        told, has = int(moves.assigned[i]), process in holding
        if told < 0 or bool(told) == has:
            continue
        if moves.subscribed[i]:
            report.add(
                "rebalance",
                (process, op),
                f"process {process} was given this partition" if told else f"process {process} lost this partition",
                at=int(moves.at[i]),
                evidence={"process": process, "op": op},
                context={"change": "gained" if told else "lost"},
            )
        if told and moves.subscribed[i]:
            holding.add(process)
        else:
            holding.discard(process)
    state.notes[HOLDING] = sorted(process for process in holding if process in state.processes)


def classify_aborts(columns: Columns, fresh: Bools, report: Report) -> None:
    """`abort-position`, from the new rows."""
    for row in np.flatnonzero(fresh & columns.where(POSITION) & (columns.txn >= 0)).tolist():
        before, after = int(columns.position_before[row]), int(columns.position_after[row])
        reached = columns.table["reached"][row].as_py()
        if min(before, after) < 0 or reached is None:
            continue
        if after == reached:
            found = "advance"
        elif after == before:
            found = "rewind"
        else:
            found = "rewind-further" if after < before else "other"
        process, txn = int(columns.process[row]), int(columns.txn[row])
        report.add(
            "abort-position",
            (process, txn),
            f"after its transaction was aborted, process {process} stands at {after} ({found})",
            at=int(columns.completed[row]),
            evidence={
                "process": process,
                "txn": txn,
                "class": found,
                "before": before,
                "reached": reached,
                "after": after,
            },
            context={"class": found, "rebalanced": "true" if columns.rebalanced[row] else "false"},
        )
