"""The probe log read again in the order of its times, at one version of its table, in pieces of bounded size.

A stream over a compacted table delivers files in whatever order compaction left them. Here the log is read day by day
(its partitions), and within a day from one second to a later one, by the time at which operations completed: so much at
once as `rows` and `SPAN` allow, or a second where that holds more. Which rows a piece has follows from the version
alone, so that an interrupted replay goes on with the same pieces.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Place
from rules.vocabulary.table_errors import in_words
from rules.vocabulary.times import from_micros, micros
from streaming_jobs.errors import UNREADABLE, EvidenceGap, TableError
from streaming_jobs.history.files import completed
from streaming_jobs.history.format import require_format
from streaming_jobs.history.validation import CHECKED_SCHEMA, KEYS
from streaming_jobs.location import TableLocation, readers
from streaming_jobs.tables.file_hashes import CHANGED, changed

T = TypeVar("T")

ROWS: Final = 200_000
"""Rows of one piece: some hundred MiB as columns, and enough for the checks to work at their full speed."""

SPAN: Final = 300
"""Seconds of one piece at most: a log of few rows must not bring checks hours at once, who keep what they may need of
the last minutes."""

FIRST_TOLD: Final = 60 * SECOND
"""A host tells of all its processes in each of its marks, one a second; some appends of them may be missing."""
JUST_JUDGED: Final = timedelta(minutes=2)
"""Log time is that of the host whose clock is furthest ahead, and files are written by others' clocks."""
_DAY: Final = 86_400
_LOOKED_AT: Final = 1 << 16
_LOOK: Final = ("cluster", "topic_id", "partition", "process", "slice", "completed", "marks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The rows of the day `day` that completed at or after `begin` and before `end` (microseconds); None is unbounded,
    and the last piece of a day also has the rows that do not say when. `rows` is how many there are."""

    day: str
    begin: int | None
    end: int | None
    rows: int


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a partition's evidence begins in the log: process -> (how many of its slices are gone, a log time by which
    the last of them had completed). See `rules.engine.retention`."""

    place: Place
    gone: Mapping[int, tuple[int, int]]


class Replay:
    """One version of the probe log. `version` None is the newest; `self.version` tells which one it is. `since`: the
    day before which nothing is read.

    Raises `TableError` where Delta says no, and `EvidenceGap` where a file of the version has been cleaned away."""

    def __init__(self, path: TableLocation, version: int | None = None, since: str | None = None) -> None:
        self.path, self._since = path, since or ""
        self._table = self._translated(lambda: DeltaTable(str(path), version=version, storage_options=readers(path)))
        require_format(self._table, path)
        self.version = self._table.version()
        self._day: tuple[str, ds.Dataset] | None = None
        self._looked_at: set[str] = set()

    def _translated(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except FileNotFoundError as error:
            raise EvidenceGap(f"A file of the probe log in {self.path} is gone: {in_words(error)}.") from error
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TableError(f"The probe log in {self.path} cannot be read: {in_words(error)}.") from error

    def days(self) -> list[str]:
        """The days that it has rows of, in order."""

        def act() -> list[str]:
            actions = pa.table(self._table.get_add_actions(flatten=True))
            found = {value.isoformat() for value in actions["partition.date"].to_pylist() if value is not None}
            return sorted(day for day in found if day >= self._since)

        return self._translated(act)

    def newest_days(self, days: int, today: date, judged: datetime | None) -> Replay:
        """The same version, without the days that are more than so many before the last one (before `today`, where a
        host whose clock was ahead has told of a day to come): as far as nothing was written of them since the log had
        been `judged` up to that time, None for never. What nobody has judged yet is not left out."""
        known = self.days()
        if not known or judged is None:
            return self
        first = min(date.fromisoformat(known[-1]), today) - timedelta(days=days)

        def act() -> list[str]:
            files = pa.table(self._table.get_add_actions(flatten=True))
            written = files["modification_time"].cast(pa.timestamp("ms", tz="UTC"))
            unjudged = files.filter(pc.greater_equal(written, pa.scalar(judged - JUST_JUDGED, written.type)))
            return [day.isoformat() for day in unjudged["partition.date"].to_pylist() if day is not None]

        return Replay(self.path, self.version, min([first.isoformat(), *self._translated(act)]))

    def pieces(self, rows: int = ROWS) -> list[Piece]:
        """All of it, in order."""
        return [piece for day in self.days() for piece in self._cut(day, rows)]

    def read(self, piece: Piece) -> pa.Table:
        """The piece's rows, with the columns of `CHECKED_SCHEMA`, in no particular order."""
        when = ds.field("completed")
        after = None if piece.begin is None else when >= _scalar(piece.begin)
        before = None if piece.end is None else when < _scalar(piece.end)
        if before is None:
            wanted = None if after is None else after | when.is_null()
        else:
            wanted = before if after is None else after & before

        def act() -> pa.Table:
            data = self._as_written(piece.day)
            names = [name for name in CHECKED_SCHEMA.names if name in data.schema.names]
            return completed(data.to_table(columns=names, filter=wanted).combine_chunks())

        return self._translated(act)

    def rows_of(self, day: str, places: Sequence[Place], size: int) -> Iterator[pa.Table]:
        """The rows of a day in these partitions, with the columns of `CHECKED_SCHEMA`, `size` at a time and not many
        more: a day has thousands of files, each with few of them, and whoever looks at rows pays for each time."""
        data = self._translated(lambda: self._of(day))
        names = [name for name in CHECKED_SCHEMA.names if name in data.schema.names]
        of_each = [
            (ds.field("partition") == place.partition)
            & (ds.field("topic_id") == place.topic_id)
            & (ds.field("cluster") == place.cluster)
            for place in places
        ]
        wanted = reduce(operator.or_, of_each)
        tables = _gathered(data.scanner(columns=names, filter=wanted, batch_size=size).to_batches(), size)
        while (table := self._translated(lambda: next(tables, None))) is not None:
            yield completed(table)

    def newest(self) -> int:
        """The log time (microseconds) of the row that completed last; -1 where there is none."""

        def act() -> int:
            days = self.days()
            if not days:
                return -1
            told = pc.max(self._of(days[-1]).to_table(columns=["completed"])["completed"]).as_py()
            return -1 if told is None else micros(told)

        return self._translated(act)

    def select(self, begin: int, end: int, wanted: ds.Expression) -> pa.Table:
        """The rows that completed in [begin, end) of log time (microseconds) and are wanted, with the columns of
        `CHECKED_SCHEMA`."""
        first, last = (from_micros(us).date().isoformat() for us in (begin, end))
        when = ds.field("completed")
        wanted = (when >= _scalar(begin)) & (when < _scalar(end)) & wanted
        parts = []
        for day in [day for day in self.days() if first <= day <= last]:

            def act(day: str = day) -> pa.Table:
                data = self._of(day)
                names = [name for name in CHECKED_SCHEMA.names if name in data.schema.names]
                return completed(data.to_table(columns=names, filter=wanted))

            parts.append(self._translated(act))
        return pa.concat_tables(parts).combine_chunks() if parts else CHECKED_SCHEMA.empty_table()

    def edges(self) -> list[Edge]:
        """The partitions of whose processes the first slices are gone.

        Looked for on the first day: whoever lived before it either has rows on that day, or the marks of its host tell
        how many slices it had. One of which neither is true is waited for, and unverifiable until its rows go on. So is
        one of which its host has told nothing for `FIRST_TOLD` after it told of others there: it was not born yet, and
        what is missing of it was lost in the middle of the log, which says nothing of what came before."""
        days = self.days()
        if not days:
            return []
        firsts: dict[tuple[Any, ...], tuple[int, int]] = {}
        marked: dict[tuple[Any, ...], tuple[int, int]] = {}
        hosts: dict[tuple[Any, ...], tuple[int, int]] = {}

        def act() -> None:
            for table in _gathered(self._of(days[0]).scanner(columns=list(_LOOK)).to_batches(), _LOOKED_AT):
                # A committer, whose rows are marks, vouches for itself in its last ones.
                _least(firsts, table.select(list(_LOOK[:-1])).drop_null(), "slice", "completed")
                told = table.filter(pc.is_valid(table["marks"]))
                if told.num_rows:
                    marks = _marks(told).drop_null()
                    _least(marked, marks, "slices", "completed")
                    _least(hosts, marks, "host", "completed")

        self._translated(act)

        def lived(key: tuple[Any, ...]) -> bool:
            """Did it when the log begins?"""
            host, told_at = hosts.get(key, (-1, -1))
            _, began = firsts.get((*key[:3], host), (0, told_at))
            return told_at <= began + FIRST_TOLD

        gone: dict[Place, dict[int, tuple[int, int]]] = {}
        for key, (slices, at) in firsts.items():
            told_slices, told_at = marked.get(key, (-1, at))
            if slices > 0 and lived(key):
                by = min(at, told_at) if told_slices >= slices else at
                gone.setdefault(Place(*key[:3]), {})[key[3]] = (slices, by)
        for key, (slices, at) in marked.items():
            if key not in firsts and slices > 0 and lived(key):
                gone.setdefault(Place(*key[:3]), {})[key[3]] = (slices, at)
        return [Edge(place, processes) for place, processes in gone.items()]

    def added_files(self) -> list[str]:
        """The names of the data files that the commit of this very version added to the log, as rows that are new."""
        log = self.path / "_delta_log" / f"{self.version:020d}.json"
        try:
            actions = [json.loads(line) for line in log.read_text().splitlines() if line.strip()]
        except FileNotFoundError as error:
            raise EvidenceGap(f"The commit of version {self.version} of {self.path} is gone.") from error
        except OSError as error:
            raise TableError(f"The probe log in {self.path} cannot be read: {in_words(error)}.") from error
        added = [action["add"] for action in actions if "add" in action]
        return [add["path"].rsplit("/", 1)[-1] for add in added if add.get("dataChange", True)]

    def _of(self, day: str) -> ds.Dataset:
        if self._day is None or self._day[0] != day:
            self._day = (day, self._table.to_pyarrow_dataset(file_pruning_predicate=[("date", "=", day)]))
        return self._day[1]

    def _as_written(self, day: str) -> ds.Dataset:
        """The rows of a day of which all is read. Raises OSError where a file's bytes, in a folder, are known not to be
        those that were written: all of them are looked at once, which is too dear for who wants a few rows."""
        data = self._of(day)
        if day not in self._looked_at and isinstance(self.path, Path):
            for file in (self.path / unquote(name) for name in data.files):
                if changed(file):
                    raise OSError(f"{UNREADABLE} file {file}: {CHANGED}")
            self._looked_at.add(day)
        return data

    def _cut(self, day: str, rows: int) -> Iterator[Piece]:
        midnight = micros(datetime.combine(date.fromisoformat(day), time(), UTC))
        counts = np.zeros(_DAY, np.int64)

        def act() -> None:
            for batch in self._as_written(day).scanner(columns=["completed"]).to_batches():
                known = batch.column(0).drop_null()
                seconds = (known.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()).to_numpy() - midnight) // SECOND
                counts[:] += np.bincount(np.clip(seconds, 0, _DAY - 1), minlength=_DAY)
                counts[-1] += batch.num_rows - len(known)

        self._translated(act)
        total = np.concatenate(([0], np.cumsum(counts)))
        begin, first = 0, True
        while total[begin] < total[-1]:
            begin = int(np.searchsorted(total, total[begin], side="right")) - 1  # seconds without rows
            end = max(begin + 1, int(np.searchsorted(total, total[begin] + rows, side="right")) - 1)
            end = min(end, begin + SPAN)
            if total[end] == total[-1]:
                end = _DAY
            yield Piece(
                day=day,
                begin=None if first else midnight + begin * SECOND,
                end=None if end == _DAY else midnight + end * SECOND,
                rows=int(total[end] - total[begin]),
            )
            begin, first = end, False


def _gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The rows of these, `size` at a time and not many more: each file gives a batch of its own, however small."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= size:
            yield pa.Table.from_batches(held).combine_chunks()
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _least(into: dict[tuple[Any, ...], tuple[int, int]], table: pa.Table, number: str, when: str) -> None:
    """Keep for each (cluster, topic id, partition, process) the least number, and the least time."""
    if not table.num_rows:
        return
    times = table[when].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    table = table.set_column(table.schema.get_field_index(when), when, times)
    grouped = table.group_by([*KEYS, "process"]).aggregate([(number, "min"), (when, "min")])
    columns: Sequence[list[Any]] = [
        grouped[name].to_pylist() for name in (*KEYS, "process", f"{number}_min", f"{when}_min")
    ]
    for *key, least, earliest in zip(*columns, strict=True):
        old = into.get(tuple(key))
        into[tuple(key)] = (least, earliest) if old is None else (min(least, old[0]), min(earliest, old[1]))


def _marks(rows: pa.Table) -> pa.Table:
    """A row for each mark: the row's place and time, the process that is vouched for, its slices, and its host."""
    lists = rows["marks"].combine_chunks()
    flat = pc.list_flatten(lists)
    owner = pc.list_parent_indices(lists)
    of_row = rows.select([*KEYS, "completed", "process"]).take(owner).rename_columns([*KEYS, "completed", "host"])
    return of_row.append_column("process", flat.field("process")).append_column("slices", flat.field("slices"))


def _scalar(us: int) -> pa.Scalar:
    return pa.scalar(from_micros(us), pa.timestamp("us", tz="UTC"))
