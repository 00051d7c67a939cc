"""Bundles: many slices of a few partitions as one row, so that they cross Spark without being taken apart.

Spark hands a Python operator rows, and a stateful one pandas rows: with a nested list for each slice's runs this is
slow, and the checks want columns anyway. So the rows are bundled as they come from the table: one row of
(cluster, topic_id, part, rejected, payload) for each *part* of a topic, `PER_PART` neighbouring partitions, and some
ten thousand slices, the payload being a compressed Arrow stream in the order of the partitions. Spark shuffles and
sorts a handful of fat rows, and the stateful operator unpacks columns.

Rows that cannot be understood (`validation`) are bundled apart, in the form of the table `rejected`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.vocabulary.slices import Place
from streaming_jobs.history import files
from streaming_jobs.history.block import Block
from streaming_jobs.history.validation import CHECKED_SCHEMA, KEYS, reasons_to_reject
from streaming_jobs.tables.schemas import REJECTED

PER_PART: Final = 4
"""Partitions that the operator is called for at once. A call costs some ten round trips and two pandas frames, however
little there is to check: with fewer, a quiet batch is mostly these. With more, a topic's work is one task's, and what
is kept of all of them is written again whenever one of them is busy."""

BUNDLE_KEYS: Final = ("cluster", "topic_id", "part")
BUNDLE_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("rejected", pa.bool_()),
        pa.field("payload", pa.binary()),
    ]
)

"""`BUNDLE_DDL` in Arrow's terms."""

BundleKey = tuple[str, str, int]

REJECTED_SCHEMA: Final = pa.schema([f for f in REJECTED if f.name not in ("batch", "recorded")])

NOWHERE: Final = Place("", "", -1)
"""Where rejected rows are that name no partition."""

_GATHER_ROWS: Final = 65_536
_GATHER_BYTES: Final = 64 << 20
"""A task bundles its input when it has gathered this much: fewer, larger bundles cost less to open again."""

REJECTED_SHOWN: Final = 1_000
"""Of one bundle's rejected rows, this many are written down; the rest are counted in the last one's reason."""

_ROW_BYTES: Final = 32 << 10


def pack(table: pa.Table) -> bytes:
    """The table as an Arrow stream, compressed as a whole: of a hundred rows most is padding and the schema, which
    crosses two sockets and the shuffle's files."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed, pa.ipc.new_stream(packed, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unpack(payload: bytes) -> pa.Table:
    """The table that `pack` made one value of."""
    return pa.ipc.open_stream(pa.CompressedInputStream(pa.BufferReader(payload), "zstd")).read_all()


def _json(value: Any) -> str:
    return json.dumps(value, default=str)[:_ROW_BYTES]


def part_of(place: Place) -> BundleKey:
    """The key of the bundles in which a partition's rows are."""
    return place.cluster, place.topic_id, place.partition // PER_PART


def _rejected(slices: pa.Table, reasons: dict[int, str]) -> Iterator[tuple[Place, pa.Table]]:
    """The rejected rows in the form of the table `rejected`, by partition."""
    rows: dict[Place, list[dict[str, Any]]] = {}
    over: dict[Place, int] = {}
    for number in sorted(reasons):
        # Row by row: these are few, or the log is useless anyway.
        row = slices.slice(number, 1).to_pylist()[0]
        key = NOWHERE if any(row[name] is None for name in KEYS) else Place(*(row[name] for name in KEYS))
        listed = rows.setdefault(key, [])
        if len(listed) >= REJECTED_SHOWN:
            over[key] = over.get(key, 0) + 1
            continue
        kept = {name: row[name] for name in ("cluster", "topic_id", "partition", "process", "slice")}
        listed.append({"reason": reasons[number], **kept, "row": _json(row)})
    for key, listed in rows.items():
        if key in over:
            listed[-1]["reason"] += f"; {over[key]} more rejected rows are not shown"
        yield key, pa.Table.from_pylist(listed, schema=REJECTED_SCHEMA)


