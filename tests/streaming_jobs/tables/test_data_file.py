"""The data files of the job's tables: what the table's log says of them, and what a disk without room says."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_jobs.tables import data_file
from streaming_jobs.tables.delta_tables import Table
from streaming_jobs.tables.schemas import SPECS
from tests.known import a_folder

WHEN = datetime(2026, 3, 1, 12, 0, 0, 1_500, tzinfo=UTC)

REFUSED = """
import resource, sys
from pathlib import Path
from streaming_jobs.errors import TableError
from streaming_jobs.tables.delta_tables import Table
from tests.streaming_jobs.tables.test_data_file import rejected
from streaming_jobs.tables.schemas import SPECS

table = Table(Path(sys.argv[1]), SPECS["rejected"])
table.write(rejected("before"), mode="append", app_id="app", batch=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))  # as a disk that has no more room
for _ in range(3):
    try:
        table.write(rejected("refused"), mode="append", app_id="app", batch=2)
    except TableError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
table.write(rejected("after"), mode="append", app_id="app", batch=2)
"""


def rejected(reason: str, rows: int = 1) -> pa.Table:
    """Rows of the table `rejected`."""
    row = dict.fromkeys(SPECS["rejected"].schema.names) | {"reason": reason, "batch": 0, "recorded": WHEN}
    return pa.Table.from_pylist([row] * rows, schema=SPECS["rejected"].schema)


def test_what_cannot_be_written_is_an_error_of_the_system_and_leaves_nothing(tmp_path: Path) -> None:
    """deltalake's own writer panicked there, with a page of Rust's words on the terminal."""
    command = [sys.executable, "-c", REFUSED, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    told = ran.stdout.splitlines()
    assert len(told) == 3
    assert all("The table rejected in" in one and "could not be written: [Errno 27]" in one for one in told)
    table = Table(tmp_path, SPECS["rejected"])
    assert sorted(table.read()["reason"].to_pylist()) == ["after", "before"]
    assert len([*a_folder(table.path).glob("*.parquet")]) == 2


def test_a_table_that_is_made_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings are synced with their commit: of a table whose first commit the loss of the host took nobody reads
    them."""
    synced: list[Path] = []
    monkeypatch.setattr(data_file, "sync", synced.append)
    made = Table(tmp_path, SPECS["findings"])
    log = Path(str(made.path)) / "_delta_log"
    assert synced == [log / f"{0:020}.json", log.parent, log, tmp_path]
    synced.clear()
    Table(tmp_path, SPECS["findings"])
    assert synced == []


def test_what_was_appended_is_on_the_disk_and_what_is_replaced_anyway_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake's object stays at the version before a commit of files: that one was synced, and a power cut might
    leave the newest commit empty, which nobody can read."""
    synced: list[Path] = []
    monkeypatch.setattr(data_file, "sync", synced.append)
    table, other = Table(tmp_path, SPECS["rejected"]), Table(tmp_path, SPECS["rejected"])
    place = a_folder(table.path)
    for number, writer in enumerate([table, table, other, table], 1):
        synced.clear()
        before = {*place.glob("*.parquet")}
        writer.write(rejected("new"), mode="append", app_id="app", batch=number)
        (file,) = {*place.glob("*.parquet")} - before
        commit = place / "_delta_log" / f"{number:020}.json"
        assert {file, place, commit, commit.parent} <= {*synced}, number
    synced.clear()
    table.write(rejected("new"), mode="overwrite", app_id="app", batch=9)
    assert synced == []


def test_the_log_tells_how_old_the_rows_of_a_file_are(tmp_path: Path) -> None:
    """By which upkeep knows that a table has rows to age out."""
    table = Table(tmp_path, SPECS["rejected"])
    table.write(rejected("broken", rows=2), mode="append")
    (file,) = a_folder(table.path).glob("*.parquet")
    (commit,) = (a_folder(table.path) / "_delta_log").glob("*1.json")
    (added,) = [one["add"] for line in commit.read_bytes().splitlines() if "add" in (one := orjson.loads(line))]
    assert (added["path"], added["size"]) == (file.name, file.stat().st_size)
    assert orjson.loads(added["stats"]) == {
        "numRecords": 2,
        "minValues": {"recorded": "2026-03-01T12:00:00.001Z"},
        "maxValues": {"recorded": "2026-03-01T12:00:00.002Z"},
        "nullCount": {"recorded": 0},
    }


def test_a_table_that_is_replaced_holds_the_last_rows_alone(tmp_path: Path) -> None:
    table = Table(tmp_path, SPECS["partition_state"])
    place = {"cluster": "c", "topic_id": "t", "topic": "topic", "partition": 0, "slices_behind": 0}
    for batch, end in enumerate((10, 20, 30)):
        row = dict.fromkeys(table.spec.schema.names) | place | {"log_end": end, "batch": batch}
        table.write(pa.Table.from_pylist([row], schema=table.spec.schema), mode="overwrite", app_id="app", batch=batch)
    assert table.read()["log_end"].to_pylist() == [30]
    table.write(table.spec.schema.empty_table(), mode="overwrite", app_id="app", batch=3)
    assert table.read().num_rows == 0
    assert DeltaTable(str(table.path)).transaction_version("app") == 3
