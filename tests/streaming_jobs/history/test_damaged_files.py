"""A data file of the probe log that is gone, or whose bytes have changed: its rows are lost, and named; nothing else
is, and the checks go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from rules.vocabulary.slices import Slice
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import EvidenceGap, JobError, TableError, WorkerLate
from streaming_jobs.history import damage
from streaming_jobs.integrity_job import IntegrityJob, Listeners
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings
from tests.known import a_folder
from tests.streaming_jobs.checking import check_all
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.test_job import Told, expected, until, written

Hurt = Callable[[Path], None]


def rots(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)


def is_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def is_deleted(file: Path) -> None:
    file.unlink()


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    return JobConfig.model_validate({"root": tmp_path / "data", "history_wait": 0})


HURTS = [rots, is_cut, is_deleted]
any_hurt = pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
on_spark = pytest.mark.parametrize("hurt", [rots, is_deleted], ids=lambda hurt: hurt.__name__)


def committed(config: JobConfig, rows: list[Slice]) -> Path:
    """The file of one more commit."""
    before = set(a_folder(config.history_path).rglob("*.parquet"))
    commit(config.history_path, rows)
    (file,) = set(a_folder(config.history_path).rglob("*.parquet")) - before
    return file


def duplicates_told(config: JobConfig) -> set[str]:
    return {r["id"] for r in current_findings(config.tables_path).to_pylist() if r["anomaly"] == "duplicate"}


def check_what_is_said(config: JobConfig, file: Path, hurt: Hurt) -> None:
    rows = read_table(config.tables_path, "findings").sort_by("at").to_pylist()
    gaps = [r for r in rows if r["anomaly"] == "evidence-gap"]
    assert [r["event"] for r in gaps] == ["opened", "closed"]
    assert file.name in gaps[0]["evidence"]
    assert "no longer there" in gaps[0]["message"] if hurt is is_deleted else "cannot be read" in gaps[0]["message"]
    aside = file.with_name(f"{file.name}.damaged")
    assert aside.is_file() and bool(aside.stat().st_size) == (hurt is not is_deleted)
    table = DeltaTable(str(config.history_path))
    assert file.name not in str(table.file_uris())
    assert table.optimize.compact()["numFilesAdded"] >= 1
    assert len(set(written(config))) == len(written(config))


def begun(config: JobConfig, spark: SparkSession, listeners: Listeners) -> IntegrityJob:
    job = IntegrityJob(config, spark, listeners)
    job.start()
    return job


def checked(
    begin: Callable[[], IntegrityJob], told: Told, config: JobConfig, ids: set[str], job: IntegrityJob | None = None
) -> IntegrityJob:
    """The job that is at work once these are told; another is begun where a worker of Spark's was late."""
    job = job or begin()
    while True:
        until(lambda: duplicates_told(config) == ids or bool(told.failures))
        if not told.failures:
            return job
        assert isinstance(late := told.failures.pop(), WorkerLate), late
        job.stop()
        job = begin()


@pytest.mark.spark
@on_spark
def test_the_stream_goes_on_without_it(spark: SparkSession, config: JobConfig, hurt: Hurt) -> None:
    parts, told = duplicates(5), Told()
    rebuilt: list[str] = []
    listeners = replace(told.listeners, on_rebuild=[rebuilt.append])
    commit(config.history_path, parts[0])
    begin = partial(begun, config, spark, listeners)
    job = checked(begin, told, config, expected(parts[:1]))
    job.stop()
    commit(config.history_path, parts[1])
    hurt(file := committed(config, parts[2]))
    commit(config.history_path, parts[3])
    rest = expected(parts[:2]) | (expected(parts[:4]) - expected(parts[:3]))
    job = checked(begin, told, config, rest)
    commit(config.history_path, parts[4])
    rest |= expected(parts) - expected(parts[:4])
    job = checked(begin, told, config, rest, job)
    job.stop()
    assert not told.failures and not rebuilt
    check_what_is_said(config, file, hurt)
    assert {r["anomaly"] for r in current_findings(config.tables_path).to_pylist()} == {"duplicate", "evidence-gap"}


@pytest.mark.spark
@on_spark
def test_a_rebuild_goes_on_without_it(spark: SparkSession, config: JobConfig, hurt: Hurt) -> None:
    """The stream had read it before it was lost."""
    parts = duplicates(4)
    commit(config.history_path, parts[0])
    file = committed(config, parts[1])
    commit(config.history_path, parts[2])
    check_all(config, spark)
    assert duplicates_told(config) == expected(parts[:3])
    hurt(file)
    for one in a_folder(config.checkpoint_path).rglob("*"):
        if one.is_file():
            one.unlink()
    commit(config.history_path, parts[3])
    check_all(config, spark)
    assert duplicates_told(config) == expected(parts)
    check_what_is_said(config, file, hurt)


@any_hurt
def test_a_log_that_is_not_tended_here_is_left_as_it_is(tmp_path: Path, hurt: Hurt) -> None:
    config = JobConfig.model_validate({"root": tmp_path, "upkeep": {"enabled": False}})
    hurt(file := committed(config, duplicates(1)[0]))
    files = sorted(a_folder(config.history_path).rglob("*"))
    with pytest.raises(JobError, match=file.name):
        Rebuild(config).run("its checkpoint is gone")
    assert sorted(a_folder(config.history_path).rglob("*")) == files


def test_a_file_that_cannot_be_read_now_is_none_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk gives an error: another look may succeed."""
    config = JobConfig(root=tmp_path)
    file = committed(config, duplicates(1)[0])
    assert damage.found(config.history_path, everything=True) == []

    def fails(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fails)
        assert damage.found(config.history_path, everything=True) == []
    file.write_bytes(b"")
    assert [one.path for one in damage.found(config.history_path, everything=True)] == [str(file)]
    assert damage.found(config.history_path) == [], "each file is only read where one is known to be damaged"
    file.unlink()
    assert [one.path for one in damage.found(config.history_path)] == [str(file)]


def test_what_retention_has_taken_is_not_damaged(tmp_path: Path) -> None:
    config = JobConfig(root=tmp_path)
    file = committed(config, duplicates(1)[0])
    DeltaTable(str(config.history_path)).optimize.compact()
    DeltaTable(str(config.history_path)).delete()
    file.unlink(missing_ok=True)
    assert damage.found(config.history_path, everything=True) == []
    assert not isinstance(EvidenceGap("x"), TableError)
