"""What one partition cannot decide alone, on real Spark and Delta: stage 2 and rechecks, across restarts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rules.audit.explain import explain
from rules.audit.readings import Readings
from rules.audit.sums import BLOCK
from rules.kept.state import UnknownFormat
from rules.vocabulary.finding import FACT_SCHEMA, Finding
from rules.vocabulary.slices import Place, Slice
from streaming_jobs.config import JobConfig
from streaming_jobs.history.bundles import pack
from streaming_jobs.history.replay import Replay
from streaming_jobs.tables.delta_tables import open_table, read_table
from streaming_jobs.tables.schemas import ACROSS, RECHECKS
from streaming_jobs.verdicts import recheck
from streaming_jobs.verdicts.checks import OUTPUT_SCHEMA
from streaming_jobs.verdicts.recheck import (
    AT_ONCE,
    TOGETHER,
    OffsetRange,
    Part,
    Rechecks,
    explained,
    shares,
    together,
    unanswered,
)
from streaming_jobs.verdicts.sink import Batch, Sink
from tests.known import a_folder
from tests.rules.cut_logs.test_audit import audited, logged
from tests.rules.histories import History, number
from tests.rules.transactions.test_across_partitions import indefinite_and_torn
from tests.streaming_jobs.probe_log import commit
from tests.streaming_jobs.rebuild.test_rebuild import run, violations

W = number("w")


def torn() -> list[list[Slice]]:
    """A transaction of which one partition's value is seen, and the other's is passed; partition after partition."""
    h = History()
    indefinite_and_torn(h)
    for _ in range(30):
        for partition in (0, 1):
            h.row("observer", "offsets", partition=partition, log_start=0, log_end=9, last_stable=9)
            h.mark(0.5, partition=partition)
    return [[row for row in h.rows if row.partition == partition] for partition in (0, 1)]


def raised(config: JobConfig) -> list[tuple[str, int]]:
    rows = read_table(config.tables_path, "findings").to_pylist()
    events = [(r["anomaly"], r["partition"]) for r in rows if r["event"] == "raised"]
    return sorted(event for event in events if event[0] != "poll-skip")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_torn_transaction_is_found_once_in_batches_run_again_and_rebuilt(
    spark: SparkSession, config: JobConfig
) -> None:
    config = config.model_copy(update={"max_files": 1})
    for part in torn():
        commit(config.history_path, part)
    run(spark, config)
    assert raised(config) == [("lost-write", 1), ("torn-transaction", -1)]
    outcomes = read_table(config.tables_path, "transactions").to_pylist()
    assert {(r["txn"], r["outcome"], r["partition"]) for r in outcomes} == {(7, "visible", 0), (7, "absent", 1)}
    tables = ("findings", "transactions", "across")
    before = {name: read_table(config.tables_path, name) for name in tables}

    last = max((a_folder(config.checkpoint_path) / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()  # as if killed before Spark's commit
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    told, _ = run(spark, config)
    assert [(b.number, b.replayed) for b in told.batches] == [(int(last.name), True)]
    assert {name: read_table(config.tables_path, name) for name in tables} == before

    shutil.rmtree(a_folder(config.checkpoint_path))
    told, _ = run(spark, config)
    assert sum(b.findings.num_rows for b in told.batches) == 0
    assert read_table(config.tables_path, "findings") == before["findings"]
    assert read_table(config.tables_path, "transactions") == before["transactions"]
    after = read_table(config.tables_path, "across")
    assert after.num_rows and set(after["app"].to_pylist()).isdisjoint(before["across"]["app"].to_pylist())


def test_a_batch_that_is_run_again_begins_with_the_state_before_it(tmp_path: Path) -> None:
    """Killed after everything was written, or before the state was: stage 2 ends in the same state and findings."""

    def facts(kind: str, partition: int) -> pa.Table:
        row = {
            "cluster": "c",
            "topic_id": "t",
            "topic": "topic",
            "partition": partition,
            "kind": kind,
            "at": 5,
            "txn": 7,
            "outcome": "info",
            "writer": W,
            "seq": 0,
            "offset": 5,
            "length": 1,
        }
        table = pa.Table.from_pylist([row], schema=FACT_SCHEMA)
        verdict = {"cluster": "c", "topic_id": "t", "partition": partition, "facts": pack(table)}
        return pa.Table.from_pylist([verdict], schema=OUTPUT_SCHEMA)

    told: list[Batch] = []
    sink = Sink(tmp_path, "job:q", [told.append])
    sink.accept(0, facts("visible", 0))
    sink.accept(1, facts("absent", 1))
    assert {a for b in told for a in b.findings["anomaly"].to_pylist()} == {"torn-transaction", "lost-write"}
    before = {name: read_table(tmp_path, name) for name in ("findings", "transactions", "across")}
    again = Sink(tmp_path, "job:q", [told.append])
    again.accept(1, facts("absent", 1))
    assert told[-1].replayed
    assert told[-1].findings["id"].to_pylist() == told[-2].findings["id"].to_pylist()
    assert {name: read_table(tmp_path, name) for name in before} == before
    # The findings were written and the state was not.
    half = tmp_path / "half"
    one = Sink(half, "job:q")
    one.accept(0, facts("visible", 0))
    one._resolution.keep = lambda number, *, always=False: None  # type: ignore[method-assign]
    one.accept(1, facts("absent", 1))
    Sink(half, "job:q").accept(1, facts("absent", 1))
    assert read_table(half, "findings")["id"].to_pylist() == before["findings"]["id"].to_pylist()
    columns = ["batch", "name", "value"]
    assert read_table(half, "across").select(columns) == before["across"].select(columns)


def test_a_state_of_stage_two_of_another_version_asks_for_a_rebuild(tmp_path: Path) -> None:
    row = {"app": "job:q", "batch": 0, "name": "format", "value": b"1"}
    open_table(tmp_path, "across").write(pa.Table.from_pylist([row], schema=ACROSS), mode="overwrite")

    fact = {
        "cluster": "c",
        "topic_id": "t",
        "topic": "topic",
        "partition": 0,
        "kind": "visible",
        "at": 5,
        "txn": 7,
        "outcome": "info",
        "writer": W,
        "seq": 0,
        "offset": 5,
        "length": 1,
    }
    table = pack(pa.Table.from_pylist([fact], schema=FACT_SCHEMA))
    verdict = {"cluster": "c", "topic_id": "t", "partition": 0, "facts": table}
    with pytest.raises(UnknownFormat):
        Sink(tmp_path, "job:q").accept(1, pa.Table.from_pylist([verdict], schema=OUTPUT_SCHEMA))


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_log_that_changed_behind_its_readers_is_explained_once(spark: SparkSession, config: JobConfig) -> None:
    log = logged(5 * BLOCK)
    h = audited(log, {o: v for o, v in log.items() if o != 1500})
    half = len(h.rows) // 2
    for part in (h.rows[:half], h.rows[half:]):
        commit(config.history_path, part)
    run(spark, config)
    found = [r for r in read_table(config.tables_path, "findings").to_pylist() if r["anomaly"] == "vanished-record"]
    assert [(r["partition"], r["event"]) for r in found] == [(0, "raised")]
    assert f"value {W}/1500" in found[0]["message"]
    asked = read_table(config.tables_path, "rechecks").to_pylist()
    assert {(r["start"], r["end"]) for r in asked} == {(BLOCK, 2 * BLOCK)}
    assert unanswered(read_table(config.tables_path, "rechecks")) == []
    # A rebuild asks nothing that was asked, and finds nothing that was found.
    shutil.rmtree(a_folder(config.checkpoint_path))
    run(spark, config)
    assert read_table(config.tables_path, "rechecks").num_rows == len(asked)
    assert len(violations(config)) == len(set(violations(config)))


def test_a_question_outlives_the_process_and_waits_for_the_log_start(tmp_path: Path) -> None:

    log = logged(5 * BLOCK)
    h = audited(log, {o: v for o, v in log.items() if o != 1500})
    last = max(i for i, row in enumerate(h.rows) if row.polled)
    history, tables = tmp_path / "history", tmp_path / "tables"
    commit(history, h.rows[: last + 1])
    place = Place("c", "t", 0)
    row = {
        "cluster": "c",
        "topic_id": "t",
        "partition": 0,
        "start": BLOCK,
        "end": 2 * BLOCK,
        "answered": False,
        "batch": 3,
        "recorded": datetime(2026, 1, 1, tzinfo=UTC),
    }
    open_table(tables, "rechecks").write(pa.Table.from_pylist([row], schema=RECHECKS), mode="append")
    sink = Sink(tables, "job:q")
    rechecks = Rechecks(history, tables, sink.report)
    rechecks.answer()  # retention may have taken it: nobody has looked since
    assert read_table(tables, "findings").num_rows == 0
    assert unanswered(read_table(tables, "rechecks")) == [OffsetRange(place, BLOCK, 2 * BLOCK)]
    commit(history, h.rows[last + 1 :])
    Rechecks(history, tables, sink.report).answer()
    assert read_table(tables, "findings")["anomaly"].to_pylist() == ["vanished-record"]
    assert unanswered(read_table(tables, "rechecks")) == []
    again = Rechecks(history, tables, sink.report)
    again.ask([OffsetRange(place, BLOCK, 2 * BLOCK)])
    again.answer()
    assert read_table(tables, "findings").num_rows == 1


def test_many_questions_are_answered_with_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each append brings a few rows of every partition: the files of a day are read once for all of them."""
    log = logged(5 * BLOCK)
    gone = {0: {100, 1500, 1501, 3 * BLOCK}, 1: {2000}}
    history, tables = tmp_path / "history", tmp_path / "tables"
    for partition, lacks in gone.items():
        h = audited(log, {o: v for o, v in log.items() if o not in lacks})
        commit(history, [replace(row, partition=partition) for row in h.rows])
    readings: list[list[int]] = []
    rows_of = Replay.rows_of

    def counted(self: Replay, day: str, places: Sequence[Place], size: int) -> Iterator[pa.Table]:
        readings.append(sorted(place.partition for place in places))
        return rows_of(self, day, places, size)

    monkeypatch.setattr(Replay, "rows_of", counted)
    places = [Place("c", "t", partition) for partition in range(3)]
    asked = [OffsetRange(place, block * BLOCK, (block + 1) * BLOCK) for block in range(5) for place in places]
    rechecks = Rechecks(history, tables, Sink(tables, "job:q").report)
    rechecks.ask(asked)
    rechecks.answer()
    assert readings == [[0, 1, 2]]
    found = read_table(tables, "findings")
    assert set(found["anomaly"].to_pylist()) == {"vanished-record"}
    told = zip(found["partition"].to_pylist(), found["evidence"].to_pylist(), strict=True)
    assert {(partition, orjson.loads(evidence)["offset"]) for partition, evidence in told} == {
        (partition, offset) for partition, lacks in gone.items() for offset in lacks
    }
    answers = read_table(tables, "rechecks")
    assert answers.num_rows == len(asked) and all(answers["answered"].to_pylist())
    rechecks.answer()
    assert len(readings) == 1, "nothing is left to answer"


