"""A data file of one of the job's tables, written here and not by deltalake.

On a full disk deltalake's writer panics ("Already shut down", in object_store's buffered.rs): a page of Rust's words
goes to the terminal, the call may stand for minutes, and the error that is raised does not say what is wrong. Here it
is the operating system's, at once. It is no dearer: the tables are small, and some are written again with each batch.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from rules.vocabulary.file_statistics import statistics


def write(table: Path, rows: pa.Table) -> AddAction:
    """Write the rows as one file, and return what the table's log is to say of it; it is no part of the table before.

    What upkeep asks for, how old the rows are, is told of all columns that are times. Raises OSError or Arrow's errors,
    and leaves no file then."""
    file = table / f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    try:
        pq.write_table(rows, file, compression="zstd", write_statistics=False, store_schema=False)
    except Exception:
        file.unlink(missing_ok=True)
        raise
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    return AddAction(
        path=file.name,
        size=file.stat().st_size,
        partition_values={},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=orjson.dumps(statistics(rows, times)).decode(),
    )
