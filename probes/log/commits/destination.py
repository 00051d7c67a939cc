"""Where a committer's appends go: the Delta table itself, or a topic from which somebody carries them there."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import pyarrow as pa


class Destination(Protocol):
    """Takes each append of a committer once, in order. Methods raise `HistoryUnavailable` for what may pass and
    `HistoryMismatch` for what does not."""

    @property
    def uri(self) -> str:
        """What it is called in messages."""

    @property
    def knows(self) -> bool:
        """Whether `has` tells what is there, or only what this object has appended."""

    def id(self, *, made: bool = False) -> str:
        """Its own id: another one after it was deleted and made again. `made`: it has been made before; where it is
        missing since, one that `knows` what it has is not made anew."""

    def has(self, app: str, version: int, of: Path, after: int | None = None) -> bool:
        """Whether `version` (`numbers.recorded`) of the committer `app` is there. `of`: the folder that it appends.

        Where the destination `knows`, another one than it or the one that it comes `after` (by default the number
        before) is a `HistoryMismatch`, `FolderCopied` where that is not older; else False may mean that nobody knows:
        then `append` is called again with the same rows, which count once."""

    def append(self, rows: pa.Table, app: str, version: int, starts: Collection[int] = ()) -> None:
        """Append rows of `SLICE_SCHEMA` as `app`'s `version`. `starts`: those that the folder has had. Where `has` does
        not know, the first append of a start raises `FolderCopied` where another one than these was the last."""

    def close(self) -> None:
        """Give up its connections. It may be used again."""
