"""Upkeep of the tables: planned purely, done on real Delta tables."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from probes.log.commits.history import TableProperties
from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.slices import to_table
from rules.vocabulary.times import micros
from streaming_jobs.config import JobConfig, UpkeepConfig
from streaming_jobs.integrity_job import IntegrityJob
from streaming_jobs.tables import data_file
from streaming_jobs.tables.delta_tables import open_table
from streaming_jobs.tables.upkeep import Step, Survey, Upkeep, act, plan
from tests.known import a_folder
from tests.streaming_jobs.probe_log import commit, duplicates

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def survey(name: str, **more: Any) -> Survey:
    given: dict[str, Any] = {"name": name, "small_files": 0, "log_files": 10, "oldest": None, "vacuumed": NOW}
    return Survey(**(given | more))


def test_a_tidy_table_is_left_alone() -> None:
    assert plan([survey("history", oldest=date(2026, 1, 2))], UpkeepConfig(), NOW) == []


def test_what_is_done_and_in_which_order() -> None:
    old = survey("history", oldest=date(2025, 1, 1), small_files=500, log_files=2000, vacuumed=None)
    assert plan([old], UpkeepConfig(history_days=10), NOW) == [
        Step(table="history", action="age", predicate="date < '2026-01-21'"),
        Step(table="history", action="compact"),
        Step(table="history", action="checkpoint"),
        Step(table="history", action="vacuum", hours=24),
    ]


def test_tables_that_are_replaced_are_vacuumed_and_no_more() -> None:
    busy = survey("partition_state", small_files=900, oldest=date(2020, 1, 1), vacuumed=NOW - timedelta(hours=2))
    assert plan([busy], UpkeepConfig(), NOW) == [Step(table="partition_state", action="vacuum", hours=1)]


def test_nothing_of_the_log_is_vacuumed_while_a_rebuild_reads_it() -> None:
    kept = survey("history", vacuumed=None, log_kept=True)
    assert plan([kept], UpkeepConfig(), NOW) == []
    assert plan([survey("history", vacuumed=None)], UpkeepConfig(), NOW) == [
        Step(table="history", action="vacuum", hours=24)
    ]


def test_the_log_is_let_go_once_the_stream_has_caught_up() -> None:
    def asked(**more: Any) -> list[Step]:
        return plan([survey("history", **more)], UpkeepConfig(), NOW)

    near, far = NOW - timedelta(minutes=19), NOW - timedelta(minutes=21)
    assert asked(log_kept=True, read_through=near) == [Step(table="history", action="let_go")]
    assert asked(log_kept=True, read_through=far) == asked(log_kept=True) == asked(read_through=near) == []


def test_what_is_only_counted_goes_once_a_day() -> None:
    counted = "event = 'raised' AND severity IN ('info', 'allowed') AND anomaly <> 'topic-recreated'"
    predicate = f"{counted} AND at < '2026-01-30T00:00:00Z'"
    thin = [Step(table="findings", action="thin", predicate=predicate)]
    old = date(2026, 1, 2)
    assert plan([survey("findings", oldest=old)], UpkeepConfig(), NOW) == thin
    assert plan([survey("findings", oldest=old, thinned=NOW - timedelta(hours=13))], UpkeepConfig(), NOW) == thin
    assert plan([survey("findings", oldest=old, thinned=NOW - timedelta(hours=11))], UpkeepConfig(), NOW) == []
    assert plan([survey("findings", oldest=date(2026, 1, 30))], UpkeepConfig(), NOW) == []


def test_what_people_are_told_of_stays_and_so_does_the_beginning_of_a_condition(tmp_path: Path) -> None:
    config = JobConfig(root=tmp_path)
    table = open_table(config.tables_path, "findings")
    long_ago, lately = (micros(NOW - timedelta(days=days)) for days in (9, 0.5))
    kept = [
        (found("duplicate", long_ago), "critical"),
        (found("rebalance", lately), "info"),
        (found("unseen", long_ago, event="opened"), "info"),
    ]
    gone = [(found("rebalance", long_ago, 2), "info"), (found("poll-skip", long_ago), "allowed")]
    columns = {"recorded": NOW, "counted": NOW}
    for judged in (kept, gone):
        rows = findings_table(judged)
        for name in table.spec.schema.names:
            if name not in rows.column_names:
                field = table.spec.schema.field(name)
                value = columns.get(name, "x" if pa.types.is_string(field.type) else None)
                rows = rows.append_column(field, pa.array([value] * rows.num_rows, field.type))
        table.write(rows.select(table.spec.schema.names).cast(table.spec.schema), mode="append")
    upkeep = Upkeep(config)
    assert any(line.startswith("findings: what is only counted aged out") for line in upkeep.run(NOW))
    assert sorted(table.read()["id"].to_pylist()) == sorted(finding.id for finding, _ in kept)
    assert not any("aged out" in line for line in upkeep.run(NOW))


def found(anomaly: str, at: int, subject: int = 1, event: Event = "raised") -> Finding:
    return Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id="t-id",
        topic="t",
        partition=3,
        subject=(subject,),
        event=event,
        message="a sentence",
        evidence={},
        at=at,
        decidable=at,
    )


def _day(rows: pa.Table, day: date) -> pa.Table:
    return rows.set_column(
        rows.schema.get_field_index("date"), rows.schema.field("date"), pa.array([day] * rows.num_rows)
    )


def test_small_files_are_compacted_and_old_days_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(data_file, "sync", synced.append)
    config = JobConfig.model_validate({"root": tmp_path, "upkeep": {"small_files": 5, "history_days": 10}})
    parts = [to_table(part) for part in duplicates(8)]
    for rows in parts[:2]:
        commit(config.history_path, _day(rows, date(2026, 1, 1)))
    for rows in parts[2:]:
        commit(config.history_path, _day(rows, NOW.date()))
    done = list(Upkeep(config).run(NOW))
    assert any("aged out" in line for line in done), done
    assert any("6 files compacted into 1" in line for line in done), done
    table = DeltaTable(str(config.history_path)).to_pyarrow_table()
    assert set(table["date"].to_pylist()) == {NOW.date()}
    (compact,) = DeltaTable(str(config.history_path)).file_uris()
    assert Path(compact) in synced, "what it replaces is deleted"
    columns = pq.ParquetFile(compact).metadata.row_group(0)
    told = {(one := columns.column(i)).path_in_schema: one.encodings for i in range(columns.num_columns)}
    assert "DELTA_BINARY_PACKED" in told["completed"] and "DELTA_BINARY_PACKED" not in told["topic"]
    assert table.num_rows == sum(rows.num_rows for rows in parts[2:])


def test_what_compaction_replaced_goes_also_when_the_log_no_longer_tells_of_it(tmp_path: Path) -> None:
    """A checkpoint leaves out removed files when these are some hours old, and vacuum comes for them after a day: then
    it asked the checkpoint, and of a canary's log two gigabytes a day stayed for ever."""
    config = JobConfig.model_validate({"root": tmp_path})
    for part in duplicates(8)[:6]:
        commit(config.history_path, part)
    path = a_folder(config.history_path)
    kept = "delta.deletedFileRetentionDuration"
    DeltaTable(str(path)).alter.set_table_properties({kept: TableProperties().configuration()[kept]})
    act(path, Step(table="history", action="compact"))
    (live,) = (Path(uri) for uri in DeltaTable(str(path)).file_uris())
    removed = [file for file in path.glob("date=*/*.parquet") if file != live]
    long_ago = time.time() - 25 * 3600
    for file in removed[1:]:
        os.utime(file, (long_ago, long_ago))
    os.utime(live, (long_ago, long_ago))
    for one in (path / "_delta_log").glob("*.json"):  # as if it had been a day ago
        told = [orjson.loads(line) for line in one.read_bytes().splitlines()]
        for action in told:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = int(long_ago * 1000)
        one.write_bytes(b"\n".join(map(orjson.dumps, told)))
    act(path, Step(table="history", action="checkpoint"))
    assert act(path, Step(table="history", action="vacuum", hours=24)) == "history: 5 unused files deleted"
    left = set(path.glob("date=*/*.parquet"))
    assert left == {live, removed[0]}, "what is younger stays: it may be another's, who has not committed it yet"


