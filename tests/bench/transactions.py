"""A million transactions of four micro-operations as a table, made with arrays: what the search for cycles is given.

Each transaction sends two values and polls two: over 100 partitions, by 20 processes of one host. Those of one round
overlap in time, and poll from each other as well as from earlier rounds. Nothing is wrong with it, unless `late` lets a
transaction of the middle poll a value that is sent later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rules.vocabulary.slices import SLICE_SCHEMA

Ints = np.ndarray[Any, np.dtype[np.int64]]

BASE = 1_735_689_600_000_000  # 2025-01-01, microseconds
PROCESSES = 20
PARTITIONS = 100
ROUND = 10_000  # microseconds


def transactions(count: int, *, late: int = 0, seed: int = 1) -> pa.Table:
    """`count` transactions as rows of `SLICE_SCHEMA`, one row per transaction and partition. With `late`, the
    transaction in the middle polls a value that is sent `late` transactions later."""
    chance = np.random.default_rng(seed)
    count -= count % PROCESSES
    number = np.arange(count)
    rounds, process = number // PROCESSES, number % PROCESSES
    # Two different partitions each; offsets and sequence numbers in the order of transactions, a marker after each.
    first = chance.integers(0, PARTITIONS, count)
    second = (first + chance.integers(1, PARTITIONS, count)) % PARTITIONS
    txn = np.repeat(number, 2)
    partition = np.stack((first, second), axis=1).ravel()
    order = np.argsort(partition, kind="stable")
    starts = np.searchsorted(partition[order], np.arange(PARTITIONS))
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count) - starts[partition[order]]
    own = np.lexsort((txn, partition, process[txn]))
    key = process[txn][own] * PARTITIONS + partition[own]
    seq = np.empty(2 * count, np.int64)
    seq[own] = np.arange(2 * count) - np.searchsorted(key, np.arange(PROCESSES * PARTITIONS))[key]
    # Each value is polled by the process that reads its partition: two rounds later, or in its own round by one that
    # began later and may complete earlier.
    later = partition % PROCESSES
    reader = (rounds[txn] + np.where(later > process[txn], 0, 2)) * PROCESSES + later
    read = np.flatnonzero(reader < count)
    if late:
        middle = int(np.searchsorted(txn[read], count // 2 + late))
        reader[read[middle]] = count // 2
    sends = (partition * count + txn, process[txn], seq, 2 * place)
    polls = (partition[read] * count + reader[read], process[txn[read]], seq[read], 2 * place[read])
    rows = np.unique(np.concatenate((sends[0], polls[0])))
    op = rows % count
    began = BASE + rounds * ROUND + process * 100
    ended = began + 8_000 + chance.integers(0, 1_500, count)
    columns: dict[str, Any] = {
        "partition": rows // count,
        "process": process[op],
        "op": op,
        "invoked": began[op],
        "completed": ended[op],
        "mono_invoked": 1000 * (began[op] - BASE),
        "mono_completed": 1000 * (ended[op] - BASE),
        "txn": op,
        "slice": np.arange(len(rows)),
        "date": np.full(len(rows), BASE // (86_400 * 10**6), np.int32),
    }
    texts = {
        "cluster": "bench",
        "topic_id": "id",
        "topic": "bench",
        "run": "run",
        "f": "txn",
        "type": "ok",
        "boot": "boot",
        "isolation": "read_committed",
        "mode": "assign",
    }
    lists = {"sent": _lists(rows, *sends), "polled": _lists(rows, *polls)}
    arrays = []
    for field in SLICE_SCHEMA:
        if field.name in columns:
            column = pa.array(columns[field.name])
            view = pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)
            array = column.view(field.type) if view else column.cast(field.type)
        elif field.name in texts:
            array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int8)), [texts[field.name]]).cast(
                pa.string()
            )
        else:
            array = lists[field.name] if field.name in lists else pa.nulls(len(rows), field.type)
        arrays.append(array)
    return pa.table(arrays, schema=SLICE_SCHEMA)


def _lists(rows: Ints, at: Ints, writer: Ints, seq: Ints, offset: Ints) -> pa.Array:
    kind = SLICE_SCHEMA.field("sent").type
    order = np.lexsort((offset, at))
    counts = np.bincount(np.searchsorted(rows, at), minlength=len(rows))
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    runs = pa.StructArray.from_arrays(
        [pa.array(a[order]) for a in (writer, seq, offset)] + [pa.array(np.ones(len(order), np.int64))],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(ends), runs, type=kind, mask=pa.array(counts == 0))
