"""The probe log's data files on a local disk, written to be small: there is one for each second.

deltalake's own writer makes 42 kB of a canary's 600 rows, of which half is not rows: the Arrow schema, statistics and
page indexes of 77 columns, most of them empty. Here a column without values is left out (Delta reads it as null, as it
does where a column was added later), only the log of the table tells statistics, slices, which go on by one, are
written as steps, nothing has a dictionary (of a second's rows it takes more than it saves), and pages are
compressed with zstd: 20 kB, measured. Compaction puts the files together within minutes.

It is cheaper, too, the more files there are: with 500 of them an append takes 32 ms of processor time and not 82.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from probes.log.journals.segments import sync
from rules.vocabulary.encodings import OF_A_SECOND, STEPS
from rules.vocabulary.file_names import CHANCE, named_after
from rules.vocabulary.file_statistics import statistics

_LEVEL: Final = 9
"""zstd's: a sixteenth less than by its own, for 1.5 ms a file."""


def write(table: Path, rows: pa.Table, selected_by: Sequence[str]) -> list[AddAction]:
    """Write the rows, one file for each date, and return what the table's log is to say of the files.

    They are no part of the table until it does, and survive the loss of the host from then on, as they must: a commit
    whose file is empty is one that nobody can read. `selected_by`: the columns of which it tells what they hold. Raises
    OSError."""
    days = pc.unique(rows["date"]).to_pylist()
    return [_written(table, day, rows.filter(pc.equal(rows["date"], day)), selected_by) for day in days]


def _written(table: Path, day: date, rows: pa.Table, selected_by: Sequence[str]) -> AddAction:
    rows = rows.drop_columns(["date"])
    held = rows.select([name for name in rows.column_names if rows[name].null_count < rows.num_rows])
    folder = f"date={day.isoformat()}"
    (table / folder).mkdir(exist_ok=True)
    steps = dict.fromkeys((one for one in OF_A_SECOND if one in held.column_names), STEPS)
    file = pa.BufferOutputStream()
    pq.write_table(
        held,
        file,
        compression="zstd",
        compression_level=_LEVEL,
        write_statistics=False,
        store_schema=False,
        column_encoding=steps,
        use_dictionary=False,
    )
    data = file.getvalue().to_pybytes()
    name = f"{folder}/{named_after(data, secrets.token_bytes(CHANCE))}"
    (table / name).write_bytes(data)
    sync(table / name)
    sync(table / folder)
    return AddAction(
        path=name,
        size=len(data),
        partition_values={"date": day.isoformat()},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=orjson.dumps(statistics(rows, selected_by)).decode(),
    )


def sync_commit(table: Path, version: int, *, files: bool = False) -> None:
    """Make a commit of the table's log survive the loss of the host, with the checkpoint that was made of it, and the
    `files` that it adds, where somebody else wrote them: Delta's writers do not. Raises OSError."""
    log = table / "_delta_log"
    commit = log / f"{version:020}.json"
    paths = [commit, log]
    if (checkpoint := log / f"{version:020}.checkpoint.parquet").is_file():
        paths[:0] = [checkpoint, log / "_last_checkpoint"]
    if files:
        added = [orjson.loads(line).get("add") for line in commit.read_bytes().splitlines() if line]
        paths[:0] = [table / unquote(one["path"]) for one in added if one is not None]
    for path in paths:
        with suppress(FileNotFoundError):  # another commit's upkeep was quick
            sync(path)
