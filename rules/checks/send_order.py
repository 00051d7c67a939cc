"""`nonmonotonic-send`, `int-nonmonotonic-send`, `int-send-skip`: the order in which a process's writes lie in the log.

A process's next operation (ok or info) that sends to a partition must lie after its last one, and inside one operation
each send after the one before. `int-send-skip`, a hole between two sends of one operation that holds values of others,
is what interleaving writers make all day long, and allowed by default: a finished history lists each, a live partition
counts them. A write whose place is unknown concludes nothing.

Acknowledged offsets tell the places; a process's rows are compared in the order of its operations, once they are
complete, and only what is out of order, or has a hole, waits for the log around it to be settled.
"""

from __future__ import annotations

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, INFO, Columns, Runs
from rules.checks import poll_order
from rules.kept.report import Report
from rules.kept.state import SendMoves, SendSteps, State, concat, take


def placed(columns: Columns, sent: Runs, visible: set[tuple[int, int]]) -> Runs:
    """Without what certainly failed, and without the offsets of indefinite operations that are not `visible`: their
    acknowledgements are no part of the log."""
    sent = sent.take(columns.type[sent.row] != FAIL)
    unsure = columns.type[sent.row] == INFO
    if unsure.any():
        rows = [
            r for r in np.unique(sent.row[unsure]).tolist() if (int(columns.process[r]), int(columns.op[r])) in visible
        ]
        sent.offset = np.where(unsure & ~np.isin(sent.row, rows), -1, sent.offset)
    return sent


def moves_of(columns: Columns, sent: Runs) -> SendMoves:
    """One entry per new operation that sent: the offsets of its first and last record, -1 where unknown."""
    if not len(sent):
        return SendMoves()
    heads = np.flatnonzero(np.diff(sent.row, prepend=-1))
    tails = np.append(heads[1:], len(sent)) - 1
    row = sent.row[heads]
    first = sent.offset[heads]
    last = np.where(sent.offset[tails] >= 0, sent.offset[tails] + sent.length[tails] - 1, -1)
    return SendMoves(columns.process[row], columns.slice[row], columns.op[row], columns.completed[row], first, last)


def inside(columns: Columns, sent: Runs) -> SendSteps:
    """The steps between the runs of each new operation that are not plainly consecutive."""
    before, after = slice(None, -1), slice(1, None)
    end = sent.offset + sent.length
    steps = (sent.row[before] == sent.row[after]) & (end[before] != sent.offset[after])
    steps &= (sent.offset[before] >= 0) & (sent.offset[after] >= 0)
    at = np.flatnonzero(steps)
    row = sent.row[at]
    return SendSteps(
        columns.process[row], columns.op[row], columns.op[row], end[at] - 1, sent.offset[at + 1],
        np.ones(len(at), np.int64),
    )  # fmt: skip


def walk(state: State, moves: SendMoves) -> None:
    """Compare each operation's first place with where the process's last operation ended; keep what is out of order."""
    if not len(moves):
        return
    m = take(moves, np.lexsort((moves.slice, moves.process)))
    head = np.concatenate(([True], m.process[1:] != m.process[:-1]))
    carried = [state.processes.get(number) for number in m.process[head].tolist()]
    previous = np.concatenate(([-1], m.last[:-1]))
    previous_op = np.concatenate(([-1], m.op[:-1]))
    previous[head] = [p.sent_to if p else -1 for p in carried]
    previous_op[head] = [p.sent_op if p else -1 for p in carried]
    wrong = (previous >= 0) & (m.first >= 0) & (m.first <= previous)
    if wrong.any():
        w = np.flatnonzero(wrong)
        state.send_steps = concat(
            state.send_steps,
            SendSteps(m.process[w], previous_op[w], m.op[w], previous[w], m.first[w], np.zeros(len(w), np.int64)),
        )
    tails = np.append(np.flatnonzero(head)[1:], len(m)) - 1
    for process, tail in zip(carried, tails.tolist(), strict=True):
        if process is not None:
            process.sent_to, process.sent_op = int(m.last[tail]), int(m.op[tail])


def judge(state: State, frontier: int, at: int, report: Report, *, list_skips: bool) -> None:
    """Decide the steps whose offsets are settled."""
    pending = state.send_steps
    ripe = np.maximum(pending.first, pending.previous) < frontier
    if not ripe.any():
        return
    decided, state.send_steps = take(pending, ripe), take(pending, ~ripe)
    index, first, previous, sure = poll_order.places(state, decided.first, decided.previous)
    back = sure & (first <= previous)
    over = sure & intervals.touched(index.start, index.end, previous + 1, first)
    state.send_skips += int(over.sum())
    for i in np.flatnonzero(back | over if list_skips else back).tolist():
        process, op, internal = int(decided.process[i]), int(decided.op[i]), bool(decided.internal[i])
        order = "nonmonotonic-send" if back[i] else "send-skip"
        report.add(
            f"int-{order}" if internal else order,
            (process, op, int(decided.first[i])) if internal else (process, op),
            f"process {process} wrote at offset {decided.first[i]} after offset {decided.previous[i]}",
            at=at,
            evidence={
                "process": process,
                "op": op,
                "previous_op": int(decided.previous_op[i]),
                "previous_offset": int(decided.previous[i]),
                "offset": int(decided.first[i]),
            },
            context={"idempotent": "false" if process in state.not_idempotent_processes else "true"}
            | poll_order.duplicate_in(state, decided, i),
        )
