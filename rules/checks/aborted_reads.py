"""`G1a` and `precommitted-read`: reads of what was not, or not yet, committed.

G1a: an ok poll at read_committed returned a value whose write certainly failed or whose transaction aborted. Only a
certain failure counts; an indefinite write may turn out either way. Both sides only grow, so that it does not matter
which is known first, and the finding stands at once. The evidence tells what is known of the transaction by then
(`rules.checks.transaction_evidence`).

precommitted-read: an operation of any outcome polled a value that it sends itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Columns, Runs
from rules.checks import transaction_evidence
from rules.kept.chunks import Chunks, Values, values
from rules.kept.report import Report
from rules.kept.state import Polls, State


def read_aborted(
    state: State, chunks: Chunks, columns: Columns, polled: Runs, failed: Runs, waiting: Polls, report: Report
) -> None:
    """`G1a`. `polled`: new runs of ok polls at read_committed; `failed`: new runs of certainly failed sends; `waiting`:
    polls that are not folded into the chunks yet, the new ones among them."""
    lost = values(failed.writer, failed.seq, failed.length)
    if len(failed):
        chunks.add("failed", lost)
        state.failed += int(failed.length.sum())
    new = values(polled.writer, polled.seq, polled.length)
    exposed = [chunks.having("failed", new)]
    if len(failed):
        exposed.append(chunks.having("polled", lost))
        exposed.append(chunks.having("failed", values(waiting.writer, waiting.seq, waiting.length)))
    found: Values = intervals.merge_grouped(*(np.concatenate(c) for c in zip(*exposed, strict=True)))
    if not len(found[0]):
        return
    found = chunks.lacking("exposed", found)
    chunks.add("exposed", found)
    now = int(columns.completed.max())
    for writer, start, end in zip(*(a.tolist() for a in found), strict=True):
        for seq in range(start, min(end, start + report.room("G1a") + 1)):
            evidence: dict[str, Any] = {"writer": writer, "seq": seq}
            at = -1
            by = (polled.writer == writer) & (polled.seq <= seq) & (seq < polled.seq + polled.length)
            for i in np.flatnonzero(by)[:1].tolist():
                row = int(polled.row[i])
                evidence["offset"] = int(polled.offset[i]) + seq - int(polled.seq[i])
                evidence["process"], evidence["op"] = int(columns.process[row]), int(columns.op[row])
                at = int(columns.completed[row])
            source = (failed.writer == writer) & (failed.seq <= seq) & (seq < failed.seq + failed.length)
            for i in np.flatnonzero(source)[:1].tolist():
                row = int(failed.row[i])
                evidence["failed_process"], evidence["failed_op"] = int(columns.process[row]), int(columns.op[row])
                at = max(at, int(columns.completed[row]))
            told = transaction_evidence.of_value(state, writer, seq)
            report.add(
                "G1a",
                (writer, seq),
                f"value {writer}/{seq} was polled, and its write failed or its transaction aborted{told.words}",
                at=at if at >= 0 else now,
                evidence=evidence | told.evidence,
                context={"isolation": "read_committed"},
            )
        report.skip("G1a", max(0, end - start - report.objectives.findings_per_step - 1))


def read_own(columns: Columns, sent: Runs, polled: Runs, report: Report) -> None:
    """`precommitted-read` in new rows, whatever their outcome."""
    rows = np.intersect1d(sent.row, polled.row)
    if not len(rows):
        return
    sent, polled = sent.take(np.isin(sent.row, rows)), polled.take(np.isin(polled.row, rows))
    # One label a (row, writer): values of the same operation and writer can meet, others cannot.
    writers, number = intervals.numbered(np.concatenate((sent.writer, polled.writer)))
    _, label = intervals.numbered(np.concatenate((sent.row, polled.row)) * len(writers) + number)
    own = intervals.merge_grouped(label[: len(sent)], sent.seq, sent.seq + sent.length)
    polled_label = label[len(sent) :]
    met = intervals.touched_grouped(own, polled_label, polled.seq, polled.seq + polled.length)
    for i in np.flatnonzero(met).tolist():
        row = int(polled.row[i])
        mine = own[0] == polled_label[i]
        low, high = int(polled.seq[i]), int(polled.seq[i] + polled.length[i])
        for a, b in zip(
            *intervals.intersect(np.array([low]), np.array([high]), own[1][mine], own[2][mine]), strict=True
        ):
            for seq in range(int(a), int(b)):
                report.add(
                    "precommitted-read",
                    (int(polled.writer[i]), seq, int(columns.process[row]), int(columns.op[row])),
                    f"operation {columns.op[row]} of process {columns.process[row]} polled its own value"
                    f" {polled.writer[i]}/{seq}",
                    at=int(columns.completed[row]),
                    evidence={
                        "writer": int(polled.writer[i]),
                        "seq": seq,
                        "offset": int(polled.offset[i]) + seq - low,
                        "process": int(columns.process[row]),
                        "op": int(columns.op[row]),
                    },
                    context={"isolation": "read_committed" if columns.committed_only[row] else "read_uncommitted"},
                )
