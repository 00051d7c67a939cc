"""Windows of the probe log by log time, and how far the log is complete: what the search for cycles reads.

A window is read from the table's current version; files that hold nothing of it are passed over by their statistics,
so that compaction may move rows as it likes. The log is complete through the earliest time that the marks vouch for,
over all processes that have rows or marks here: a closed process holds nothing back, nor does one whose log has not
completed within the rules' limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rules.arrays.columns import integers
from rules.cycles import dependencies
from rules.settling.completeness import GIVEN_UP
from rules.vocabulary.table_errors import in_words
from rules.vocabulary.times import from_micros
from streaming_jobs.errors import TableError
from streaming_jobs.location import TableLocation, opened

COLUMNS: Final = [*dependencies.COLUMNS, "marks"]
READ: Final = ("send", "poll", "txn", "mark", "close")


class Windows:
    """The probe log at `path`. Raises `TableError` where Delta says no. Not for several threads at once."""

    def __init__(self, path: TableLocation) -> None:
        self._path = path
        self._table: DeltaTable | None = None
        self._data: tuple[int, ds.Dataset] | None = None

    def refresh(self) -> bool:
        """Look for new commits; False while there is no table."""
        try:
            if self._table is None:
                self._table = opened(self._path)
                if self._table is None:
                    return False
            else:
                self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise self._failed(error) from error
        return True

    def span(self, after: int = -1) -> tuple[int, int] | None:
        """(earliest, latest) log time of the files that reach beyond `after`, in microseconds."""
        assert self._table is not None
        try:
            files = pa.table(self._table.get_add_actions(flatten=True))
            if not {"min.completed", "max.completed"} <= set(files.column_names):
                column = self._dataset().to_table(columns=["completed"])["completed"]
                files = pa.table({"min.completed": column, "max.completed": column})
        except (DeltaError, OSError) as error:
            raise self._failed(error) from error
        low, high = (integers(files[name].cast(_TIME)) for name in ("min.completed", "max.completed"))
        later = high > after
        return (int(low[later].min()), int(high[later].max())) if later.any() else None

    def read(self, start: int, end: int, functions: Sequence[str] = READ) -> pa.Table:
        """The rows of these functions that completed in [start, end], microseconds: `COLUMNS`, in no order."""
        assert self._table is not None
        low, high = from_micros(max(start, 0)), from_micros(end)
        wanted = (
            (pc.field("date") >= pa.scalar(low.date(), pa.date32()))
            & (pc.field("date") <= pa.scalar(high.date(), pa.date32()))
            & (pc.field("completed") >= pa.scalar(low, _TIME))
            & (pc.field("completed") <= pa.scalar(high, _TIME))
            & pc.field("f").isin(list(functions))
        )
        try:
            return self._dataset().to_table(columns=COLUMNS, filter=wanted)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._failed(error) from error

    def _dataset(self) -> ds.Dataset:
        """All files with their statistics: made once for a version, which takes a third of a second for 700 of them."""
        assert self._table is not None
        version = self._table.version()
        if self._data is None or self._data[0] != version:
            self._data = (version, self._table.to_pyarrow_dataset())
        return self._data[1]

    def _failed(self, error: Exception) -> TableError:
        return TableError(f"The probe log in {self._path} could not be read for cycles: {in_words(error)}.")


_TIME: Final = pa.timestamp("us", tz="UTC")


def within(rows: pa.Table, start: int, end: int) -> pa.Table:
    """Those of the rows that completed in [start, end]."""
    completed = integers(rows["completed"])
    return rows.filter(pa.array((completed >= start) & (completed <= end)))


def complete_through(rows: pa.Table, newest: int) -> int | None:
    """The log time through which the log of every process of these rows is here; None where no mark says so.

    `newest` is the latest log time of the whole log: who has been silent for long before it is not waited for."""
    marks = rows["marks"].combine_chunks()
    listed = pc.list_flatten(marks)
    if not len(listed):
        return None
    vouched = dict(
        zip(*_latest(integers(_column(listed, "process")), integers(_column(listed, "through"))), strict=True)
    )
    kind = rows["f"]
    own = rows.filter(pc.not_equal(kind, "mark"))
    process, begun = integers(own["process"]), integers(own["invoked"])
    known, earliest = _latest(process, -begun)
    closed = set(integers(rows.filter(pc.equal(kind, "close"))["process"]).tolist())
    for number, first in zip(known, earliest, strict=True):
        vouched.setdefault(number, -first)
    held = [t for number, t in vouched.items() if number not in closed and newest - t <= GIVEN_UP]
    through = int(integers(rows.filter(pc.equal(kind, "mark"))["invoked"]).max())
    return min([through, *held])


def _column(listed: pa.Array, name: str) -> pa.ChunkedArray:
    return pa.chunked_array([listed.field(name)])


def _latest(group: np.ndarray, value: np.ndarray) -> tuple[list[int], list[int]]:
    """The greatest value of each group."""
    order = np.lexsort((value, group))
    last = np.append(group[order][1:] != group[order][:-1], True) if len(order) else np.zeros(0, bool)
    return group[order][last].tolist(), value[order][last].tolist()
