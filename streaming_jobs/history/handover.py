"""The rebuilt state on disk, and how it becomes a query's: which files, and in which order, so that a crash at any
moment leaves either an unfinished rebuild, which goes on, or a checkpoint that carries its own beginning.

    <checkpoint>.rebuild/plan.json          a rebuild is under way; what it reads and from when on
    <checkpoint>.rebuild/progress.json      how far it has come, with the name of
    <checkpoint>.rebuild/state-<n>.parquet  the state after n pieces (`operator.STATE_DDL`)
    <checkpoint>.rebuild/checkpoint/        the new checkpoint, once complete; it is then renamed into place
    <checkpoint>/handover/                  plan.json and state.parquet: where the query of this checkpoint began
    <checkpoint>/layout                     which version's query can go on with it (`layout`)

Of a checkpoint in an object store the rebuild's folder is on this machine's disk, and nothing can be renamed: the old
checkpoint loses its layout first, and the new one gets it last, so that whoever finds it in between rebuilds.

The old checkpoint is moved away only when the new one is complete. A checkpoint that is deleted takes its handover
with it, and the next start rebuilds again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from streaming_jobs.history.layout import reason_against, write_json, write_layout
from streaming_jobs.history.replay import Piece
from streaming_jobs.location import TableLocation, TableUrl, numbers

STATE_SCHEMA: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("name", pa.string()),
        ("value", pa.binary()),
        ("failed", pa.string()),
        ("behind", pa.int64()),
    ]
)
"""`operator.STATE_DDL` in Arrow's terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """One rebuild: of the probe log at `version`, whose own commit added the data files `files`. When it began, the
    job's tables had the versions `tables`, and each partition (cluster, topic id, partition) had been judged up to the
    log time (microseconds) in `reached`."""

    id: str
    reason: str
    version: int
    files: tuple[str, ...]
    tables: Mapping[str, int]
    reached: tuple[tuple[str, str, int, int], ...]
    pieces: tuple[Piece, ...]


_PLAN: Final = TypeAdapter(RebuildPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildProgress:
    """How many pieces are done, the file of the state after them, and what else is needed to go on."""

    done: int = 0
    state: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def is_under_way(folder: Path) -> bool:
    """Whether a rebuild has begun in its folder, and is not done."""
    return (folder / "plan.json").is_file()


class Workspace:
    """The folder of a rebuild beside its checkpoint."""

    def __init__(self, checkpoint: TableLocation, folder: Path | None = None) -> None:
        """`folder`: unless it is the one beside a checkpoint on this disk."""
        self.checkpoint = checkpoint
        if folder is None:
            assert isinstance(checkpoint, Path)
            folder = checkpoint.with_name(f"{checkpoint.name}.rebuild")
        self.folder = folder

    def plan(self) -> RebuildPlan | None:
        """The rebuild that is under way, if any."""
        try:
            told = json.loads((self.folder / "plan.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return _PLAN.validate_python(told)

    def begin(self, plan: RebuildPlan) -> None:
        """A new rebuild; what an older one left is deleted."""
        self.discard()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "plan.json", asdict(plan))

    def discard(self) -> None:
        """The rebuild is over, or given up."""
        (self.folder / "plan.json").unlink(missing_ok=True)  # first: without it the rest means nothing
        shutil.rmtree(self.folder, ignore_errors=True)

    def progress(self) -> RebuildProgress:
        try:
            return RebuildProgress(**json.loads((self.folder / "progress.json").read_text()))
        except (FileNotFoundError, ValueError):
            return RebuildProgress()

    def save(self, done: int, state: pa.Table, more: Mapping[str, Any]) -> None:
        """The state after `done` pieces; replaces the one before as a whole."""
        name = f"state-{done}.parquet"
        pq.write_table(state, self.folder / name, compression="zstd")
        write_json(self.folder / "progress.json", {"done": done, "state": name, "more": more})
        for old in self.folder.glob("state-*.parquet"):
            if old.name != name:
                old.unlink()

    def state(self, progress: RebuildProgress) -> pa.Table:
        """The state that `save` wrote."""
        if progress.state is None:
            return STATE_SCHEMA.empty_table()
        return pq.read_table(self.folder / progress.state, schema=STATE_SCHEMA)

    def handed_over(self, plan: RebuildPlan) -> bool:
        """Whether the checkpoint is the one that this rebuild made."""
        began = handover(self.checkpoint)
        return began is not None and began.plan.id == plan.id and reason_against(self.checkpoint) is None

    def complete(self) -> bool:
        """Whether the new checkpoint is there, and only has to be put into its place."""
        return reason_against(self.folder / "checkpoint", self.checkpoint) is None

    def prepare(self, plan: RebuildPlan, state: pa.Table) -> None:
        """Make the new checkpoint."""
        made = self.folder / "checkpoint.part"
        shutil.rmtree(made, ignore_errors=True)
        inside = made / "handover"
        inside.mkdir(parents=True)
        pq.write_table(state, inside / "state.parquet", compression="zstd")
        write_json(inside / "plan.json", asdict(plan))
        write_layout(made, self.checkpoint)
        shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)  # another version's
        made.rename(self.folder / "checkpoint")

    def install(self) -> None:
        """Put the new checkpoint into its place, and end the rebuild."""
        replaced = self.folder / "replaced"
        if (self.folder / "checkpoint").is_dir():
            shutil.rmtree(replaced, ignore_errors=True)
            if isinstance(self.checkpoint, TableUrl):
                _upload(self.folder / "checkpoint", self.checkpoint)
            else:
                if self.checkpoint.exists():
                    self.checkpoint.rename(replaced)
                (self.folder / "checkpoint").rename(self.checkpoint)
        self.discard()


def _upload(made: Path, checkpoint: TableUrl) -> None:
    """The new checkpoint instead of the old one."""
    (checkpoint / "layout").write_text("{}")
    checkpoint.delete_tree()
    for name in ("handover/state.parquet", "handover/plan.json", "layout"):
        (checkpoint / name).write_bytes((made / name).read_bytes())


@dataclass(frozen=True, slots=True)
class Handover:
    """Where the query of a checkpoint began. `state` is None once its first batch is committed."""

    plan: RebuildPlan
    state: TableLocation | None


def handover(checkpoint: TableLocation) -> Handover | None:
    """The beginning that the checkpoint carries, if it was made by a rebuild."""
    try:
        told = json.loads((checkpoint / "handover" / "plan.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    began = bool(numbers(checkpoint / "commits"))
    return Handover(_PLAN.validate_python(told), None if began else checkpoint / "handover" / "state.parquet")
