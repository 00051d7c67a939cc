"""The probe log's files read as columns: every row once, wherever a file is cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from rules.step import step
from rules.vocabulary.encodings import compacted
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import to_table
from streaming_jobs.config import JobConfig
from streaming_jobs.history.block import Block
from streaming_jobs.history.files import read, tables
from streaming_jobs.history.layout import by_delta
from streaming_jobs.history.log_source import added, commit_name, split
from streaming_jobs.history.source import is_plain
from streaming_jobs.history.validation import CHECKED_SCHEMA
from streaming_jobs.integrity_job import Batch, Listeners
from streaming_jobs.tables.delta_tables import read_table
from tests.bench.histories import Plan, partition_rows
from tests.known import a_folder
from tests.streaming_jobs.checking import check_all
from tests.streaming_jobs.probe_log import commit, duplicates


@pytest.fixture
def rows() -> pa.Table:
    return partition_rows(Plan("bulk", 64_000, partitions=1), 0)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 50])
def test_wherever_a_file_is_cut_each_row_is_read_once(tmp_path: Path, rows: pa.Table, pieces: int) -> None:
    path = tmp_path / "a file %3D ü.parquet"
    pq.write_table(rows, path, row_group_size=40)
    assert pq.ParquetFile(path).num_row_groups > 5
    size = path.stat().st_size
    cuts = [size * i // pieces for i in range(pieces)] + [size]
    got = [part for start, end in pairwise(cuts) for part in read(Block(str(path), start, end, None))]
    assert pa.concat_tables(got).to_pylist() == rows.select(CHECKED_SCHEMA.names).to_pylist()


def test_a_file_that_does_not_hold_what_its_commit_says_fails(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path)
    whole = Block(str(path), 0, path.stat().st_size, 3)
    with pytest.raises(ValueError, match=f"a file of 3 rows was read as {rows.num_rows}"):
        list(tables([whole]))
    path.unlink()
    with pytest.raises(FileNotFoundError, match="the probe log no longer has its file"):
        list(tables([whole]))


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows.drop(["settings", "group"]), path)
    (got,) = read(Block(str(path), 0, path.stat().st_size, rows.num_rows))
    assert got.schema.names == CHECKED_SCHEMA.names
    assert got["settings"].null_count == got.num_rows
    assert got["settings"].type == CHECKED_SCHEMA.field("settings").type


@pytest.mark.spark
def test_tasks_read_parts_of_a_file_and_the_job_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    config = JobConfig.model_validate({"root": tmp_path / "a b ü", "history_wait": 0})
    history = partition_rows(Plan("bulk", 20_000_000, partitions=1), 0)
    properties = WriterProperties(
        max_row_group_size=4_000,
        write_batch_size=4_000,
        compression="UNCOMPRESSED",
        default_column_properties=ColumnProperties(dictionary_enabled=False),  # large with few rows
    )
    write_deltalake(str(config.history_path), history, partition_by=["date"], writer_properties=properties)
    (file,) = a_folder(config.history_path).rglob("*.parquet")
    assert len(split(added(commit_text(config, 0)), config.history_path)) > 1, file.stat().st_size
    done: list[Batch] = []
    check_all(config, spark, Listeners([done.append]))
    assert sum(b.stats.slices for b in done) == history.num_rows
    assert sum(b.findings.num_rows for b in done) == 0
    assert done[-1].states["polled"].to_pylist() == [done[-1].stats.polled]


def test_spark_reads_what_was_compacted(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    """Its vectorized reader does not know all encodings."""
    history = tmp_path / "history"
    for part in (rows.slice(0, 10), rows.slice(10)):
        write_deltalake(history, part, mode="append", partition_by=["date"])
    old = {*history.rglob("*.parquet")}
    DeltaTable(str(history)).optimize.compact(writer_properties=compacted())
    (new,) = {*history.rglob("*.parquet")} - old
    seen = spark.read.parquet(str(new))
    assert spark.conf.get("spark.sql.parquet.enableVectorizedReader") == "true"
    columns = ["process", "slice", "op", "mono_completed"]
    assert sorted(map(tuple, seen.select(*columns).collect())) == sorted(
        zip(*rows.select(columns).to_pydict().values(), strict=True)
    )


def commit_text(config: JobConfig, version: int) -> str:
    return (config.history_path / "_delta_log" / commit_name(version)).read_text()


@pytest.mark.spark
@pytest.mark.parametrize("before", [False, True])
def test_a_table_with_deletion_vectors_is_read_through_spark(
    spark: SparkSession, config: JobConfig, before: bool
) -> None:
    """A query that began before it had them goes on as it began: without any of them its files are its rows."""
    parts = duplicates(3)
    commit(config.history_path, parts[0])
    if before:
        check_all(config, spark)
    path = a_folder(config.history_path).absolute()
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    assert not is_plain(path)
    for part in parts[1:]:
        rows = to_table(part)
        spark.createDataFrame(rows).select(*rows.schema.names).write.format("delta").mode("append").save(str(path))
        check_all(config, spark)
    assert by_delta(config.checkpoint_path) is not before
    whole = to_table([row for part in parts for row in part])
    expected = [finding.id for stepped in step({}, whole, Objectives()).values() for finding in stepped.findings]
    assert sorted(read_table(config.tables_path, "findings")["id"].to_pylist()) == sorted(expected)
