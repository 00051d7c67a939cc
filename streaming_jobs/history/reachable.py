"""Whether an object store lets us at the probe log: asked once at a start, so that what is wrong is told in a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import TableError
from streaming_jobs.location import TableLocation, TableUrl, opened


def require_reachable(location: TableLocation) -> None:
    """Raises `TableError` where the store does not answer within seconds, knows no such bucket, or does not let us in.
    A table that is not there yet is none of these, and a folder is not asked for."""
    if not isinstance(location, TableUrl):
        return
    try:
        opened(location, impatient=True)
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(f"The probe log at {location} cannot be reached: {in_words(error)}.") from error


@contextmanager
def reading(location: TableLocation) -> Iterator[None]:
    """For a command that reads it. Raises `TableError` as `require_reachable`, also where the store fails inside."""
    require_reachable(location)
    try:
        yield
    except (DeltaError, OSError) as error:
        if not isinstance(location, TableUrl) or getattr(error, "errno", None) is not None:
            raise  # not the store's: a pipe, a disk
        raise TableError(f"The probe log at {location} cannot be read: {in_words(error)}.") from error
