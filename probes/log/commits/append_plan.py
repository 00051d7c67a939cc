"""What the next append to the probe log consists of, decided and on disk before it is made.

A plan is version n of everything this host's committer has ever appended: which bytes of which journals, and the mark
rows. The Delta table records n with the append. After a crash the plan is carried out again, byte for byte, or skipped,
as the table says. Between two appends the last plan is all the state that the committer has: the next one begins where
it ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import cramjam
import orjson

from probes.log.commits.confirmations import Moment
from probes.log.commits.numbers import recorded
from probes.log.errors import HistoryMismatch, JournalUnwritable
from probes.log.journals.segments import NEW, sync
from probes.log.rows import Row

PLAN: Final = "plan.json"
"""JSON, compressed with zstd: it is written anew with each append, and says the same of each partition. An earlier
version did not compress it."""
FORMAT: Final = 1
_COMPRESSED: Final = b"\x28\xb5\x2f\xfd"
"""What zstd begins with."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `start` to `end` of one life's journal. `until` (microseconds of log time) is there once the life is over
    and wholly read: from then on the committer no longer vouches for it."""

    start: int
    end: int
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPlan:
    """`app`: the committer's name in the table, made with the folder. `marker`: the process id of its mark rows, which
    have slice numbers of their own, `counters`: (cluster, topic id, topic, partition, how many there are with this
    plan). `start`: which start of the committer has made the plan, `before`: which one the plan before. `current` are
    those counters' indices that are being marked, `held` when each of these last had a process (microseconds of log
    time). `marks`: packed rows by cluster."""

    app: str
    table: str
    """The Delta table's own id."""
    marker: int
    version: int
    now: int
    read: int = 0
    """Through when all journals are read to their ends, in microseconds of log time: `now`, but in a backlog. An
    earlier version did not tell."""
    parts: dict[str, Part] = field(default_factory=dict)
    counters: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    current: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    marks: dict[str, list[Row]] = field(default_factory=dict)
    confirmed: dict[str, Moment] = field(default_factory=dict)
    """When the cluster last told that a topic, by its id, is still there."""
    replaced: dict[str, Moment] = field(default_factory=dict)
    """The same of topics whose rows in this append are not counted, unless they had completed by then."""
    start: int = 0
    before: int = 0
    starts: list[int] = field(default_factory=list)
    """The newest of all, this one last."""
    claim: bool = False
    """It only says that its start goes on with the folder. Its marks are those of the plan before."""

    @property
    def recorded(self) -> int:
        """What the table has once it was carried out."""
        return recorded(self.start, self.version)

    @property
    def after(self) -> int:
        """What the table has until then."""
        return recorded(self.before, self.version - 1)


def save(folder: Path, plan: AppendPlan) -> None:
    """Replace the folder's plan; it is on disk when this returns. Raises `JournalUnwritable`."""
    new = folder / (PLAN + NEW)
    told = orjson.dumps({"format": FORMAT} | {one.name: getattr(plan, one.name) for one in fields(plan)})
    data = bytes(cramjam.zstd.compress(told, 1))
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.replace(folder / PLAN)
        sync(folder)
    except OSError as refused:
        raise JournalUnwritable(f"cannot write {folder / PLAN}: {refused.strerror}") from refused


def load(folder: Path) -> AppendPlan | None:
    """The folder's plan, None in a new folder. Raises `HistoryMismatch` for a file that is none of ours."""
    try:
        data = (folder / PLAN).read_bytes()
    except FileNotFoundError:
        return None
    try:
        plain = bytes(cramjam.zstd.decompress(data)) if data.startswith(_COMPRESSED) else data
        told: dict[str, Any] = orjson.loads(plain)
        if told.pop("format") != FORMAT:
            raise ValueError("it was written by another version")
        parts = {name: Part(**part) for name, part in told.pop("parts").items()}
        counters = [(c, i, t, p, n) for c, i, t, p, n in told.pop("counters")]
        confirmed, replaced = _moments(told.pop("confirmed", {})), _moments(told.pop("replaced", {}))
        return AppendPlan(parts=parts, counters=counters, confirmed=confirmed, replaced=replaced, **told)
    except (ValueError, TypeError, KeyError, AttributeError, cramjam.DecompressionError) as reason:
        raise HistoryMismatch(f"{folder / PLAN} cannot be read as a committer's plan: {reason}") from reason


def _moments(told: dict[str, list[Any]]) -> dict[str, Moment]:
    return {topic_id: (boot, mono, wall) for topic_id, (boot, mono, wall) in told.items()}
