"""The probe log's files read as columns: every block once and whole, wherever Spark cuts them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from streaming_jobs.config import JobConfig
from streaming_jobs.history.files import COLUMNS, Block, blocks, read, tables
from streaming_jobs.history.source import plain
from streaming_jobs.history.validation import CHECKED_SCHEMA
from streaming_jobs.integrity_job import Batch, IntegrityJob, Listeners
from tests.bench.histories import Plan, partition_rows
from tests.streaming_jobs.probe_log import commit, duplicates


@pytest.fixture
def rows() -> pa.Table:
    return partition_rows(Plan("bulk", 64_000, partitions=1), 0)


def batch(*named: tuple[str, int, int]) -> pa.RecordBatch:
    columns = [pa.array([n[i] for n in named]) for i in range(3)]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def test_equal_rows_are_one_block_also_across_batches() -> None:
    a, b, c = ("file:///a", 0, 10), ("file:///a", 10, 10), ("file:///b", 10, 10)
    got = list(blocks(iter([batch(a, a), batch(a, b), batch(c, c), batch(c)])))
    assert got == [Block(*a, 3), Block(*b, 1), Block(*c, 3)]
    assert list(blocks(iter([]))) == []


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 50])
def test_wherever_a_file_is_cut_each_row_is_read_once(tmp_path: Path, rows: pa.Table, pieces: int) -> None:
    path = tmp_path / "a file %3D ü.parquet"
    pq.write_table(rows, path, row_group_size=40)
    assert pq.ParquetFile(path).num_row_groups > 5
    size = path.stat().st_size
    cuts = [size * i // pieces for i in range(pieces)] + [size]
    got = []
    for start, end in pairwise(cuts):
        uri = path.as_uri()
        try:
            got += list(read(Block(uri, start, end - start, -1)))
        except ValueError as miscounted:  # that is how many rows there are: Spark would have counted them
            count = int(str(miscounted).rsplit(" ", 1)[1])
            got += list(read(Block(uri, start, end - start, count)))
    assert pa.concat_tables(got).to_pylist() == rows.select(CHECKED_SCHEMA.names).to_pylist()


def test_a_block_that_is_not_what_spark_counted_fails(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path)
    told = (path.as_uri(), 0, path.stat().st_size)
    with pytest.raises(ValueError, match=f"a block of 3 rows was read as {rows.num_rows}"):
        list(tables(iter([batch(told, told, told)])))


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows.drop(["settings", "group"]), path)
    (got,) = read(Block(path.as_uri(), 0, path.stat().st_size, rows.num_rows))
    assert got.schema.names == CHECKED_SCHEMA.names
    assert got["settings"].null_count == got.num_rows
    assert got["settings"].type == CHECKED_SCHEMA.field("settings").type


@pytest.mark.spark
def test_spark_cuts_a_file_and_the_job_reads_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    config = JobConfig.model_validate({"root": tmp_path / "a b ü", "history_wait": 0})
    history = partition_rows(Plan("bulk", 640_000, partitions=1), 0)
    properties = WriterProperties(max_row_group_size=100, write_batch_size=100)
    write_deltalake(str(config.history_path), history, partition_by=["date"], writer_properties=properties)
    (file,) = config.history_path.rglob("*.parquet")
    done: list[Batch] = []
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: spark.conf.get(name) for name in names}
    try:
        for name in names:
            spark.conf.set(name, str(file.stat().st_size // 5))
        IntegrityJob(config, spark, Listeners([done.append])).run_available_now()
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
    assert sum(b.stats.slices for b in done) == history.num_rows
    assert sum(b.findings.num_rows for b in done) == 0
    assert done[-1].states["polled"].to_pylist() == [done[-1].stats.polled]


@pytest.mark.spark
def test_a_table_with_deletion_vectors_is_read_through_spark(spark: SparkSession, config: JobConfig) -> None:
    parts = duplicates(2)
    commit(config.history_path, parts[0])
    assert plain(DeltaTable(str(config.history_path)))
    path = config.history_path.absolute()
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    assert not plain(DeltaTable(str(path)))
    done: list[Batch] = []
    IntegrityJob(config, spark, Listeners([done.append])).run_available_now()
    assert sum(b.stats.slices for b in done) == len(parts[0])
    assert sum(b.findings.num_rows for b in done) > 0
