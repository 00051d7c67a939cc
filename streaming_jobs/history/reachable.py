"""Whether an object store lets us at our tables, and keeps one host's commits from another's: asked once at a start,
so that what is wrong is told in a line."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import TableError
from streaming_jobs.location import IMPATIENT, TableLocation, TableUrl, opened


def require_reachable(location: TableLocation, called: str = "The probe log") -> None:
    """`called`: what is there, as a sentence begins with it. Raises `TableError` where the store does not answer within
    seconds, knows no such bucket, or does not let us in. A table that is not there yet is none of these, and a folder
    is not asked for."""
    if not isinstance(location, TableUrl):
        return
    try:
        opened(location, impatient=True)
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(f"{called} at {location} cannot be reached: {in_words(error)}.") from error


def mend_folder(location: TableLocation) -> None:
    """Where the loss of this host has left a damaged checkpoint in the folder, committers can append again after this.
    What else may be wrong with it they say themselves, again and again."""
    if not isinstance(location, TableUrl):
        with suppress(DeltaError, OSError):
            opened(location)


def require_conditional_puts(location: TableLocation) -> None:
    """Tries, in a small table of its own below this one, that commits made at once do not overwrite each other.

    In a store that puts an object although there is one, a host that commits takes away what another has committed.
    Raises `TableError` there, where nothing may be written, and as `require_reachable`. A folder is not asked for."""
    if not isinstance(location, TableUrl):
        return
    tried = location / "_tried" / secrets.token_hex(8)
    try:
        kept = _versions_are_not_overwritten(tried)
        tried.delete_tree()
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(f"Nothing can be written at {location}: {in_words(error)}.") from error
    if not kept:
        raise TableError(
            f"The object store of {location} puts an object although there is one of its name (If-None-Match is not"
            " heeded): hosts that share it would overwrite each other's commits. It needs conditional puts."
        )


def _versions_are_not_overwritten(table: TableUrl) -> bool:
    """Whether all of several commits that are made at once stay. Each looks for the newest version before it puts the
    next one, so that only those that meet are decided by the store, as nearly all of these are."""
    options, row = dict(IMPATIENT), pa.table({"nothing": pa.array([0], pa.int64())})
    with suppress(CommitFailedError):  # the store's answer is lost, and asked again it says that the table is there
        write_deltalake(str(table), row, storage_options=options)
    opened_before = [DeltaTable(str(table), storage_options=options) for _ in range(_AT_ONCE)]
    together = Barrier(_AT_ONCE, timeout=_TOGETHER_WITHIN)

    def commit(one: DeltaTable) -> None:
        together.wait()
        write_deltalake(one, row, mode="append", storage_options=options)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for done in [threads.submit(commit, one) for one in opened_before]:
            done.result()
    # The first version made the table. One whose answer is lost may be made twice: more than there were is no less.
    return bool(DeltaTable(str(table), storage_options=options).version() >= _AT_ONCE)


_AT_ONCE: Final = 6
_TOGETHER_WITHIN: Final = 60.0


@contextmanager
def reading(location: TableLocation) -> Iterator[None]:
    """For a command that reads it. Raises `TableError` as `require_reachable`, also where what is stored cannot be read
    inside, as a file that was cut short."""
    require_reachable(location)
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        if getattr(error, "errno", None) is not None:
            raise  # not the table's: a pipe, a disk
        raise TableError(f"The probe log at {location} cannot be read: {in_words(error)}.") from error
