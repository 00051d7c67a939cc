"""Ok transactions of which a value is absent are looked up in the rows of the probe log, and stage 2 writes little."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from rules.across.lookups import Question
from rules.across.resolution import ABORTED_KEPT
from rules.vocabulary.finding import FACT_SCHEMA
from rules.vocabulary.objectives import SECOND, Objectives
from rules.vocabulary.slices import Run
from rules.vocabulary.times import micros
from streaming_jobs.tables.delta_tables import open_table, read_table
from streaming_jobs.tables.schemas import LOOKUPS
from streaming_jobs.verdicts.lookups import FIRST_WAIT, LONGEST_WAIT, PATIENCE, Lookups, asked_row, unanswered
from streaming_jobs.verdicts.resolution import COMPACT_AFTER, Resolution, packed, unpacked
from streaming_jobs.verdicts.sink import Sink
from tests.rules.histories import History, number
from tests.streaming_jobs.probe_log import commit

W = number("w")
TXN = 7


class Clock:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def written(h: History, polled: bool) -> Question:
    """A transaction over partitions 0 and 1. Its value of partition 1 is absent; that of partition 0 was `polled`, by a
    reader at read_committed, or by one at read_uncommitted alone."""
    for partition in (0, 1):
        h.row(
            "t",
            "txn",
            partition=partition,
            op=0,
            txn=TXN,
            sent=[Run(W, 0, 5, 2)],
            txn_intent="commit",
            txn_partitions=[("topic", 0), ("topic", 1)],
        )
    invoked, completed = micros(h.rows[0].invoked), micros(h.rows[1].completed)
    h.poll("r", [("w", 1, 1, 6)], isolation="read_committed" if polled else "read_uncommitted")
    h.poll("r", [("w", 0, 2, 5)])
    if not polled:
        h.rows.pop()
    fact = dict.fromkeys(FACT_SCHEMA.names) | {
        "cluster": "c",
        "topic_id": "t",
        "topic": "topic",
        "partition": 1,
        "kind": "absent",
        "at": completed + 30,
        "txn": TXN,
        "outcome": "ok",
        "writer": W,
        "seq": 0,
        "offset": 5,
        "length": 2,
        "about": orjson.dumps({"invoked": invoked, "completed": completed, "transactional_id": "x"}).decode(),
    }
    return Question.of([fact])


def asked(tmp_path: Path, question: Question) -> tuple[Lookups, Clock]:
    """The question is in the table, as a batch writes it, and whoever answers has just started."""
    row = asked_row(question) | {"answered": False, "batch": 1, "recorded": datetime(2026, 1, 1, tzinfo=UTC)}
    open_table(tmp_path / "tables", "lookups").write(pa.Table.from_pylist([row], schema=LOOKUPS), mode="append")
    clock = Clock()
    sink = Sink(tmp_path / "tables", "job:q")
    return Lookups(tmp_path / "history", tmp_path / "tables", sink.report, clock=clock), clock


def test_a_torn_transaction_is_told_once_with_its_earliest_poll(tmp_path: Path) -> None:
    h = History()
    question = written(h, polled=True)
    commit(tmp_path / "history", h.rows)
    lookups, clock = asked(tmp_path, question)
    lookups.answer()
    assert read_table(tmp_path / "tables", "findings").num_rows == 0, "other partitions may have more to tell"
    for _ in range(PATIENCE + 1):  # nothing tells how far the partitions are checked
        clock.now += LONGEST_WAIT
        lookups.answer()
    (row,) = read_table(tmp_path / "tables", "findings").to_pylist()
    assert (row["anomaly"], row["partition"], row["topic_id"], row["event"]) == ("torn-transaction", -1, "", "raised")
    place = {"topic": "topic", "writer": W}
    assert orjson.loads(row["evidence"]) == {
        "txn": TXN,
        "outcome": "ok",
        "transactional_id": "x",
        "seen": place | {"partition": 0, "seq": 1, "offset": 6},
        "absent": place | {"partition": 1, "seq": 0, "offset": 5},
    }
    assert row["message"] == (
        f"of transaction 7 (ok), value {W}/1 was polled in partition 0 of topic, and value {W}/0 is absent from offset"
        " 5 of partition 1 of topic, which a reader passed"
    )
    assert unanswered(read_table(tmp_path / "tables", "lookups")) == []
    again, clock = asked(tmp_path, question)
    again.answer(last=True)
    assert read_table(tmp_path / "tables", "findings").num_rows == 1


def test_what_nobody_has_polled_is_looked_for_again_ever_more_rarely(tmp_path: Path) -> None:
    h = History()
    question = written(h, polled=False)
    commit(tmp_path / "history", h.rows)
    lookups, clock = asked(tmp_path, question)
    waits = []
    for _ in range(12):
        clock.now += FIRST_WAIT
        while lookups._waiting[question.key].due > clock.now:
            clock.now += timedelta(seconds=2)
        before = clock.now
        lookups.answer()
        waits.append(lookups._waiting[question.key].due - before)
    assert waits == sorted(waits) and waits[-1] == LONGEST_WAIT
    assert read_table(tmp_path / "tables", "findings").num_rows == 0
    # It is polled at last, while whoever answers had been away.
    late = h.poll("r", [("w", 0, 2, 5)])
    commit(tmp_path / "history", [late])
    again = Lookups(tmp_path / "history", tmp_path / "tables", Sink(tmp_path / "tables", "job:q").report)
    again.answer(last=True)
    assert read_table(tmp_path / "tables", "findings")["anomaly"].to_pylist() == ["torn-transaction"]


def test_a_transaction_that_is_lost_altogether_is_not_torn(tmp_path: Path) -> None:
    h = History()
    question = written(h, polled=False)
    elsewhere = [fact | {"partition": 0} for fact in question.facts]
    commit(tmp_path / "history", h.rows)
    lookups, _ = asked(tmp_path, question.joined(Question.of(elsewhere)))
    lookups.answer(last=True)
    assert read_table(tmp_path / "tables", "findings").num_rows == 0
    assert unanswered(read_table(tmp_path / "tables", "lookups")) == []


# What stage 2 writes


def aborted(first: int, at: int, count: int = 60) -> pa.Table:
    """What is absent of `count` aborted transactions, as it should be."""
    rows: list[dict[str, Any]] = [
        {
            "cluster": "c",
            "topic_id": "t",
            "topic": "topic",
            "partition": i % 3,
            "kind": "absent",
            "at": at,
            "txn": (first + i) * 2_654_435_761 % 2**62,
            "outcome": "fail",
            "writer": W + i % 5,
            "seq": first + i,
            "offset": 2 * (first + i),
            "length": 2,
        }
        for i in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=FACT_SCHEMA)


def kept(tmp_path: Path, batches: int, before: Callable[[int], None] = lambda batch: None) -> Resolution:
    resolution = Resolution(open_table(tmp_path, "across"), "job:q", Objectives())
    for batch in range(batches):
        before(batch)
        resolution.take(batch, aborted(batch * 60, batch * 20 * SECOND))
        resolution.keep(batch)
    return resolution


@pytest.mark.slow
def test_a_batch_writes_what_it_changes_and_the_table_is_compacted(tmp_path: Path) -> None:
    resolution = kept(tmp_path, COMPACT_AFTER + 3)
    rows = read_table(tmp_path, "across")
    per_batch = rows.num_rows and max(rows["value"].to_pylist(), key=len)
    assert len(per_batch) < 2_048, "sixty transactions"
    held = ABORTED_KEPT // (20 * SECOND)
    assert rows.num_rows <= held + 6, "the expired is gone, with the batches that were overwritten"
    assert resolution.state is not None
    again = Resolution(open_table(tmp_path, "across"), "job:q", Objectives())
    assert unpacked(again.state or b"") == unpacked(resolution.state)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, COMPACT_AFTER, COMPACT_AFTER + 1])
def test_a_batch_that_runs_again_finds_the_state_before_it(tmp_path: Path, batch: int) -> None:
    """Also where that batch was the one that compacted the table."""
    resolution = kept(tmp_path, batch + 1)
    seen = {
        "cluster": "c",
        "topic_id": "t",
        "topic": "topic",
        "partition": 0,
        "kind": "visible",
        "at": 1,
        "txn": (batch * 60) * 2_654_435_761 % 2**62,
        "outcome": "fail",
        "writer": W,
        "seq": 0,
        "offset": 0,
        "length": 1,
    }
    visible = pa.Table.from_pylist([seen], schema=FACT_SCHEMA)
    assert len(resolution.take(batch + 1, visible).findings) == 1
    again = Resolution(open_table(tmp_path, "across"), "job:q", Objectives())
    assert again.take(batch, visible).findings == [], "the batch that told the rest is run again, and has not told yet"


def test_a_rebuild_begins_with_what_it_had_come_to(tmp_path: Path) -> None:
    whole = kept(tmp_path / "one", 6).state
    half = kept(tmp_path / "two", 3)
    state = half.state
    assert state is not None and unpacked(packed(unpacked(state))) == unpacked(state)
    rest = Resolution(open_table(tmp_path / "two", "across"), "job:rebuild", Objectives(), (state,))
    for batch in range(3, 6):
        rest.take(batch, aborted(batch * 60, batch * 20 * SECOND))
        rest.keep(batch)
    assert whole is not None and unpacked(rest.state or b"") == unpacked(whole)
    rows = read_table(tmp_path / "two", "across")
    assert set(rows["app"].to_pylist()) == {"job:rebuild"}