def test_a_question_that_cannot_be_answered_yet_is_looked_into_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads the day. At the end nothing waits for its time."""
    log = logged(5 * BLOCK)
    h = audited(log, {o: v for o, v in log.items() if o != 1500})
    last = max(i for i, row in enumerate(h.rows) if row.polled)
    history, tables, seconds, looks = tmp_path / "history", tmp_path / "tables", [0], list[int]()
    commit(history, h.rows[: last + 1])

    def looked(replay: Replay, some: Sequence[Sequence[Part]]) -> dict[Part, list[Finding] | None]:
        looks.append(seconds[0])
        return explained(replay, some)

    def clock() -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds[0])

    monkeypatch.setattr("streaming_jobs.verdicts.recheck.explained", looked)
    rechecks = Rechecks(history, tables, Sink(tables, "job:q").report, clock=clock)
    rechecks.ask([OffsetRange(Place("c", "t", 0), BLOCK, 2 * BLOCK)])
    for second in range(250):
        seconds[0] = second
        rechecks.answer()
    assert looks == [0, 2, 6, 14, 30, 62, 122, 182, 242]
    commit(history, h.rows[last + 1 :])
    rechecks.answer()
    assert read_table(tables, "findings").num_rows == 0
    rechecks.answer(last=True)
    assert read_table(tables, "findings")["anomaly"].to_pylist() == ["vanished-record"]


@pytest.mark.parametrize("size", [1, 700, 1 << 16])
def test_the_rows_of_partitions_come_so_many_at_a_time(tmp_path: Path, size: int) -> None:
    history = tmp_path / "history"
    rows = audited(logged(BLOCK), logged(BLOCK), size=50).rows
    for i in range(0, len(rows), 10):
        commit(history, [replace(row, partition=i % 3) for row in rows[i : i + 10]])
    replay, places = Replay(history), [Place("c", "t", 0), Place("c", "t", 2)]
    (day,) = replay.days()
    parts = [table.num_rows for table in replay.rows_of(day, places, size)]
    assert sum(parts) == sum(min(10, len(rows) - i) for i in range(0, len(rows), 10) if i % 3 != 1)
    assert all(size <= part < size + 10 for part in parts[:-1])
    assert len(parts) > 1 or size > sum(parts)


def test_what_is_read_at_once_is_bounded() -> None:
    wide, small = (Part(OffsetRange(Place("c", "t", n), 0, end), 0, end) for n, end in ((0, AT_ONCE), (1, 10)))
    assert together([]) == []
    assert together([[small], [small], [wide], [small, small]]) == [[[small], [small]], [[wide]], [[small, small]]]


def test_questions_are_taken_together_by_partition_and_in_shares_of_a_bounded_size() -> None:
    one, other = Place("c", "t", 0), Place("c", "t", 1)
    asked = [OffsetRange(place, start, start + 1) for start in range(TOGETHER + 1) for place in (one, other)]
    first, second = shares((a, a.start) for a in asked)
    assert [part.of for part in first] == [a for a in asked if a.place == one][:TOGETHER]
    assert [part.of for part in second] == [a for a in asked if a.place == other][:TOGETHER]
    wide, small = OffsetRange(one, 0, 3 * AT_ONCE), OffsetRange(one, 7, 8)
    assert shares([(small, 7), (wide, 0)]) == [[Part(wide, 0, AT_ONCE - 1), Part(small, 7, 8)]]
    assert shares([(wide, AT_ONCE), (small, 7)]) == [[Part(wide, AT_ONCE, 2 * AT_ONCE)]]


def test_a_wide_question_lets_others_have_their_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "AT_ONCE", BLOCK)
    log = logged(5 * BLOCK)
    gone = {100, 1500, 1501, 3 * BLOCK, 5 * BLOCK - 2}
    history, tables = tmp_path / "history", tmp_path / "tables"
    commit(history, audited(log, {o: v for o, v in log.items() if o not in gone}).rows)
    told: list[tuple[int, int]] = []

    def noted(readings: Readings, place: Place, start: int, end: int, **more: bool) -> list[Finding] | None:
        told.append((start, end))
        return explain(readings, place, start, end, **more)

    monkeypatch.setattr(recheck, "explain", noted)
    place = Place("c", "t", 0)
    rechecks = Rechecks(history, tables, Sink(tables, "job:q").report)
    rechecks.ask([OffsetRange(place, 0, 5 * BLOCK), OffsetRange(place, 40, 50), OffsetRange(place, 60, 70)])
    rechecks.answer()
    assert told[0] == (0, BLOCK)
    assert set(told[1:4]) == {(40, 50), (60, 70), (BLOCK, 2 * BLOCK - 20)}, "the others do not wait for all of it"
    assert sum(end - start for start, end in told) == 5 * BLOCK + 20 and max(end for _, end in told) == 5 * BLOCK
    found = read_table(tables, "findings")
    assert {orjson.loads(evidence)["offset"] for evidence in found["evidence"].to_pylist()} == gone
    answers = read_table(tables, "rechecks")
    assert answers.num_rows == 3 and all(answers["answered"].to_pylist())
