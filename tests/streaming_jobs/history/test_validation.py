"""Rows that can be understood, and rows that cannot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from rules.vocabulary.slices import MAX_COUNT, Irregular, Mark, Place, Run, to_table
from streaming_jobs.history.bundles import (
    NOWHERE,
    PER_PART,
    REJECTED_SHOWN,
    bundles_of,
    records_in,
    rejected_in,
    slices_in,
    unpack,
)
from streaming_jobs.history.validation import (
    CHECKED_SCHEMA,
    FIRST_TIME,
    LAST_TIME,
    MAX_LENGTH,
    MAX_OFFSET,
    reasons_to_reject,
)
from tests.bench.histories import Plan, partition_rows
from tests.rules.histories import START, History
from tests.streaming_jobs.probe_log import loose


def _history() -> History:
    history = History()
    history.start("w", idempotent="true")
    history.send("w", 0, 5, at=100)
    history.send("w", 5, 5)
    history.poll("r", [("w", 0, 5, 100)], position_before=0, position_after=105)
    history.irregular("r", Irregular(0, 105, "corrupted", 17))
    history.observe(end=110)
    history.mark()
    return history


def test_what_probes_write_is_understood() -> None:
    assert reasons_to_reject(_history().table()) == {}
    assert reasons_to_reject(partition_rows(Plan("bulk", 64_000), 3)) == {}
    assert reasons_to_reject(partition_rows(Plan("transactional", 6_400), 3)) == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"process": None}, "process is absent"),
        ({"cluster": None}, "cluster is absent"),
        ({"completed": None}, "completed is absent"),
        ({"f": "sent"}, "f is unknown"),
        ({"type": "maybe"}, "type is unknown"),
        ({"isolation": "serializable"}, "isolation is unknown"),
        ({"mode": "group"}, "mode is unknown"),
        ({"slice": -1}, "slice is negative or out of range"),
        ({"partition": -1}, "partition is negative"),
        ({"log_end": -1001}, "log_end is negative or out of range"),
        ({"position_after": 2**63 - 1}, "position_after is negative or out of range"),
        ({"process": -1}, "process is negative"),
        ({"txn": -1}, "txn is negative"),
        ({"op": MAX_COUNT + 1}, "op is negative or out of range"),
        ({"log_start": MAX_OFFSET + 1}, "log_start is negative or out of range"),
        ({"invoked": FIRST_TIME - timedelta(microseconds=1)}, "invoked is no time of these centuries"),
        ({"completed": LAST_TIME + timedelta(microseconds=1)}, "completed is no time of these centuries"),
        ({"settings": [("writer", "1"), ("group.id", None)]}, "settings holds an empty value"),
        ({"polled": [Run(1, 0, MAX_OFFSET + 1, 1)._asdict()]}, "polled.offset is negative or out of range"),
        ({"sources": [Run(1, MAX_COUNT + 1, 0, 1)._asdict()]}, "sources.seq is negative or out of range"),
        ({"sent": [Run(-1, 0, 0, 1)._asdict()]}, "sent.writer is negative"),
        ({"sent": [Run(1, 0, 0, MAX_LENGTH + 1)._asdict()]}, "sent.length is not a number of records"),
        (
            {"marks": [Mark(1, 0, LAST_TIME + timedelta(days=1))._asdict()]},
            "marks.through is no time of these centuries",
        ),
        ({"sent": [Run(1, 0, 0, 0)._asdict()]}, "sent.length is not a number of records"),
        ({"sent": [Run(1, 0, 0, -4)._asdict()]}, "sent.length is not a number of records"),
        ({"polled": [Run(1, -1, 0, 1)._asdict()]}, "polled.seq is negative or out of range"),
        ({"polled": [Run(1, 0, -1001, 1)._asdict()]}, "polled.offset is negative or out of range"),
        ({"irregular": [Irregular(0, 1, "odd", 1)._asdict()]}, "irregular.status is unknown"),  # type: ignore[arg-type]
        ({"marks": [Mark(1, -1, START)._asdict()]}, "marks.slices is negative or out of range"),
    ],
)
def test_a_row_that_breaks_the_schema_is_rejected(changes: dict[str, Any], reason: str) -> None:
    history = History()
    history.send("w", 0, 5, at=100)
    innocent = loose(history.rows)
    guilty = loose(history.rows, **changes)
    table = pa.concat_tables([innocent, guilty, innocent])
    assert reasons_to_reject(table) == {1: reason}


def test_the_highest_numbers_that_a_log_can_hold_are_understood() -> None:
    history = History()
    history.send("w", 0, 5, at=100)
    run = Run(2**63 - 1, MAX_COUNT, MAX_OFFSET, MAX_LENGTH)._asdict()
    changes: dict[str, Any] = {
        "process": 2**63 - 1,
        "op": MAX_COUNT,
        "slice": MAX_COUNT,
        "txn": 2**63 - 1,
        "log_end": MAX_OFFSET,
        "sent": [run],
        "polled": [run],
        "sources": [run],
        "invoked": FIRST_TIME,
        "completed": LAST_TIME,
        "marks": [Mark(2**63 - 1, MAX_COUNT, LAST_TIME)._asdict()],
        "settings": [("writer", "")],
    }
    assert reasons_to_reject(loose(history.rows, **changes)) == {}


def test_an_element_that_lacks_a_number_is_rejected() -> None:
    rows = to_table(_history().rows)
    kind = rows.schema.field("sent").type.value_type
    values = pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array([0, None], pa.int64()), pa.array([0, 5]), pa.array([5, 5])],
        fields=[f.with_nullable(True) for f in kind],
    )
    sent = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    two = rows.slice(0, 2)
    two = two.set_column(two.schema.get_field_index("sent"), "sent", sent)
    assert reasons_to_reject(two) == {1: "sent.seq is absent"}


def test_bundles_keep_every_row_of_a_partition_in_its_order() -> None:
    tables = [
        partition_rows(Plan("bulk", 64_000 * (PER_PART + 2), partitions=PER_PART + 2), p) for p in range(PER_PART + 2)
    ]
    mixed = pa.concat_tables([table.slice(0, 200) for table in tables])
    mixed = mixed.take(pa.array([i + 200 * j for i in range(200) for j in reversed(range(len(tables)))]))
    bundles = bundles_of(mixed).to_pylist()
    assert [(b["cluster"], b["topic_id"], b["part"], b["rejected"]) for b in bundles] == [
        ("bench", "bench-topic-id", 0, False),
        ("bench", "bench-topic-id", 1, False),
    ]
    found = {p: rows for b in bundles for p, rows in slices_in([b["payload"]]).items()}
    assert [place.partition for place in found] == list(range(PER_PART + 2))
    for place, rows in found.items():
        table = tables[place.partition].slice(0, 200)
        assert rows.cast(CHECKED_SCHEMA).equals(table.select(CHECKED_SCHEMA.names))
        assert records_in(rows)[1] == sum(run["length"] for runs in table["polled"].to_pylist() for run in runs or ())


def test_bundles_of_one_part_are_put_together_in_their_order() -> None:
    rows = partition_rows(Plan("bulk", 64_000, partitions=1), 0).slice(0, 100)
    payloads = [bundles_of(rows.slice(i, 40))["payload"][0].as_py() for i in (0, 40, 80)]
    ((place, found),) = slices_in(payloads).items()
    assert place.partition == 0
    assert found.cast(CHECKED_SCHEMA).equals(rows.select(CHECKED_SCHEMA.names))


def test_rejected_rows_are_bundled_apart_and_their_neighbours_stay() -> None:
    history = History()
    history.send("w", 0, 5, at=100)
    good = loose(history.rows)
    table = pa.concat_tables([good, loose(history.rows, f="sent"), loose(history.rows, topic_id=None)])
    by_key = {(b["topic_id"], b["rejected"]): b for b in bundles_of(table).to_pylist()}
    assert set(by_key) == {("t", False), ("t", True), ("", True)}
    ((place, own),) = slices_in([by_key["t", False]["payload"]]).items()
    assert (place, own.num_rows) == (Place("c", "t", 0), 1)
    refused = rejected_in([by_key["t", True]["payload"]])[place].to_pylist()
    assert [(r["reason"], r["process"], r["slice"]) for r in refused] == [("f is unknown", history.rows[0].process, 0)]
    assert '"f": "sent"' in refused[0]["row"]
    assert list(rejected_in([by_key["", True]["payload"]])) == [NOWHERE]


def test_a_flood_of_rejected_rows_is_counted_and_not_all_kept() -> None:
    history = History()
    history.send("w", 0, 5, at=100)
    flood = pa.concat_tables([loose(history.rows, type="perhaps")] * (REJECTED_SHOWN + 7))
    (bundle,) = bundles_of(flood).to_pylist()
    rows = unpack(bundle["payload"]).to_pylist()
    assert len(rows) == REJECTED_SHOWN
    assert rows[-1]["reason"] == "type is unknown; 7 more rejected rows are not shown"
