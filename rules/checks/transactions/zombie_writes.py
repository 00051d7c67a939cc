"""`zombie-write`: a transaction is visible that a later life of its transactional id had fenced.

Its commit was invoked after `init_transactions` of a later life had returned, or, in a transaction that did not
certainly fail (that is `G1a`), was never invoked at all. Times are compared within one boot's monotonic clock only, and
the process's own init must be known. Nothing is concluded from epochs: transactions v2 raises them at each transaction.
Where the end of the process's log is missing, its commit may have been invoked there: what recovery tells of a
transaction after the loss of a host says nothing of its commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rules.arrays.columns import FAIL, INFO
from rules.arrays.intervals import Ints, among, each, indices
from rules.checks.transactions.transaction_runs import Outcomes, Written
from rules.kept.report import Report
from rules.kept.state import Hole, State
from rules.settling import transactional_ids

FOREVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Fenced:
    """Why a transaction must not be visible, and the evidence for it."""

    why: str
    evidence: dict[str, Any] = field(default_factory=dict)


def suspects(own: Outcomes, state: State, rows: Written) -> Ints:
    """Those of the rows, as indices, for which it is worth asking `fenced`."""
    named = (rows.name >= 0) & (rows.type != FAIL) & (rows.txn >= 0) & (rows.boot >= 0)
    taken_over = [
        number for number in each(rows.name[named]) if len(transactional_ids.initialised(state, own.names[number])) > 1
    ]
    named &= among(rows.name, taken_over) | ((rows.ended < 0) & (rows.type == INFO))
    return indices(named)


def fenced(own: Outcomes, state: State, rows: Written, i: int) -> Fenced | None:
    """Why row `i`, one of the suspects, must not be visible; None where it may. All inits that were invoked before its
    commit must be known."""
    boot, ended, process = state.boot_names[int(rows.boot[i])], int(rows.ended[i]), int(rows.process[i])
    calls = transactional_ids.initialised(state, own.names[int(rows.name[i])])
    inits = [one for one in calls if one.boot == boot and one.mono >= 0]
    until = ended if ended >= 0 else FOREVER
    # A process may take the same id again, when a transform's partition comes back to it.
    begun = max((one.mono for one in inits if one.process == process and one.mono <= until), default=None)
    if begun is None:
        return None
    if ended < 0:
        told = rows.type[i] == INFO and not _is_missing(state, process, int(rows.invoked[i]), int(rows.at[i]))
        return Fenced("its commit was never invoked") if told else None
    later = [one for one in inits if one.process != process and begun < one.mono < ended]
    if not later:
        return None
    after = min(later, key=lambda one: one.mono)
    return Fenced(
        f"its commit was invoked after {state.called(after.process)} had taken the id over",
        {"later_process": after.process, "late_by_s": round((ended - after.mono) / 1e9, 6)},
    )


def is_known(state: State, rows: Written, i: int, through: int) -> bool:
    """Is all in the log, or known to be missing, that the process of row `i` may have done for its commit? `through`:
    the log time up to which everybody's log is here. Without its commit a transaction may be told before it is known
    that the rest is missing; what is missing of before it began is no part of it."""
    one, began, at = state.processes.get(int(rows.process[i])), int(rows.invoked[i]), int(rows.at[i])
    if one is None:
        return True
    missing = bool(one.ahead) and one.ahead[-1][2] >= began
    if missing and at > through:
        return False
    if one.complete or one.lost or at <= one.marked:
        return True
    return bool(one.ahead) and not missing and at <= one.ahead[-1][3]


def _is_missing(state: State, process: int, start: int, end: int) -> bool:
    """Is something that it did in [start, end] missing for good?"""
    one = state.processes.get(process)
    holes = (Hole._make(entry) for entry in state.holes if entry[0] == process)
    return (one is not None and one.lost) or any(hole.start <= end and hole.end >= start for hole in holes)


def report(told: dict[str, Any], why: Fenced, into: Report, *, at: int) -> None:
    """`told`: process, op, txn, transactional id, and a value that was polled (writer, seq)."""
    into.add(
        "zombie-write",
        (told["process"], told["op"]),
        f"transaction {told['txn']} of {into.state.called(told['process'])} is visible, and {why.why}",
        at=at,
        evidence=told | why.evidence,
    )