def _by_part(slices: pa.Table) -> Iterator[tuple[BundleKey, pa.Table]]:
    """The rows of each part, its partitions one after the other, each in its order. Raises nothing: keys are not null
    here.

    All rows are put in order at once and cut: a `take` for each partition cost most of what bundling did."""
    partition = slices["partition"].combine_chunks().to_numpy().astype(np.int64)
    topics = np.zeros(slices.num_rows, np.int64)
    for name in ("cluster", "topic_id"):
        encoded = slices[name].combine_chunks().dictionary_encode()
        topics = topics * len(encoded.dictionary) + encoded.indices.to_numpy()
    order = np.lexsort((partition, topics))  # stable
    if (np.diff(order) != 1).any():
        slices = slices.take(pa.array(order))
    topics, parts = topics[order], partition[order] // PER_PART
    ends = np.append(np.flatnonzero(np.diff(topics).astype(bool) | np.diff(parts).astype(bool)) + 1, len(order))
    begin = 0
    for end in ends.tolist():
        yield part_of(Place(*(slices[name][begin].as_py() for name in KEYS))), slices.slice(begin, end - begin)
        begin = end


def bundles_of(slices: pa.Table) -> pa.RecordBatch:
    """The slices as bundles, `BUNDLE_SCHEMA`. `slices` has the columns of `SLICE_SCHEMA` by name."""
    slices = pa.table([slices[f.name] for f in CHECKED_SCHEMA], names=CHECKED_SCHEMA.names).combine_chunks()
    reasons = reasons_to_reject(slices)
    made: list[tuple[BundleKey, bool, pa.Table]] = []
    if reasons:
        made.extend((part_of(place), True, rows) for place, rows in _rejected(slices, reasons))
        keep = np.ones(slices.num_rows, bool)
        keep[list(reasons)] = False
        slices = slices.filter(pa.array(keep)).combine_chunks()
    if slices.num_rows:
        made.extend((key, False, rows) for key, rows in _by_part(slices))
    columns = [
        [key[0] for key, _, _ in made],
        [key[1] for key, _, _ in made],
        [key[2] for key, _, _ in made],
        [rejected for _, rejected, _ in made],
        [pack(rows) for _, _, rows in made],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, BUNDLE_SCHEMA, strict=True)], schema=BUNDLE_SCHEMA
    )


def bundle_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `DataFrame.mapInArrow`: the rows of the probe log in, bundles out."""
    return _bundle(pa.Table.from_batches([batch]) for batch in batches)


def bundle_blocks(blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """The rows of parts of the probe log's files as bundles."""
    return _bundle(files.tables(blocks))


def _bundle(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    gathered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        gathered.append(table)
        rows += table.num_rows
        size += table.nbytes
        if rows >= _GATHER_ROWS or size >= _GATHER_BYTES:
            yield bundles_of(pa.concat_tables(gathered))
            gathered, rows, size = [], 0, 0
    if rows:
        yield bundles_of(pa.concat_tables(gathered))


def slices_in(payloads: Iterable[bytes]) -> dict[Place, pa.Table]:
    """The slices of one part's bundles, those of each partition in one piece, without `date`."""
    found: dict[Place, list[pa.Table]] = {}
    for payload in payloads:
        rows = unpack(payload)
        first = Place(*(rows[name][0].as_py() for name in KEYS))
        partitions = rows["partition"].combine_chunks().to_numpy()
        heads = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist()]
        for head, end in zip(heads, [*heads[1:], len(partitions)], strict=True):
            place = first._replace(partition=int(partitions[head]))
            found.setdefault(place, []).append(rows.slice(head, end - head))
    return {
        place: pa.concat_tables(tables).combine_chunks() if len(tables) > 1 else tables[0]
        for place, tables in found.items()
    }


def rejected_in(payloads: Iterable[bytes]) -> dict[Place, pa.Table]:
    """The rejected rows of one part's bundles, by partition (`NOWHERE`)."""
    found: dict[Place, list[pa.Table]] = {}
    for payload in payloads:
        rows = unpack(payload)
        key = [rows[name][0].as_py() for name in KEYS]
        found.setdefault(NOWHERE if None in key else Place(*key), []).append(rows)
    return {place: pa.concat_tables(tables) for place, tables in found.items()}


def records_in(slices: pa.Table) -> tuple[int, int]:
    """How many records the slices sent and polled."""
    return _total(slices["sent"]), _total(slices["polled"])


def _total(column: pa.ChunkedArray) -> int:
    if column.null_count == len(column):
        return 0
    return sum(pc.sum(pc.list_flatten(chunk).field("length")).as_py() or 0 for chunk in column.chunks)
