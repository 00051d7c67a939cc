"""Data files of the probe log that are gone, or whose bytes are no longer what was written: a disk that rots, a person
who made room.

What such a file held is lost, and nobody can give it back. So it is *given up*: the log says from then on that it is
not there, the stream passes over it, and what was read of it before stays judged. The rules see that slices are
missing, wait for them as for a host that is late, and hold nothing against anybody that rests on them. The file itself
is kept beside its place until vacuum takes it, with `SUFFIX` after its name.

A file that retention has taken is none of these: the newest version of the log does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import TableError
from streaming_jobs.history.files import SUFFIX
from streaming_jobs.location import TableLocation, TableUrl, readers, table_location
from streaming_jobs.tables.file_hashes import complaint

NAMED: Final = 3
"""So many files are named in a sentence; the others are counted."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file, by its whole path or URL, and what is wrong with it, as the end of a sentence."""

    path: str
    why: str


def found(history: TableLocation, named: str = "", *, everything: bool = False) -> list[Damage]:
    """The damaged files of the log's newest version. Whether all are there is looked up; read are those whose name
    stands in the text `named`, or `everything`. Raises `TableError`."""
    try:
        table = DeltaTable(str(history), storage_options=readers(history))
        gone = {path.rpartition("/")[2] for path in table.repair(dry_run=True)["files_removed"]}
        paths = table.file_uris()
    except (DeltaError, OSError) as error:
        raise TableError(f"The probe log in {history} cannot be read: {in_words(error)}.") from error
    damaged = []
    for path in paths:
        name = path.rpartition("/")[2]
        why = "it is no longer there" if name in gone else None
        if why is None and (everything or name in named):
            why = complaint(table_location(path))
        if why is not None:
            damaged.append(Damage(path, why))
    return damaged


def give_up(history: TableLocation, damaged: Sequence[Damage], *, tended: bool) -> None:
    """Take them out of the log. Raises `TableError`, also where it is somebody else who tends the log."""
    if not tended:
        raise TableError(f"{told(damaged)} The monitor that tends the log (job.upkeep) takes it out; this one may not.")
    try:
        for one in damaged:
            _put_aside(table_location(one.path))
        DeltaTable(str(history), storage_options=readers(history)).repair()
    except (DeltaError, OSError) as error:
        raise TableError(f"{told(damaged)} It cannot be taken out of the log: {in_words(error)}.") from error


def _put_aside(place: TableLocation) -> None:
    if isinstance(place, Path):
        aside = place.with_name(place.name + SUFFIX)
        try:
            place.replace(aside)
        except FileNotFoundError:
            aside.parent.mkdir(exist_ok=True)  # a whole day may be gone
            aside.touch()
        return
    aside_ = TableUrl(f"{place}{SUFFIX}")
    try:
        aside_.write_bytes(place.read_bytes())
    except FileNotFoundError:
        aside_.write_bytes(b"")
    place.delete()


def told(damaged: Sequence[Damage]) -> str:
    """The files, as a sentence."""
    named = "; ".join(f"{one.path} ({one.why})" for one in damaged[:NAMED])
    more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
    what = "A file of the probe log is" if len(damaged) == 1 else f"{len(damaged)} files of the probe log are"
    return f"{what} lost: {named}{more}."
