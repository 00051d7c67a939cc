"""Slices as flat numpy columns: one array entry per slice, and per run, so that rules work across many slices at once.

Absent integers are -1, which no offset, sequence number or time of the log can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rules.arrays.intervals import EMPTY, Bools, Ints, distinct, indices
from rules.vocabulary.slices import FUNCTIONS, OUTCOMES, Irregularity, Place

(
    SEND,
    POLL,
    TXN,
    INIT,
    ASSIGN,
    SUBSCRIBE,
    REVOKE,
    COMMIT,
    POSITION,
    OFFSETS,
    START,
    CLOSE,
    MARK,
    REGISTER,
    ZOMBIE,
) = range(len(FUNCTIONS))
OK, FAIL, INFO = range(len(OUTCOMES))
CORRUPTED, FOREIGN, RELOCATED = range(len(get_args(Irregularity)))

Codes = NDArray[np.int8]

FEW: Final = 256
"""So many rows are quicker looked through one by one than encoded."""

_IRREGULARITIES: Final[tuple[str, ...]] = get_args(Irregularity)


@dataclass(slots=True)
class Runs:
    """Runs of records, one entry each, in the order of the slices' lists. `row` is the index of the slice."""

    row: Ints
    writer: Ints
    seq: Ints
    offset: Ints
    length: Ints

    def __len__(self) -> int:
        return len(self.row)

    def take(self, keep: Any) -> Runs:
        """Those that a mask or an index array picks."""
        return Runs(self.row[keep], self.writer[keep], self.seq[keep], self.offset[keep], self.length[keep])

    @classmethod
    def empty(cls) -> Runs:
        return cls(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)

    @classmethod
    def concat(cls, *parts: Runs) -> Runs:
        """All of them, with their rows as they are."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


@dataclass(slots=True)
class Columns:
    """The slices of one partition. `committed_only` is False only for reads at read_uncommitted."""

    process: Ints
    op: Ints
    slice: Ints
    f: Codes
    type: Codes
    invoked: Ints
    completed: Ints
    txn: Ints
    position_before: Ints
    position_after: Ints
    log_start: Ints
    log_end: Ints
    last_stable: Ints
    committed: Ints
    assigned: Codes  # 1, 0, or -1 where the row does not say
    committed_only: Bools
    subscribed: Bools
    rebalanced: Bools
    sent: Runs
    polled: Runs
    table: pa.Table  # the rows themselves, for what is rare
    arrays: Mapping[str, pa.Array]  # its columns
    wall: Ints  # `completed` by the wall clock
    boot: Ints  # see `rules.settling.clocks.set_times`, -1 before
    functions: frozenset[int] = frozenset()  # which of them the rows did
    domains: Any = None  # see `rules.settling.clocks.domains`
    astray: Any = None  # by how much wall clocks were ahead of log time lately, negative: see `rules.settling.clocks`
    set_back: Any = None  # since when wall clocks are behind log time, by one step: see `rules.settling.clocks`
    marked: Any = None  # what `marks` found
    irregular: Any = None  # what `irregulars` found
    named: Any = None  # what `named_groups` found
    reflected: Any = None  # what `sources` found
    there: Any = None  # see `rules.engine.order`

    def __len__(self) -> int:
        return len(self.process)

    def where(self, *functions: int) -> Bools:
        """Which rows did one of these."""
        there = [self.f == function for function in functions if function in self.functions]
        mask: Bools = there[0] if there else np.zeros(len(self.f), bool)
        for other in there[1:]:
            mask |= other
        return mask

    def tells(self, name: str) -> bool:
        """Does any row say something in this column?"""
        array = self.arrays[name]
        return bool(array.null_count < len(array))


def named_groups(columns: Columns) -> tuple[Ints, list[str], Ints]:
    """(rows that name a group, the names, for each of those rows the place of its name)"""
    if columns.named is None:
        column = columns.arrays["group"]
        rows, names, index = EMPTY, [], EMPTY
        if columns.tells("group") and len(column) < FEW:
            told = [(row, name) for row, name in enumerate(column.to_pylist()) if name is not None]
            number = {name: i for i, name in enumerate(dict.fromkeys([name for _, name in told]))}
            index = np.array([number[name] for _, name in told], np.int64)
            rows, names = np.array([row for row, _ in told], np.int64), list(number)
        elif columns.tells("group"):
            rows = indices(column.is_valid().to_numpy(zero_copy_only=False))
            encoded = column.take(pa.array(rows)).dictionary_encode()
            names, index = encoded.dictionary.to_pylist(), _ints(encoded.indices)
        columns.named = rows, names, index
    found: tuple[Ints, list[str], Ints] = columns.named
    return found


def group_names(columns: Columns) -> dict[int, str]:
    """The group of each row that names one."""
    rows, names, index = named_groups(columns)
    return {row: names[i] for row, i in zip(rows.tolist(), index.tolist(), strict=True)}


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


_ABSENT: Final[Ints] = np.full(FEW, -1, np.int64)
_ABSENT.flags.writeable = False
_WIDTHS: Final[Mapping[int, np.dtype[Any]]] = {
    pa.lib.Type_INT8: np.dtype(np.int8),
    pa.lib.Type_INT16: np.dtype(np.int16),
    pa.lib.Type_INT32: np.dtype(np.int32),
    pa.lib.Type_INT64: np.dtype(np.int64),
    pa.lib.Type_TIMESTAMP: np.dtype(np.int64),  # microseconds since the epoch
}


def _ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Read where they stand: every call of pyarrow has its price, and a quiet second has few rows. They cannot be
    written to."""
    if isinstance(column, pa.ChunkedArray):
        column = _one(column)
    size, missing = len(column), column.null_count
    if missing == size:
        return _ABSENT[:size] if size <= FEW else np.full(size, -1, np.int64)
    kind = _WIDTHS.get(column.type.id)
    if kind is None:
        column = pc.fill_null(column, -1) if missing else column
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
    valid, data = column.buffers()
    values = np.frombuffer(data, kind, size, column.offset * kind.itemsize)
    if missing:
        values = np.where(_bits(column, valid), values, -1)
    return values if values.dtype == np.int64 else values.astype(np.int64)


