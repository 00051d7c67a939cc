"""`corrupted-record`, `relocated-write` and `foreign-record`: records that belong to no run, each proven by itself.

Relocated and foreign records are values, too: one that stands where another value was polled or acknowledged makes that
offset inconsistent (`inconsistent-offsets`), whichever is known first. State: the newest `KEPT` of them above the
settled frontier.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import Columns, irregulars
from rules.arrays.intervals import Bools
from rules.kept.report import Report
from rules.kept.state import State

KEPT: Final = 256
DISPLACED: Final = "displaced"


def judge_records(columns: Columns, fresh: Bools, report: Report) -> None:
    """Report the irregular records of new rows. The same record, seen by many readers, is one finding."""
    for row, record in irregulars(columns):
        if not fresh[row]:
            continue
        offset, at = record["offset"], int(columns.completed[row])
        if not report.once(f"{record['status']}:{offset}:{record['hash']}"):
            continue
        evidence = {
            "offset": offset,
            "hash": record["hash"],
            "process": int(columns.process[row]),
            "op": int(columns.op[row]),
        }
        if record["status"] == "corrupted":
            report.add(
                "corrupted-record",
                (offset, record["hash"]),
                f"the record at offset {offset} has a broken tag",
                at=at,
                evidence=evidence,
            )
        elif record["status"] == "relocated":
            value = {name: record[name] for name in ("writer", "seq", "topic", "partition")}
            report.add(
                "relocated-write",
                (value["writer"], value["topic"], value["partition"], value["seq"], offset),
                f"value {value['writer']}/{value['seq']} of {value['topic']}/{value['partition']} was polled here,"
                f" at offset {offset}",
                at=at,
                evidence={**evidence, **value},
            )
        else:
            report.add(
                "foreign-record",
                (offset, record["hash"]),
                f"the record at offset {offset} belongs to run {record['run']}, which this log does not know",
                at=at,
                evidence={**evidence, "run": record["run"]},
            )


def note_displaced(state: State, columns: Columns, fresh: Bools) -> None:
    """Remember the new rows' values that are not of this partition: [offset, value, at]."""
    kept = state.notes.get(DISPLACED, [])
    for row, record in irregulars(columns):
        if fresh[row] and record["status"] != "corrupted" and record["offset"] >= state.settled:
            run = f" of run {record['run']}" if record["run"] else ""
            value = f"{record['writer']}/{record['seq']} of {record['topic']}/{record['partition']}{run}"
            kept = [*kept, [record["offset"], value, int(columns.completed[row])]]
    if kept:
        state.notes[DISPLACED] = sorted(entry for entry in kept if entry[0] >= state.settled)[-KEPT:]


def judge_displaced(state: State, report: Report) -> None:
    """`inconsistent-offsets` of those: the log's own runs are placed already."""
    kept, log = state.notes.get(DISPLACED, []), state.log
    for offset, value, at in kept:
        here = np.flatnonzero((log.offset <= offset) & (offset < log.offset + log.length)).tolist()
        found = {f"{log.writer[i]}/{log.seq[i] + offset - log.offset[i]}" for i in here}
        found |= {other for place, other, _ in kept if place == offset}
        if len(found) > 1 and report.once(f"displaced:{offset}:{value}"):
            report.add(
                "inconsistent-offsets",
                (offset,),
                f"offset {offset} holds {len(found)} values: {' and '.join(sorted(found))}",
                at=at,
                evidence={"offset": offset, "values": sorted(found)},
            )
