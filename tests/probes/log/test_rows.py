"""Packed rows say the same as the slices they were made from: in the probe log's table, and back."""

from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.log.rows import FIELDS, Shared, pack, table, unpack
from rules.vocabulary.slices import (
    FUNCTIONS,
    OUTCOMES,
    SLICE_SCHEMA,
    Altered,
    Irregular,
    LeaderEpoch,
    Mark,
    Run,
    Slice,
    to_table,
)

SHARED = Shared("c", "run", 42, "boot-1")

int63 = st.integers(0, 2**63 - 1)
small = st.integers(0, 2**31 - 1)
times = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
maybe = st.none() | int63
text = st.text(max_size=6)
runs = st.lists(st.builds(Run, int63, int63, maybe, int63), max_size=3).map(tuple)
irregular = st.lists(
    st.builds(
        Irregular,
        small,
        int63,
        st.sampled_from(["corrupted", "foreign", "relocated"]),
        small,
        maybe,
        maybe,
        st.none() | text,
        st.none() | small,
        st.none() | text,
    ),
    max_size=2,
).map(tuple)
altered = st.lists(st.builds(Altered, int63, int63, int63, int63, text, text, text, st.none() | small), max_size=2).map(
    tuple
)
epochs = st.lists(st.builds(LeaderEpoch, small, maybe), max_size=3).map(tuple)
slices = st.builds(
    Slice,
    cluster=st.just("c"),
    run=st.just("run"),
    process=st.just(42),
    topic_id=text,
    topic=text,
    partition=small,
    op=int63,
    slice=st.just(-1),
    f=st.sampled_from(FUNCTIONS),
    type=st.sampled_from(OUTCOMES),
    invoked=times,
    completed=times,
    error=st.none() | text,
    transactional_id=st.none() | text,
    txn=maybe,
    txn_partitions=st.none() | st.lists(st.tuples(text, small), min_size=1, max_size=3).map(tuple),
    txn_intent=st.sampled_from([None, "commit", "abort"]),
    boot=st.sampled_from([None, "boot-1", "boot-2"]),
    mono_invoked=maybe,
    mono_completed=maybe,
    sent=runs,
    polled=runs,
    irregular=irregular,
    altered=altered,
    epochs=epochs,
    position_before=maybe,
    position_after=maybe,
    log_start=maybe,
    log_end=maybe,
    last_stable=maybe,
    committed=maybe,
    group=st.none() | text,
    isolation=st.sampled_from([None, "read_committed"]),
    mode=st.sampled_from([None, "assign"]),
    assigned=st.none() | st.booleans(),
    rebalanced=st.none() | st.booleans(),
    kind=st.none() | text,
    settings=st.none() | st.dictionaries(text, text, min_size=1, max_size=3),
    marks=st.lists(st.builds(Mark, int63, int63, times, st.none() | times, st.booleans()), max_size=2).map(tuple),
)


def test_every_column_of_the_log_is_packed_or_shared() -> None:
    assert {*FIELDS, "cluster", "run", "process", "date"} == set(SLICE_SCHEMA.names)


@settings(deadline=None)
@given(st.lists(slices, max_size=5))
def test_the_table_is_that_of_the_slices(rows: list[Slice]) -> None:
    packed = [orjson.loads(orjson.dumps(pack(row, SHARED, number))) for number, row in enumerate(rows)]
    for number, row in enumerate(rows):
        row.slice = number
    made = table([(SHARED, packed)])
    made.validate(full=True)
    assert made.equals(to_table(rows))
    assert [unpack(one, SHARED) for one in packed] == rows


def test_rows_of_several_lives_keep_what_is_theirs() -> None:
    other = Shared("c2", "run2", 43, "boot-2")
    one = Slice(
        cluster="c",
        run="run",
        process=42,
        topic_id="i",
        topic="t",
        partition=0,
        op=0,
        slice=0,
        f="start",
        type="ok",
        invoked=datetime(2026, 1, 1, tzinfo=UTC),
        completed=datetime(2026, 1, 1, 23, 59, tzinfo=UTC),
        boot="boot-1",
    )
    made = table([(SHARED, [pack(one, SHARED, 0)]), (other, []), (other, [pack(one, SHARED, 0)])]).to_pylist()
    assert [(r["cluster"], r["run"], r["process"], r["boot"]) for r in made] == [tuple(SHARED), tuple(other)]


def test_a_row_of_another_process_is_refused() -> None:
    with pytest.raises(ValueError, match="process 42 was given to the journal of process 43"):
        pack(slices_of(42), SHARED._replace(process=43), 0)


def slices_of(process: int) -> Slice:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Slice(
        cluster="c",
        run="run",
        process=process,
        topic_id="i",
        topic="t",
        partition=0,
        op=0,
        slice=0,
        f="poll",
        type="ok",
        invoked=now,
        completed=now,
    )