def _bits(column: pa.Array, buffer: pa.Buffer) -> NDArray[np.uint8]:
    """The bits of one of a column's buffers, 1 or 0."""
    bits = np.frombuffer(buffer, np.uint8)
    return np.unpackbits(bits, count=column.offset + len(column), bitorder="little")[column.offset :]


class _Numbers(dict[str | None, int]):
    def __missing__(self, name: str | None) -> int:
        return -1


@cache
def _numbers_of(names: tuple[str, ...]) -> _Numbers:
    return _Numbers({name: i for i, name in enumerate(names)})


def _codes(column: pa.ChunkedArray | pa.Array, names: tuple[str, ...]) -> Codes:
    if len(column) < FEW:
        code = _numbers_of(names)
        return np.array([code[name] for name in column.to_pylist()], np.int8)
    return _ints(pc.index_in(column, value_set=pa.array(names, pa.string()))).astype(np.int8)


def _truths(column: pa.ChunkedArray | pa.Array, absent: int) -> Codes:
    """A column of truth values: 1, 0, or `absent`."""
    column = _one(column)
    if column.null_count == len(column):
        return np.full(len(column), absent, np.int8)
    valid, data = column.buffers()
    truths = _bits(column, data).astype(np.int8)
    return np.where(_bits(column, valid), truths, np.int8(absent)) if column.null_count else truths


def _flags(column: pa.ChunkedArray | pa.Array, absent: bool) -> Bools:
    return _truths(column, int(absent)).astype(bool)


