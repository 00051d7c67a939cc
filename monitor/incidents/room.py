"""Whether the data folder's disk is full: then the tables do not hold what the running monitor finds.

What is found while nothing can be written is not lost. The running monitor tells it at once (its status page, its
metrics, those who are told of incidents). A batch whose findings could not be written is checked again, and what the
monitor found of itself (`checks-stalled`) it keeps, and writes once the checks go on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LEAST: Final = 1 << 20
"""Bytes; with fewer no commit of a table can be written."""


def no_room(data: Path) -> str | None:
    """What is so where the disk of this folder is full, as sentences; None where there is room, or no such folder."""
    try:
        disk = os.statvfs(data)
    except OSError:
        return None
    free = disk.f_bavail * disk.f_frsize
    if free >= LEAST and (disk.f_favail or not disk.f_files):
        return None
    what = f"{free:,} bytes are free" if free < LEAST else "no file can be made any more (inodes)"
    return (
        f"THE DISK IS FULL: {what} where {data} is. What a running monitor finds now it tells by itself (status page, "
        "metrics, receivers), and the tables get it when there is room."
    )
