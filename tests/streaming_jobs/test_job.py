"""The job on real Spark and Delta: from a committed row to a finding in the table, across restarts and failures."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from rules.step import Stepped, UnknownFormat, step
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place, to_table
from streaming_jobs import integrity_job
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import HistoryMissing, JobError, StateFormat, TableError
from streaming_jobs.integrity_job import Batch, BatchProgress, IntegrityJob, Listeners
from streaming_jobs.log_watch import Clocks, patience
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings
from tests.known import a_folder
from tests.rules.histories import History
from tests.streaming_jobs.checking import check_all
from tests.streaming_jobs.checks import instead
from tests.streaming_jobs.probe_log import commit, duplicates, loose
from tests.waiting import looks

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@dataclass
class Told:
    """What a job told its listeners."""

    batches: list[Batch] = field(default_factory=list)
    progress: list[BatchProgress] = field(default_factory=list)
    failures: list[JobError] = field(default_factory=list)

    @property
    def listeners(self) -> Listeners:
        return Listeners([self.batches.append], [self.progress.append], [self.failures.append])


def until(met: Callable[[], bool], seconds: float = 400.0, *, doing: Callable[[], None] = lambda: None) -> None:
    """`doing` comes before each look."""
    deadline = time.monotonic() + seconds
    for _ in looks(0.02):
        doing()
        if met():
            return
        assert time.monotonic() < deadline, "waited in vain"


def has_told(told: Told, batches: int) -> bool:
    return len(told.batches) == batches


def expected(parts: list[Any]) -> set[str]:
    whole = to_table([row for part in parts for row in part])
    return {f.id for stepped in step({}, whole, Objectives()).values() for f in stepped.findings}


def written(config: JobConfig) -> list[tuple[str, str, datetime]]:
    events = read_table(config.tables_path, "findings")
    return list(zip(*(events[name].to_pylist() for name in ("id", "event", "at")), strict=True))


class EndsMeanwhile:
    """A query that is stopped while the watch asks whether it still runs."""

    def __init__(self, job: IntegrityJob) -> None:
        self._job = job

    @property
    def isActive(self) -> bool:
        self._job.abandon()
        return False

    def exception(self) -> None:
        return None


def test_a_query_that_is_stopped_while_it_is_looked_at_has_not_failed(spark: SparkSession, config: JobConfig) -> None:
    told = Told()
    job = IntegrityJob(config, spark, told.listeners)
    job._query = EndsMeanwhile(job)  # type: ignore[assignment]  # a query as far as it is asked
    job._tick()
    assert job.failure is None
    assert job.wait(0)


def test_from_commit_to_finding_restarted_in_between(spark: SparkSession, config: JobConfig) -> None:
    parts = duplicates(6)
    told = Told()
    commit(config.history_path, parts[0])
    job = IntegrityJob(config, spark, told.listeners)
    job.start()
    until(lambda: len(told.batches) >= 1)
    for part in parts[1:3]:
        commit(config.history_path, part)
    until(lambda: {i for i, _, _ in written(config)} == expected(parts[:3]))
    until(lambda: len(told.progress) >= 2)
    job.stop()
    assert job.wait(0)
    assert all(p.duration > 0 and p.input_rows > 0 for p in told.progress)

    # Files are compacted and the log is aged while nobody reads: none of it is news to the stream.
    DeltaTable(str(config.history_path)).optimize.compact()
    for part in parts[3:]:
        commit(config.history_path, part)
    again = Told()
    check_all(config, spark, again.listeners)
    assert sum(b.stats.slices for b in again.batches) == sum(len(part) for part in parts[3:])
    assert again.progress[-1].lag_versions == 0
    assert {i for i, _, _ in written(config)} == expected(parts)
    assert len(set(written(config))) == len(written(config))
    states = read_table(config.tables_path, "partition_state").to_pylist()
    assert {s["partition"]: (s["polled"], s["check_failed"]) for s in states} == {0: (36, None), 1: (36, None)}
    assert {r["partition"] for r in read_table(config.tables_path, "readers").to_pylist()} == {0, 1}


def test_every_batch_that_ended_between_two_looks_is_told(
    spark: SparkSession, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity_job, "_TICK", 3600.0)  # nobody looks but this test
    told = Told()
    parts = duplicates(3)
    commit(config.history_path, parts[0])
    job = IntegrityJob(config, spark, told.listeners)
    job.start()
    for number, part in enumerate(parts[1:], start=1):
        until(partial(has_told, told, number))
        commit(config.history_path, part)
    until(lambda: len(told.batches) == len(parts))
    assert not told.progress
    # Spark tells of a batch after its findings are written.
    until(lambda: len(told.progress) == len(parts), doing=job._tell_progress)
    job.stop()
    assert [p.batch for p in told.progress] == [b.number for b in told.batches]


def test_a_batch_that_is_run_again_after_its_writes_changes_no_table(spark: SparkSession, config: JobConfig) -> None:
    for part in duplicates(2):
        commit(config.history_path, part)
    check_all(config, spark)
    before = {n: read_table(config.tables_path, n) for n in ("findings", "partition_state", "readers", "rejected")}
    last = max((a_folder(config.checkpoint_path) / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()  # as if killed before Spark's commit
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    told = Told()
    check_all(config, spark, told.listeners)
    assert [(b.number, b.replayed) for b in told.batches] == [(int(last.name), True)]
    assert {n: read_table(config.tables_path, n) for n in before} == before


class _FailsFor:
    """The real checks, except on one partition."""

    def __init__(self, partition: int, error: type[Exception]) -> None:
        self.partition, self.error = partition, error

    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        if any(place.partition == self.partition for place in stored):
            raise self.error("broken")
        return step(stored, slices, objectives)


def test_one_failed_partition_and_one_odd_row_stop_nothing_else(spark: SparkSession, config: JobConfig) -> None:
    parts = duplicates(2, partitions=3)
    commit(config.history_path, parts[0])
    odd = History()
    odd.send("other", 0, 5, at=100)
    commit(config.history_path, loose(odd.rows, f="sent"))
    commit(config.history_path, parts[1])
    told = Told()
    config = config.model_copy(update={"max_files": 1})
    check = instead(_FailsFor(1, ZeroDivisionError))
    check_all(config, spark, told.listeners, check=check)

    healthy = expected([[r for r in part if r.partition != 1] for part in parts])
    rows = current_findings(config.tables_path).to_pylist()
    assert {r["id"] for r in rows if r["partition"] != 1} == healthy
    assert [(r["anomaly"], r["state"], r["opened"]) for r in rows if r["partition"] == 1] == [
        ("check-failed", "open", 1)
    ]
    states = {s["partition"]: s for s in read_table(config.tables_path, "partition_state").to_pylist()}
    assert states[1]["check_failed"] == "ZeroDivisionError: broken"
    assert states[1]["slices_behind"] == sum(row.partition == 1 for part in parts for row in part)
    assert states[0]["check_failed"] is None
    (rejected,) = read_table(config.tables_path, "rejected").to_pylist()
    assert (rejected["reason"], rejected["slice"]) == ("f is unknown", 0)
    assert sum(b.stats.rejected for b in told.batches) == 1


def test_a_state_of_another_version_ends_the_query_and_says_so(spark: SparkSession, config: JobConfig) -> None:
    commit(config.history_path, duplicates(1)[0])
    told = Told()
    job = IntegrityJob(config, spark, told.listeners, check=instead(_FailsFor(0, UnknownFormat)))
    job.start()
    with pytest.raises(StateFormat, match="another version of the checks"):
        job.wait(400)
    assert [type(f) for f in told.failures] == [StateFormat]
    job.stop()


def test_a_probe_log_that_is_not_there_yet(spark: SparkSession, config: JobConfig) -> None:
    with pytest.raises(HistoryMissing, match=r"There is no probe log in .*history"):
        IntegrityJob(config, spark).start()
    # A job that waits for it finds it, and one that is stopped meanwhile waits no longer.
    waiting = IntegrityJob(config.model_copy(update={"history_wait": 600}), spark)
    threading.Timer(0.3, waiting.stop).start()
    with pytest.raises(HistoryMissing):
        waiting.start()


def test_a_table_that_is_no_probe_log_is_refused(spark: SparkSession, config: JobConfig) -> None:
    commit(config.history_path, pa.table({"date": ["today"], "words": ["no"]}))
    with pytest.raises(TableError, match="is not a probe log: it has no column cluster"):
        IntegrityJob(config, spark).start()


def test_a_silent_probe_log_opens_evidence_stalled_and_a_row_closes_it(spark: SparkSession, config: JobConfig) -> None:
    parts = duplicates(2)
    commit(config.history_path, parts[0])
    told = Told()
    late = timedelta()

    def clock() -> datetime:
        return datetime.now(UTC) + late

    job = IntegrityJob(config, spark, told.listeners, clocks=Clocks(clock, clock))
    job.start()
    until(lambda: any(b.number == 0 for b in told.batches))
    late = timedelta(seconds=31)
    until(lambda: any(b.number is None for b in told.batches))
    job.stop()

    def stalled() -> list[tuple[str, str]]:
        rows = current_findings(config.tables_path).to_pylist()
        return [(r["cluster"], r["state"]) for r in rows if r["anomaly"] == "evidence-stalled"]

    assert stalled() == [("c", "open")]
    commit(config.history_path, parts[1])
    check_all(config, spark, clock=clock)  # after a restart
    assert stalled() == [("c", "closed")]


def behind(config: JobConfig) -> list[str]:
    rows = current_findings(config.tables_path).to_pylist()
    return [row["state"] for row in rows if row["anomaly"] == "checks-behind"]


def test_rows_wait_on_purpose_as_long_as_the_configuration_says(config: JobConfig) -> None:
    assert patience(config.model_copy(update={"trigger": 300.0, "hold": 3.0, "behind_limit": 120.0})) == 423.0


def test_rows_that_wait_for_a_late_batch_are_told_until_they_are_checked(
    spark: SparkSession, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jobs.log_watch.patience", lambda config: 1.5)
    first, second = duplicates(2)
    commit(config.history_path, first)
    config = config.model_copy(update={"hold": 0.0})
    told = Told()
    # The next batch after the first begins in an hour: as on a machine that has no time for it.
    job = IntegrityJob(config.model_copy(update={"trigger": 3600.0}), spark, told.listeners)
    job.start()
    until(lambda: bool(told.progress))
    assert behind(config) == []
    commit(config.history_path, second)
    until(lambda: behind(config) == ["open"])
    assert [b.number for b in told.batches if b.number is not None] == [0], "they are told before they are checked"
    job.stop()
    job = IntegrityJob(config, spark, told.listeners)
    job.start()
    until(lambda: behind(config) == ["closed"])
    job.stop()
    assert [b.number for b in told.batches if b.number is not None] == [0, 1]


def test_rows_that_wait_for_a_jvm_that_hangs_are_told(
    spark: SparkSession, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks it then waits with it."""
    monkeypatch.setattr("streaming_jobs.log_watch.patience", lambda config: 1.5)
    first, second = duplicates(2)
    commit(config.history_path, first)
    told = Told()
    job = IntegrityJob(config.model_copy(update={"hold": 0.0}), spark, told.listeners)
    job.start()
    until(lambda: bool(told.progress))
    assert spark._jvm is not None
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    os.kill(jvm, signal.SIGSTOP)
    try:
        commit(config.history_path, second)
        until(lambda: behind(config) == ["open"])
    finally:
        os.kill(jvm, signal.SIGCONT)
    until(lambda: behind(config) == ["closed"])
    job.stop()


