"""Slices as a journal holds them: short positional lists, and from those the columns of the probe log's Arrow table.

A packed row leaves out what the whole life shares (cluster, run, process, boot) and everything absent at its end; times
are microseconds since the epoch. `table` builds columns straight from packed rows: no Slice is made on the way from
journal to Delta. `unpack` makes the Slice, for recovery, tests and people.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rules.vocabulary.slices import ITEMS, SLICE_SCHEMA, Mark, Slice
from rules.vocabulary.times import EPOCH, from_micros

Row = list[Any]
"""One packed slice: the values of `FIELDS` in order, cut after the last that is there."""

FIELDS: Final = (
    "topic_id",
    "topic",
    "partition",
    "op",
    "slice",
    "f",
    "type",
    "invoked",
    "completed",
    "mono_invoked",
    "mono_completed",
    "sent",
    "polled",
    "position_before",
    "position_after",
    "error",
    "transactional_id",
    "txn",
    "txn_intent",
    "txn_partitions",
    "isolation",
    "mode",
    "log_start",
    "log_end",
    "last_stable",
    "committed",
    "group",
    "assigned",
    "rebalanced",
    "irregular",
    "kind",
    "settings",
    "marks",
    "boot",
    "end_invoked",
    "mono_end_invoked",
    "sources",
    "registers",
    "reached",
    "altered",
    "epochs",
)
"""Those that most rows have come first."""

AT: Final = {name: index for index, name in enumerate(FIELDS)}
_PLAIN: Final = attrgetter(*FIELDS)
_INVOKED, _COMPLETED, _BOOT, _SLICE = AT["invoked"], AT["completed"], AT["boot"], AT["slice"]
_MARKS, _SETTINGS, _END_INVOKED = AT["marks"], AT["settings"], AT["end_invoked"]
_LISTS: Final = {name: kind for name, kind in ITEMS.items() if name != "marks"}  # which hold times
_TUPLES: Final = tuple(AT[name] for name in (*_LISTS, "txn_partitions"))
_MICROSECOND: Final = timedelta(microseconds=1)


class Shared(NamedTuple):
    """What all rows of one life have in common."""

    cluster: str
    run: str
    process: int
    boot: str


def pack(row: Slice, shared: Shared, number: int) -> Row:
    """The slice as a packed row with slice number `number`. Raises `ValueError` for a row of another life."""
    if row.process != shared.process or row.run != shared.run or row.cluster != shared.cluster:
        raise ValueError(f"a row of process {row.process} was given to the journal of process {shared.process}")
    packed: Row = list(_PLAIN(row))
    packed[_SLICE] = number
    packed[_INVOKED] = (row.invoked - EPOCH) // _MICROSECOND
    packed[_COMPLETED] = (row.completed - EPOCH) // _MICROSECOND
    for at in _TUPLES:
        # orjson does not take named tuples.
        packed[at] = [tuple(one) for one in packed[at]] if packed[at] else None
    packed[_END_INVOKED] = (row.end_invoked - EPOCH) // _MICROSECOND if row.end_invoked else None
    packed[_MARKS] = (
        [
            (
                m.process,
                m.slices,
                (m.through - EPOCH) // _MICROSECOND,
                (m.ended - EPOCH) // _MICROSECOND if m.ended else None,
                m.lost,
            )
            for m in row.marks
        ]
        if row.marks
        else None
    )
    packed[_SETTINGS] = dict(row.settings) if row.settings else None
    # An absent boot is rare and must not read as the life's.
    packed[_BOOT] = None if row.boot == shared.boot else row.boot or ""
    while packed[-1] is None:
        packed.pop()
    return packed


def unpack(row: Row, shared: Shared) -> Slice:
    """The slice that was packed."""
    values = dict(zip(FIELDS, row, strict=False))
    boot = values.pop("boot", None)
    values["boot"] = shared.boot if boot is None else boot or None
    values["invoked"], values["completed"] = from_micros(row[_INVOKED]), from_micros(row[_COMPLETED])
    for name, kind in _LISTS.items():
        values[name] = tuple(kind(*one) for one in values.get(name) or ())
    if values.get("end_invoked") is not None:
        values["end_invoked"] = from_micros(values["end_invoked"])
    values["marks"] = tuple(
        Mark(process, slices, from_micros(through), None if ended is None else from_micros(ended), bool(lost))
        for process, slices, through, ended, lost in values.get("marks") or ()
    )
    touched = values.get("txn_partitions")
    values["txn_partitions"] = tuple((topic, partition) for topic, partition in touched) if touched else None
    return Slice(cluster=shared.cluster, run=shared.run, process=shared.process, **values)


def table(groups: Sequence[tuple[Shared, Sequence[Row]]]) -> pa.Table:
    """The packed rows of several lives as one table of `SLICE_SCHEMA`, in the order given."""
    width = len(FIELDS)
    padded = [row + [None] * (width - len(row)) for _, rows in groups for row in rows]
    columns: dict[str, Any] = dict(zip(FIELDS, zip(*padded, strict=True), strict=True)) if padded else {}
    if not padded:
        return SLICE_SCHEMA.empty_table()
    for name, of in (("cluster", 0), ("run", 1), ("process", 2)):
        columns[name] = list(chain.from_iterable([shared[of]] * len(rows) for shared, rows in groups))
    ours = chain.from_iterable([shared.boot] * len(rows) for shared, rows in groups)
    columns["boot"] = [own if boot is None else boot or None for boot, own in zip(columns["boot"], ours, strict=True)]
    completed = np.asarray(columns["completed"], dtype=np.int64)
    columns["date"] = pa.array((completed // 86_400_000_000).astype(np.int32)).cast(pa.date32())
    return pa.table([_array(columns[f.name], f.type) for f in SLICE_SCHEMA], schema=SLICE_SCHEMA)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if values[0] is None and values.count(None) == len(values):  # as most columns are
        return pa.nulls(len(values), kind)
    if pa.types.is_list(kind):
        return _lists(values, kind)
    if pa.types.is_map(kind):
        return pa.array([list(one.items()) if one else None for one in values], type=kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, type=pa.int64()).cast(kind)
    return pa.array(values, type=kind)


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of lists of structs, whose items are positional (possibly short of absent values at their end)."""
    if not any(values):
        return pa.nulls(len(values), kind)
    fields = [kind.value_type.field(i) for i in range(kind.value_type.num_fields)]
    items = list(chain.from_iterable(filter(None, values)))
    lengths = np.fromiter((len(one) if one else 0 for one in values), dtype=np.int32, count=len(values))
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32)))
    columns = zip(*items, strict=True)
    structs = pa.StructArray.from_arrays(
        [_array(column, f.type) for column, f in zip(columns, fields, strict=True)], fields=fields
    )
    # What is empty is null: a partition without records has no list.
    absent = pa.array(lengths == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=kind, mask=absent)
