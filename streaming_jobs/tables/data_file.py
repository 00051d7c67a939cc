"""A data file of one of the job's tables, written here and not by deltalake.

On a full disk deltalake's writer panics ("Already shut down", in object_store's buffered.rs): a page of Rust's words
goes to the terminal, the call may stand for minutes, and the error that is raised does not say what is wrong. Here it
is the operating system's, at once. It is no dearer: the tables are small, and some are written again with each batch.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from rules.vocabulary.file_statistics import statistics
from streaming_jobs.tables.file_hashes import note


def write(table: Path, rows: pa.Table, *, lasting: bool) -> AddAction:
    """Write the rows as one file, and return what the table's log is to say of it; it is no part of the table before.
    One that is `lasting` survives the loss of the host from then on.

    What upkeep asks for, how old the rows are, is told of all columns that are times. Raises OSError or Arrow's errors,
    and leaves no file then."""
    file = table / f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    try:
        pq.write_table(rows, file, compression="zstd", write_statistics=False, store_schema=False)
        if lasting:
            sync(file)
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


def sync_commit(table: Path, version: int, *, rewritten: bool = False) -> None:
    """Make a commit survive the loss of the host, which Delta's writers do not; of one that has `rewritten` files,
    these too, since what they replace is deleted, with a note of what is in each. Raises OSError."""
    log = table / "_delta_log"
    commit, checkpoint = log / f"{version:020}.json", log / f"{version:020}.checkpoint.parquet"
    paths = [checkpoint, log / "_last_checkpoint"] if checkpoint.is_file() else []
    if rewritten:
        actions = [orjson.loads(line) for line in commit.read_bytes().splitlines() if line]
        files = [table / unquote(one["add"]["path"]) for one in actions if "add" in one]
        for file in files:
            note(file)
        paths += files
    for path in (*paths, commit, table, log):
        with suppress(FileNotFoundError):  # upkeep was quicker
            sync(path)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive the loss of the host. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
