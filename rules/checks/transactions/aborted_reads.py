"""`G1a` and `precommitted-read`: reads of what was not, or not yet, committed.

G1a: an ok poll at read_committed returned a value whose write certainly failed or whose transaction aborted. Only a
certain failure counts; an indefinite write may turn out either way. Both sides only grow, so that it does not matter
which is known first, and the finding stands at once. The evidence tells what is known of the transaction by then
(`transaction_evidence`).

precommitted-read: an operation of any outcome polled a value that it sends itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Columns, Runs
from rules.arrays.intervals import EMPTY, Ints, among, indices
from rules.checks.transactions import transaction_evidence
from rules.kept.check import Check, News
from rules.kept.chunks import Values, values
from rules.kept.codec import Table
from rules.kept.report import Report
from rules.kept.state import Polls, State, concat, take

CONTEXT: Final = {"isolation": "read_committed"}


SHOWN_KEPT: Final = 1_024


@dataclass(slots=True)
class Shown(Table):
    """Values of which `G1a` was told at this log time."""

    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class AbortedReads:
    """`failed`: how many sent records certainly failed, since the start. What failed and what was exposed stands in the
    chunks of the values, one bit each. `shown`: the newest of those, at most `SHOWN_KEPT`, for what they explain."""

    failed: int = 0
    shown: Shown = field(default_factory=Shown)


def arrive(own: AbortedReads, new: News) -> None:
    """Learn what failed, and what was polled."""
    if len(new.sent) and len(new.polled):
        _read_own(new.columns, new.sent, new.polled, new.report)
    _read_aborted(own, new)


def _read_aborted(own: AbortedReads, new: News) -> None:
    """`G1a`: what ok polls at read_committed show now, or had shown, of what certainly failed."""
    columns, chunks, report, polled, failed = new.columns, new.chunks, new.report, new.proven, new.failed
    waiting = new.state.polls  # not in the chunks yet
    shown = values(polled.writer, polled.seq, polled.length)
    if len(failed):
        lost = values(failed.writer, failed.seq, failed.length)
        chunks.add("failed", lost)
        own.failed += int(failed.length.sum())
        exposed = [chunks.having("failed", shown), chunks.having("polled", lost)]
        exposed.append(chunks.having("failed", values(waiting.writer, waiting.seq, waiting.length)))
        found: Values = intervals.merge_grouped(*(np.concatenate(c) for c in zip(*exposed, strict=True)))
    else:
        found = chunks.having("failed", shown)
    if not len(found[0]):
        return
    found = chunks.lacking("exposed", found)
    chunks.add("exposed", found)
    now = int(columns.completed.max())
    fresh: list[tuple[int, int, int]] = []
    for writer, start, end in zip(*(a.tolist() for a in found), strict=True):
        for seq in report.each("G1a", start, end, CONTEXT):
            known, evidence = _who(new, writer, seq)
            at = known if known >= 0 else now
            fresh.append((writer, seq, at))
            told = transaction_evidence.of_value(new.state, new.chunks, writer, seq)
            report.add(
                "G1a",
                (writer, seq),
                f"value {writer}/{seq} was polled, and its write failed or its transaction aborted{told.words}",
                at=at,
                evidence={"writer": writer, "seq": seq} | evidence | told.evidence,
                context=CONTEXT,
            )

    columns_of = np.array(fresh, np.int64).reshape(-1, 3).T
    own.shown = take(concat(own.shown, Shown(*columns_of)), slice(-SHOWN_KEPT, None))


def shown_by(state: State, at: int) -> Shown:
    """The values of which it is known by this log time that they were aborted, and shown to somebody."""
    own = state.checks.get(CHECK.name)
    return take(own.shown, own.shown.at <= at) if own is not None else Shown()


def _who(new: News, writer: int, seq: int) -> tuple[int, dict[str, Any]]:
    """When both were known, and what the new rows and the polls that wait tell of who polled it and whose write
    failed."""
    columns, evidence, known = new.columns, {}, -1
    polled, failed, waiting = new.proven, new.failed, new.state.polls
    found = _covering(polled, writer, seq)
    if found >= 0:
        row = int(polled.row[found])
        who, known = (columns.process[row], columns.op[row]), int(columns.completed[row])
        evidence["offset"] = int(polled.offset[found]) + seq - int(polled.seq[found])
    else:
        found = _covering(waiting, writer, seq)
        if found >= 0:
            who, known = (waiting.process[found], waiting.op[found]), int(waiting.at[found])
            evidence["offset"] = int(waiting.offset[found]) + seq - int(waiting.seq[found])
    if found >= 0:
        evidence["process"], evidence["op"] = map(int, who)
    found = _covering(failed, writer, seq)
    if found >= 0:
        row = int(failed.row[found])
        evidence["failed_process"], evidence["failed_op"] = int(columns.process[row]), int(columns.op[row])
        known = max(known, int(columns.completed[row]))
    return known, evidence


def _covering(runs: Runs | Polls, writer: int, seq: int) -> int:
    """The first of the runs that holds this value, -1 for none."""
    by = indices((runs.writer == writer) & (runs.seq <= seq) & (seq < runs.seq + runs.length))
    return int(by[0]) if len(by) else -1


def _read_own(columns: Columns, sent: Runs, polled: Runs, report: Report) -> None:
    """`precommitted-read` in new rows, whatever their outcome."""
    rows = set(sent.row.tolist()).intersection(polled.row.tolist())
    if not rows:
        return
    sent, polled = sent.take(among(sent.row, rows)), polled.take(among(polled.row, rows))
    # One label a (row, writer): values of the same operation and writer can meet, others cannot.
    writers, number = intervals.numbered(np.concatenate((sent.writer, polled.writer)))
    _, label = intervals.numbered(np.concatenate((sent.row, polled.row)) * len(writers) + number)
    own = intervals.merge_grouped(label[: len(sent)], sent.seq, sent.seq + sent.length)
    polled_label = label[len(sent) :]
    met = intervals.touched_grouped(own, polled_label, polled.seq, polled.seq + polled.length)
    for i in indices(met).tolist():
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


CHECK: Final = Check("G1a", AbortedReads, arrive=arrive)
