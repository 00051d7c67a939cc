"""`G1b`: an operation polled a part of a transaction's records.

It is legal and frequent where polls are short: a finished history lists each, a live partition counts them. Part of
`transaction_outcomes`, whose waiting runs say where transactions begin and end.
"""

from __future__ import annotations

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import indices
from rules.checks.transactions.transaction_runs import Outcomes, Written
from rules.kept.codec import take
from rules.kept.report import Report
from rules.kept.state import Polls


def judge(own: Outcomes, polled: Polls, report: Report, *, list_each: bool) -> None:
    """Count, or list, what the polls that are folded now cut in two."""
    rows = take(own.written, own.written.txn >= 0)
    if not len(rows) or not len(polled):
        return
    end = polled.seq + polled.length
    same = (polled.process[1:] == polled.process[:-1]) & (polled.op[1:] == polled.op[:-1])
    same &= (polled.writer[1:] == polled.writer[:-1]) & (end[:-1] == polled.seq[1:])
    goes_on = np.concatenate((same, [False]))  # the next run of the operation takes the writer's numbers up
    came_on = np.concatenate(([False], same))
    rows = take(rows, np.lexsort((rows.seq, rows.writer)))
    for writer in intervals.each(rows.writer):
        low, high = (int(rows.writer.searchsorted(writer, side=side)) for side in ("left", "right"))
        starts, ends = rows.seq[low:high], (rows.seq + rows.length)[low:high]
        mine = indices(polled.writer == writer)
        for edge, joined in ((polled.seq, came_on), (end, goes_on)):  # strictly inside a transaction
            cuts = mine[~joined[mine]]
            at = starts.searchsorted(edge[cuts], side="left") - 1
            cut = (at >= 0) & (edge[cuts] < ends[np.maximum(at, 0)])
            own.partial_reads += int(cut.sum())
            for k in indices(cut & list_each).tolist():
                reader = [int(polled.process[cuts[k]]), int(polled.op[cuts[k]])]
                _report(rows, low + int(at[k]), reader, (int(polled.at[cuts[k]]), int(edge[cuts[k]])), report)


def _report(rows: Written, row: int, reader: list[int], cut: tuple[int, int], report: Report) -> None:
    """`cut`: when it polled, and the value before which it did not go on."""
    when, seq = cut
    report.add(
        "G1b",
        (int(rows.txn[row]), reader[0], reader[1]),
        f"operation {reader[1]} of {report.state.called(reader[0])} polled a part of transaction {rows.txn[row]}, cut"
        f" at value {rows.writer[row]}/{seq}",
        at=max(when, int(rows.at[row])),
        evidence={
            "txn": int(rows.txn[row]),
            "process": reader[0],
            "op": reader[1],
            "writer": int(rows.writer[row]),
            "seq": seq,
        },
    )
