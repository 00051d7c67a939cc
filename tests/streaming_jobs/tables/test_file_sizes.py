"""What compaction writes anew: files that are put together again and again would be most of what a log takes."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from rules.vocabulary import file_sizes
from rules.vocabulary.file_sizes import LARGEST, LEAST, target, targets

ROWS, FILES, ROUNDS = 4, 80, 20
MIB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([], None),
        ([MIB], None),
        ([LARGEST] * 600, None),
        ([LARGEST, MIB], None),
        ([5_000] * 2, LARGEST),
        ([5_000] * 600, 3_000_001),
        ([50] * 600, LEAST),
        ([5_000] * 600 + [2 * MIB], 2 * MIB),
        ([30_000] * 600 + [2 * MIB, 30 * MIB], 30 * MIB),
        ([30_000] * 600 + [4 * MIB, 30 * MIB], 4 * MIB),
        ([30_000] * 600 + [99 * MIB], 99 * MIB),
        ([300_000] * 600, LARGEST),
        ([60 * MIB, 50 * MIB, 40 * MIB], LARGEST),
    ],
)
def test_what_was_put_together_is_left_alone_until_as_much_has_come(sizes: list[int], chosen: int | None) -> None:
    assert target(sizes) == chosen
    assert target(sizes[::-1]) == chosen


def append(table: Path, day: str, count: int) -> None:
    """So many files in one commit, each as large as its rows: they are noise."""
    schema = pa.schema([("day", pa.string()), ("noise", pa.binary())])
    log = DeltaTable.create(str(table), Schema.from_arrow(schema), partition_by=["day"], mode="ignore")
    (table / f"day={day}").mkdir(exist_ok=True)
    files = []
    for _ in range(count):
        name = f"day={day}/{uuid.uuid4()}.parquet"
        pq.write_table(pa.table({"noise": [os.urandom(1024) for _ in range(ROWS)]}), table / name)
        told = {"numRecords": ROWS, "minValues": {}, "maxValues": {}, "nullCount": {}}
        size = (table / name).stat().st_size
        files.append(AddAction(name, size, {"day": day}, int(time.time() * 1000), True, orjson.dumps(told).decode()))
    log.create_write_transaction(files, "append", log.schema(), ["day"])


def compact(table: Path) -> int:
    """Bytes that it wrote."""
    written = 0
    for filters, size in targets(DeltaTable(str(table))):
        made = DeltaTable(str(table)).optimize.compact(filters, target_size=size)
        written += orjson.loads(made["filesAdded"])["totalSize"]
    return written


def test_a_log_is_written_a_few_times_and_holds_what_it_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sizes, "LARGEST", 4 * MIB)
    monkeypatch.setattr(file_sizes, "LEAST", MIB // 16)
    table, written = tmp_path / "log", 0
    for _ in range(ROUNDS):
        append(table, "2026-11-28", FILES)
        written += compact(table)
    held = pa.table(DeltaTable(str(table)).get_add_actions())
    assert held.num_rows < 40
    assert sum(held["num_records"].to_pylist()) == ROWS * FILES * ROUNDS
    once = sum(held["size_bytes"].to_pylist())
    assert written < 4 * once, written / once  # everything below the largest each time: six times


def test_each_day_is_put_together_by_itself_and_one_that_is_over_once(tmp_path: Path) -> None:
    table = tmp_path / "log"
    append(table, "2026-11-27", 3)
    append(table, "2026-11-28", 70)
    assert [filters for filters, _ in targets(DeltaTable(str(table)))] == [
        [("day", "=", "2026-11-27")],
        [("day", "=", "2026-11-28")],
    ]
    assert compact(table) > 0
    version = DeltaTable(str(table)).version()
    assert (compact(table), DeltaTable(str(table)).version()) == (0, version)
    assert len(DeltaTable(str(table)).file_uris()) == 2
