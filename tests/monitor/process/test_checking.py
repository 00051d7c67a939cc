"""The checks, kept at work: whatever ends them after the first batch, they begin again; before it, their user is told.

Spark is not here: what stands for its session and for the job ends as theirs were seen to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from alerts.receivers.memory import OnDisk
from monitor.config.config import Config, from_environment
from monitor.process import checking
from monitor.process.checking import CheckingListeners, Checks
from monitor.process.idleness import Idleness
from monitor.process.stall_note import StallNote
from rules.vocabulary.finding import Finding
from rules.vocabulary.finding import to_table as findings_table
from streaming_jobs import integrity_job, session
from streaming_jobs.batch_progress import BatchProgress
from streaming_jobs.errors import JobFailed, TableError, WorkerLate, translated
from tests.object_store import known_here, store

BATCH = BatchProgress(
    **dict.fromkeys(BatchProgress.__dataclass_fields__, 0)  # type: ignore[arg-type]
)
GONE = "Answer from Java side is empty"
OF_A_JVM_THAT_GOES = [
    (Py4JNetworkError(GONE), f"The integrity job ended: Py4JNetworkError: {GONE}"),
    (
        PySparkRuntimeError("the context was stopped"),
        "The integrity job ended: PySparkRuntimeError: the context was stopped",
    ),
    (TypeError("'JavaPackage' object is not callable"), "'JavaPackage' object is not callable"),
    (AttributeError("'NoneType' object has no attribute 'sc'"), "'NoneType' object has no attribute 'sc'"),
    (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
    (EOFError(), "EOFError"),
]


class Job:
    """A job whose first life checks one batch, then fails; the next ends as `starts` says; those after go on."""

    lives: ClassVar[int] = 0
    starts: ClassVar[Exception | None] = None
    serves: ClassVar[bool] = True

    def __init__(
        self, config: object, spark: object, listeners: Any, clocks: object, unwritten: Sequence[object]
    ) -> None:
        self._listeners = listeners
        self.unwritten = [*unwritten, f"told by life {self.lives + 1}"]
        type(self).lives += 1
        self._life = self.lives

    def start(self) -> None:
        if self.starts is not None and (self._life == 2 or not self.serves):
            raise self.starts
        for told in self._listeners.on_progress:
            told(BATCH)

    def wait(self, seconds: float) -> bool:
        if self._life == 1:
            raise JobFailed("The first life ends.")
        return False

    def busy_for(self) -> float:
        return 0.0

    def waits_for_spark(self) -> float:
        return 0.0

    def record(self, findings: Sequence[Finding]) -> None:
        """In the table, once it can be written."""

    def abandon(self) -> None:
        """Nothing is finished."""

    def stop(self) -> None:
        """Everything is."""


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> type[Job]:
    monkeypatch.setattr(integrity_job, "IntegrityJob", Job)
    monkeypatch.setattr(session, "start", lambda settings: None)
    monkeypatch.setattr(session, "kill", lambda: None)
    monkeypatch.setattr(checking, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(Job, "lives", 0)
    return Job


def config(folder: Path, *, tables: str = "") -> Config:
    told = {"OFFSETWATCH_DATA": str(folder), "OFFSETWATCH_JOB__CYCLES__ENABLED": "false"}
    return from_environment(told | ({"OFFSETWATCH_JOB__TABLES": tables} if tables else {}))


def told_to(lines: list[str], conditions: list[Finding]) -> CheckingListeners:
    return CheckingListeners(
        say=lines.append,
        on_batch=lambda batch: None,
        on_progress=[],
        on_cycles=lambda searched: None,
        on_condition=conditions.append,
    )


class Session:
    """What asks a session's JVM whether it is at work; `gone` it does not answer."""

    def __init__(self, *, gone: bool) -> None:
        self._gone = gone

    @property
    def sparkContext(self) -> Session:
        return self

    @property
    def _jsc(self) -> Session:
        return self

    def sc(self) -> Session:
        if self._gone:
            raise ConnectionRefusedError(111, "Connection refused")
        return self

    def isStopped(self) -> bool:
        return False


