"""The probe log as a source: each commit's rows once, in order, within bounds; nothing that is no news."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from streaming_jobs.errors import GONE, EvidenceGap, translated
from streaming_jobs.history.files import tables
from streaming_jobs.history.log_source import Added, Blocks, Offset, ProbeLogReader, added, commit_name, split
from tests.bench.histories import Plan, partition_rows
from tests.streaming_jobs.probe_log import commit, duplicates

START: Offset = {"version": 0, "file": 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of three commits of a file each."""
    for part in duplicates(3):
        commit(tmp_path / "history", part)
    return tmp_path / "history"


@pytest.fixture
def reader(path: Path) -> Callable[..., ProbeLogReader]:
    def opened(files: int = 1_000, size: int = 1 << 30, version: int = 0) -> ProbeLogReader:
        return ProbeLogReader({"path": str(path), "version": str(version), "files": str(files), "bytes": str(size)})

    return opened


def to_the_end(reader: ProbeLogReader, start: Offset) -> list[Offset]:
    """The ends of batch after batch, as far as there is something."""
    reached = [start]
    while (end := reader.latestOffset(reached[-1], reader.getDefaultReadLimit())) != reached[-1]:
        reached.append(end)
    return reached[1:]


def rows(reader: ProbeLogReader, start: Offset, end: Offset) -> int:
    read = [part for task in reader.partitions(start, end) for part in tables(task.blocks)]  # type: ignore[attr-defined]
    return sum(part.num_rows for part in read)


def test_it_reads_on_from_where_it_was(path: Path, reader: Callable[..., ProbeLogReader]) -> None:
    one = reader()
    assert one.initialOffset() == START
    assert to_the_end(one, START) == [{"version": 3, "file": 0}]
    commit(path, duplicates(3)[0])
    assert to_the_end(one, {"version": 3, "file": 0}) == [{"version": 4, "file": 0}]
    assert set(one._read) <= {3}, "what was read is not remembered for ever"
    assert rows(one, START, {"version": 4, "file": 0}) == DeltaTable(str(path)).to_pyarrow_table().num_rows
    again = reader()  # a restart: the batch that was planned is read again by another process
    assert rows(again, {"version": 3, "file": 0}, {"version": 4, "file": 0}) == len(duplicates(3)[0])
    assert again.partitions(START, START) == []


def test_a_batch_has_its_bounds_in_files_and_bytes(path: Path, reader: Callable[..., ProbeLogReader]) -> None:
    log = path / "_delta_log"
    first, second = (added((log / commit_name(i)).read_text())[0].size for i in range(2))
    lines = (log / commit_name(1)).read_text().splitlines()
    lines += [line for line in lines if "add" in json.loads(line)] * 2  # a commit of three files
    (log / commit_name(1)).write_text("\n".join(lines))
    two = [{"version": 1, "file": 1}, {"version": 2, "file": 0}, {"version": 3, "file": 0}]
    assert to_the_end(reader(files=2), START) == two
    assert to_the_end(reader(size=max(first, second) + second), START) == two
    one = [{"version": 1, "file": 0}, {"version": 1, "file": 1}, {"version": 1, "file": 2}]
    assert to_the_end(reader(size=1), START) == [*one, {"version": 2, "file": 0}, {"version": 3, "file": 0}], "one each"
    a, b, c = (len(part) for part in duplicates(3))
    last = reader(files=2)
    assert [rows(last, *ends) for ends in pairwise([START, *two])] == [a + b, b + b, c]
    assert last.latestOffset(START, ReadAllAvailable()) == {"version": 3, "file": 0}, "as the trigger asks"
    assert last.getDefaultReadLimit() == ReadMaxFiles(2)


def test_what_is_there_now_ends_where_it_ended(path: Path, reader: Callable[..., ProbeLogReader]) -> None:
    one = reader(files=1)
    one.prepareForTriggerAvailableNow()
    commit(path, duplicates(3)[0])
    assert to_the_end(one, START)[-1] == {"version": 3, "file": 0}


def test_compaction_and_ageing_bring_nothing_new(path: Path, reader: Callable[..., ProbeLogReader]) -> None:
    table = DeltaTable(str(path))
    table.optimize.compact()
    table.delete("partition = 0")
    assert table.version() > 3
    one = reader()
    end = {"version": 3, "file": 0}
    assert one.latestOffset(end, ReadAllAvailable()) == end, "no batch for nothing"
    commit(path, duplicates(3)[1])
    news = {"version": table.version() + 2, "file": 0}
    assert to_the_end(one, end) == [news]
    assert rows(one, end, news) == len(duplicates(3)[1])


