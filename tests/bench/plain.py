"""The yardstick: plain Spark SQL that explodes and sums the same polled records, stored as arrays of records."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from tests.bench.histories import Plan, partition_rows
from tests.bench.report import rate, show

_RECORD = pa.struct([("writer", pa.int64()), ("seq", pa.int64()), ("offset", pa.int64())])


def prepare(plan: Plan, folder: Path) -> None:
    """One Parquet file for each partition: a row per poll, its records in an array."""
    folder.mkdir(parents=True, exist_ok=True)
    for partition in range(plan.partitions):
        path = folder / f"{partition}.parquet"
        if not path.exists():
            _write(partition_rows(plan, partition), path)


def _write(rows: pa.Table, path: Path) -> None:
    polls = rows.filter(pc.greater(pc.fill_null(pc.list_value_length(rows["polled"]), 0), 0))["polled"].combine_chunks()
    polls = pa.concat_arrays(polls.chunks) if isinstance(polls, pa.ChunkedArray) else polls
    runs = pc.list_flatten(polls)
    length = runs.field("length").to_numpy()
    owner = np.repeat(np.arange(len(length)), length)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    columns = [
        pa.array(runs.field("writer").to_numpy()[owner]),
        pa.array(runs.field("seq").to_numpy()[owner] + within),
        pa.array(runs.field("offset").to_numpy()[owner] + within),
    ]
    per_poll = np.bincount(pc.list_parent_indices(polls).to_numpy()[owner], minlength=len(polls))
    offsets = np.concatenate(([0], np.cumsum(per_poll))).astype(np.int32)
    records = pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(_RECORD)))
    pq.write_table(pa.table({"records": records}), path, row_group_size=4_000)


def _query(spark: SparkSession, folder: Path) -> DataFrame:
    """A new one each time: a collected one keeps its shuffle files and would not read again."""
    records = spark.read.parquet(str(folder)).select(sql.explode("records").alias("r"))
    return records.agg(sql.count("*"), sql.sum("r.offset"), sql.sum("r.seq"), sql.sum("r.writer"))


JAVA_OPTIONS = ("-XX:TieredStopAtLevel=4",)
"""Spark at its best: here the JVM does the work, and compiling it well pays."""


def run(plan: Plan, folder: Path, spark: SparkSession) -> float:
    """Records per second, the first run left out."""
    prepare(plan, folder)
    _query(spark, folder).collect()
    began = time.perf_counter()
    count = _query(spark, folder).collect()[0][0]
    seconds = time.perf_counter() - began
    show(f"plain Spark SQL, {plan.shape}: explode and sum", {"records": f"{count:,}", "rate": rate(count, seconds)})
    return float(count / seconds)