def _is(column: pa.ChunkedArray | pa.Array, name: str) -> Bools:
    if column.null_count == len(column):
        return np.zeros(len(column), bool)
    if len(column) < FEW:
        return np.array([told == name for told in column.to_pylist()], bool)
    return _flags(pc.equal(column, name), False)


def _list(column: pa.ChunkedArray | pa.Array) -> tuple[Ints, pa.StructArray]:
    """A list column as (row of each element, the elements), nulls being empty lists."""
    array = _one(column)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if not pa.types.is_list(array.type):
        return _ints(pc.list_parent_indices(array)), pc.list_flatten(array)
    valid, bounds = array.buffers()[:2]
    stands = np.frombuffer(bounds, np.int32, array.offset + len(array) + 1)[array.offset :]
    lengths = stands[1:] - stands[:-1]
    if array.null_count:
        lengths = np.where(_bits(array, valid), lengths, 0)
    rows, first = np.arange(len(array)).repeat(lengths), int(stands[0])
    if len(rows) == int(stands[-1]) - first:
        return rows, array.values.slice(first, len(rows))
    return rows, array.flatten()  # where it is null there are elements all the same


def _runs(column: pa.ChunkedArray | pa.Array) -> Runs:
    if column.null_count == len(column):
        return Runs.empty()
    row, runs = _list(column)
    return Runs(
        row,
        _ints(runs.field("writer")),
        _ints(runs.field("seq")),
        _ints(runs.field("offset")),
        _ints(runs.field("length")),
    )


def lengths(columns: Columns, name: str) -> Ints:
    """How many elements each row lists in this column."""
    return np.bincount(_list(columns.arrays[name])[0], minlength=len(columns))


def sources(columns: Columns) -> Runs:
    """The input records that the rows name; few rows do."""
    if columns.reflected is None:
        columns.reflected = _runs(columns.arrays["sources"])
    found: Runs = columns.reflected
    return found


@dataclass(slots=True)
class Irregulars:
    """Polled records that belong to no run, one entry each, in the order of the slices' lists.

    `row` is the index of the slice, `index` the record's place among the poll's records, `status` one of `CORRUPTED`,
    `FOREIGN`, `RELOCATED`. `listed` are all records themselves, for what is told of a few, and `at` these ones' places
    there."""

    row: Ints
    index: Ints
    offset: Ints
    status: Codes
    hash: Ints
    at: Ints
    listed: pa.StructArray

    def __len__(self) -> int:
        return len(self.row)

    def take(self, keep: Any) -> Irregulars:
        """Those that a mask or an index array picks."""
        return Irregulars(
            row=self.row[keep],
            index=self.index[keep],
            offset=self.offset[keep],
            status=self.status[keep],
            hash=self.hash[keep],
            at=self.at[keep],
            listed=self.listed,
        )

    def record(self, i: int) -> dict[str, Any]:
        """One of them, as plain values."""
        told: dict[str, Any] = self.listed[int(self.at[i])].as_py()
        return told


def irregulars(columns: Columns) -> Irregulars:
    """All irregular records of these slices. There may be as many as rows: a second canary in the same topic."""
    if columns.irregular is None:
        columns.irregular = _irregulars(columns.arrays["irregular"])
    found: Irregulars = columns.irregular
    return found


def _irregulars(column: pa.Array) -> Irregulars:
    if column.null_count == len(column):
        return Irregulars(EMPTY, EMPTY, EMPTY, EMPTY.astype(np.int8), EMPTY, EMPTY, column.values[:0])
    row, records = _list(column)
    index, offset, digest = (_ints(records.field(name)) for name in ("index", "offset", "hash"))
    status = _codes(records.field("status"), _IRREGULARITIES)
    return Irregulars(row, index, offset, status, digest, np.arange(len(row)), records)


