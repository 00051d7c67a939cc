"""Rows in which nothing stands out wait a moment for those that follow; what stands out waits for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rules.vocabulary.slices import Irregular, Slice
from streaming_jobs.config import JobConfig, ObjectivesConfig
from streaming_jobs.history.block import Block
from streaming_jobs.history.holding import MOST_COMMITS, Holding
from streaming_jobs.history.log_source import Offset, ProbeLogReader, added, commit_name, split
from streaming_jobs.integrity_job import Batch, IntegrityJob, Listeners
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings
from tests.rules.histories import History
from tests.streaming_jobs.probe_log import commit
from tests.streaming_jobs.test_job import until

HOLD, ALERT = 2.5, 30.0


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Log:
    """A probe log that grows by a healthy second, or by another row, and one that looks at it."""

    def __init__(self, path: Path) -> None:
        self.path, self.history, self.clock = path, History(), Clock()
        self.holding = Holding(HOLD, ALERT, clock=self.clock)
        self.version = -1
        self.second = 0

    def healthy(self) -> None:
        begin = len(self.history.rows)
        at = 5 * self.second
        self.second += 1
        self.history.send("w", at, 5, at=at)
        self.history.poll("r", [("w", at, 5, at)])
        self.commit(self.history.rows[begin:])

    def commit(self, rows: Sequence[Slice]) -> None:
        commit(self.path, rows)
        self.version += 1
        text = (self.path / "_delta_log" / commit_name(self.version)).read_text()
        self.look([block for task in split(added(text), self.path) for block in task.blocks])

    def look(self, blocks: Sequence[Block]) -> None:
        self.holding.look(self.version, blocks)

    def holds_after(self, seconds: float) -> bool:
        self.clock.time += seconds
        return self.holding.holds()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log(tmp_path / "history")
    for _ in range(3):
        made.healthy()
    return made


def test_a_query_begins_by_holding_nothing(log: Log) -> None:
    assert [log.holds_after(seconds) for seconds in (0, 1, 1, ALERT - 2.1)] == [False] * 4
    assert [log.holds_after(1) for _ in range(3)] == [True, True, False], "and then as long as was asked for"


def test_a_healthy_second_waits_and_what_stands_out_does_not(log: Log) -> None:
    log.holds_after(ALERT)
    log.healthy()
    assert log.holds_after(0.1)
    log.history.irregular("r", Irregular(0, 15, "corrupted", 1))
    log.commit(log.history.rows[-1:])
    assert not log.holds_after(0)
    log.healthy()
    assert not log.holds_after(ALERT - 0.1), "what waits for something missing is judged in this time"
    log.healthy()
    assert log.holds_after(1)


def test_a_commit_is_looked_at_once(log: Log) -> None:
    log.history.irregular("r", Irregular(0, 15, "corrupted", 1))
    log.commit(log.history.rows[-1:])
    log.clock.time += ALERT + HOLD
    log.look(blocks_of(log))
    assert not log.holds_after(0)
    assert log.holds_after(1)


def blocks_of(log: Log) -> list[Block]:
    text = (log.path / "_delta_log" / commit_name(log.version)).read_text()
    return [block for task in split(added(text), log.path) for block in task.blocks]


@pytest.fixture
def unseen(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """A healthy second that nobody has looked at yet, while what came before it waits."""
    log.holds_after(ALERT)
    log.healthy()
    assert log.holds_after(1)
    with monkeypatch.context() as blind:
        blind.setattr(log, "look", lambda blocks: None)
        log.healthy()
    return blocks_of(log)


def test_a_healthy_second_is_looked_at_and_waits(log: Log, unseen: list[Block]) -> None:
    log.holding.look(log.version, unseen, MOST_COMMITS - 1)
    assert log.holds_after(0)


def test_checks_that_are_behind_do_not_wait(log: Log, unseen: list[Block]) -> None:
    log.holding.look(log.version, [], MOST_COMMITS)
    assert log.holds_after(0), "it added nothing"
    log.holding.look(log.version, unseen, MOST_COMMITS)
    assert not log.holds_after(0)


@pytest.mark.parametrize("bound", ["MOST_ROWS", "MOST_BYTES"])
def test_more_than_is_looked_at_does_not_wait(
    log: Log, unseen: list[Block], bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"streaming_jobs.history.holding.{bound}", 1)
    log.holding.look(log.version, unseen)
    assert not log.holds_after(0)


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda block: Block(block.path, block.start, block.end, None),
        lambda block: Block(block.path, block.start, block.end, block.rows + 1),
        lambda block: Block(block.path + ".gone", block.start, block.end, block.rows),
    ],
    ids=["rows untold", "not as many as told", "gone"],
)
def test_what_cannot_be_looked_at_is_not_held(log: Log, unseen: list[Block], spoilt: Callable[[Block], Block]) -> None:
    log.holding.look(log.version, [spoilt(block) for block in unseen])
    assert not log.holds_after(0)
    log.clock.time += ALERT
    log.healthy()
    log.holds_after(HOLD)
    assert log.holds_after(1), "and afterwards all is as before"


def test_the_source_holds_until_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("streaming_jobs.history.holding.time.monotonic", clock)
    monkeypatch.setattr(Holding.__init__, "__kwdefaults__", {"clock": clock})
    log = Log(tmp_path / "history")
    log.healthy()
    options = {
        "path": str(log.path),
        "version": "0",
        "files": "1000",
        "bytes": str(1 << 30),
        "hold": "2.5",
        "alert": "5",
    }
    reader = ProbeLogReader(options)

    def reached(start: Offset) -> int:
        return reader.latestOffset(start, reader.getDefaultReadLimit())["version"]

    assert reached({"version": 0, "file": 0}) == 1
    clock.time += 10
    for _ in range(2):
        log.healthy()
    assert reached({"version": 1, "file": 0}) == 3, "nothing was offered for long"
    log.healthy()
    clock.time += 1
    assert reached({"version": 3, "file": 0}) == 3
    log.history.irregular("r", Irregular(0, 15, "corrupted", 1))
    log.commit(log.history.rows[-1:])
    assert reached({"version": 3, "file": 0}) == 5
    clock.time += 6
    log.healthy()
    assert reached({"version": 5, "file": 0}) == 6
    log.healthy()
    assert reached({"version": 6, "file": 0}) == 6
    reader.prepareForTriggerAvailableNow()
    assert reached({"version": 6, "file": 0}) == 7, "what is there now is all checked now"


def test_a_source_that_is_not_asked_to_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holding, "_stands_out", lambda *_: pytest.fail("it looked all the same"))
    log = Log(tmp_path / "history")
    log.holding = Holding(0.0, ALERT, clock=log.clock)
    log.healthy()
    reader = ProbeLogReader({"path": str(log.path), "version": "0", "files": "1000", "bytes": str(1 << 30)})
    for version in range(3):
        start = {"version": version, "file": 0}
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"version": version + 1, "file": 0}
        log.healthy()


def waits(log: Log, batches: list[Batch]) -> bool:
    """Whether a healthy second is not checked within six."""
    checked = len(batches)
    log.healthy()
    time.sleep(6)
    return len(batches) == checked


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_job_checks_what_stands_out_at_once_and_the_rest_with_it(
    spark: SparkSession, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a minute nothing but what stands out makes a batch, and then nothing is left out."""
    monkeypatch.setattr("streaming_jobs.history.source._ALERT", 1.0)  # so long a start waits for nothing
    patient = config.model_copy(update={"hold": 60.0, "objectives": ObjectivesConfig(grace=0.1, delivery=0.1)})
    batches: list[Batch] = []
    log = Log(patient.history_path)  # type: ignore[arg-type]
    log.healthy()
    job = IntegrityJob(patient, spark, Listeners([batches.append]))
    job.start()
    try:
        until(lambda: len(batches) == 1)
        until(lambda: waits(log, batches))  # the start is over
        checked = len(batches)
        for _ in range(3):
            log.healthy()
            time.sleep(1)
        assert len(batches) == checked, "three healthy seconds wait"
        row = log.history.poll("r", [("w", 3, 1, 5 * log.second)])
        log.commit([row, log.history.mark()])
        began = time.monotonic()
        until(lambda: len(batches) == checked + 1)
        assert time.monotonic() - began < 45, "and not for the minute"
    finally:
        job.stop()
    found = current_findings(patient.tables_path)
    assert found["anomaly"].to_pylist() == ["duplicate"]
    [state] = read_table(patient.tables_path, "partition_state").to_pylist()
    assert state["polled"] == 5 * log.second + 1
