"""How a checkpoint is laid out: what its source's offsets, its grouping key and its state's columns mean to Spark.

Spark compares schemas when a query begins and would end it by an error of its own; and it keeps the absolute path of
the state's schema, so that it does not find it again where the data folder was moved, or restored elsewhere. So a
checkpoint says which layout it has and where it was made, and one that says another, or nothing, is rebuilt
(`rebuild.reason_to_rebuild`) before Spark looks at it. What the checks themselves keep has a format of its own
(`UnknownFormat`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

LAYOUT: Final = 3
"""Another one with each change of the stream's source, of the operator's key or of its state's schema."""

_NAME: Final = "layout"


def has_begun(checkpoint: Path) -> bool:
    """Whether a query has planned a batch in this checkpoint."""
    return any((checkpoint / "offsets").glob("[0-9]*"))


def write_layout(checkpoint: Path, place: Path | None = None) -> None:
    """The checkpoint is laid out as this version does it, for queries that will find it at `place`: where it is."""
    write_json(checkpoint / _NAME, {"layout": LAYOUT, "place": str((place or checkpoint).absolute())})


def reason_against(checkpoint: Path, place: Path | None = None) -> str | None:
    """Why a query of this version, which will find the checkpoint at `place` (where it is), cannot go on with it, if
    so, as a phrase."""
    try:
        told = json.loads((checkpoint / _NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        told = None
    if not isinstance(told, dict) or told.get("layout") != LAYOUT:
        return "its checkpoint was laid out by another version of the job"
    if told.get("place") != str((place or checkpoint).absolute()):
        return f"its data folder was moved: the checkpoint was made at {told.get('place')}"
    return None


def by_delta(checkpoint: Path) -> bool | None:
    """Whether the query's offsets are those of Delta's own source (`source.stream`); None where it has none."""
    planned = [int(one.name) for one in (checkpoint / "offsets").glob("[0-9]*")]
    if not planned:
        return None
    return "reservoirVersion" in (checkpoint / "offsets" / str(max(planned))).read_text(encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """A file of one value: all of it or nothing, also after a crash."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