def said_to_stand_here(columns: Columns, records: Irregulars) -> tuple[Bools, Ints, Ints]:
    """(which were meant for this very place and name a value, their writers, their seqs): values of a run that their
    reader does not know, and the log may. -1 where none is named."""
    named = records.listed.take(pa.array(records.at))
    writer, seq = (_ints(named.field(name)) for name in ("writer", "seq"))
    topic, partition = (columns.arrays[name][0] for name in ("topic", "partition"))
    here = pc.and_kleene(pc.equal(named.field("topic"), topic), pc.equal(named.field("partition"), partition))
    return _flags(here, False) & (records.status == FOREIGN) & (writer >= 0) & (seq >= 0), writer, seq


def alterations(columns: Columns) -> list[tuple[int, dict[str, Any]]]:
    """(row, `Altered`) of everything that came otherwise than it was sent; rare, hence plain values."""
    if not columns.tells("altered"):
        return []
    row, records = _list(columns.arrays["altered"])
    return list(zip(row.tolist(), records.to_pylist(), strict=True))


class Marks(NamedTuple):
    """Every mark, as arrays: its `row`, through when its host's journals had been read (`at`), who wrote it (`host`),
    and what it says; `ended` is -1 where the process lives. Times are log time."""

    row: Ints
    at: Ints
    host: Ints
    process: Ints
    slices: Ints
    through: Ints
    ended: Ints
    lost: Bools


STEADY: Final = 1_000_000
"""Microseconds by which a mark's wall clock may stray before what it says of other times counts as doubtful."""


def marks_of_living(columns: Columns) -> tuple[Ints, Ints, Ints, Ints]:
    """(through when the journals had been read, process, slices, through) of the marks of lives that were not over, as
    arrays: of one that was lost with its host, what is behind is not open any more."""
    told = all_marks(columns)
    lives = told.ended < 0
    return told.at[lives], told.process[lives], told.slices[lives], told.through[lives]


def all_marks(columns: Columns) -> Marks:
    """Every mark with all that it says."""
    if columns.marked is None:
        columns.marked = _marks(columns)
    found: Marks = columns.marked
    return found


def _marks(columns: Columns) -> Marks:
    if not columns.tells("marks"):
        return Marks(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, np.empty(0, bool))
    rows, listed = _list(columns.arrays["marks"])
    others = indices(columns.f[rows] != MARK)
    if len(others):
        rows, listed = np.delete(rows, others), listed.take(pa.array(np.delete(np.arange(len(rows)), others)))
    marking = distinct(rows)
    read = journals_read(columns, marking)[marking.searchsorted(rows)]
    ended = _ints(listed.field("ended"))
    if (ended >= 0).any():
        ended = np.where(ended < 0, -1, np.maximum(ended, ended + _shift(columns, rows)))
    return Marks(
        rows,
        read,
        columns.process[rows],
        _ints(listed.field("process")),
        _ints(listed.field("slices")),
        _told_earlier(columns, rows, _ints(listed.field("through"))),
        ended,
        _flags(listed.field("lost"), False),
    )


def journals_read(columns: Columns, rows: Ints) -> Ints:
    """Through when the journals of its host had been read to their ends, as each of these mark rows tells it: while a
    committer catches up that is long before the row was written."""
    invoked = _ints(columns.arrays["invoked"])[rows]
    return np.where(invoked < columns.wall[rows], _told_earlier(columns, rows, invoked), columns.completed[rows])


def _shift(columns: Columns, rows: Ints) -> Ints:
    """Marks' own times are by the wall clock of their row, log time is by the boot's monotonic clock: by how much they
    differ."""
    shift: Ints = columns.completed[rows] - columns.wall[rows]
    return shift


def _told_earlier(columns: Columns, rows: Ints, times: Ints) -> Ints:
    """The log time of what mark rows say of times before they were written. That may be by a wall clock that was
    further ahead then; not so where it was set back, and the time is later than that was."""
    shift = _shift(columns, rows)
    moved = times + (shift if columns.astray is None else np.minimum(shift, columns.astray[rows]))
    doubtful = np.abs(shift) > STEADY
    if columns.set_back is not None:
        doubtful &= times <= columns.set_back[rows] + STEADY
    return np.minimum(np.where(doubtful, np.minimum(times, moved), moved), columns.completed[rows])


