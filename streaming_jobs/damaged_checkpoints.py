"""A table whose newest checkpoint is damaged is read by its commits, as far as they are there.

A checkpoint of Delta's log only says again what the commits before it say. Where a bad disk or a crash has left one
that cannot be read, the table cannot be opened at all, although nothing is lost. So it is set aside, as `*.damaged`,
where the commits since the last good one are whole. Local folders alone: an object store writes whole files or none.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger("offsetwatch.tables")

DAMAGED: Final = ".damaged"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\..*)?\.parquet")
_NEWEST: Final = "_last_checkpoint"


def damaged_checkpoint(table: Path) -> Path | None:
    """The newest checkpoint that cannot be read, if it is the one that a reader begins with."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for _, files in sorted(_checkpoints(table).items(), reverse=True):
        for file in files:
            try:
                pq.ParquetFile(file).read()
            except (OSError, pa.ArrowException):
                return file
        return None
    return None


def set_aside(table: Path, damaged: Path) -> bool:
    """Take a damaged checkpoint out of the table's log, where the commits say all that it said; else leave it, and say
    so. Raises OSError where nothing may be written there."""
    version = _version(damaged)
    checkpoints = _checkpoints(table)
    before = max((one for one in checkpoints if one < version), default=-1)
    commits = {int(found[1]) for one in _log(table) if (found := _COMMIT.fullmatch(one.name))}
    if not commits or not commits >= set(range(before + 1, max(commits) + 1)):
        return False
    for file in checkpoints[version]:
        with suppress(FileNotFoundError):  # another reader was first
            file.rename(file.with_name(file.name + DAMAGED))
    with suppress(FileNotFoundError):
        (table / "_delta_log" / _NEWEST).unlink()
    log.warning("the checkpoint %s of a table is damaged: it is set aside, and its commits are read", damaged)
    return True


def _checkpoints(table: Path) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for one in _log(table):
        if _CHECKPOINT.fullmatch(one.name):
            found.setdefault(_version(one), []).append(one)
    return found


def _version(file: Path) -> int:
    return int(file.name[:20])


def _log(table: Path) -> list[Path]:
    return list((table / "_delta_log").iterdir())
