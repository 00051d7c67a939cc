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
from hashlib import file_digest
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from rules.vocabulary.file_names import NOTED, digest, hash_told
from rules.vocabulary.file_statistics import statistics
from rules.vocabulary.table_errors import in_words
from streaming_jobs.location import TableLocation

_NOTE: Final = ".hash"
CHANGED: Final = "its bytes are not those that were written"


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


def changed(file: Path) -> bool:
    """Whether the bytes of a file are not those that were written, as far as its name tells, or what was noted of it.
    Raises OSError."""
    told = hash_told(file.name) or _noted(file)
    if told is None:
        return False
    with file.open("rb") as opened:
        return file_digest(opened, digest).hexdigest() != told


def note(file: Path) -> None:
    """Note the hash of a file that somebody else has named. Raises OSError."""
    place = _place_of_note(file)
    place.parent.mkdir(exist_ok=True)
    with file.open("rb") as opened:
        place.write_text(file_digest(opened, digest).hexdigest())


def forget_notes(table: Path) -> None:
    """Take away what is noted of files that are there no longer. Raises OSError."""
    notes = [*(table / NOTED).iterdir()] if (table / NOTED).is_dir() else []
    there = {file.name for file in table.rglob("*.parquet")} if notes else set()
    for one in notes:
        if one.name.removesuffix(_NOTE) not in there:
            one.unlink(missing_ok=True)


def _noted(file: Path) -> str | None:
    """None also for a note that was lost with its host."""
    try:
        return _place_of_note(file).read_text() or None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _place_of_note(file: Path) -> Path:
    table = file.parent.parent if "=" in file.parent.name else file.parent
    return table / NOTED / f"{file.name}{_NOTE}"


def complaint(place: TableLocation) -> str | None:
    """What is wrong with a file's bytes. None too where they are not to be had: that may be otherwise the next time."""
    try:
        data = place.read_bytes()
        if isinstance(place, Path) and changed(place):
            return CHANGED
    except OSError:
        return None
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        for group in range(file.metadata.num_row_groups):
            file.read_row_group(group)
    except (OSError, pa.ArrowException) as error:
        return f"it cannot be read: {in_words(error)}"
    return None


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
