"""Reading the probe log's data files as columns, as the stream names them.

Spark decides which files a batch reads and which task reads which part of them; it is asked for no columns, only for
each row's file and block. The Python worker then reads these parts itself, as Arrow columns. Handing the rows over
would have Spark take every list apart into rows and put it together again: measured, that is more than half of what a
batch costs in the JVM.

Every block is read exactly once and whole: it has as many rows as Spark counted in it, or the batch fails. Tables
whose files do not hold just their rows (deletion vectors, renamed columns) are read through Spark (`source.plain`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from streaming_jobs.history.validation import CHECKED_SCHEMA

COLUMNS: Final = ("file", "start", "length")
"""What Spark tells of each row: the file's URI, and where in it the task's block begins and how long it is (bytes)."""


class Block(NamedTuple):
    """A part of a data file that one task reads. `rows` as Spark counted them."""

    uri: str
    start: int
    length: int
    rows: int


def blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    """The blocks of a task, in order. A task reads one block after the other, so equal rows follow one another."""
    held: Block | None = None
    for batch in batches:
        uris = batch.column(0).dictionary_encode()
        codes = uris.indices.to_numpy()
        starts, lengths = batch.column(1).to_numpy(), batch.column(2).to_numpy()
        changes = (np.diff(codes) != 0) | (np.diff(starts) != 0)
        heads = np.append(0, np.flatnonzero(changes) + 1)
        counts = np.diff(np.append(heads, batch.num_rows))
        for head, count in zip(heads.tolist(), counts.tolist(), strict=True):
            part = Block(uris.dictionary[codes[head]].as_py(), int(starts[head]), int(lengths[head]), count)
            if held is not None and held[:3] == part[:3]:
                held = held._replace(rows=held.rows + count)
            else:
                if held is not None:
                    yield held
                held = part
    if held is not None:
        yield held


def read(block: Block) -> Iterator[pa.Table]:
    """The block's rows with `CHECKED_SCHEMA`'s columns, a row group at a time.

    Raises OSError where the file cannot be read, and ValueError where it does not hold the rows that Spark counted."""
    filesystem, path = _located(block.uri)
    seen = 0
    with filesystem.open_input_file(path) as source:
        file = pq.ParquetFile(source)
        for group in _groups(file.metadata, block):
            present = set(file.schema_arrow.names)
            rows = file.read_row_group(group, columns=[n for n in CHECKED_SCHEMA.names if n in present])
            seen += rows.num_rows
            yield completed(rows)
    if seen != block.rows:
        raise ValueError(f"{block.uri}: a block of {block.rows} rows was read as {seen}")


def tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """For a task's input of `COLUMNS`: the rows themselves."""
    for block in blocks(batches):
        yield from read(block)


def _located(uri: str) -> tuple[Any, str]:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return fs.LocalFileSystem(), unquote(parts.path)
    located: tuple[Any, str] = fs.FileSystem.from_uri(uri)
    return located


def _groups(metadata: Any, block: Block) -> list[int]:
    """The row groups whose middle lies in the block: Parquet's own rule for cutting files."""
    chosen = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(i) for i in range(group.num_columns)]
        first = columns[0]
        begin = first.data_page_offset
        if first.dictionary_page_offset is not None and 0 < first.dictionary_page_offset < begin:
            begin = first.dictionary_page_offset
        middle = begin + sum(column.total_compressed_size for column in columns) // 2
        if block.start <= middle < block.start + block.length:
            chosen.append(number)
    return chosen


def completed(rows: pa.Table) -> pa.Table:
    """The rows with every column: one that a file lacks was added to the table later, and is null in it."""
    columns = []
    for field in CHECKED_SCHEMA:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows[field.name]
        columns.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.table(columns, names=CHECKED_SCHEMA.names)
