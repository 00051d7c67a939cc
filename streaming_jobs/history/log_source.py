"""The probe log as a streaming source of Spark's: its commits are read here, and its rows come as bundles.

Delta's own source is made for tables of any kind: for each micro-batch it makes a snapshot of the table, which reads
every commit since the last checkpoint through a Spark job, and it took a quarter of a batch. A log that is only
appended to needs less: the next commit is a file whose name is known. So one look for that file is all that a poll
costs, and the files that a commit added are read as Arrow columns by the tasks that bundle their rows.

Spark runs a reader's planning half (`latestOffset`, `partitions`) in a Python process of its own and its `read` in its
workers. An offset is {"version": v, "file": n}: every commit before v has been read, and the first n files of v.

What a commit did decides what is read of it, as with Delta's `skipChangeCommits`: files that were added with new rows
are read; a commit that removed rows adds none that are new (ageing), and files of `dataChange` false hold rows that
were read before (compaction). Each added file is read once and whole, or the batch fails.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from streaming_jobs.errors import GONE, NotShared
from streaming_jobs.history.block import BUNDLE_DDL, Block
from streaming_jobs.history.holding import Holding
from streaming_jobs.location import TableLocation, names, table_location

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "offsetwatch-history"
_MAPPING: Final = "delta.columnMapping.mode"
_TASK_BYTES: Final = 16 << 20
_OPEN_BYTES: Final = 64 << 10
"""A task reads this much; to open a file counts as so many bytes."""
_LISTED_EVERY: Final = 50
"""Looks in vain for the next commit after which the log's folder is listed: it may have been taken away."""
_ASKED_EVERY: Final = 0.5
"""Seconds between two questions to an object store for the next commit: each costs."""
_PASSED_OVER: Final = 20
"""Commits without new rows, after which an offset moves on all the same."""

Offset = dict[str, int]


@dataclass(frozen=True, slots=True)
class Added:
    """A data file that a commit added: its path below the table's folder, bytes, and rows where the commit tells."""

    path: str
    size: int
    rows: int | None


class Blocks(InputPartition):
    """What one task reads, in order."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)


def commit_name(version: int) -> str:
    """The name of a commit in the table's `_delta_log`."""
    return f"{version:020d}.json"


def newest_commit(log: TableLocation) -> int:
    """The newest version whose commit is in the folder, -1 where there is none."""
    return max((int(name[:20]) for name in names(log) if len(name) == 25 and name.endswith(".json")), default=-1)


def added(commit: str) -> list[Added]:
    """The files with new rows of one commit's text, in its order. Raises ValueError where the table has become one
    whose files do not hold just its rows."""
    files: list[Added] = []
    for line in filter(None, commit.split("\n")):
        action = json.loads(line)
        if (one := action.get("remove")) and one.get("dataChange", True):
            return []
        if (one := action.get("metaData")) and one.get("configuration", {}).get(_MAPPING, "none") != "none":
            raise ValueError("its columns have been given other names")
        if (one := action.get("add")) and one.get("dataChange", True):
            if one.get("deletionVector"):
                raise ValueError(f"{one['path']} comes with a deletion vector")
            rows = json.loads(one["stats"]).get("numRecords") if one.get("stats") else None
            files.append(Added(unquote(one["path"]), int(one["size"]), rows))
    return files


def split(files: Sequence[Added], root: TableLocation) -> list[Blocks]:
    """The files as the input of tasks, each of about `_TASK_BYTES`; large files are cut."""
    tasks: list[list[Block]] = [[]]
    filled = 0
    for file in files:
        path = str(root / file.path)
        cuts = [*range(0, file.size, _TASK_BYTES), file.size] if file.size > _TASK_BYTES else [0, file.size]
        for start, end in pairwise(cuts):
            if tasks[-1] and filled + end - start + _OPEN_BYTES > _TASK_BYTES:
                tasks.append([])
                filled = 0
            filled += end - start + _OPEN_BYTES
            tasks[-1].append(Block(path, start, end, file.rows if len(cuts) == 2 else None))
    return [Blocks(blocks) for blocks in tasks if blocks]


