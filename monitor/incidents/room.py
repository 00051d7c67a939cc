"""Whether a disk that is written to is full, or read-only: the tables then do not hold what the running monitor finds,
or the probes do nothing.

What is found while nothing can be written is not lost. The running monitor tells it at once (its status page, its
metrics, those who are told of incidents). A batch whose findings could not be written is checked again, and what the
monitor found of itself (`checks-stalled`) it keeps, and writes once the checks go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from monitor.config.config import Config
from monitor.errors import UserError, known_errors

LEAST: Final = 1 << 20
"""Bytes; with fewer no commit of a table can be written."""

_FULL: Final = "THE DISK IS FULL"
_ROOM: Final = "there is room"
_WRITABLE: Final = "it can be written again"
_OF_THE_CHECKS: Final = (
    "What a running monitor finds now it tells by itself (status page, metrics, receivers), and the tables get it when "
    "there is room."
)
_OF_THE_LOG: Final = "What probes log now waits in their journals until there is room."
_OF_THE_PROBES: Final = "The probes whose journals these are do nothing until there is room."
_OF_THE_REST: Final = "Silences, and what the program logs, cannot be written until there is room."


def no_room(config: Config) -> str | None:
    """What is so where a disk of the configured folders is full, or read-only, as sentences; None where all have room,
    or are not there."""
    told: dict[int, str] = {}
    for folder, so in _written(config):
        refused = _refused(folder)
        if refused is not None and (disk := folder.stat().st_dev) not in told:
            so = so if refused.startswith(_FULL) else so.replace(_ROOM, _WRITABLE)
            told[disk] = f"{refused} where {folder} is. {so}"
    return " ".join(told.values()) or None


@contextmanager
def naming_a_full_disk(config: Config) -> Iterator[None]:
    """Where one of our errors is raised while a disk is full, or read-only, say so first: Java, Spark and the tables
    call it many things. Raises UserError, and everything else as it is."""
    try:
        yield
    except known_errors() as error:
        if (full := no_room(config)) is None:
            raise
        raise UserError(f"{full} It ended by: {error}") from error


def _written(config: Config) -> Iterator[tuple[Path, str]]:
    """The folders, and what a full disk does there; what matters most first."""
    job = config.job
    for table in (job.tables_path, job.checkpoint_path, job.root):
        if isinstance(table, Path):
            yield from ((at, _OF_THE_CHECKS) for at in _there(table))
    if isinstance(job.history_path, Path):
        yield from ((at, _OF_THE_LOG) for at in _there(job.history_path))
    for one in config.each():
        yield from ((at, _OF_THE_PROBES) for at in _there(one.journals))
    yield from ((at, _OF_THE_REST) for at in _there(config.data))


def _there(folder: Path) -> list[Path]:
    """The folder, if it is there: a host need not have them all."""
    return [folder] if folder.is_dir() else []


def _refused(folder: Path) -> str | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    if disk.f_flag & os.ST_RDONLY:
        return "THE DISK IS READ-ONLY: nothing can be written"
    free = disk.f_bavail * disk.f_frsize
    if free >= LEAST and (disk.f_favail or not disk.f_files):
        return None
    return f"{_FULL}: " + (f"{free:,} bytes are free" if free < LEAST else "no file can be made any more (inodes)")
