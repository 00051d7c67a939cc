"""Whether an object store lets us at the probe log: asked once at a start, so that what is wrong is told in a line."""

from __future__ import annotations

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
        opened(location)
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(f"The probe log at {location} cannot be reached: {in_words(error)}.") from error
