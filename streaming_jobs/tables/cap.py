"""A cap on what the data folder takes: where it is near, the oldest of the probe log goes before its time.

The probe log is what grows, so it is what goes; findings are the evidence of what it held and stay. Ageing only takes
rows out of the table's newest version: their files are deleted by the next vacuum, an hour later. So it begins below
the cap, and what is about to be deleted anyway is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

BEGIN_AT: Final = 0.9
END_AT: Final = 0.8
"""Parts of the cap: the log is shortened from the one to the other, so that it is not done each time."""

SPARED: Final = timedelta(hours=1)
"""The newest of the log is never taken: a job that fell behind, a recheck and `explain` need it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A data file of the probe log's newest version: bytes, and the time of its last row."""

    size: int
    last: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """What the folder takes, in bytes: `total`, of which `dead` are files of the probe log that no longer count."""

    total: int
    dead: int

    @property
    def kept(self) -> int:
        return self.total - self.dead


def cut(files: Iterable[Held], excess: float, now: datetime) -> datetime | None:
    """Rows up to this time go, so that at least `excess` bytes do, or all that may; None: there is nothing to take.

    By files: what is taken of one that reaches over the time is little. What is spared is told by the newest row of the
    log, so that a clock here that is ahead takes no more."""
    until = None
    oldest_first = sorted(files, key=lambda file: file.last)
    spared = min(now, oldest_first[-1].last) - SPARED if oldest_first else now
    for file in oldest_first:
        if excess <= 0 or file.last > spared:
            break
        until, excess = file.last, excess - file.size
    return until


def held(history: Path) -> list[Held]:
    """The files of the probe log. Raises Delta's errors."""
    actions = pa.table(DeltaTable(str(history)).get_add_actions(flatten=True))
    if "max.completed" not in actions.column_names:
        return []
    each = zip(actions["size_bytes"].to_pylist(), actions["max.completed"].to_pylist(), strict=True)
    return [Held(size, last) for size, last in each if last is not None]


def taken(folders: Sequence[Path], history: Path, files: Iterable[Held]) -> Taken:
    """Look at the disk: everything below the folders, the history's among them or not."""
    inside = any(history.is_relative_to(folder) for folder in folders)
    total = sum(_size(folder) for folder in (*folders, *(() if inside else (history,))))
    rows = _size(history) - _size(history / "_delta_log")
    return Taken(total, max(0, rows - sum(file.size for file in files)))


def bytes_and_files(folder: Path) -> tuple[int, int]:
    """What stands below a folder; what goes away meanwhile is not counted."""
    total = files = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(where) / name).stat().st_size
            except OSError:
                continue
            files += 1
    return total, files


def _size(folder: Path) -> int:
    return bytes_and_files(folder)[0]
