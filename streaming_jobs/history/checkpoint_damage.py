"""What is damaged in a checkpoint, as by the loss of its host: Spark syncs none of its files."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Final

_OF_SNAPSHOTS: Final = "SSTs"
"""The folder in which RocksDB's files stand, beside the snapshots that name them."""


def damage(checkpoint: Path) -> str | None:
    """A file that has no bytes: Spark syncs none of its files, writes none that are empty, and goes on with none.
    What it had not finished yet has a name of its own; but RocksDB's files are copied to theirs, so that after the
    mere end of a process one may be there in part. Of these, those count that a snapshot names, with their sizes."""
    for folder, _, names in os.walk(checkpoint):
        of_snapshots = Path(folder).name == _OF_SNAPSHOTS
        try:
            named = _named_by_snapshots(Path(folder).parent) if of_snapshots else {}
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
            return f"a snapshot in {Path(folder).parent} cannot be read: {error}"
        for name in names:
            file = Path(folder, name)
            if ".tmp" in name or (of_snapshots and name.removeprefix(".").removesuffix(".crc") not in named):
                continue
            size = file.stat().st_size
            if not size:
                return f"{file} is empty"
            if size != named.get(name, size):
                return f"{file} has {size} bytes of {named[name]}"
    return None


def _named_by_snapshots(folder: Path) -> dict[str, int]:
    """The files that the snapshots of one state are made of, with their sizes."""
    named: dict[str, int] = {}
    for snapshot in folder.glob("*.zip"):
        if snapshot.stat().st_size:  # one that is empty is found as such
            with zipfile.ZipFile(snapshot) as parts:
                told = json.loads(parts.read("metadata").partition(b"\n")[2])
            named |= {str(one["dfsSstFileName"]): int(one["sizeBytes"]) for one in told["sstFiles"]}
    return named
