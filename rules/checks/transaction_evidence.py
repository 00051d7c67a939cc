"""What is known of the transaction of a value, for the evidence of findings about it.

A transaction's records are decided by the first marker of its producer behind them in the partition, whose transaction
ever that marker ends. Where the next transaction of the same transactional id begins right behind the records, no
marker of their own can stand there: the coordinator never wrote it, and the next transaction's marker decided over
both. Where other offsets lie between, its own marker may be one of them.

Nothing is kept here: `rules.checks.transaction_outcomes` holds transactions until their records are decided, which is
as long as it matters.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays.columns import FAIL, OK
from rules.checks import transaction_outcomes
from rules.checks.transaction_outcomes import Outcomes, Written
from rules.kept.state import State

_TOLD: Final = {OK: "committed", FAIL: "aborted"}


class Told(NamedTuple):
    """`evidence` to add to a finding, and `words` to add to its message; both empty where nothing is known.

    Evidence: `txn`, `transactional_id`, `told` (what the client was told became of it: committed, aborted or unknown),
    and of the next transaction of the same id in this partition, where there is one, `next_txn`, `next_process`,
    `next_op`, `next_told`, `next_offset` (of its first record) and `offsets_between` (from the one's last record to the
    other's first: 0 where no marker stands between them)."""

    evidence: dict[str, Any]
    words: str


NOTHING: Final = Told({}, "")


def of_value(state: State, writer: int, seq: int) -> Told:
    """What is known of the transaction that wrote this value here."""
    outcomes: Outcomes | None = state.checks.get(transaction_outcomes.CHECK.name)
    if outcomes is None:
        return NOTHING
    written = outcomes.written
    mine = (written.writer == writer) & (written.seq <= seq) & (seq < written.seq + written.length) & (written.txn >= 0)
    for i in np.flatnonzero(mine)[:1].tolist():
        txn, name, told = int(written.txn[i]), int(written.name[i]), _told(int(written.type[i]))
        evidence: dict[str, Any] = {"txn": txn, "told": told}
        if name < 0:
            return Told(evidence, f"; its transaction {txn} was told to be {told}")
        evidence["transactional_id"] = outcomes.names[name]
        words = f"; its transaction {txn} of {evidence['transactional_id']} was told to be {told}"
        return _with_next(outcomes.written, i, evidence, words)
    return NOTHING


def _with_next(written: Written, i: int, evidence: dict[str, Any], words: str) -> Told:
    """With the first transaction of the same transactional id whose records stand behind all of this one's."""
    own = (written.txn == written.txn[i]) & (written.offset >= 0)
    if not own.any():
        return Told(evidence, words)
    end = int((written.offset + written.length)[own].max())
    later = (written.name == written.name[i]) & (written.txn >= 0) & (written.txn != written.txn[i])
    later &= written.offset >= end
    if not later.any():
        return Told(evidence, words)
    j = int(np.flatnonzero(later)[np.argmin(written.offset[later])])
    between = int(written.offset[j]) - end
    following = {
        "next_txn": int(written.txn[j]),
        "next_process": int(written.process[j]),
        "next_op": int(written.op[j]),
        "next_told": _told(int(written.type[j])),
        "next_offset": int(written.offset[j]),
        "offsets_between": between,
    }
    if not between:
        words += (
            f", no marker stands behind its records, and that of the next transaction {following['next_txn']},"
            f" {following['next_told']}, decided over them"
        )
    return Told(evidence | following, words)


def _told(outcome: int) -> str:
    return _TOLD.get(outcome, "unknown")
