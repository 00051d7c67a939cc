"""A probe log on disk, commit by commit, as a committer would write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from rules.vocabulary.slices import SLICE_SCHEMA, Slice, to_table
from streaming_jobs.location import TableLocation
from tests.rules.histories import History


def commit(path: TableLocation, rows: Sequence[Slice] | pa.Table) -> None:
    """One commit of these rows."""
    table = rows if isinstance(rows, pa.Table) else to_table(rows)
    write_deltalake(str(path), table, mode="append", partition_by=["date"])


def loose(rows: Sequence[Slice], **changes: Any) -> pa.Table:
    """The rows with columns replaced by one value each, whatever the schema promises."""
    table = to_table(rows)
    schema = pa.schema([f.with_nullable(True) for f in SLICE_SCHEMA])
    columns = [
        pa.array([changes[f.name]] * table.num_rows, f.type) if f.name in changes else table[f.name] for f in schema
    ]
    return pa.table(columns, schema=schema)


def duplicates(commits: int, partitions: int = 2) -> list[list[Slice]]:
    """A history in `commits` parts. In each, every partition gets five records, and one of them a second time: one
    `duplicate` a part and partition, each proven within its part."""
    history = History()
    parts: list[list[Slice]] = []
    for part in range(commits):
        begin = len(history.rows)
        for partition in range(partitions):
            if part == 0:
                history.row("w", "start", partition=partition)
                history.row("r", "start", partition=partition)
                history.row("r", "assign", partition=partition, assigned=True, mode="assign")
            seq, offset = part * 5, part * 6
            history.send("w", seq, 5, at=offset, partition=partition)
            history.poll("r", [("w", seq, 5, offset), ("w", seq + 1, 1, offset + 5)], partition=partition)
            history.mark(0.3, partition=partition)
        parts.append(history.rows[begin:])
    return parts
