"""What a batch leaves in the tables, and what it leaves there when it is run again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rules.vocabulary.finding import Finding
from rules.vocabulary.finding import to_table as findings_table
from streaming_jobs.errors import TableError
from streaming_jobs.history.bundles import pack
from streaming_jobs.tables.delta_tables import Table, read_table
from streaming_jobs.tables.findings import current_findings
from streaming_jobs.tables.schemas import SPECS
from streaming_jobs.verdicts.sink import Batch, Sink

NOW = datetime(2026, 1, 1, tzinfo=UTC)

VERDICTS = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("findings", pa.binary()),
        ("facts", pa.binary()),
        ("rechecks", pa.string()),
        ("summary", pa.string()),
        ("rejected", pa.binary()),
        *((n, pa.int64()) for n in ("slices", "sent", "polled", "state_bytes")),
        *((n, pa.int64()) for n in ("chunks_written", "check_us", "state_us")),
    ]
)


def finding(
    subject: int, *, event: Any = "raised", at: int = 1, anomaly: str = "duplicate", partition: int = 0
) -> Finding:
    return Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id="t",
        topic="topic",
        partition=partition,
        subject=(subject,),
        event=event,
        message="m",
        at=at,
        decidable=at,
    )


def verdicts(*findings: Finding, partition: int = 0, end: int = 10, **more: Any) -> pa.Table:
    summary = {
        "cluster": "c",
        "topic_id": "t",
        "topic": "topic",
        "partition": partition,
        "last_stable": end,
        "readers": [{"process": 7, "position": end - 4, "mode": "assign"}],
    } | more
    packed = pack(findings_table((f, "critical") for f in findings)) if findings else None
    row = {
        "cluster": "c",
        "topic_id": "t",
        "partition": partition,
        "findings": packed,
        "summary": orjson.dumps(summary).decode(),
        "slices": 3,
        "polled": 10,
        "state_bytes": 100,
    }
    return pa.Table.from_pylist([row], schema=VERDICTS)


def test_a_batch_that_is_run_again_gives_the_same_rows(tmp_path: Path) -> None:
    told: list[Batch] = []
    Sink(tmp_path, "job:q", [told.append], clock=lambda: NOW).accept(0, verdicts(finding(1)))
    first = {name: read_table(tmp_path, name) for name in SPECS}
    # The process died before Spark's commit; the next one runs the batch again.
    again = Sink(tmp_path, "job:q", [told.append], clock=lambda: NOW + timedelta(seconds=9))
    again.accept(0, verdicts(finding(1)))
    assert {name: read_table(tmp_path, name) for name in SPECS} == first
    assert [(b.number, b.replayed, b.findings.num_rows) for b in told] == [(0, False, 1), (0, True, 1)]
    again.accept(1, verdicts(finding(2)))
    assert read_table(tmp_path, "findings")["batch"].to_pylist().count(1) == 1


def test_a_batch_that_was_half_written_is_completed(tmp_path: Path) -> None:
    whole = Sink(tmp_path / "whole", "job:q", clock=lambda: NOW)
    whole.accept(0, verdicts(finding(1)))
    half = Sink(tmp_path / "half", "job:q", clock=lambda: NOW)
    half._append("findings", read_table(tmp_path / "whole", "findings"), 0)  # and killed here
    Sink(tmp_path / "half", "job:q", clock=lambda: NOW).accept(0, verdicts(finding(1)))
    for name in SPECS:
        assert read_table(tmp_path / "half", name) == read_table(tmp_path / "whole", name)


def test_a_new_checkpoint_is_another_writer(tmp_path: Path) -> None:
    """With one app id for both, the second query's first batches would be taken for the first's."""
    Sink(tmp_path, "job:one", clock=lambda: NOW).accept(5, verdicts(finding(1)))
    batch = Sink(tmp_path, "job:two", clock=lambda: NOW).accept(0, verdicts(finding(2)))
    assert not batch.replayed
    assert read_table(tmp_path, "findings").num_rows == 2


def test_the_current_state_has_one_row_a_partition_and_survives_a_restart(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "job:q", clock=lambda: NOW)
    sink.accept(0, verdicts(partition=0, end=10))
    sink.accept(1, verdicts(partition=1, end=20))
    restarted = Sink(tmp_path, "job:q", clock=lambda: NOW)
    assert set(restarted.clusters) == {"c"}
    batch = restarted.accept(2, verdicts(partition=0, end=30))
    assert batch.states["last_stable"].to_pylist() == [30]
    states = read_table(tmp_path, "partition_state").to_pylist()
    assert {(s["partition"], s["last_stable"], s["batch"]) for s in states} == {(0, 30, 2), (1, 20, 1)}
    readers = read_table(tmp_path, "readers").to_pylist()
    assert {(r["partition"], r["process"], r["position"], r["lag"]) for r in readers} == {(0, 7, 26, 4), (1, 7, 16, 4)}


def test_of_topic_ids_that_come_at_once_the_newest_is_the_one_that_began_last(tmp_path: Path) -> None:
    """A catch-up hears of several, and how far the log of each has come says nothing of which was first."""

    def of(topic_id: str, **summary: Any) -> pa.Table:
        told = verdicts(**summary)
        return told.set_column(1, "topic_id", pa.array([topic_id]))

    sink = Sink(tmp_path, "job:q", clock=lambda: NOW)
    sink.accept(0, of("one", began=1, now=9))
    batch = sink.accept(1, pa.concat_tables([of("three", began=30, now=40), of("two", began=20, now=50)]))
    told = sorted((row["at"].microsecond, row["message"]) for row in batch.findings.to_pylist())
    assert told == [
        (20, "topic topic had id one and has two now: it is a new log"),
        (30, "topic topic had id two and has three now: it is a new log"),
    ]
    assert "began" not in read_table(tmp_path, "partition_state").column_names


def test_a_failed_check_keeps_the_last_good_row_and_says_so(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "job:q", clock=lambda: NOW)
    sink.accept(0, verdicts(end=10))
    failed = verdicts()
    told = orjson.dumps({"topic": "topic", "check_failed": "KeyError: 1", "slices_behind": 3}).decode()
    at = failed.schema.get_field_index("summary")
    sink.accept(1, failed.set_column(at, "summary", pa.array([told])))
    (row,) = read_table(tmp_path, "partition_state").to_pylist()
    assert (row["last_stable"], row["check_failed"], row["slices_behind"]) == (10, "KeyError: 1", 3)


def test_a_listener_that_fails_stops_nobody(tmp_path: Path) -> None:
    told: list[Batch] = []

    def broken(batch: Batch) -> None:
        raise RuntimeError("no")

    Sink(tmp_path, "job:q", [broken, told.append], clock=lambda: NOW).accept(0, verdicts(finding(1)))
    assert len(told) == 1


def test_the_tables_say_what_their_columns_mean(tmp_path: Path) -> None:
    Sink(tmp_path, "job:q")
    for name in SPECS:
        table = DeltaTable(str(tmp_path / name))
        assert table.metadata().description
        for field in table.schema().fields:
            assert field.metadata.get("comment"), (name, field.name)


def test_a_table_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "findings").write_text("in the way")
    with pytest.raises(TableError, match=r"The table findings in .* could not be opened or created"):
        Table(tmp_path, SPECS["findings"])


def test_the_current_findings(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "job:q", clock=lambda: NOW)
    sink.accept(0, verdicts(finding(1), finding(2, event="opened", anomaly="unseen", at=5)))
    sink.accept(1, verdicts(finding(2, event="closed", anomaly="unseen", at=9)))
    sink.accept(
        2,
        verdicts(
            finding(2, event="opened", anomaly="unseen", at=12), finding(3, event="opened", at=12, anomaly="suspected")
        ),
    )
    sink.accept(3, verdicts(finding(3, event="closed", at=12, anomaly="suspected")))
    # A second job over the same log says the same again.
    Sink(tmp_path, "other:q", clock=lambda: NOW + timedelta(hours=1)).accept(
        0, verdicts(finding(1), finding(2, event="opened", anomaly="unseen", at=5))
    )
    rows = {r["id"]: r for r in current_findings(tmp_path).to_pylist()}
    assert {(r["anomaly"], r["state"], r["opened"]) for r in rows.values()} == {
        ("duplicate", "raised", 1),
        ("unseen", "open", 2),
        ("suspected", "closed", 1),
    }
    unseen = rows[finding(2, anomaly="unseen").id]
    assert (unseen["first_at"].microsecond, unseen["at"].microsecond) == (5, 12)


def test_there_are_no_findings_where_there_is_no_table(tmp_path: Path) -> None:
    assert current_findings(tmp_path).num_rows == 0