class ProbeLog(DataSource):
    """The source by its options: `path` of the table, `version` to begin with, `files` and `bytes` of a batch,
    `checkpoint`, the folder of the query's, and the seconds of `holding`, `hold` and `alert`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return BUNDLE_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ProbeLogReader(self.options)


class ProbeLogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._root = table_location(options["path"])
        self._log = self._root / "_delta_log"
        self._checkpoint = table_location(options.get("checkpoint", options["path"]))
        self._begin = int(options["version"])
        self._files, self._bytes = int(options["files"]), int(options["bytes"])
        self._holding = Holding(float(options.get("hold", 0)), float(options.get("alert", 0)))
        self._last: int | None = None  # the version that a query over what is there ends with
        self._newest = -1
        self._in_vain = 0
        self._asked = -_ASKED_EVERY
        self._read: dict[int, list[Added]] = {}

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"version": self._begin, "file": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(self._files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = newest_commit(self._log)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """As far as one batch reads from `start` on: to the end of what is there, or to the bound in files or bytes;
        one file at least. Nowhere while all that is there waits for more (`holding`)."""
        self._forget_before(start["version"])
        bounded = isinstance(limit, ReadMaxFiles)
        version, index = start["version"], start["file"]
        files = size = 0
        while (self._last is None or version <= self._last) and (there := self._next(version)) is not None:
            if self._last is None and there and self._holding.awaits(version):
                blocks = [block for task in split(there, self._root) for block in task.blocks]
                self._holding.look(version, blocks, version - start["version"])
            for number in range(index, len(there)):
                if bounded and files and (files >= self._files or size + there[number].size > self._bytes):
                    return {"version": version, "file": number}
                files += 1
                size += there[number].size
            version, index = version + 1, 0
        if files and self._last is None and self._holding.holds():
            return start
        # An offset that moves makes a batch: for commits without new rows only where they have become many, lest
        # retention takes the one that a restart would begin with.
        return {"version": version, "file": 0} if files or version - start["version"] > _PASSED_OVER else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        files: list[Added] = []
        for version in range(start["version"], end["version"] + (end["file"] > 0)):
            there = self._commit(version, patient=True)
            if there is None:
                raise FileNotFoundError(f"{GONE} commit {version}")
            first = start["file"] if version == start["version"] else 0
            files += there[first : end["file"] if version == end["version"] else None]
        return split(files, self._root)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streaming_jobs.history.bundles import bundle_blocks  # not for the half that plans: it is small

        assert isinstance(partition, Blocks)
        for folder in (self._log, self._checkpoint):
            if isinstance(folder, Path) and not folder.is_dir():  # and not that retention has taken the file
                raise NotShared(f"{folder} is not to be seen by Spark's worker on {socket.gethostname()}")
        return bundle_blocks(partition.blocks)

    def _next(self, version: int) -> list[Added] | None:
        """What the commit that a batch would read next added; None where it is not there yet. An object store is not
        asked all the time, and where it does not answer, it is asked again: what is there stays there."""
        if isinstance(self._log, Path) or self._last is not None or version in self._read:
            return self._commit(version)
        now = time.monotonic()
        if now - self._asked < _ASKED_EVERY:
            return None
        try:
            there = self._commit(version)
        except FileNotFoundError:
            raise
        except OSError:
            there = None
        if there is None:
            self._asked = now
        return there

    def _commit(self, version: int, *, patient: bool = False) -> list[Added] | None:
        """What a commit added; None where it is not there yet. Raises FileNotFoundError where it is there no longer."""
        if (known := self._read.get(version)) is not None:
            return known
        try:
            commit = self._log / commit_name(version)
            text = commit.read_text() if isinstance(commit, Path) else commit.read_text(patient=patient)
        except FileNotFoundError:
            if self._is_gone(version):
                raise FileNotFoundError(f"{GONE} commit {version}") from None
            return None
        self._in_vain = 0
        files = self._read[version] = added(text)
        return files

    def _is_gone(self, version: int) -> bool:
        """Whether later commits are there although this one is not; looked at now and then."""
        if self._in_vain % _LISTED_EVERY == 0:
            self._newest = newest_commit(self._log)
        self._in_vain += 1
        # It may have come together with the later ones, between the look for it and theirs.
        return self._newest > version and not (self._log / commit_name(version)).exists()

    def _forget_before(self, version: int) -> None:
        for old in [known for known in self._read if known < version]:
            del self._read[old]