def from_table(table: pa.Table) -> Columns:
    """The columns of a table of `SLICE_SCHEMA` that holds one partition's slices, in its order."""
    batches = table.to_batches()
    if len(batches) != 1:
        table = table.combine_chunks()
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    told: dict[str, pa.Array] = dict(zip(table.schema.names, batches[0].columns, strict=True))
    functions, completed = _codes(told["f"], FUNCTIONS), _ints(told["completed"])
    return Columns(
        process=_ints(told["process"]),
        op=_ints(told["op"]),
        slice=_ints(told["slice"]),
        f=functions,
        functions=frozenset(functions.tolist()),
        type=_codes(told["type"], OUTCOMES),
        invoked=_ints(told["invoked"]),
        completed=completed,
        txn=_ints(told["txn"]),
        position_before=_ints(told["position_before"]),
        position_after=_ints(told["position_after"]),
        log_start=_ints(told["log_start"]),
        log_end=_ints(told["log_end"]),
        last_stable=_ints(told["last_stable"]),
        committed=_ints(told["committed"]),
        assigned=_truths(told["assigned"], -1),
        committed_only=~_is(told["isolation"], "read_uncommitted"),
        subscribed=_is(told["mode"], "subscribe"),
        rebalanced=_flags(told["rebalanced"], False),
        sent=_runs(told["sent"]),
        polled=_runs(told["polled"]),
        table=table,
        arrays=told,
        wall=completed,
        boot=np.full(table.num_rows, -1, np.int64),
    )


def _grouped(codes: Ints) -> bool:
    """Does each code fill one stretch?"""
    heads = indices(np.diff(codes, prepend=-1))
    return len(np.unique(codes[heads])) == len(heads)


def by_place(table: pa.Table) -> dict[Place, pa.Table]:
    """The rows of each partition, in their order."""
    if not table.num_rows:
        return {}
    keys = [table[name] for name in ("cluster", "topic_id", "partition")]
    if table.num_rows == 1 or all(pc.count_distinct(k).as_py() == 1 for k in keys):
        return {Place(*(k[0].as_py() for k in keys)): table}
    codes = np.zeros(table.num_rows, np.int64)
    for key in keys:
        encoded = key.combine_chunks().dictionary_encode()
        codes = codes * (len(encoded.dictionary) + 1) + _ints(encoded.indices)
    ordered = table
    if not _grouped(codes):  # a table that comes in order is sliced, and not copied
        order = codes.argsort(kind="stable")
        ordered, codes = table.take(pa.array(order)).combine_chunks(), codes[order]
    heads = indices(np.diff(codes, prepend=-1))
    ends = np.append(heads[1:], table.num_rows)
    parts = {}
    for head, end in zip(heads.tolist(), ends.tolist(), strict=True):
        place = Place(*(ordered[name][head].as_py() for name in ("cluster", "topic_id", "partition")))
        parts[place] = ordered.slice(head, end - head)
    return parts


# Single columns, for those who read across partitions.


def integers(column: pa.ChunkedArray | pa.Array) -> Ints:
    """A column of integers or times (microseconds), -1 where it is null."""
    return _ints(column)


def codes_of(column: pa.ChunkedArray, names: pa.Array) -> Codes:
    """The place in `names` of each text, -1 where it is none of them."""
    return _codes(column, tuple(names.to_pylist()))


def is_text(column: pa.ChunkedArray, text: str) -> Bools:
    """Which entries are `text`."""
    return _is(column, text)


def runs_of(column: pa.ChunkedArray) -> Runs:
    """The runs of a column of lists of them."""
    return _runs(column)
