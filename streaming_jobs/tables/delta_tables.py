"""The job's Delta tables on disk: created with their documentation, written once per batch, read back.

The tables are small and written often, so they are written by the `deltalake` package (milliseconds) and not through
Spark (the better part of a second). deltalake records an application's transactions but checks nothing: whoever
writes reads `transaction_version` first, and after any error, and skips what is there. An application id is
`<job>:<query id>:<table>` with the batch id as its version; a query that starts over with a new checkpoint has a new
query id, and its batches are not taken for the old ones. What is written outside batches has an application id of the
table's object that is open: an object store may lose the answer to a commit, and is asked again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import LeaseLost, TableError
from streaming_jobs.location import TableLocation, TableUrl, opened, readers
from streaming_jobs.tables import data_file
from streaming_jobs.tables.fence import APP, fence_of
from streaming_jobs.tables.file_hashes import complaint
from streaming_jobs.tables.schemas import SPECS, TableSpec

T = TypeVar("T")
Mode = Literal["append", "overwrite"]

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Written:
    """`replayed`: the table held this batch already, and nothing was written."""

    replayed: bool
    version: int


class Absent(TableError):
    """The table has not been created yet."""


class Table:
    """One of our tables, held open. Not safe for use from several threads at once; several objects are.

    Raises `TableError` where Delta says no, with the table's name and path."""

    def __init__(self, root: TableLocation, spec: TableSpec, *, create: bool = True) -> None:
        """`create`: where there is none yet. Raises `Absent` for one that is not to be created."""
        self.spec = spec
        self.path = root / spec.name
        self._own_app = uuid.uuid4().hex
        self._fence = fence_of(root)
        self._written = 0
        # What we wrote last ourselves need not be asked of a store: who wrote in the same name since makes ours fail.
        self._through: dict[str, int] = {}
        self._delta = self._translated("opened or created" if create else "opened", lambda: self._open(create))

    def _open(self, create: bool) -> DeltaTable:
        # Another process may create it in this moment, and the answer to our creating it be lost.
        for left in reversed(range(_ATTEMPTS)):
            try:
                there = opened(self.path)
                if there is not None:
                    return self._up_to_date(there, create)
                if not create:
                    raise Absent(f"There is no table {self.spec.name} in {self.path}.")
                return self._created()
            except DeltaError:
                if not left:
                    raise
        raise AssertionError

    def _created(self) -> DeltaTable:
        made = DeltaTable.create(
            str(self.path),
            self.spec.schema,
            mode="error",
            name=self.spec.name,
            description=self.spec.description,
            configuration=self.spec.properties,
            storage_options=readers(self.path),
        )
        if not isinstance(self.path, TableUrl):
            # What survives the loss of the host from then on is of no use without it.
            data_file.sync_commit(self.path, made.version())
            data_file.sync(self.path.parent)
        return made

    def _up_to_date(self, table: DeltaTable, create: bool) -> DeltaTable:
        """The table with the columns that an earlier version of it lacks; they are null in its rows. Also, unless it is
        only read, with what the properties say of statistics."""
        known = {field.name for field in table.schema().fields}
        added = [field.with_nullable(True) for field in self.spec.schema if field.name not in known]
        if added:
            table.alter.add_columns(list(DeltaSchema.from_arrow(pa.schema(added)).fields))
        wanted = {name: value for name, value in self.spec.properties.items() if name.startswith("delta.dataSkipping")}
        if create and not wanted.items() <= table.metadata().configuration.items():
            table.alter.set_table_properties(wanted)
        return table

    def _translated(self, verb: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except (DeltaError, OSError, pa.ArrowException) as error:
            why = (self._damage() if verb == "read" else None) or in_words(error)
            raise TableError(f"The table {self.spec.name} in {self.path} could not be {verb}: {why}.") from error

    def _damage(self) -> str | None:
        """The data file in a folder that cannot be read, if there is one: Delta's own errors name none."""
        for path in () if isinstance(self.path, TableUrl) else map(Path, self._delta.file_uris()):
            if not path.is_file():
                return f"its data file {path} is gone"
            if (why := complaint(path)) is not None:
                return f"its data file {path} is damaged ({why})"
        return None

    def write(
        self,
        rows: pa.Table,
        *,
        mode: Mode,
        app_id: str | None = None,
        batch: int | None = None,
    ) -> Written:
        """Write `rows`, exactly once for (app_id, batch) where these are given. Empty appends write nothing, and do not
        even look at the table: most of a batch's are."""
        if mode == "append" and not rows.num_rows:
            return Written(False, self._delta.version())
        if app_id is None or batch is None:
            self._written += 1
            app_id, batch = self._own_app, self._written
        return self._translated("written", lambda: self._once(rows, mode, app_id, batch))

    def _once(self, rows: pa.Table, mode: Mode, app_id: str, batch: int) -> Written:
        failed: Exception | None = None
        file: AddAction | None = None
        for _ in range(_ATTEMPTS):
            if self._fence is not None:
                self._fence.require()
            last = self._through.get(app_id) if isinstance(self.path, TableUrl) and failed is None else None
            if last is None:
                self._delta.update_incremental()
                self._require_term()
                last = self._delta.transaction_version(app_id)
            if last is not None and last >= batch:
                return Written(failed is None, self._delta.version())
            self._through.pop(app_id, None)
            done = CommitProperties(app_transactions=[Transaction(app_id, batch), *self._term()])
            try:
                if isinstance(self.path, TableUrl):
                    write_deltalake(self._delta, rows, mode=mode, commit_properties=done)
                else:
                    lasting = mode == "append"  # what is replaced with each batch is not worth a disk's time
                    file = data_file.write(self.path, rows, lasting=lasting) if file is None else file
                    before = self._delta.version()
                    self._delta.create_write_transaction([file], mode, self._delta.schema(), commit_properties=done)
                    if lasting:
                        self._delta.update_incremental()  # which the commit does not do
                        for version in range(before + 1, self._delta.version() + 1):
                            data_file.sync_commit(self.path, version)
                self._through[app_id] = batch
                return Written(False, self._delta.version())
            except CommitFailedError as error:  # another commit came between, or ours did and its answer was lost
                failed = error
        assert failed is not None
        raise failed

    def _term(self) -> list[Transaction]:
        """What fences a write."""
        return [] if self._fence is None else [Transaction(APP, self._fence.term)]

    def _require_term(self) -> None:
        """Raises `LeaseLost` where a later holder of the lease has been here: our clock may have stood still."""
        known = None if self._fence is None else self._delta.transaction_version(APP)
        if known is not None and self._fence is not None and known > self._fence.term:
            raise LeaseLost(f"Another monitor has taken the lease, and written in {self.path}.")

    def close_to_others(self) -> None:
        """Write our term, so that what an earlier holder of the lease has under way here is refused."""

        def act() -> None:
            for left in reversed(range(_ATTEMPTS)):
                self._delta.update_incremental()
                term = CommitProperties(app_transactions=self._term())
                try:
                    self._delta.create_write_transaction([], "append", self._delta.schema(), commit_properties=term)
                    return
                except CommitFailedError:
                    if not left:
                        raise

        self._translated("written", act)

    def version(self) -> int:
        def act() -> int:
            self._delta.update_incremental()
            return int(self._delta.version())

        return self._translated("read", act)

    def read(self, version: int | None = None) -> pa.Table:
        """All rows, now or at a version, as `spec.schema`, in no order."""

        def act() -> pa.Table:
            if version is None:
                self._delta.update_incremental()
            else:
                self._delta.load_as_version(version)
            return self._delta.to_pyarrow_table().select(self.spec.schema.names).cast(self.spec.schema)

        return self._translated("read", act)


def open_tables(root: TableLocation) -> dict[str, Table]:
    """All of the job's tables, created where they do not exist; in an object store all at once."""
    with ThreadPoolExecutor(len(SPECS) if isinstance(root, TableUrl) else 1, "tables") as threads:
        return dict(zip(SPECS, threads.map(lambda spec: Table(root, spec), SPECS.values()), strict=True))


def close_to_others(root: TableLocation) -> None:
    """What an earlier holder of the lease has under way in any of the tables is refused from here on."""
    tables = open_tables(root)
    with ThreadPoolExecutor(len(tables), "tables") as threads:
        for done in [threads.submit(table.close_to_others) for table in tables.values()]:
            done.result()


def open_table(root: TableLocation, name: str) -> Table:
    """One of the job's tables, created where it does not exist."""
    return Table(root, SPECS[name])


def read_table(root: TableLocation, name: str, version: int | None = None) -> pa.Table:
    """The rows of one of the job's tables, now or at a version of it; none where it does not exist yet (version -1)."""
    spec = SPECS[name]
    if version == -1:
        return spec.schema.empty_table()
    try:
        return Table(root, spec, create=False).read(version)
    except Absent:
        return spec.schema.empty_table()


def version_of(root: TableLocation, name: str) -> int:
    """The version of one of the job's tables, -1 where it does not exist yet."""
    try:
        return Table(root, SPECS[name], create=False).version()
    except Absent:
        return -1
