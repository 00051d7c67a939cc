"""What is known of the transaction of a value, for the evidence of findings about it.

A transaction's records are decided by the first marker of its producer behind them in the partition, whose transaction
ever that marker ends. Where nothing but values of others stands between the records and the next transaction of the
same transactional id, no marker of their own can stand there: the coordinator never wrote it, and the next
transaction's marker decided over both. (What was told of both says whether that explains what was seen: two commits
lose nothing.) Where an offset between holds no value that is known, it may be that marker.

Nothing is kept here: `transaction_outcomes` holds transactions until their records are decided, which is as long as it
matters, and with each of them the one that came next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, OK
from rules.arrays.intervals import indices
from rules.checks.transactions import transaction_runs
from rules.checks.transactions.transaction_runs import Outcomes, Written, parcel_name, parcel_of
from rules.kept.chunks import Chunks
from rules.kept.codec import take
from rules.kept.state import State

_TOLD: Final = {OK: "committed", FAIL: "aborted"}


class TransactionTold(NamedTuple):
    """`evidence` to add to a finding, and `words` to add to its message; both empty where nothing is known.

    Evidence: `txn`, `transactional_id`, `told` (what the client was told became of it: committed, aborted or unknown),
    and of the next transaction of the same id in this partition, where there is one, `next_txn`, `next_process`,
    `next_op`, `next_told`, `next_offset` (of its first record) and `offsets_between` (from the one's last record to the
    other's first, those where a value is known to stand left out: 0 where no marker stands between them)."""

    evidence: dict[str, Any]
    words: str


NOTHING: Final = TransactionTold({}, "")


def of_value(state: State, chunks: Chunks, writer: int, seq: int) -> TransactionTold:
    """What is known of the transaction that wrote this value here."""
    outcomes: Outcomes | None = state.checks.get(transaction_runs.NAME)
    if outcomes is None:
        return NOTHING
    for known in (outcomes, *_set_aside(outcomes, chunks, writer, seq)):
        rows = known.written
        mine = (rows.writer == writer) & (rows.seq <= seq) & (seq < rows.seq + rows.length) & (rows.txn >= 0)
        for i in indices(mine)[:1].tolist():
            return of_row(state, known, rows, i)
    return NOTHING


def _set_aside(outcomes: Outcomes, chunks: Chunks, writer: int, seq: int) -> Iterator[Outcomes]:
    """The parcels that may hold it (`set_aside`), of those that the step brings back."""
    aside = outcomes.aside
    if len(aside):
        for parcel in intervals.each(aside.parcel[(aside.writer == writer) & (aside.low <= seq) & (seq < aside.high)]):
            if chunks.declares(parcel_name(parcel)):
                one = chunks.decoded(parcel_name(parcel), parcel_of)
                yield Outcomes(one.rows, names=one.names)


def of_row(state: State, outcomes: Outcomes, rows: Written, i: int) -> TransactionTold:
    """What is known of the transaction of row `i` of `rows`."""
    txn, name, told = int(rows.txn[i]), int(rows.name[i]), _told(int(rows.type[i]))
    evidence: dict[str, Any] = {"txn": txn, "told": told}
    if name < 0:
        return TransactionTold(evidence, f"; its transaction {txn} was told to be {told}")
    evidence["transactional_id"] = outcomes.names[name]
    words = f"; its transaction {txn} of {evidence['transactional_id']} was told to be {told}"
    one = take(rows, slice(i, i + 1))
    note_next(one, outcomes.written)
    return _with_next(state, one, outcomes.written, TransactionTold(evidence, words))


def note_next(rows: Written, among: Written) -> None:
    """Note for each of the rows the first transaction of the same transactional id whose records stand behind it, as
    far as it is `among` those, or nearer than what was noted before."""
    known = indices((among.name >= 0) & (among.txn >= 0) & (among.offset >= 0))
    mine = indices((rows.name >= 0) & (rows.txn >= 0) & (rows.offset >= 0))
    if not len(known) or not len(mine):
        return
    known = known[np.lexsort((among.offset[known], among.name[known]))]
    # From each of them on, the first of another transaction.
    begins = intervals.heads(among.txn[known])
    changes = intervals.tails(begins, len(known)) + 1
    other = changes.repeat(changes - begins)
    for name in intervals.each(rows.name[mine]):
        low, high = among.name[known].searchsorted((name, name + 1)).tolist()
        own = mine[rows.name[mine] == name]
        first = low + among.offset[known[low:high]].searchsorted(rows.offset[own] + rows.length[own])
        there = np.minimum(first, len(known) - 1)
        first = np.where((first < high) & (among.txn[known[there]] == rows.txn[own]), other[there], first)
        own, following = own[first < high], known[first[first < high]]
        nearer = (rows.next_txn[own] < 0) | (among.offset[following] < rows.next_offset[own])
        own, following = own[nearer], following[nearer]
        rows.next_txn[own], rows.next_process[own] = among.txn[following], among.process[following]
        rows.next_op[own], rows.next_type[own] = among.op[following], among.type[following]
        rows.next_offset[own] = among.offset[following]


def _with_next(state: State, one: Written, written: Written, told: TransactionTold) -> TransactionTold:
    """With the transaction that stands behind all of this one's records here."""
    evidence, words = told
    if one.next_txn[0] < 0:
        return told
    own = (written.txn == one.txn[0]) & (written.offset >= 0) & (written.offset < one.next_offset[0])
    end = max(int((written.offset + written.length)[own].max(initial=0)), int(one.offset[0] + one.length[0]))
    between = _unknown(state, end, int(one.next_offset[0]))
    following = {
        "next_txn": int(one.next_txn[0]),
        "next_process": int(one.next_process[0]),
        "next_op": int(one.next_op[0]),
        "next_told": _told(int(one.next_type[0])),
        "next_offset": int(one.next_offset[0]),
        "offsets_between": between,
    }
    if not between and following["next_told"] != evidence["told"]:  # else its marker explains nothing
        words += (
            f", no marker stands behind its records, and that of the next transaction {following['next_txn']},"
            f" {following['next_told']}, decided over them"
        )
    return TransactionTold(evidence | following, words)


def _unknown(state: State, start: int, end: int) -> int:
    """How many of the offsets [start, end) hold no value that is known."""
    log, index = state.log, state.index
    standing = intervals.merge(np.append(log.offset, index.start), np.append(log.offset + log.length, index.end))
    low, high = (np.clip(edge, start, end) for edge in standing)
    return end - start - int((high - low).sum())


def _told(outcome: int) -> str:
    return _TOLD.get(outcome, "unknown")
