"""A history file, read and translated: the one entry point of this package for those who check histories."""

from __future__ import annotations

import gc
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from monitor.history_files.errors import Malformed, UnreadableHistory
from monitor.history_files.events import events
from monitor.history_files.names import Names
from monitor.history_files.operations import gather
from monitor.history_files.slices import slices


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """`slices` is a table of `SLICE_SCHEMA`, sorted by partition; `names` lead back from its numbers to the file."""

    path: Path
    slices: pa.Table
    names: Names
    operations: int
    """How many operations of a Kafka workload the file has."""


def read(path: Path) -> HistoryFile:
    """Read a history from a file, or from standard input where the path is `-`. Raises `UnreadableHistory`, which names
    the file and the line."""
    try:
        with _uncollected():
            operations = gather(events(path))
    except Malformed as e:
        raise UnreadableHistory(path, e.reason, e.line) from e
    except RecursionError as e:
        raise UnreadableHistory(path, "is nested too deeply to be a history") from e
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise UnreadableHistory(path, f"cannot be decompressed: {e}") from e
    except OSError as e:
        raise UnreadableHistory(path, f"cannot be read: {e.strerror or e}") from e
    name = os.fsencode(path.name).decode(errors="replace")  # a file's name need not be text
    operations.names.topic = name
    count = len(operations.ordinal)
    return HistoryFile(path, slices(operations, name), operations.names, count)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of lists and maps come and go, none of them in a cycle: looking for cycles takes as long as reading."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
