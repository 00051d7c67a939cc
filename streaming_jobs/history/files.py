"""Reading the probe log's data files as columns.

A task is told which parts of which files it reads (`log_source`), and reads them as Arrow columns. Handing rows over
would have Spark take every list apart into rows and put it together again: measured, that is more than half of what a
batch costs in the JVM. Every row group belongs to exactly one block, and a file that is read as a whole has as many
rows as its commit says, or the batch fails. Tables whose files do not hold just their rows (deletion vectors, renamed
columns) are read through Spark (`source.plain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules.vocabulary.file_names import hash_told
from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import GONE, UNREADABLE
from streaming_jobs.history.block import Block
from streaming_jobs.history.validation import CHECKED_SCHEMA
from streaming_jobs.location import TableUrl, table_location, told
from streaming_jobs.tables.file_hashes import CHANGED, changed

SUFFIX: Final = ".damaged"
"""After the name of a file that was given up (`damage`)."""


def read(block: Block, wanted: Sequence[str] = CHECKED_SCHEMA.names) -> Iterator[pa.Table]:
    """The block's rows with these of `CHECKED_SCHEMA`'s columns, a row group at a time.

    Of one that was given up (`damage`) there are none. Raises OSError where the file cannot be read, and ValueError
    where it does not hold the rows that it should."""
    try:
        yield from _read(block, wanted)
    except FileNotFoundError:
        if not table_location(f"{block.path}{SUFFIX}").is_file():
            raise FileNotFoundError(f"{GONE} file {block.path}") from None
    except (OSError, pa.ArrowException) as error:
        raise OSError(f"{UNREADABLE} file {block.path}: {in_words(error)}") from error


def _read(block: Block, wanted: Sequence[str]) -> Iterator[pa.Table]:
    seen = 0
    source = TableUrl(block.path).open() if "://" in block.path else _opened(block.path)
    with told() if "://" in block.path else nullcontext(), source:
        file = pq.ParquetFile(source)
        present = set(file.schema_arrow.names)
        for group in _groups(file.metadata, block):
            rows = file.read_row_group(group, columns=[n for n in wanted if n in present])
            seen += rows.num_rows
            yield completed(rows, wanted)
    if block.rows is not None and seen != block.rows:
        raise ValueError(f"{block.path}: a file of {block.rows} rows was read as {seen}")


def _opened(path: str) -> pa.NativeFile:
    """A local file. Raises OSError, also where its bytes are not those that were written."""
    if hash_told(path) is not None and changed(Path(path)):  # others are large, and read in part
        raise OSError(CHANGED)
    return pa.OSFile(path)


def tables(blocks: Iterable[Block], wanted: Sequence[str] = CHECKED_SCHEMA.names) -> Iterator[pa.Table]:
    """The rows of a task's blocks, in order."""
    for block in blocks:
        yield from read(block, wanted)


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
        if block.start <= middle < block.end:
            chosen.append(number)
    return chosen


def completed(rows: pa.Table, wanted: Sequence[str] = CHECKED_SCHEMA.names) -> pa.Table:
    """The rows with every column wanted: one that a file lacks was added to the table later, and is null in it."""
    columns = []
    for field in map(CHECKED_SCHEMA.field, wanted):
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows[field.name]
        columns.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.table(columns, names=list(wanted))
