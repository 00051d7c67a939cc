"""The job's Delta tables on disk: created with their documentation, written once per batch, read back.

The tables are small and written often, so they are written by the `deltalake` package (milliseconds) and not through
Spark (the better part of a second). deltalake records an application's transactions but checks nothing: whoever
writes reads `transaction_version` first, and after any error, and skips what is there. An application id is
`<job>:<query id>:<table>` with the batch id as its version; a query that starts over with a new checkpoint has a new
query id, and its batches are not taken for the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import TableError
from streaming_jobs.tables import data_file
from streaming_jobs.tables.schemas import SPECS, TableSpec

T = TypeVar("T")

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Written:
    """`replayed`: the table held this batch already, and nothing was written."""

    replayed: bool
    version: int


class Table:
    """One of our tables, held open. Not safe for use from several threads at once; several objects are.

    Raises `TableError` where Delta says no, with the table's name and path."""

    def __init__(self, root: Path, spec: TableSpec) -> None:
        self.spec = spec
        self.path = root / spec.name
        there = (self.path / "_delta_log").is_dir()
        self._delta = self._translated("opened" if there else "created", self._open)

    def _open(self) -> DeltaTable:
        # Another process may create it in this moment.
        for _ in range(_ATTEMPTS):
            if DeltaTable.is_deltatable(str(self.path)):
                return self._with_new_columns(DeltaTable(str(self.path)))
            try:
                return DeltaTable.create(
                    str(self.path),
                    self.spec.schema,
                    mode="error",
                    name=self.spec.name,
                    description=self.spec.description,
                    configuration=self.spec.properties,
                )
            except DeltaError:
                continue
        return DeltaTable(str(self.path))

    def _with_new_columns(self, table: DeltaTable) -> DeltaTable:
        """The table with the columns that an earlier version of it lacks; they are null in its rows."""
        known = {field.name for field in table.schema().fields}
        added = [field.with_nullable(True) for field in self.spec.schema if field.name not in known]
        if added:
            table.alter.add_columns(list(DeltaSchema.from_arrow(pa.schema(added)).fields))
        return table

    def _translated(self, verb: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except (DeltaError, OSError, pa.ArrowException) as error:
            said = f"The table {self.spec.name} in {self.path} could not be {verb}: {in_words(error)}."
            raise TableError(said) from error

    def write(
        self,
        rows: pa.Table,
        *,
        mode: Literal["append", "overwrite"],
        app_id: str | None = None,
        batch: int | None = None,
    ) -> Written:
        """Write `rows`, exactly once for (app_id, batch) where these are given. Empty appends write nothing, and do not
        even look at the table: most of a batch's are."""
        if mode == "append" and not rows.num_rows:
            return Written(False, self._delta.version())

        def act() -> Written:
            failed: Exception | None = None
            file: AddAction | None = None
            for _ in range(_ATTEMPTS):
                self._delta.update_incremental()
                if app_id is not None and batch is not None:
                    last = self._delta.transaction_version(app_id)
                    if last is not None and last >= batch:
                        return Written(True, self._delta.version())
                done = None if app_id is None or batch is None else [Transaction(app_id, batch)]
                file = data_file.write(self.path, rows) if file is None else file
                try:
                    self._delta.create_write_transaction(
                        [file], mode, self._delta.schema(), commit_properties=CommitProperties(app_transactions=done)
                    )
                    return Written(False, self._delta.version())
                except CommitFailedError as error:  # another commit came between, or ours did and its answer was lost
                    failed = error
            assert failed is not None
            raise failed

        return self._translated("written", act)

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


def open_tables(root: Path) -> dict[str, Table]:
    """All of the job's tables, created where they do not exist."""
    return {name: Table(root, spec) for name, spec in SPECS.items()}


def open_table(root: Path, name: str) -> Table:
    """One of the job's tables, created where it does not exist."""
    return Table(root, SPECS[name])


def read_table(root: Path, name: str, version: int | None = None) -> pa.Table:
    """The rows of one of the job's tables, now or at a version of it; none where it does not exist yet (version -1)."""
    spec = SPECS[name]
    if version == -1 or not DeltaTable.is_deltatable(str(root / name)):
        return spec.schema.empty_table()
    return Table(root, spec).read(version)


def version_of(root: Path, name: str) -> int:
    """The version of one of the job's tables, -1 where it does not exist yet."""
    return Table(root, SPECS[name]).version() if DeltaTable.is_deltatable(str(root / name)) else -1
