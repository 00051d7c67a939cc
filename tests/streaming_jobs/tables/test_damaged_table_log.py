"""A table of ours whose newest checkpoint is damaged loses nothing by that; one that does is named."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from streaming_jobs.errors import TableError
from streaming_jobs.location import opened
from streaming_jobs.tables.delta_tables import open_table, read_table

HALF = "00000000000000000006.checkpoint.parquet"
ASKED = {"cluster": "c", "question": "{}", "answered": False, "recorded": datetime(2026, 11, 29, tzinfo=UTC)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Nine commits, with checkpoints after the third and the sixth; the second of these has lost its end."""
    path = tmp_path / "findings"
    for number in range(9):
        write_deltalake(str(path), pa.table({"n": pa.array([number])}), mode="append")
        if number in (3, 6):
            DeltaTable(str(path)).create_checkpoint()
    file = path / "_delta_log" / HALF
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(DeltaError, match="footer"):
        DeltaTable(str(path))
    return path


def numbers(table: DeltaTable | None) -> list[int]:
    assert table is not None
    return sorted(pa.table(table.to_pyarrow_table())["n"].to_pylist())


@pytest.mark.parametrize("gone", [None, range(2)], ids=["all are there", "all but those before the good one"])
def test_the_commits_are_read_in_its_place(table: Path, gone: range | None, caplog: pytest.LogCaptureFixture) -> None:
    for number in gone or ():
        (table / "_delta_log" / f"{number:020}.json").unlink()
    assert numbers(opened(table)) == list(range(9))
    assert [record.getMessage() for record in caplog.records] == [
        f"the checkpoint {table / '_delta_log' / HALF} of a table is damaged: it is set aside, and its commits are read"
    ]
    assert (table / "_delta_log" / f"{HALF}.damaged").is_file()
    write_deltalake(str(table), pa.table({"n": pa.array([9])}), mode="append")
    assert numbers(opened(table)) == list(range(10)), "it is a table as any other from then on"


def test_where_a_commit_is_gone_that_it_said_again_it_is_named_and_left(table: Path) -> None:
    (table / "_delta_log" / f"{5:020}.json").unlink()
    with pytest.raises(TableError) as told:
        read_table(table.parent, "findings")
    assert f"its checkpoint {table / '_delta_log' / HALF} is damaged, and the commits before it are gone" in str(
        told.value
    )
    assert (table / "_delta_log" / HALF).is_file()


def test_the_loss_of_a_host_leaves_empty_files_of_what_was_not_synced(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Commits that are empty say nothing, and what they said is known to be gone."""
    for name in (HALF, f"{5:020}.json", f"{6:020}.json", f"{8:020}.json"):
        (table / "_delta_log" / name).write_bytes(b"")
    assert numbers(opened(table)) == [0, 1, 2, 3, 4, 7]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.endswith("and nothing is known of commits 5, 6, 8, which are empty")


def test_a_hint_at_a_checkpoint_that_is_not_there_is_taken_away(table: Path) -> None:
    (table / "_delta_log" / HALF).unlink()
    assert numbers(opened(table)) == list(range(9))
    (table / "_delta_log" / "_last_checkpoint").write_bytes(b"")
    assert numbers(opened(table)) == list(range(9))


@pytest.mark.parametrize("left", ["half", "zeros"])
def test_a_commit_that_is_damaged_is_named(table: Path, left: str) -> None:
    (table / "_delta_log" / HALF).unlink()
    commit = table / "_delta_log" / f"{8:020}.json"
    held = commit.read_bytes()
    commit.write_bytes(held[: len(held) // 2] if left == "half" else b"\0" * len(held))
    with pytest.raises(TableError) as told:
        read_table(table.parent, "findings")
    assert f"its commit {commit} is damaged" in str(told.value)
    commit.unlink()
    assert numbers(opened(table)) == list(range(8))


def test_a_commit_that_is_gone_is_named(table: Path) -> None:
    (table / "_delta_log" / HALF).unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    commit = table / "_delta_log" / f"{7:020}.json"
    commit.unlink()
    with pytest.raises(TableError, match="could not be opened") as told:
        read_table(table.parent, "findings")
    assert str(told.value).endswith(f"its commit {commit} is gone.")


@pytest.mark.parametrize("left", ["nothing", "half", "no file"])
def test_a_data_file_that_is_damaged_is_named(tmp_path: Path, left: str) -> None:
    lookups = open_table(tmp_path, "lookups")
    for asked in range(3):
        lookups.write(pa.Table.from_pylist([ASKED | {"txn": asked}], lookups.spec.schema), mode="append")
    assert read_table(tmp_path, "lookups").num_rows == 3
    file = sorted((tmp_path / "lookups").glob("*.parquet"))[1]
    if left == "no file":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:200] if left == "half" else b"")
    with pytest.raises(TableError, match="could not be read") as told:
        read_table(tmp_path, "lookups")
    assert f"its data file {file} is {'gone' if left == 'no file' else 'damaged'}" in str(told.value)


def test_what_else_is_wrong_with_a_table_is_told_as_it_is(table: Path) -> None:
    (table / "_delta_log" / HALF).unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    (table / "_delta_log" / f"{8:020}.json").write_text('{"add": 5}')
    with pytest.raises(DeltaError):
        numbers(opened(table))
