"""The probe log as a stream: Delta table `history`, commit after commit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from rules.vocabulary.slices import SLICE_SCHEMA
from rules.vocabulary.table_errors import in_words
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import HistoryMissing, TableError
from streaming_jobs.history.format import require_format
from streaming_jobs.history.handover import RebuildPlan
from streaming_jobs.history.layout import by_delta
from streaming_jobs.history.log_source import NAME, ProbeLog, commit_name, newest_commit
from streaming_jobs.history.reachable import require_reachable
from streaming_jobs.location import TableLocation, TableUrl, absolute, impatience, opened
from streaming_jobs.session import planners
from streaming_jobs.spark_conf import file_url


def await_history(
    path: TableLocation, seconds: float, *, stopping: Callable[[], bool] = lambda: False, interval: float = 0.25
) -> DeltaTable:
    """The table once it exists. Raises `HistoryMissing` after `seconds`, or when `stopping` says so, and `TableError`
    where its columns are not those of the probe log."""
    require_reachable(path)
    deadline = time.monotonic() + seconds
    while (table := _table(path)) is None:
        if time.monotonic() >= deadline or stopping():
            raise HistoryMissing(f"There is no probe log in {path}: no probe host's committer has written to it yet.")
        time.sleep(interval)
    names = {field.name for field in table.schema().fields}
    require_format(table, path)
    absent = [name for name in SLICE_SCHEMA.names if name not in names]
    if absent:
        raise TableError(f"The table in {path} is not a probe log: it has no column {absent[0]}.")
    return table


def _table(path: TableLocation) -> DeltaTable | None:
    try:
        return opened(path)
    except (DeltaError, OSError) as error:
        raise TableError(f"The probe log in {path} cannot be read: {in_words(error)}.") from error


def first_version(path: TableLocation) -> int | None:
    """The version to start a fresh stream at: 0 while the table's first commit is still there, so that rows come in
    the order of the commits; else None, which is the table as it stands, in whatever order compaction left it.

    Raises `TableError` where nobody says."""
    try:
        return 0 if (path / "_delta_log" / commit_name(0)).is_file() else None
    except OSError as error:
        raise TableError(f"The probe log in {path} cannot be read: {in_words(error)}.") from error


class NewestVersion:
    """The newest version of the log, asked for after every batch. A folder is listed; of an object store, where a list
    of thousands takes many requests, only what is new is asked for."""

    def __init__(self, path: TableLocation) -> None:
        self._path = path
        self._table: DeltaTable | None = None
        self._lock = threading.Lock()  # the first batch, and the watch over them, have threads of their own
        self.known: int | None = None
        """What it was when it was asked last."""

    def version(self) -> int:
        """-1 where there is none. Raises `OSError` and Delta's errors."""
        if isinstance(self._path, Path):
            self.known = newest_commit(self._path / "_delta_log")
            return self.known
        with self._lock:
            if self._table is None:
                self._table = DeltaTable(str(self._path), storage_options=impatience(self._path))
            else:
                self._table.update_incremental()
            self.known = int(self._table.version())
            return self.known


_ALERT: Final = 10.0
"""Seconds after which whatever stands out has been judged, with the patience for what is missing before them."""


def is_plain(path: TableLocation) -> bool:
    """Whether the table's files hold its rows and nothing else, under their own names. Raises `TableError`."""
    table = _table(path)
    if table is None:
        raise TableError(f"The probe log in {path} is gone.")
    features = table.protocol().reader_features or []
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return mapping == "none" and not {"deletionVectors", "columnMapping"} & set(features)


def stream(spark: SparkSession, config: JobConfig, after: RebuildPlan | None = None) -> DataFrame:
    """`history` as it is committed: as bundles where its files are plain (`log_source`), else its rows, from Delta's
    own source. `after`: the rebuild whose version a new query goes on from.

    Ageing and compaction of the table do not disturb it."""
    deltas = by_delta(config.checkpoint_path)  # a query goes on with the source that it began with
    if is_plain(config.history_path) if deltas is None else not deltas:
        return _own(spark, config, after)
    return _deltas(spark, config, after)


def _own(spark: SparkSession, config: JobConfig, after: RebuildPlan | None) -> DataFrame:
    path = absolute(config.history_path)
    # A query that has begun goes on from its own offsets, whatever became of the first commits.
    version = after.version + 1 if after is not None else config.starting_version or 0
    planners.wanted(spark)
    spark.dataSource.register(ProbeLog)
    options = {
        "path": path,
        "version": version,
        "files": config.max_files,
        "bytes": config.max_bytes,
        "checkpoint": absolute(config.checkpoint_path),
        "hold": config.hold,
        "alert": config.objectives.grace + config.objectives.delivery + _ALERT,
    }
    return spark.readStream.format(NAME).options(**{name: str(value) for name, value in options.items()}).load()


def _deltas(spark: SparkSession, config: JobConfig, after: RebuildPlan | None) -> DataFrame:
    path = config.history_path
    if isinstance(path, TableUrl):
        raise TableError(
            f"The probe log at {path} has deletion vectors or renamed columns: to read these needs a local probe log."
        )
    reader = (
        spark.readStream.format("delta")
        .option("skipChangeCommits", "true")
        .option("maxFilesPerTrigger", str(config.max_files))
        .option("maxBytesPerTrigger", str(config.max_bytes))
    )
    version = config.starting_version if config.starting_version is not None else first_version(path)
    if after is not None:
        version = after.version
    if version is not None:
        reader = reader.option("startingVersion", str(version))
    frame = reader.load(file_url(path))
    if after is not None and after.files:
        # Delta begins at no commit that is not there yet, and the next one may not be: so at the last one that was
        # rebuilt, without the files it added.
        name = sql.element_at(sql.split(sql.input_file_name(), "/"), -1)
        frame = frame.where(~name.isin(list(after.files)))
    return frame.select(*SLICE_SCHEMA.names)


def versions_behind(latest: int, offset: str | Mapping[str, Any] | None) -> int:
    """How many of the table's commits the stream has not read to their end. `offset` is the source's end offset, as
    Spark reports it; a commit read in part counts as unread."""
    told = json.loads(offset) if isinstance(offset, str) else offset
    if not told:
        return latest + 1
    # The version that it will read next, or reads now; by the name that Delta's source has for it.
    reached = int(told["version"] if "version" in told else told["reservoirVersion"])
    return max(0, latest + 1 - reached)
