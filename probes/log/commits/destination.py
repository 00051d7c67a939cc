"""Where a committer's appends go: the Delta table itself, or a topic from which somebody carries them there."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa


class Destination(Protocol):
    """Takes each append of a committer once, in order. Methods raise `HistoryUnavailable` for what may pass and
    `HistoryMismatch` for what does not."""

    @property
    def uri(self) -> str:
        """What it is called in messages."""

    def id(self) -> str:
        """Its own id: another one after it was deleted and made again."""

    def has(self, app: str, version: int, of: Path) -> bool:
        """Whether `version` of the committer `app` is there, or None of the folder's appends after the one before.

        False also where that is not known: then `append` may be called again with the same rows, which count once."""

    def append(self, rows: pa.Table, app: str, version: int) -> None:
        """Append rows of `SLICE_SCHEMA` as `app`'s `version`."""

    def close(self) -> None:
        """Give up its connections. It may be used again."""
