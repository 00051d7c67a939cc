"""A Delta table as it was: which version stood at a time, and the files of it that are left.

The time of a version is the one that its commit tells. That of the commit's file, by which Delta libraries go, is
another one in every copy of a folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from monitor.errors import UserError
from rules.vocabulary.table_errors import in_words
from streaming_jobs.location import TableLocation, TableUrl, names, opened, readers
from streaming_jobs.tables.schemas import STATISTICS

_COMMIT: Final = re.compile(r"\d+\.json")
_LEFT: Final = "files of this version have been cleaned away since"


def dataset(table: TableLocation, at: datetime | None = None) -> ds.Dataset | None:
    """The table's rows, none of them read yet: as they are, or as they were at a time. None where there is no table.

    Raises UserError where the table does not reach so far back, or cannot be read."""
    try:
        newest = opened(table)
        if newest is None:
            return None
        if at is None:
            return _rows(newest)
        delta = DeltaTable(str(table), version=version_at(table, at), storage_options=readers(table))
        if not _are_there(table, delta.file_uris()):
            raise UserError(f"the table {table.name} is not kept as it was at {_clock(at)}: {_LEFT}")
        return _rows(delta)
    except (DeltaError, OSError) as error:
        raise UserError(f"the table {table.name} in {table} cannot be read: {in_words(error)}") from error


def _rows(table: DeltaTable) -> ds.Dataset:
    """The table's rows. Where it does not say which columns have statistics, as one that an earlier version wrote, its
    files are not passed over by what its log tells of them: delta-rs finds nothing by the other columns then."""
    rows = table.to_pyarrow_dataset()
    told = table.metadata()
    if STATISTICS in told.configuration or told.partition_columns:
        return rows
    files = [rows.format.make_fragment(file.path, file.filesystem) for file in rows.get_fragments()]
    return ds.FileSystemDataset(files, rows.schema, rows.format, rows.filesystem)


def _are_there(table: TableLocation, uris: Sequence[str]) -> bool:
    if not isinstance(table, TableUrl):
        return all(Path(uri.removeprefix("file://")).exists() for uri in uris)
    there = table.names_below()
    return all(uri.removeprefix(f"{table}/") in there for uri in uris)


def version_at(table: TableLocation, at: datetime) -> int:
    """The newest version that was committed by this time. Raises UserError where none is left that is so old."""
    log = table / "_delta_log"
    commits = [log / name for name in sorted(names(log)) if _COMMIT.fullmatch(name)]
    low, high = 0, len(commits)
    while low < high:
        middle = (low + high) // 2
        if _committed(commits[middle]) <= at:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        since = f": its first version is of {_clock(_committed(commits[0]))}" if commits else ""
        raise UserError(f"the table {table.name} is not kept as it was at {_clock(at)}{since}")
    return int(commits[low - 1].name.removesuffix(".json"))


def _committed(commit: TableLocation) -> datetime:
    for line in commit.read_text().splitlines():
        told = json.loads(line).get("commitInfo", {}).get("timestamp")
        if told is not None:
            return datetime.fromtimestamp(told / 1000, UTC)
    raise UserError(f"the commit {commit} does not say when it was made")


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
