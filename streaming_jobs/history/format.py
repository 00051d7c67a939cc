"""Which format the rows of a probe log have: a property of its table."""

from __future__ import annotations

from deltalake import DeltaTable

from rules.vocabulary.slices import FORMAT_PROPERTY, FORMAT_VERSION
from streaming_jobs.errors import TableError
from streaming_jobs.location import TableLocation


def require_format(table: DeltaTable, path: TableLocation) -> None:
    """Raises `TableError` where the log in `path` has another format than this version reads. A log without the
    property is older than it, and of format 1."""
    told = table.metadata().configuration.get(FORMAT_PROPERTY, "1")
    if told != str(FORMAT_VERSION):
        raise TableError(
            f"The probe log in {path} has format {told}, and this version of Offsetwatch reads format "
            f"{FORMAT_VERSION}: use the version that wrote it."
        )
