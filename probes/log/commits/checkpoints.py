"""Checkpoints of the probe log's table on a local disk, each made by a process of its own.

deltalake reads for one all commits since the last, each in a thread, and has no setting for how many. These threads
stay for as long as there is an append a second, as each of its questions wakes another one: forty, where nine are
enough. What it took for the table's whole state stays with the allocator, too.

It does not compress them, and puts them into the log before they are on the disk. So that process has deltalake make
one beside the log, of links to what is in it, and puts that into the log compressed, whole and synced: 31 kB where it
was 258.

This file is also the program of that process: it imports deltalake, pyarrow and the standard library only.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow.parquet as pq
from deltalake import DeltaTable

log = logging.getLogger("offsetwatch.committer")

LAST: Final = "_last_checkpoint"
"""The file of the log that names its newest checkpoint."""
WITHIN: Final = 60.0
"""Seconds that one may take."""
WAITED: Final = 5.0
"""Seconds for which one is waited for that is being made when nothing is appended any more."""


class Checkpoints:
    """Those of the table in `folder`, one every `interval` commits, as deltalake counts.

    One that could not be made so is missing: readers begin some milliseconds later for it. The next one is then to be
    made with its commit (`failed`), as without checkpoints the table's log is never tidied up."""

    def __init__(self, folder: Path, interval: int) -> None:
        self._folder, self._interval = folder, interval
        self._thread: threading.Thread | None = None
        self.failed = False
        """Could the last one not be made?"""
        self._made = False

    def news(self) -> bool:
        """Has one been made since this was asked? Who has the table open goes by all commits since the last one that it
        knows, each time."""
        made, self._made = self._made, False
        return made

    def committed(self, version: int) -> None:
        """The table has this version by a commit of ours. Returns at once."""
        if (version + 1) % self._interval:
            return
        if self.failed:
            self.failed = False
        elif self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._make, args=(version,), name="checkpoint", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for the one that is being made, not for long."""
        if self._thread is not None:
            self._thread.join(WAITED)

    def _make(self, version: int) -> None:
        # -P: no module beside this file stands for one of the library's. In a session of its own: a Ctrl-C is not for
        # it.
        command = [sys.executable, "-P", __file__, str(self._folder), str(version)]
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WITHIN,
                check=True,
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except subprocess.CalledProcessError as failed:
            self._fail(failed.stderr.strip().rpartition("\n")[2] or str(failed))
        except (OSError, subprocess.SubprocessError) as failed:
            self._fail(str(failed))
        else:
            self._made = True

    def _fail(self, why: str) -> None:
        self.failed = True
        log.info("no checkpoint of the probe log was made: %s", why)


def make(folder: Path, version: int) -> None:
    """The checkpoint of this version, on the disk when it returns. Raises deltalake's errors, pyarrow's and OSError."""
    told, name = folder / "_delta_log", f"{version:020}.checkpoint.parquet"
    with TemporaryDirectory(prefix="offsetwatch-checkpoint-") as scratch:
        beside = Path(scratch) / "_delta_log"
        beside.mkdir()
        for one in _needed(told, version):
            (beside / one).symlink_to(told.absolute() / one)
        DeltaTable(scratch, version=version).create_checkpoint()
        whole = pq.ParquetFile(beside / name).read()  # `read_table` imports pandas, which takes longer than all else
        hint = json.loads((beside / LAST).read_bytes())
    _put(
        told / name,
        lambda place: pq.write_table(
            whole,
            place,
            compression="zstd",
            compression_level=9,
            write_statistics=False,
            store_schema=False,
            use_dictionary=False,
        ),
    )
    if "sizeInBytes" in hint:
        hint["sizeInBytes"] = (told / name).stat().st_size
    _put(told / LAST, lambda place: place.write_text(json.dumps(hint)))


def _needed(told: Path, version: int) -> list[str]:
    """The names of the log's files that make up this version: the last checkpoint before it, and the commits since."""
    numbered = [(int(one.name[:20]), one.name) for one in told.iterdir() if one.name[:20].isdigit()]
    known = [(number, name) for number, name in numbered if number <= version]
    last = max((number for number, name in known if ".checkpoint." in name and number < version), default=0)
    return [name for number, name in known if number >= last and (number < version or name.endswith(".json"))]


def _put(final: Path, write: Callable[[Path], object]) -> None:
    """Write a file that has its name once it is whole and on the disk."""
    beside = final.with_name(f".{final.name}.tmp")
    write(beside)
    _sync(beside)
    beside.replace(final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
