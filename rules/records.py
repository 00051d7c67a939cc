"""`corrupted-record`, `relocated-write` and `foreign-record`: records that belong to no run, each proven by itself."""

from __future__ import annotations

from rules.columns import Columns, irregulars
from rules.intervals import Bools
from rules.report import Report


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
