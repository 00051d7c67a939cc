"""Whether the bytes of a table's data file are those that were written: by the hash that its name tells, or a note.

Spark's workers elsewhere ask it of what they read, so nothing is imported here that they need not have.
"""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rules.vocabulary.file_names import NOTED, digest, hash_told
from rules.vocabulary.table_errors import in_words
from streaming_jobs.location import TableLocation

CHANGED: Final = "its bytes are not those that were written"
_NOTE: Final = ".hash"


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
