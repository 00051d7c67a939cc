"""Operations as the table that the rules take: one row per operation and partition, records as runs.

Rows are sorted by partition, within one by the order of completions. Each process numbers its rows of a partition from
0 on. A process's position is moved only by partitions that it touched, so an assign has rows for those and for the ones
it names, not for every partition of the file.

Consecutive records of one list that carry consecutive values at consecutive offsets are one run; so are sends whose
offsets are all unknown. A record that was polled without its offset is a run of its own. Order is kept: a list of runs,
read from left to right, is the order in which the operation sent or polled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from monitor.history_files.operations import Ints, Operations
from rules.arrays.columns import ASSIGN, SUBSCRIBE, TXN
from rules.arrays.intervals import Bools
from rules.vocabulary.slices import FUNCTIONS, OUTCOMES, SLICE_SCHEMA

_DAY: Final = 86_400 * 10**6
_MODES: Final = ("assign", "subscribe")


def slices(operations: Operations, name: str) -> pa.Table:
    """The operations as a table of `SLICE_SCHEMA`. `name` is its cluster, topic, topic id, run and boot."""
    o = operations
    size = max(len(o.ordinal), 1)
    rank = np.argsort(np.argsort(o.partitions, kind="stable"), kind="stable")
    records = rank[o.records.key >> 1] * size + o.records.op
    explicit = rank[o.rows.key] * size + o.rows.op
    places = np.unique(np.concatenate((records, explicit)))
    op = places % size
    partition = np.sort(o.partitions)[places // size]
    columns = _of_operations(o, op)
    columns["partition"] = pa.array(partition.astype(np.int32))
    columns["slice"] = pa.array(_numbered(places // size, o.process[op]))
    polled = (o.records.key & 1).astype(bool)
    for column, mask in (("sent", ~polled), ("polled", polled)):
        columns[column] = _runs(
            places, records[mask], o.records.offset[mask], o.records.value[mask], join_unknown=column == "sent"
        )
    wrote = np.isin(places, records[(o.records.key & 1) == 0])
    if (touched := _touched(op, partition, wrote & (o.f[op] == TXN), name)) is not None:
        columns["txn_partitions"] = touched
    if len(explicit):
        assigned = np.full(len(places), -1, np.int8)
        assigned[np.searchsorted(places, explicit)] = o.rows.assigned
        columns["assigned"] = pa.array(assigned == 1, mask=assigned < 0)
    taken = np.isin(places, rank[o.taken.key] * size + o.taken.op) | (o.rebalanced[op] == 1)
    if taken.any():
        columns["rebalanced"] = pa.array(taken)
    told = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(places), np.int8)), [name]).cast(pa.string())
    columns |= dict.fromkeys(("cluster", "topic_id", "topic", "run", "boot"), told)
    zeros = pa.py_buffer(bytes(8 * (len(places) + 1)))
    arrays = [
        columns[field.name].view(field.type) if field.name in columns else _absent(len(places), field.type, zeros)
        for field in SLICE_SCHEMA
    ]
    return pa.table(arrays, schema=SLICE_SCHEMA)


def _of_operations(o: Operations, op: Ints) -> dict[str, Any]:
    """The columns that every row of an operation has in common."""
    f = o.f[op]
    reassigning = (f == ASSIGN) | (f == SUBSCRIBE)
    mode = np.where(reassigning, f == SUBSCRIBE, o.subscribed[op])
    ordinal = o.ordinal[op]
    columns = {
        "process": pa.array(o.processes[o.process[op]]),
        "op": pa.array(ordinal),
        "f": _named(f, FUNCTIONS),
        "type": _named(o.type[op], OUTCOMES),
        "txn": pa.array(ordinal, mask=f != TXN),
        "mode": _named(mode, _MODES),
        "mono_invoked": pa.array(o.begun[op]),
        "mono_completed": pa.array(o.completed[op]),
        "invoked": pa.array(o.invoked[op] // 1000),
        "completed": pa.array(o.completed[op] // 1000),
        "date": pa.array((o.completed[op] // (1000 * _DAY)).astype(np.int32)),
    }
    if o.errors:
        columns["error"] = pa.array([o.errors.get(i) for i in op.tolist()], pa.string())
    return columns


def _touched(op: Ints, partition: Ints, wrote: Bools, name: str) -> pa.Array | None:
    """The column of the partitions that each row's transaction wrote to, where those are several and the row's is one
    of them: of others it says nothing. `wrote` are the rows in which transactions sent. None where nothing is to be
    said."""
    rows = np.flatnonzero(wrote)
    rows = rows[np.argsort(op[rows], kind="stable")]
    _, first, count = np.unique(op[rows], return_index=True, return_counts=True)
    several = np.repeat(count, count) > 1
    if not several.any():
        return None
    # Row by row, in the table's order, the stretch of `rows` that its transaction has.
    start, length = np.zeros(len(op), np.int64), np.zeros(len(op), np.int64)
    start[rows], length[rows] = np.repeat(first, count), np.where(several, np.repeat(count, count), 0)
    ends = np.concatenate(([0], np.cumsum(length)))
    listed = partition[rows[np.arange(ends[-1]) + np.repeat(start - ends[:-1], length)]]
    kind = SLICE_SCHEMA.field("txn_partitions").type
    topic = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(listed), np.int8)), [name]).cast(pa.string())
    touched = pa.StructArray.from_arrays([topic, pa.array(listed.astype(np.int32))], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), touched, type=kind, mask=pa.array(length == 0))


def _named(codes: NDArray[Any], names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names)).cast(pa.string())


def _absent(rows: int, kind: pa.DataType, zeros: pa.Buffer) -> pa.Array:
    """A column of nulls. All of them share one buffer, as most columns of a file are absent: reading 1 M transactions
    takes 1,083 MiB so, and 1,364 MiB with buffers of their own."""
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        inner = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
        children = [pa.array([], inner)]
        return pa.Array.from_buffers(kind, rows, [zeros, zeros], null_count=rows, children=children)
    buffers = [zeros, zeros, zeros] if pa.types.is_string(kind) else [zeros, zeros]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=rows)


def _numbered(place: Ints, process: Ints) -> Ints:
    """0, 1, 2, ... within each (place, process), in the order given."""
    order = np.lexsort((process, place))
    same = (place[order][1:] == place[order][:-1]) & (process[order][1:] == process[order][:-1])
    here = np.arange(len(order))
    heads = np.maximum.accumulate(np.where(np.concatenate(([True], ~same)), here, 0)) if len(order) else here
    numbers = np.empty(len(order), np.int64)
    numbers[order] = here - heads
    return numbers


def _runs(places: Ints, at: Ints, offset: Ints, value: Ints, *, join_unknown: bool) -> pa.Array:
    """The list column of records that stand `at` places. Records of one place are in the order of its operation."""
    kind = SLICE_SCHEMA.field("sent").type
    if not len(at):
        return pa.nulls(len(places), kind)
    order = np.argsort(at, kind="stable")
    at, offset, value = at[order], offset[order], value[order]
    writer = (value < 0).astype(np.int64)
    seq = np.where(value < 0, -1 - value, value)
    follows = (at[1:] == at[:-1]) & (writer[1:] == writer[:-1]) & (seq[1:] == seq[:-1] + 1)
    known = (offset[:-1] >= 0) & (offset[1:] == offset[:-1] + 1)
    follows &= known | ((offset[1:] < 0) & (offset[:-1] < 0)) if join_unknown else known
    heads = np.flatnonzero(np.concatenate(([True], ~follows)))
    length = np.diff(np.append(heads, len(at)))
    first = offset[heads]
    runs = pa.StructArray.from_arrays(
        [pa.array(writer[heads]), pa.array(seq[heads]), pa.array(first, mask=first < 0), pa.array(length)],
        fields=list(kind.value_type),
    )
    counts = np.bincount(np.searchsorted(places, at[heads]), minlength=len(places))
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), runs, type=kind, mask=pa.array(counts == 0))
