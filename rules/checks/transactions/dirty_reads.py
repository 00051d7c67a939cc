"""`dirty-read`: a transaction's records were shown to a reader at read_committed before its commit was asked for.

The poll had completed before the commit was invoked: whatever became of the transaction later, the last stable offset
was wrong. Of one that failed this is `G1a`, of one whose commit was never invoked `zombie-write`. Times are compared
within one boot's monotonic clock alone, so that no clock that is wrong makes one, and what a reader on another host saw
is told by readers on the writer's own.

A poll and its transaction may come in any order. Polls that come later meet the transactions that wait
(`transaction_outcomes`): they do until log time has passed them, and with it whatever was polled before. Transactions
that come later meet the polls of which no send was known (`phantom_reads`).

One finding for each operation that polled something of the transaction too early, with the first such value. Nothing is
kept of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rules.arrays.columns import FAIL, TXN, Columns, integers
from rules.arrays.intervals import Bools, Ints, indices, numbered
from rules.checks.records import phantom_reads
from rules.checks.transactions import transaction_runs
from rules.checks.transactions.transaction_runs import Written
from rules.kept.check import Check, News, Stateless
from rules.kept.codec import take
from rules.kept.state import Polls, State
from rules.settling.moves import polls_of

_SEQ_BITS: Final = 40
"""More than any writer counts to."""
_MICROSECOND: Final = 1_000


class Committed(NamedTuple):
    """Runs of transactions that did not certainly fail. `asked`: when the commit of each was invoked, by its boot's
    monotonic clock (ns). `row`: where `of` tells the rest."""

    writer: Ints
    seq: Ints
    length: Ints
    asked: Ints
    row: Ints
    of: Columns | Written

    def take(self, few: Ints) -> Committed:
        return Committed(self.writer[few], self.seq[few], self.length[few], self.asked[few], self.row[few], self.of)


def arrive(own: Stateless, new: News) -> None:
    """Compare new polls with the transactions that are here, and new transactions with the polls that were."""
    came, columns = _new(new), new.columns
    if len(new.proven):
        mono = integers(columns.arrays["mono_completed"])[new.proven.row]
        few = indices((mono >= 0) & (columns.boot[new.proven.row] >= 0))
        polls, mono = polls_of(columns, new.proven.take(few)), mono[few]
        for known in (_waiting(new.state), came):
            _compare(known, polls, mono, new)
    before = phantom_reads.unsent_in(new.state)
    if came is not None and len(before):
        before = take(before, indices(before.mono >= 0))
        _compare(came, before, before.mono, new)


def _new(new: News) -> Committed | None:
    columns, sent = new.columns, new.sent
    if not len(sent) or TXN not in columns.functions:
        return None
    ended, row = transaction_runs.commit_invoked(columns), sent.row
    few = indices(_counts(columns.txn[row], columns.type[row], ended[row], columns.boot[row]))
    return Committed(sent.writer, sent.seq, sent.length, ended[row], row, columns).take(few)


def _waiting(state: State) -> Committed | None:
    outcomes = state.checks.get(transaction_runs.NAME)
    if outcomes is None or not len(outcomes.written):
        return None
    rows = outcomes.written
    few = indices(_counts(rows.txn, rows.type, rows.ended, rows.boot))
    return Committed(rows.writer, rows.seq, rows.length, rows.ended, np.arange(len(rows)), rows).take(few)


def _counts(txn: Ints, kind: NDArray[np.signedinteger[Any]], ended: Ints, boot: Ints) -> Bools:
    return np.asarray((txn >= 0) & (kind != FAIL) & (ended >= 0) & (boot >= 0), bool)


def _compare(committed: Committed | None, polls: Polls, at: Ints, new: News) -> None:
    """Report the polls that had completed (`at`) before the commit was invoked of something that they polled."""
    if committed is None or not len(committed.asked):
        return
    early = indices(at < int(committed.asked.max()))
    if not len(early):
        return
    polls, at, size = take(polls, early), at[early], len(committed.asked)
    _, label = numbered(np.concatenate((committed.writer, polls.writer)))
    label = label << _SEQ_BITS
    begins = label[:size] + committed.seq
    order = begins.argsort(kind="stable")
    committed, begins, start = committed.take(order), begins[order], label[size:] + polls.seq
    # From the first run that reaches beyond where what was polled begins, to the last one that begins within it.
    first = np.maximum.accumulate(begins + committed.length).searchsorted(start, side="right")
    last = begins.searchsorted(start + polls.length, side="left")
    met = indices(first < last)
    if not len(met):
        return
    bounds = np.stack((first[met], np.minimum(last[met], size - 1)), axis=1).reshape(-1)
    newest = np.maximum(np.maximum.reduceat(committed.asked, bounds)[::2], committed.asked[last[met] - 1])
    for i in met[at[met] < newest].tolist():
        for k in range(int(first[i]), int(last[i])):
            _report(committed, k, polls, i, int(committed.asked[k] - at[i]), new)


def _report(committed: Committed, k: int, polls: Polls, i: int, early: int, new: News) -> None:
    """Tell of poll `i` and run `k`, if it polled something of it, and `early` (ns)."""
    of, row = committed.of, int(committed.row[k])
    seq = max(int(committed.seq[k]), int(polls.seq[i]))
    end = min(int(committed.seq[k] + committed.length[k]), int(polls.seq[i] + polls.length[i]))
    early //= _MICROSECOND
    if early <= 0 or seq >= end or committed.writer[k] != polls.writer[i] or of.boot[row] != polls.boot[i]:
        return
    if not new.report.room("dirty-read"):
        new.report.skip("dirty-read", 1)
        return
    txn, process, op = int(of.txn[row]), int(polls.process[i]), int(polls.op[i])
    owner, offset = int(of.process[row]), int(polls.offset[i])
    evidence: dict[str, Any] = {
        "txn": txn,
        "process": process,
        "op": op,
        "writer": int(committed.writer[k]),
        "seq": seq,
        **({"offset": offset + seq - int(polls.seq[i])} if offset >= 0 else {}),
        "early_by_s": round(early / 1e6, 6),
        "txn_process": owner,
        "txn_op": int(of.op[row]),
    }
    new.report.add(
        "dirty-read",
        (txn, process, op),
        f"{new.state.called(process)} polled value {committed.writer[k]}/{seq} of transaction {txn}, whose commit"
        f" {new.state.called(owner)} invoked {evidence['early_by_s']:.3f} s later",
        at=int(polls.at[i]) + early,
        evidence=evidence,
    )


CHECK: Final = Check("dirty-read", Stateless, arrive=arrive, rows=frozenset({TXN, "polled"}))
"""What is compared is kept by others."""
