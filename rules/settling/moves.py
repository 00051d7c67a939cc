"""What readers and writers did, one entry a slice, until its time is complete."""

from __future__ import annotations

import numpy as np

from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    FAIL,
    INFO,
    OFFSETS,
    OK,
    POLL,
    POSITION,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
    Runs,
    irregulars,
)
from rules.arrays.intervals import Bools, Ints, among, heads, indices, some, tails
from rules.kept.state import Moves, Polls, SendMoves
from rules.settling import strangers


def moves_of(columns: Columns, fresh: Bools, polled: Runs, runs: list[int]) -> Moves:
    """What readers and observers did in new rows. `polled`: what they polled at read_committed; `runs`: whose log it
    is (`rules.settling.strangers`)."""
    n = len(columns)
    first = np.full(n, -1, np.int64)
    last = np.full(n, -1, np.int64)
    known = np.full(n, 3, np.int64)
    if len(polled):
        begins = heads(polled.row)
        ends = tails(begins, len(polled))
        # A record polled at an unknown offset is one of unknown value here: it moves the reader to where nobody knows.
        rows = polled.row[begins]
        first[rows] = np.maximum(polled.offset[begins], 0)
        last[rows] = np.maximum(polled.offset[ends] + polled.length[ends] - 1, 0)
        known[rows] &= np.where(polled.offset[begins] < 0, 2, 3) & np.where(polled.offset[ends] < 0, 1, 3)
    _place_irregulars(columns, polled, first, last, known)
    # Where a transaction's abort left a consumer is not where it goes on: it seeks back.
    stands = columns.where(POSITION)
    if POSITION in columns.functions:
        stands = stands & (columns.position_after >= 0) & (columns.type == OK) & (columns.txn < 0)
        first[stands & (columns.position_after == 0)] = 0
    polled_any = columns.where(POLL, TXN) & ((first >= 0) | (~columns.committed_only & (columns.position_after >= 0)))
    relevant = fresh & (columns.where(ASSIGN, SUBSCRIBE, REVOKE, CLOSE, OFFSETS) | polled_any | stands)
    known += np.where(columns.committed_only, 0, 4)
    # A committer's own rows and committed offsets move nobody; an observation that failed tells that nobody can see.
    unanswered = columns.where(OFFSETS) & (columns.last_stable < 0) & (columns.log_start < 0)
    if some(unanswered):
        asked = unanswered & (columns.committed < 0) & columns.table["group"].is_null().to_numpy()
        relevant &= ~unanswered | asked
    at = indices(relevant)
    return Moves(
        process=columns.process[at],
        slice=columns.slice[at],
        op=columns.op[at],
        f=columns.f[at].astype(np.int64),
        type=columns.type[at].astype(np.int64),
        at=columns.completed[at],
        assigned=columns.assigned[at].astype(np.int64),
        subscribed=columns.subscribed[at].astype(np.int64),
        first=first[at],
        last=last[at],
        known=known[at],
        before=columns.position_before[at],
        stable=columns.last_stable[at],
        low=columns.log_start[at],
        after=columns.position_after[at],
        end=columns.log_end[at],
        invoked=columns.invoked[at],
        boot=columns.boot[at],
        stranger=strangers.listed(columns, runs)[at],
    )


def _place_irregulars(columns: Columns, polled: Runs, first: Ints, last: Ints, known: Ints) -> None:
    """Irregular records begin or end a poll, too; their value is unknown, or not of this partition."""
    if not columns.tells("irregular"):
        return
    odd = irregulars(columns)
    odd.take(columns.committed_only[odd.row])
    if not len(odd):
        return
    records = np.bincount(odd.row, minlength=len(columns))
    np.add.at(records, polled.row, polled.length)
    begins, ends = odd.index == 0, odd.index == records[odd.row] - 1
    first[odd.row[begins]] = odd.offset[begins]
    known[odd.row[begins]] &= ~1
    last[odd.row[ends]] = odd.offset[ends]
    known[odd.row[ends]] &= ~2


def sent_to(columns: Columns, sent: Runs, visible: set[tuple[int, int]]) -> Runs:
    """What was sent, without what certainly failed, and without the offsets of indefinite operations that are not
    `visible`: their acknowledgements are no part of the log."""
    failed = columns.type[sent.row] == FAIL
    if some(failed):
        sent = sent.take(~failed)
    unsure = columns.type[sent.row] == INFO
    if some(unsure):
        rows = [
            r for r in np.unique(sent.row[unsure]).tolist() if (int(columns.process[r]), int(columns.op[r])) in visible
        ]
        offset = np.where(unsure & ~among(sent.row, rows), -1, sent.offset)
        sent = Runs(sent.row, sent.writer, sent.seq, offset, sent.length)
    return sent


def sends_of(columns: Columns, sent: Runs) -> SendMoves:
    """One entry per new operation that sent: the offsets of its first and last record, -1 where unknown."""
    if not len(sent):
        return SendMoves()
    begins = heads(sent.row)
    ends = tails(begins, len(sent))
    row = sent.row[begins]
    first = sent.offset[begins]
    last = np.where(sent.offset[ends] >= 0, sent.offset[ends] + sent.length[ends] - 1, -1)
    return SendMoves(columns.process[row], columns.slice[row], columns.op[row], columns.completed[row], first, last)


def polls_of(columns: Columns, runs: Runs) -> Polls:
    """Runs that were polled, with the row that tells of each."""
    row = runs.row
    return Polls(
        columns.completed[row],
        columns.process[row],
        columns.op[row],
        runs.offset,
        runs.writer,
        runs.seq,
        runs.length,
        columns.slice[row],
        columns.boot[row],
    )
