"""Where journals lie on disk.

    <folder>/lives/<kind>-<process>/            one folder per life, held with flock by the living process
        00000000000000000000.journal            segments of frames, named by the offset of their first byte
        00000000000067108891.journal
        written                                 how far it was written (`written.py`)
        broken                                  why it cannot be read on: for the process that writes it
        over                                    there once the life is over (a hint that spares reading)

A segment's first frame tells the life's progress up to it; a new segment is begun when the last is full, so that those
wholly in the probe log can be deleted while the process lives on. Offsets count the bytes of all segments in a row.
The lock dies with the process (and with those that were forked from it): a free lock on a life that is not over means
that its process is dead. Keep the folder on a local disk that outlives the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LIVES: Final = "lives"
OVER: Final = "over"
BROKEN: Final = "broken"
SUFFIX: Final = ".journal"
NEW: Final = ".new"
"""Ends the name of a life's folder that is being made or deleted, and of a segment that is being begun."""


def life_folders(folder: Path) -> Iterator[Path]:
    """The folders of all lives, in the order of their names."""
    try:
        entries = sorted((folder / LIVES).iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if not entry.name.endswith(NEW):
            yield entry


def life_name(kind: str, process: int) -> str:
    return f"{kind}-{process:016x}"


def process_of(name: str) -> int:
    """The process whose life's folder has this name."""
    return int(name.rpartition("-")[2], 16)


def segment_name(offset: int) -> str:
    return f"{offset:020d}{SUFFIX}"


def segments(life_folder: Path) -> list[tuple[int, Path]]:
    """(offset, path) of each segment, in order. Empty where the folder has gone."""
    try:
        with os.scandir(life_folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return sorted((int(name.removesuffix(SUFFIX)), life_folder / name) for name in names)


def lock(life_folder: Path) -> int | None:
    """Hold the life's folder: an open descriptor, or None where another holds it or it has gone."""
    return _flock(life_folder, fcntl.LOCK_EX)


def is_held(life_folder: Path) -> bool:
    """Whether a living process (or a recovery at work) holds the life's folder."""
    descriptor = _flock(life_folder, fcntl.LOCK_SH)
    if descriptor is None:
        return life_folder.exists()
    os.close(descriptor)
    return False


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive the loss of the host."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flock(life_folder: Path, how: int) -> int | None:
    try:
        descriptor = os.open(life_folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
