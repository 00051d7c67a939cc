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
from typing import TYPE_CHECKING, Any, Final

from streaming_jobs.history.checkpoint_damage import damage
from streaming_jobs.location import TableLocation, TableUrl, absolute, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYOUT: Final = 3
"""Another one with each change of the stream's source, of the operator's key or of its state's schema."""

_NAME: Final = "layout"


def has_begun(checkpoint: TableLocation) -> bool:
    """Whether a query has planned a batch in this checkpoint."""
    return bool(numbers(checkpoint / "offsets"))


def make_ready(spark: SparkSession, checkpoint: TableLocation) -> None:
    """Prepare the checkpoint for a query that is to begin or to go on there."""
    if isinstance(checkpoint, Path):
        checkpoint.mkdir(parents=True, exist_ok=True)
    if has_begun(checkpoint):
        return
    if isinstance(checkpoint, TableUrl):
        # Hadoop keeps objects for folders, which deltalake does not see to delete them; Spark takes them for a state.
        for name in _SPARKS:
            path = spark._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{name}")  # type: ignore[union-attr]
            path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).delete(path, True)
    write_layout(checkpoint)


_SPARKS: Final = ("metadata", "sources", "offsets", "commits", "state")


def write_layout(checkpoint: TableLocation, place: TableLocation | None = None) -> None:
    """The checkpoint is laid out as this version does it, for queries that will find it at `place`: where it is."""
    write_json(checkpoint / _NAME, {"layout": LAYOUT, "place": str(absolute(place or checkpoint))})


def leave(checkpoint: Path) -> None:
    """The checkpoint is of no use any more: another monitor went on, from one of its own."""
    if checkpoint.is_dir():
        write_json(checkpoint / _NAME, {"layout": LAYOUT, "place": str(absolute(checkpoint)), "left": True})


def reason_against(checkpoint: TableLocation, place: TableLocation | None = None) -> str | None:
    """Why a query of this version, which will find the checkpoint at `place` (where it is), cannot go on with it, if
    so, as a phrase."""
    try:
        told = json.loads((checkpoint / _NAME).read_text())
    except (FileNotFoundError, ValueError):
        told = None
    if not isinstance(told, dict) or told.get("layout") != LAYOUT:
        return "its checkpoint was laid out by another version of the job"
    if told.get("left"):
        return "another monitor has gone on since"
    if told.get("place") != str(absolute(place or checkpoint)):
        return f"its data folder was moved: the checkpoint was made at {told.get('place')}"
    if isinstance(checkpoint, Path) and (damaged := damage(checkpoint)) is not None:
        return f"its checkpoint is damaged, as by the loss of the host: {damaged}"
    return None


def by_delta(checkpoint: TableLocation) -> bool | None:
    """Whether the query's offsets are those of Delta's own source (`source.stream`); None where it has none."""
    planned = numbers(checkpoint / "offsets")
    if not planned:
        return None
    return "reservoirVersion" in (checkpoint / "offsets" / str(max(planned))).read_text()


def write_json(path: TableLocation, value: Any) -> None:
    """A file of one value: all of it or nothing, also after a crash."""
    if isinstance(path, TableUrl):
        path.write_text(json.dumps(value))
        return
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