def test_an_offset_follows_a_log_in_which_nothing_new_comes(path: Path, reader: Callable[..., ProbeLogReader]) -> None:
    """Retention takes old commits away, and a restart begins at its offset."""
    table = DeltaTable(str(path))
    for number in range(25):
        table.alter.set_table_properties({"offsetwatch.test": str(number)}, raise_if_not_exists=False)
    end = {"version": 3, "file": 0}
    one = reader()
    assert to_the_end(one, end) == [{"version": 28, "file": 0}]
    assert one.partitions(end, {"version": 28, "file": 0}) == []


def test_a_commit_that_is_gone_is_a_gap_and_one_that_is_not_there_yet_is_none(
    path: Path, reader: Callable[..., ProbeLogReader]
) -> None:
    one = reader()
    end = {"version": 3, "file": 0}
    for _ in range(3):
        assert one.latestOffset(end, ReadAllAvailable()) == end
    (path / "_delta_log" / commit_name(1)).unlink()
    for act in (
        lambda: reader().latestOffset(START, ReadAllAvailable()),
        lambda: reader().partitions(START, end),
        lambda: reader(version=1).latestOffset({"version": 1, "file": 0}, ReadAllAvailable()),
    ):
        with pytest.raises(FileNotFoundError, match=f"{GONE} commit 1") as gone:
            act()
        assert isinstance(translated(gone.value, checkpoint=""), EvidenceGap)


def test_a_commit_that_is_taken_away_while_nobody_reads_is_found_missing(
    path: Path, reader: Callable[..., ProbeLogReader]
) -> None:
    """It was not there at the look before, and at the next one it has come and gone."""
    one = reader()
    end = {"version": 3, "file": 0}
    assert one.latestOffset(end, ReadAllAvailable()) == end
    for _ in range(2):
        commit(path, duplicates(3)[0])
    (path / "_delta_log" / commit_name(3)).unlink()
    with pytest.raises(FileNotFoundError, match=f"{GONE} commit 3"):
        for _ in range(100):
            one.latestOffset(end, ReadAllAvailable())


def test_a_table_whose_files_are_not_its_rows_is_refused(path: Path) -> None:
    add = {"path": "a", "size": 1, "dataChange": True}
    with pytest.raises(ValueError, match="deletion vector"):
        added(json.dumps({"add": add | {"deletionVector": {"storageType": "u"}}}))
    with pytest.raises(ValueError, match="other names"):
        added(json.dumps({"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}))
    assert added(json.dumps({"add": add | {"path": "date=2026-01-01/a%20b"}})) == [
        Added("date=2026-01-01/a b", 1, None)
    ]


def test_large_files_are_cut_and_small_ones_put_together(tmp_path: Path) -> None:
    small, large = [Added(f"s{i}", 1_000, 7) for i in range(1_000)], Added("l", (40 << 20) + 1, 10**6)
    tasks = split([*small, large], tmp_path)
    parts = [block for task in tasks for block in task.blocks]
    assert [block.path for block in parts[:1_000]] == [str(tmp_path / one.path) for one in small], "in their order"
    assert [(block.end - block.start) for block in parts[1_000:]] == [16 << 20, 16 << 20, (8 << 20) + 1]
    assert {block.rows for block in parts[:1_000]} == {7}
    assert {block.rows for block in parts[1_000:]} == {None}
    for task in tasks:
        assert sum(block.end - block.start for block in task.blocks) <= 16 << 20
    assert split([], tmp_path) == []


def test_a_read_gives_bundles(path: Path, reader: Callable[..., ProbeLogReader]) -> None:
    one = reader()
    (task,) = one.partitions(START, {"version": 3, "file": 0})
    assert isinstance(task, Blocks)
    (bundles,) = one.read(task)
    assert bundles.schema.names == ["cluster", "topic_id", "part", "rejected", "payload"]
    assert not any(bundles["rejected"].to_pylist())


def test_a_file_of_many_row_groups_is_read_once_by_its_tasks(tmp_path: Path) -> None:
    history = partition_rows(Plan("bulk", 640_000, partitions=1), 0)
    write_deltalake(str(tmp_path), history, partition_by=["date"])
    one = ProbeLogReader({"path": str(tmp_path), "version": "0", "files": "9", "bytes": "1"})
    assert rows(one, START, one.latestOffset(START, ReadMaxFiles(9))) == history.num_rows
    assert isinstance(history, pa.Table)