def test_nothing_waits_any_more_where_a_start_finds_no_row_that_is_unchecked(
    spark: SparkSession, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jobs.log_watch.patience", lambda config: 1.5)
    first, second = duplicates(2)
    commit(config.history_path, first)
    config = config.model_copy(update={"hold": 0.0})
    told = Told()
    job = IntegrityJob(config.model_copy(update={"trigger": 3600.0}), spark, told.listeners)
    job.start()
    until(lambda: bool(told.progress))
    commit(config.history_path, second)
    until(lambda: behind(config) == ["open"])
    job.stop()
    check_all(config, spark)  # and the probes have ended: no batch comes any more
    job = IntegrityJob(config, spark, told.listeners)
    job.start()
    until(lambda: behind(config) == ["closed"])
    job.stop()


class _Waiting:
    """A watch over a log whose rows have waited for 100 s."""

    def waiting(self) -> float:
        return 100.0

    def batch_ended(self) -> None:
        """A rebuild is over."""


@pytest.mark.parametrize(("trigger", "waits"), [(0.0, 97.0), (30.0, 67.0), (600.0, 0.0)])
def test_for_how_long_rows_wait_for_spark(trigger: float, waits: float, config: JobConfig) -> None:
    """Beyond `hold`, 3 s, and `trigger`; not while a batch is in our hands, nor while state is rebuilt."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    job = IntegrityJob(config.model_copy(update={"trigger": trigger, "hold": 3.0}), cast(SparkSession, spark))
    assert (job.busy_for(), job.waits_for_spark()) == (0.0, 0.0), "nothing has begun"
    job._log_watch = cast(Any, _Waiting())
    assert (job.busy_for(), job.waits_for_spark()) == (waits, waits)
    job._busy_since = time.monotonic() - 50.0
    assert job.busy_for() == pytest.approx(50.0, abs=5.0) and job.waits_for_spark() == 0.0
    job._asked_since = time.monotonic() - 40.0
    assert job.waits_for_spark() == pytest.approx(40.0, abs=5.0), "its checks run in Spark"
    spark.sparkContext.master = "spark://elsewhere:7077"
    assert job.waits_for_spark() == 0.0, "which is at work elsewhere, and idle here"
    job._busy_since = job._asked_since = None
    told: list[tuple[float, float]] = []

    class Told:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self, why: str) -> None:
            told.append((job.busy_for(), job.waits_for_spark()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integrity_job, "Rebuild", Told)
        assert job._rebuilt("its checkpoint is gone")
    assert told == [(0.0, 0.0)]
    assert job.busy_for() == waits, "and then again"


def test_nobody_looks_at_the_log_while_state_is_rebuilt(config: JobConfig) -> None:
    """Rows wait for hours then, and nobody is behind."""
    looked: list[str] = []

    def look(*_: object) -> list[Any]:
        looked.append("look")
        return []

    job = IntegrityJob(config, cast(SparkSession, None))
    job._query = cast(Any, SimpleNamespace())
    job._log_watch = cast(Any, SimpleNamespace(look=look, silence=look))
    job._sink = cast(Any, SimpleNamespace(report=lambda *_, **__: None))
    job._rebuilding = True
    job._look_at_log()
    assert looked == []
    job._rebuilding = False
    job._look_at_log()
    assert looked == ["look", "look"]


def test_rows_that_wait_for_a_late_batch_are_no_silence_of_the_log(
    spark: SparkSession, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity_job, "_TICK", 3600.0)  # nobody looks but this test
    parts = duplicates(2)
    commit(config.history_path, parts[0])
    told = Told()
    late = timedelta()

    def later() -> datetime:
        return datetime.now(UTC) + late

    # The next batch after the first begins in an hour: as on a machine that has no time for it.
    rare = config.model_copy(update={"trigger": 3600.0, "hold": 0.0})
    job = IntegrityJob(rare, spark, told.listeners, clocks=Clocks(later, later))
    job.start()
    until(lambda: len(told.batches) == 1)
    until(lambda: bool(told.progress), doing=job._tell_progress)
    assert job.busy_for() == 0
    commit(config.history_path, parts[1])
    late = timedelta(seconds=31)
    appended = datetime.now(UTC) + late
    job._look_at_log()
    assert job.busy_for() == 0, "they wait on purpose"
    late = timedelta(seconds=59)
    job._look_at_log()
    assert [b.number for b in told.batches] == [0]
    late = timedelta(seconds=62)
    job._look_at_log()
    job.stop()
    (opened,) = (row for batch in told.batches[1:] for row in batch.findings.to_pylist())
    assert opened["anomaly"] == "evidence-stalled", "nothing was appended any more"
    came = datetime.fromisoformat(json.loads(opened["evidence"])["last_row"])
    assert appended <= came <= appended + timedelta(seconds=5), "as the rows came, which no batch has read"
