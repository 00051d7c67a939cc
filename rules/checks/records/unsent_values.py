"""`phantom-read` in a history that holds every send there was, as a file does: a polled value that nobody sent.

The probes' log says so only of values beyond the highest one that their writer sent (`phantom_reads`): it may be young,
and its cluster hold what others sent. A file is all there is. A value is sent to one partition: the same value sent to
another is another one. Sends of every outcome count, and polls of every outcome: a consumer must never be shown what
was never sent, whatever became of its own transaction.

One finding for each value, with the first operation that polled it. Nothing is kept.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rules.arrays import intervals
from rules.arrays.columns import Runs, by_place, integers, runs_of
from rules.kept.chunks import values
from rules.kept.report import Report
from rules.kept.state import State
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place


def unsent(table: pa.Table, objectives: Objectives) -> list[Finding]:
    """What was polled and never sent, in a whole history: a table of `SLICE_SCHEMA`, of any partitions."""
    return [finding for place, rows in by_place(table).items() for finding in _of_partition(place, rows, objectives)]


def _of_partition(place: Place, rows: pa.Table, objectives: Objectives) -> list[Finding]:
    sent, polled = runs_of(rows["sent"]), runs_of(rows["polled"])
    never = intervals.subtract_grouped(
        values(polled.writer, polled.seq, polled.length), values(sent.writer, sent.seq, sent.length)
    )
    if not len(never[0]):
        return []
    report = Report(place, State(topic=rows["topic"][0].as_py()), objectives)
    completed, process, op = (integers(rows[name]) for name in ("completed", "process", "op"))
    by_time = polled.take(np.argsort(completed[polled.row], kind="stable"))
    for writer, start, end in zip(*(bounds.tolist() for bounds in never), strict=True):
        for seq in report.each("phantom-read", start, end):
            row, offset = _first(by_time, writer, seq)
            where = f"at offset {offset}" if offset >= 0 else "at an unknown offset"
            report.add(
                "phantom-read",
                (writer, seq),
                f"value {writer}/{seq} was polled {where} of partition {place.partition}, to which nobody sent it",
                at=int(completed[row]),
                evidence={
                    "writer": writer,
                    "seq": seq,
                    "offset": offset if offset >= 0 else None,
                    "process": int(process[row]),
                    "op": int(op[row]),
                },
            )
    return report.findings()


def _first(polled: Runs, writer: int, seq: int) -> tuple[int, int]:
    """The row that polled the value first, and at which offset, -1 unknown."""
    i = int(np.argmax((polled.writer == writer) & (polled.seq <= seq) & (seq < polled.seq + polled.length)))
    offset = int(polled.offset[i])
    return int(polled.row[i]), offset + seq - int(polled.seq[i]) if offset >= 0 else -1