@pytest.mark.parametrize("gone", [True, False])
def test_what_python_says_of_a_jvm_that_went_in_the_first_start_is_one_line(
    gone: bool, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that YARN ends, where it started the monitor and its executors do not come. With one that is at work the
    error is a defect, and stays what it is."""
    error = ConnectionRefusedError(111, "Connection refused")
    monkeypatch.setattr(session, "start", lambda settings: Session(gone=gone))
    monkeypatch.setattr(job, "starts", error)
    monkeypatch.setattr(job, "serves", False)
    with pytest.raises((JobFailed, ConnectionRefusedError)) as raised:
        Checks(config(tmp_path), told_to([], [])).start()
    if gone:
        why = "The integrity job ended: Spark's Java process has gone, and its log may say why."
        assert isinstance(raised.value, JobFailed) and str(raised.value) == why
    else:
        assert raised.value is error


@pytest.mark.parametrize("where", ["session", "job"])
@pytest.mark.parametrize(("error", "why"), OF_A_JVM_THAT_GOES, ids=lambda of: type(of).__name__)
def test_an_error_while_they_begin_again_is_followed_by_another_start(
    where: str, error: Exception, why: str, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    conditions: list[Finding] = []
    if where == "session":
        sessions = iter([None, error, None])

        def start(settings: object) -> None:
            failure = next(sessions)
            if failure is not None:
                raise failure

        monkeypatch.setattr(session, "start", start)
    else:
        monkeypatch.setattr(job, "starts", error)
    checks = Checks(config(tmp_path), told_to(lines, conditions))
    checks.start()
    for _ in range(4):
        assert not checks.wait(0)
    checks.stop()
    assert [finding.evidence for finding in conditions] == [{"why": "The first life ends"}]
    said = [line for line in lines if "have stopped" in line or "go on, after" in line]
    assert said[0] == "the checks have stopped and begin again until they go on: The first life ends"
    assert [line.startswith("the checks go on, after ") for line in said[1:]] == [True]


@pytest.mark.parametrize(("error", "why"), OF_A_JVM_THAT_GOES, ids=lambda of: type(of).__name__)
def test_the_reason_is_told_in_one_line(
    error: Exception, why: str, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions: list[Finding] = []
    monkeypatch.setattr(job, "wait", lambda self, seconds: (_ for _ in ()).throw(error))
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.start()
    assert not checks.wait(0)
    assert [finding.evidence for finding in conditions] == [{"why": why}]


@pytest.mark.parametrize(
    ("error", "attempts"), [(JobFailed("A worker failed to connect back."), 3), (TableError("No such table."), 1)]
)
def test_a_query_that_fails_before_its_first_batch_is_tried_a_few_times(
    error: Exception, attempts: int, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "start", lambda self: None)
    monkeypatch.setattr(job, "wait", lambda self, seconds: (_ for _ in ()).throw(error))
    lines: list[str] = []
    checks = Checks(config(tmp_path), told_to(lines, []))
    checks.start()
    with pytest.raises(type(error)):
        for _ in range(10):
            checks.wait(0)
    assert job.lives == attempts
    assert sum("have stopped and begin again" in line for line in lines) == (attempts > 1)


@pytest.fixture(scope="module")
def store_port() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.mark.parametrize("fails_in", ["start", "wait"])
def test_a_store_that_goes_away_before_the_first_batch_is_waited_for(
    fails_in: str, store_port: int, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monitor that took over rebuilds for minutes before its first batch, and had found the tables."""
    gone, there = "http://127.0.0.1:9", f"http://127.0.0.1:{store_port}"
    away = 2 * checking.FIRST_ATTEMPTS
    starts = Job.start

    def start(self: Job) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gone if self._life <= away else there)
        if self._life > away:
            starts(self)
        elif fails_in == "start":
            raise TableError("The table rechecks could not be read.")

    def wait(self: Job, seconds: float) -> bool:
        if self._life <= away:
            raise TableError("The table findings could not be written.")
        return False

    monkeypatch.setattr(job, "start", start)
    monkeypatch.setattr(job, "wait", wait)
    monkeypatch.setattr(checking, "LONGEST_PAUSE", 0.01)
    lines: list[str] = []
    conditions: list[Finding] = []
    with known_here(store_port, monkeypatch):
        checks = Checks(config(tmp_path, tables="s3://bucket/tables"), told_to(lines, conditions))
        checks.start()
        for _ in range(3 * away):
            assert not checks.wait(0)
        checks.stop()
    assert (job.lives, len(conditions)) == (away + 1, 1)
    assert [line for line in lines if "the checks" in line][-1].startswith("the checks go on, after ")


