"""The Delta table `history`, as a committer sees it: append with a version, and ask which version was the last.

deltalake records an application's versions and checks them only against commits that it did not know of, so the caller
asks before each append and after each error. A commit that meets another one is not retried by deltalake: after its own
retry a late success of the first try could not be told from a second append.

Properties of a new table, for an append a second per host:

- a checkpoint every 50 commits, so that a reader that starts replays at most 50 small files (of a table in a folder, by
  a process of its own: `checkpoints.py`);
- log retention 2 hours: of one host 7,200 commits and 144 checkpoints, with which an append takes 30 ms of processor
  time, where 11 ms are the least (20,000: 58 ms, 72,000: 160 ms, measured: many hosts better meet in a topic). What is
  older is deleted with every fiftieth append. A stream that falls further behind than this must rebuild its state;
- deleted data files (compaction is the monitor's part) are told of for 3 hours, longer than the log is kept for: each
  checkpoint has one for each second of these, 50 bytes long (6 hours, and the names that deltalake gives: 1.9 MB every
  fifty seconds). What deletes the files themselves asks for their age;
- statistics only for the columns that readers select by.

An append to a folder is on the disk when it returns: the plan of the next one forgets how it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, SchemaMismatchError, TableNotFoundError
from deltalake.transaction import AddAction, Transaction

from probes.log.commits import data_files
from probes.log.commits.checkpoints import Checkpoints
from probes.log.commits.numbers import number_of
from probes.log.errors import FolderCopied, HistoryConflict, HistoryMismatch, HistoryUnavailable
from probes.log.journals.segments import sync
from rules.vocabulary.slices import FORMAT_PROPERTY, FORMAT_VERSION, SLICE_SCHEMA
from rules.vocabulary.table_errors import in_words

T = TypeVar("T")

_STORE: Final = {"max_retries": "5", "retry_timeout": "15s", "connect_timeout": "5s", "timeout": "20s"}
"""deltalake's options for an object store. By default it asks a store that is away for three minutes, and a committer
that is to end waits for it; ours tries again anyway."""
_SELECTED_BY: Final = "cluster,topic_id,partition,process,op,slice,f,invoked,completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """Delta's properties of a new table; one that exists keeps its own. Durations as in "interval 2 hours"."""

    checkpoint_interval: int = 50
    log_retention: str = "interval 2 hours"
    deleted_file_retention: str = "interval 3 hours"

    def configuration(self) -> dict[str, str]:
        return {
            "delta.checkpointInterval": str(self.checkpoint_interval),
            "delta.logRetentionDuration": self.log_retention,
            "delta.enableExpiredLogCleanup": "true",
            "delta.deletedFileRetentionDuration": self.deleted_file_retention,
            "delta.dataSkippingStatsColumns": _SELECTED_BY,
            FORMAT_PROPERTY: str(FORMAT_VERSION),
        }


