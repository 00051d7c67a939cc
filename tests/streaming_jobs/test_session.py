"""A session that could not be called back is refused, instead of waiting for ever in its first batch; its workers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deploy import class_archive
from deploy.java import java
from streaming_jobs import session, warming, worker_start
from streaming_jobs.errors import SessionError
from streaming_jobs.warming import warm


def test_the_jvm_can_call_back_however_many_files_are_open_later(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert gateway._callback_server.server_socket.fileno() < 1024


def test_what_the_state_server_says_of_absent_keys_is_left_out(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger(session.STATE_SERVER)
    assert jvm.java.lang.Class.forName(session.STATE_SERVER).getName() == session.STATE_SERVER, "Spark has moved it"
    logger.warn("Map state chunks doesn't contain key [186b5cfa0bff263d.0].")
    logger.warn("Value state partition doesn't contain a value.")
    logger.warn("another trouble of the state server")
    configured = jvm.java.lang.System.getProperty("log4j2.configurationFile")
    said = Path(url2pathname(urlsplit(configured).path)).with_name("spark.log").read_text()
    assert "another trouble of the state server" in said
    assert "doesn't contain" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
def test_the_jvm_maps_the_class_archive(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._gateway
    mapped = Path(f"/proc/{jvm.jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert str(class_archive.of_spark(java()).resolve()) in mapped


def test_too_many_open_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_000)]
    try:
        with pytest.raises(SessionError, match="files open"):
            session._open_callbacks(spark.sparkContext._gateway)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _forked_with(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    there = "streaming_jobs.verdicts.part_checks" in sys.modules and gc.get_freeze_count() > 10_000
    yield pa.RecordBatch.from_pydict({"there": [there], "parent": [os.getppid()]})


def test_workers_of_every_kind_are_forked_from_one_process_that_holds_what_they_need(spark: SparkSession) -> None:
    columns = "there boolean, parent bigint"
    one = spark.range(0, 4, 1, 1).mapInArrow(_forked_with, columns).collect()
    rows = spark.range(0, 4, 1, 1).repartition(1).groupBy("id").applyInArrow(_first_of, columns).collect()
    assert {row.there for row in [*one, *rows]} == {True}
    assert len({row.parent for row in [*one, *rows]}) == 1


def _where_pyspark_is(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyspark

    yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__], "path": [os.pathsep.join(sys.path)]})


def test_workers_import_pyspark_from_where_it_is_installed_and_compiled(spark: SparkSession) -> None:
    """Spark's own archive of it comes first on their path, and is compiled anew by each process."""
    import pyspark

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(_where_pyspark_is, "file string, path string").collect()
    assert row.file == pyspark.__file__
    assert ".zip" not in row.path.replace(f"python{sys.version_info[0]}{sys.version_info[1]}.zip", "")
    assert "worker_start" not in row.path and "worker_start" not in os.environ.get("PYTHONPATH", "")


@pytest.mark.parametrize("there", [True, False])
def test_what_else_is_to_happen_as_python_starts_happens(there: bool, tmp_path: Path) -> None:
    (tmp_path / "pyspark.zip").touch()
    if there:
        (tmp_path / "sitecustomize.py").write_text("import sys; sys.seen = __name__")
    path = [Path(worker_start.__file__).parent, tmp_path / "pyspark.zip", tmp_path]
    said = subprocess.run(
        [sys.executable, "-c", "import sys; print(getattr(sys, 'seen', None), 'pyspark.zip' in str(sys.path))"],
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (said.stdout.split(), said.stderr) == ([str("sitecustomize" if there else None), "False"], "")


def test_workers_are_begun_once_for_each_session(spark: SparkSession) -> None:
    warming._warmed.discard(spark.sparkContext)
    status = spark.sparkContext.statusTracker()
    before = set(status.getJobIdsForGroup())
    warm(spark)
    begun = set(status.getJobIdsForGroup()) - before
    warm(spark)
    assert len(begun) == 1 and set(status.getJobIdsForGroup()) - before == begun


def _first_of(_: pa.Table) -> pa.Table:
    return pa.Table.from_batches(_forked_with(iter(())))


def test_what_jvms_left_that_a_full_disk_ended_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for left in ("spark-1d2a/userFiles", "blockmgr-77/0c", "warehouse", "shipped"):
        (tmp_path / left).mkdir(parents=True)
        (tmp_path / left / "bytes").write_bytes(b"x" * 1000)
    session._clear(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["shipped", "warehouse"]