def test_a_table_that_a_store_at_work_does_not_let_us_read_ends_the_command(
    store_port: int, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "serves", False)
    monkeypatch.setattr(job, "starts", TableError("The table rechecks could not be read."))
    with known_here(store_port, monkeypatch):
        checks = Checks(config(tmp_path, tables="s3://bucket/tables"), told_to([], []))
        with pytest.raises(TableError, match="rechecks"):
            checks.start()


def test_a_worker_that_is_late_before_the_first_batch_stops_nothing_and_pages_nobody(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = translated(RuntimeError("Python worker failed to connect back."), checkpoint="c")
    monkeypatch.setattr(job, "start", lambda self: None)
    monkeypatch.setattr(job, "wait", lambda self, seconds: (_ for _ in ()).throw(late) if self._life <= 4 else False)
    sessions = iter([object()])
    monkeypatch.setattr(session, "start", lambda settings: next(sessions))
    monkeypatch.setattr(session, "kill", lambda: pytest.fail("the session serves the next attempt"))
    lines: list[str] = []
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to(lines, conditions))
    checks.start()
    for _ in range(12):
        assert not checks.wait(0)
    assert job.lives == 5
    assert conditions == []
    assert lines.count("Spark's workers are slow to start; trying again") == 4


def test_workers_that_never_come_are_an_error(job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = translated(RuntimeError("Python worker failed to connect back."), checkpoint="c")
    monkeypatch.setattr(job, "start", lambda self: None)
    monkeypatch.setattr(job, "wait", lambda self, seconds: (_ for _ in ()).throw(late))
    checks = Checks(config(tmp_path), told_to([], []))
    checks.start()
    with pytest.raises(WorkerLate):
        for _ in range(100):
            checks.wait(0)
    assert job.lives == checking.LATE_WORKERS + 1


def test_before_the_first_batch_sparks_errors_are_one_line_and_ours_are_what_they_are(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "serves", False)
    for error, raised in ((Py4JNetworkError(GONE), JobFailed), (ZeroDivisionError("ours"), ZeroDivisionError)):
        monkeypatch.setattr(job, "starts", error)
        checks = Checks(config(tmp_path), told_to([], []))
        with pytest.raises(raised):
            checks.start()


@pytest.mark.parametrize("error", [JobFailed("The query ended."), Py4JNetworkError(GONE)])
def test_where_spark_submit_gave_the_jvm_the_first_failure_ends_the_command(
    error: Exception, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(job, "wait", lambda self, seconds: (_ for _ in ()).throw(error))
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.start()
    with pytest.raises(JobFailed):  # one line, and no stack trace
        checks.wait(0)
    assert (job.lives, conditions) == (1, [])


def test_what_one_job_told_and_could_not_write_is_left_to_the_next(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Sequence[object]] = []
    begins = job.__init__

    def init(
        self: Job, config: object, spark: object, listeners: Any, clocks: object, unwritten: Sequence[object]
    ) -> None:
        given.append(unwritten)
        begins(self, config, spark, listeners, clocks, unwritten)

    monkeypatch.setattr(job, "__init__", init)
    checks = Checks(config(tmp_path), told_to([], []))
    checks.start()
    for _ in range(2):
        assert not checks.wait(0)
    assert given == [(), ["told by life 1"]]


@pytest.mark.parametrize(("waits", "idle", "stands"), [(61, 61, True), (61, 59, False), (59, 61, False)])
def test_a_batch_stands_still_where_rows_wait_and_spark_does_nothing(
    waits: float, idle: float, stands: bool, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "wait", lambda self, seconds: False)
    monkeypatch.setattr(job, "waits_for_spark", lambda self: waits if self._life == 1 else 0.0)
    monkeypatch.setattr(Idleness, "seconds", lambda self: idle)
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.start()
    for _ in range(3):
        assert not checks.wait(0)
    why = f"a batch stands still, and Spark has done nothing for {idle} s"
    assert [finding.evidence for finding in conditions] == ([{"why": why}] if stands else [])


class Recorded:
    """What jobs wrote to the findings, as the next monitor reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: type[Job]) -> None:
        self.findings: list[Finding] = []
        monkeypatch.setattr(job, "record", lambda _, findings: self.findings.extend(findings))

    @property
    def table(self) -> pa.Table:
        return findings_table([(one, "critical") for one in self.findings])

    @property
    def events(self) -> list[tuple[str, int]]:
        return [(one.event, one.at) for one in self.findings]


def stopped(job: type[Job], monkeypatch: pytest.MonkeyPatch, note: StallNote, folder: Path) -> Finding:
    """The stop that a monitor tells which ends before its checks go on."""
    conditions: list[Finding] = []
    checks = Checks(config(folder), told_to([], conditions))
    with monkeypatch.context() as broken:
        starts = job.start

        def start(self: Job) -> None:
            if self._life > 1:
                raise JobFailed("No space left on device.")
            starts(self)

        broken.setattr(job, "start", start)
        checks.take_over(note, Recorded(broken, job).table)
        checks.start()
        for _ in range(3):
            checks.wait(0)
        checks.stop()
    (opened,) = conditions
    return opened


def test_a_stop_that_a_monitor_did_not_outlive_ends_with_the_next_ones_first_batch(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = StallNote(OnDisk(tmp_path / "alerts" / "checks-stalled.json"))
    opened = stopped(job, monkeypatch, note, tmp_path)
    recorded = Recorded(monkeypatch, job)
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.take_over(note, recorded.table)
    assert conditions == [opened], "it is open still, since then"
    checks.start()
    (first, closed) = recorded.findings
    assert (first, closed.event, closed.id) == (opened, "closed", opened.id)
    assert closed.evidence["lasted_s"] >= 0
    later = Checks(config(tmp_path), told_to([], conditions))
    later.take_over(note, findings_table([]))
    assert conditions == [opened], "once, also where the findings were thinned since"
    again = Checks(config(tmp_path), told_to([], conditions))
    again.take_over(note, recorded.table)
    again.start()
    assert (conditions, recorded.findings) == ([opened], [opened, closed]), "once"


def test_a_stop_that_is_in_the_findings_already_is_not_told_again(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor was killed after it had written that, and before it had noted so."""
    note = StallNote(OnDisk(tmp_path / "note.json"))
    recorded = Recorded(monkeypatch, job)
    recorded.findings.append(stopped(job, monkeypatch, note, tmp_path))
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.take_over(note, recorded.table)
    assert conditions == []


def test_checks_that_stop_again_before_their_first_batch_have_stopped_once(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = StallNote(OnDisk(tmp_path / "note.json"))
    opened = stopped(job, monkeypatch, note, tmp_path)
    recorded = Recorded(monkeypatch, job)
    conditions: list[Finding] = []
    monkeypatch.setattr(job, "lives", 0)
    starts = job.start
    monkeypatch.setattr(job, "start", lambda self: None if self._life == 1 else starts(self))
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.take_over(note, recorded.table)
    checks.start()
    for _ in range(3):
        checks.wait(0)
    assert conditions == [opened]
    assert recorded.events == [("opened", opened.at), ("closed", recorded.findings[-1].at)]


@pytest.mark.parametrize("text", ["", "null", "[]", "not json", '{"since": "noon"}', '{"since": 1, "why": "x"}'])
def test_a_note_that_cannot_be_understood_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "note.json").write_text(text)
    assert StallNote(OnDisk(tmp_path / "note.json")).left(findings_table([])) is None