@dataclass(slots=True)
class History:
    """The table at `uri` (a path, or a URL with `storage_options`), made when it is first needed.

    Methods raise `HistoryUnavailable` for what may pass and `HistoryMismatch` for what does not."""

    uri: str
    properties: TableProperties = field(default_factory=TableProperties)
    storage_options: Mapping[str, str] | None = None
    _table: Any = None
    _seen: bool = False
    _own: tuple[int, Mapping[str, int]] | None = None
    """The table's version that was appended here last, and what of whom."""
    _checkpoints: Checkpoints | None = None
    """Who makes those of a table in a folder."""

    def __post_init__(self) -> None:
        if "://" not in self.uri:
            self._checkpoints = Checkpoints(Path(self.uri), self.properties.checkpoint_interval)

    def id(self, *, made: bool = False) -> str:
        """Delta's own id of the table: another one after it was deleted and made again. `made`: it has been before, and
        is not made anew where it is missing, which raises `HistoryMismatch`."""
        return str(self._do("read", lambda: self._open(made).metadata().id))

    def last_version(self, app: str) -> int | None:
        """The last version that `app` appended, as the table stands now."""
        return self._do("read", lambda: self._version_of(self._refreshed(), app))

    @property
    def knows(self) -> bool:
        return True

    def has(self, app: str, version: int, of: Path, after: int | None = None) -> bool:
        """Whether `version` of `app` was appended, now. Raises `HistoryMismatch` where neither that nor the one that it
        comes `after` was, the number before by default: `of` is the folder that `app` appends."""
        last = self.last_version(app) or 0
        if last in (version, version - 1 if after is None else after):
            return last == version
        number, planned = number_of(last), number_of(version)
        if number < planned:
            raise HistoryMismatch(
                f"the Delta table {self.uri} has append {number} of {of}, whose next is {planned}: "
                "one of them was put back to an older state, or another committer writes in its name"
            )
        raise FolderCopied(
            f"the Delta table {self.uri} has append {number} of {of}, which was not made from there: a copy of this "
            "folder is, or was, at work, or it was put back to an older state. Where a copy is, stop one of the two; "
            "else move this folder away, so that its probes begin a run of their own"
        )

    def append(self, rows: pa.Table, app: str, version: int, starts: Collection[int] = ()) -> None:
        """Append rows of `SLICE_SCHEMA` as `app`'s `version`. After an error, `last_version` tells whether it was done.

        `last_version` must have been asked since the last append of anybody, else the append may fail for that."""
        # deltalake would look for expired log files after each commit, among all that there are.
        tidy = number_of(version) % self.properties.checkpoint_interval == 0
        self._append(rows, {app: version}, tidy=tidy)

    def last_versions(self, apps: Iterable[str]) -> dict[str, int]:
        """The last version of each, 0 for none, as the table stands now: an append that follows is made upon that."""
        table = self._do("read", self._refreshed)
        return self._do("read", lambda: {app: self._version_of(table, app) or 0 for app in apps})

    def append_of(self, rows: pa.Table, versions: Mapping[str, int]) -> None:
        """As `append`, of several: each with its version."""
        tidy = (self._do("read", lambda: self._open().version()) + 1) % self.properties.checkpoint_interval == 0
        self._append(rows, versions, tidy=tidy)

    def close(self) -> None:
        """Forget what was read of it."""
        self._table = self._own = None
        if self._checkpoints is not None:
            self._checkpoints.close()

    def _append(self, rows: pa.Table, versions: Mapping[str, int], *, tidy: bool) -> None:
        transactions = [Transaction(app, version) for app, version in versions.items()]
        properties = CommitProperties(max_commit_retries=0, app_transactions=transactions)
        with_it = self._checkpoints is None or self._checkpoints.failed
        after = PostCommitHookProperties(create_checkpoint=with_it, cleanup_expired_logs=tidy)
        version = self._do("append to", lambda: _append(self._open(), self.uri, rows, properties, after))
        self._own = (version, dict(versions))
        if self._checkpoints is not None:
            self._checkpoints.committed(version)

    def _version_of(self, table: Any, app: str) -> int | None:
        """deltalake looks for it in all commits since the last checkpoint, which it reads at once, a thread for each:
        dozens, of which each next question keeps some awake. Where nobody has committed since our own it is known."""
        if self._own is not None and self._own[0] == table.version() and app in self._own[1]:
            return self._own[1][app]
        return table.transaction_version(app)  # type: ignore[no-any-return]

    def _open(self, made: bool = False) -> Any:
        if self._table is None:
            given = dict(self.storage_options or {})
            options = (_STORE | given if "://" in self.uri else given) or None
            try:
                table = DeltaTable(self.uri, storage_options=options)
            except TableNotFoundError:
                if self._seen:
                    raise OSError("it was there, and is gone") from None  # as with its disk, for a while
                if made:
                    raise HistoryMismatch(
                        f"what the journals hold belongs to another probe log than {self.uri}, where there is none: "
                        "use the old one again, or an empty journal folder"
                    ) from None
                table = self._create(options)
            self._adapt(table)
            self._table, self._seen = table, True
        return self._table

    def _refreshed(self) -> Any:
        if self._checkpoints is not None and self._checkpoints.news():
            self._table = None
        if self._table is not None:
            self._table.update_incremental()
        return self._open()

    def _create(self, options: dict[str, str] | None) -> Any:
        if "://" not in self.uri:
            Path(self.uri).mkdir(parents=True, exist_ok=True)
        made = DeltaTable.create(
            self.uri,
            schema=Schema.from_arrow(table_schema()),
            mode="ignore",
            partition_by=["date"],
            name="history",
            description="Offsetwatch's probe log: one row per operation and partition",
            configuration=self.properties.configuration(),
            storage_options=options,
            raise_if_key_not_exists=False,
        )
        if "://" not in self.uri:
            data_files.sync_commit(Path(self.uri), 0)  # without it nobody reads those that follow
            sync(Path(self.uri))
        return made

    def _adapt(self, table: Any) -> None:
        """Give a table that an earlier version made the columns that it lacks."""
        told = table.metadata().configuration.get(FORMAT_PROPERTY, "1")  # an older one does not tell, and has the first
        if told != str(FORMAT_VERSION):
            raise HistoryMismatch(
                f"the Delta table {self.uri} has format {told} of the probe log, and this version of Offsetwatch "
                f"writes format {FORMAT_VERSION}: use the version that made it, or another table"
            )
        ours = Schema.from_arrow(table_schema()).fields
        theirs = {f.name: _shape(f.type) for f in table.schema().fields}
        if other := [f.name for f in ours if theirs.get(f.name, _shape(f.type)) != _shape(f.type)]:
            raise HistoryMismatch(f"the Delta table {self.uri} has another type in column {other[0]!r}")
        if table.metadata().partition_columns != ["date"]:
            raise HistoryMismatch(f"the Delta table {self.uri} is not a probe log: it is not partitioned by date")
        if lacking := [f for f in ours if f.name not in theirs]:
            table.alter.add_columns([Field(f.name, f.type, nullable=True) for f in lacking])

    def _do(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except (HistoryMismatch, SchemaMismatchError) as mismatch:
            self._table = self._own = None
            raise HistoryMismatch(str(mismatch)) from mismatch
        except CommitFailedError as conflict:
            # The table object is still good: it only has to read what came in between.
            raise HistoryConflict(f"cannot {what} the Delta table {self.uri}: others were first") from conflict
        except Exception as error:
            # deltalake raises DeltaError, OSError and bare Exceptions for storage; whatever it was, begin anew.
            self._table = self._own = None
            raise HistoryUnavailable(f"cannot {what} the Delta table {self.uri}: {in_words(error)}") from error


def _append(table: Any, uri: str, rows: pa.Table, properties: CommitProperties, after: PostCommitHookProperties) -> int:
    """The version of the table that it is; without retries that is the next one, or the commit fails."""
    version = int(table.version()) + 1
    if "://" in uri and rows.num_rows:
        write_deltalake(table, rows, mode="append", commit_properties=properties, post_commithook_properties=after)
        return version
    _commit(table, data_files.write(Path(uri), rows, _SELECTED_BY.split(",")), properties, after)
    if "://" not in uri:
        data_files.sync_commit(Path(uri), version)  # the table's object does not know of it yet
    return version


def _commit(table: Any, files: list[AddAction], properties: CommitProperties, after: PostCommitHookProperties) -> None:
    table.create_write_transaction(
        files, "append", table.schema(), ["date"], commit_properties=properties, post_commithook_properties=after
    )


def table_schema() -> pa.Schema:
    """`SLICE_SCHEMA` as the table has it: Delta knows no NOT NULL inside of lists."""
    return pa.schema([pa.field(f.name, _relaxed(f.type), f.nullable) for f in SLICE_SCHEMA])


def _relaxed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_relaxed(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, _relaxed(kind.field(i).type)) for i in range(kind.num_fields)])
    return kind


def _shape(kind: Any) -> Any:
    """A Delta type without what it says of nulls, which may differ between the writers of a table."""
    return _without_nullability(orjson.loads(kind.to_json()))


def _without_nullability(kind: Any) -> Any:
    if isinstance(kind, dict):
        left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {name: _without_nullability(value) for name, value in kind.items() if name not in left_out}
    if isinstance(kind, list):
        return [_without_nullability(one) for one in kind]
    return kind