def test_a_failure_is_told_and_left_for_the_next_time(tmp_path: Path) -> None:
    config = JobConfig.model_validate({"root": tmp_path, "upkeep": {"small_files": 2, "history_days": 3650}})
    for part in duplicates(3):
        commit(config.history_path, part)
    for file in a_folder(config.history_path).glob("date=*/*.parquet"):
        file.unlink()
    upkeep = Upkeep(config)
    assert any(line.startswith("history: upkeep put off: ") for line in upkeep.run(NOW))
    assert any(line.startswith("history: upkeep put off: ") for line in upkeep.run(NOW))


def test_who_stops_waits_for_what_is_being_done_and_no_more_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake's threads are at work in there: a process that ends under them may end by SIGSEGV."""
    config = JobConfig(root=tmp_path, upkeep=UpkeepConfig(every=0.01))
    commit(config.history_path, duplicates(1)[0])
    under_way, told = threading.Event(), []

    def slow(path: Path, step: Step) -> str:
        under_way.set()
        time.sleep(0.5)
        told.append(step.table)
        return "done"

    twice = [Step(table="history", action="checkpoint"), Step(table="history", action="vacuum")]
    monkeypatch.setattr("streaming_jobs.tables.upkeep.plan", lambda *_: twice)
    monkeypatch.setattr("streaming_jobs.tables.upkeep.act", slow)
    job = IntegrityJob(config, None)  # type: ignore[arg-type]
    job._spawn(job._keep_up, "integrity-upkeep")
    assert under_way.wait(30)
    job.stop()
    assert told == ["history"]
    time.sleep(1)
    assert told == ["history"]


def test_who_stops_waits_for_what_hangs_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_jobs.integrity_job._THREADS_END", 0.5)
    job = IntegrityJob(JobConfig(root=tmp_path), None)  # type: ignore[arg-type]
    hangs = threading.Event()

    def hang() -> None:
        hangs.wait(60)

    for name in ("one", "another", "a third"):
        job._spawn(hang, name)
    began = time.monotonic()
    job.stop()
    assert 0.4 < time.monotonic() - began < 1.4, "all of them together"
    hangs.set()
