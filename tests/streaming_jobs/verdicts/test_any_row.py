"""Whatever the log's rows say: what passes validation makes no rule raise."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.arrays.columns import by_place
from rules.audit.explain import concerns, explain
from rules.audit.readings import Readings
from rules.step import Stepped, step
from rules.store import MemoryStore
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import FUNCTIONS, MAX_COUNT, OUTCOMES, Irregular, Mark, RegisterOp, Run, Slice, to_table
from streaming_jobs.history.validation import (
    CHECKED_SCHEMA,
    FIRST_TIME,
    LAST_TIME,
    MAX_LENGTH,
    MAX_OFFSET,
    reasons_to_reject,
)
from tests.rules import random_histories
from tests.rules.histories import number

ASKED = os.environ.get("ROWS")
"""`ROWS=5000 pytest tests/streaming_jobs/verdicts/test_any_row.py` tries that many histories, other ones each time."""


def up_to(bound: int) -> st.SearchStrategy[int]:
    """Small numbers mostly, the highest that are understood sometimes."""
    return st.integers(0, 11).flatmap(lambda n: st.sampled_from((bound - 1, bound)) if n == 11 else st.integers(0, 12))


def maybe(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), of)


offsets, counts, ids = up_to(MAX_OFFSET), up_to(MAX_COUNT), up_to(2**63 - 1)
lengths = st.integers(0, 49).flatmap(lambda n: st.just(MAX_LENGTH) if n == 49 else st.integers(1, 12))
anything = st.one_of(ids, st.sampled_from((-1, -(2**63))))
times = st.integers(0, 99).flatmap(
    lambda n: (
        st.sampled_from((FIRST_TIME, LAST_TIME))
        if n == 99
        else st.integers(0, 90_000).map(lambda ms: FIRST_TIME + timedelta(days=20_000, milliseconds=ms))
    )
)
names = st.sampled_from(["", "a", "b", "topic"])
runs = st.lists(st.builds(Run, ids, counts, maybe(offsets), lengths), max_size=3)
irregular = st.lists(
    st.builds(
        Irregular,
        counts,
        offsets,
        st.sampled_from(["corrupted", "foreign", "relocated"]),
        anything,
        maybe(anything),
        maybe(anything),
        maybe(names),
        maybe(st.integers(-1, 3)),
        maybe(names),
    ),
    max_size=3,
)
marks = st.lists(st.builds(Mark, ids, counts, times, maybe(times), st.booleans()), max_size=4)
registers = st.lists(
    st.builds(
        RegisterOp,
        anything,
        st.sampled_from(["write", "cas", "read"]),
        maybe(anything),
        maybe(anything),
        maybe(anything),
    ),
    max_size=2,
)
SETTINGS = (
    "writer",
    "idempotent",
    "group.id",
    "input",
    "transaction.timeout.ms",
    "replicas",
    "replicas_asked",
    "silent",
    "brokers",
    "cleanup_policy",
    "timestamp_type",
    "x",
)
settings_of = st.dictionaries(
    st.sampled_from(SETTINGS),
    st.one_of(st.sampled_from(["false", "true", "", "a", "²", "--1", "1,2", "1" * 30]), ids.map(str)),
    max_size=3,
)
isolations, modes = st.sampled_from(["read_committed", "read_uncommitted"]), st.sampled_from(["assign", "subscribe"])
errors = st.sampled_from(["OUT_OF_ORDER_SEQUENCE_NUMBER", "_TIMED_OUT", "INVALID_TXN_STATE", "_FENCED", "x"])

rows = st.builds(
    Slice,
    cluster=st.just("c"),
    topic_id=st.just("t"),
    topic=st.just("topic"),
    partition=st.sampled_from([0, 0, 0, 1]),
    run=names,
    process=ids,
    op=counts,
    slice=counts,
    f=st.sampled_from(FUNCTIONS),
    type=st.sampled_from(OUTCOMES),
    invoked=times,
    completed=times,
    error=maybe(errors),
    transactional_id=maybe(names),
    txn=maybe(ids),
    txn_partitions=maybe(st.lists(st.tuples(names, st.integers(0, 3)), max_size=2)),
    txn_intent=maybe(st.sampled_from(["commit", "abort"])),
    end_invoked=maybe(times),
    mono_end_invoked=maybe(ids),
    boot=maybe(names),
    mono_invoked=maybe(ids),
    mono_completed=maybe(ids),
    sent=runs,
    polled=runs,
    irregular=irregular,
    sources=runs,
    registers=registers,
    position_before=maybe(offsets),
    position_after=maybe(offsets),
    reached=maybe(offsets),
    log_start=maybe(offsets),
    log_end=maybe(offsets),
    last_stable=maybe(offsets),
    committed=maybe(offsets),
    group=maybe(names),
    isolation=maybe(isolations),
    mode=maybe(modes),
    assigned=maybe(st.booleans()),
    rebalanced=maybe(st.booleans()),
    kind=maybe(st.sampled_from(["writer", "transform", "observer", "reader", "x"])),
    settings=maybe(settings_of),
    marks=marks,
)
"""A row's fields, each of its own accord."""

histories = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=5)
"""Batches of rows."""


mutations = st.lists(
    st.tuples(st.integers(0, 60), rows, st.lists(st.sampled_from([f.name for f in fields(Slice)][6:]), max_size=3)),
    max_size=5,
)
"""Which row, and which of its fields are replaced by those of another."""


def understood(batch: list[Slice]) -> pa.Table:
    table = to_table(batch).select(CHECKED_SCHEMA.names)
    rejected = reasons_to_reject(table)
    return table.take(pa.array([i for i in range(table.num_rows) if i not in rejected], pa.int64())).combine_chunks()


def short(row: Slice) -> bool:
    return all(run.length < 1_000 for runs in (row.sent, row.polled, row.sources) for run in runs)


def told(stepped: list[Stepped]) -> None:
    """What is made of findings and facts by those who keep them."""
    for one in stepped:
        findings_table((finding, severity(finding.anomaly, finding.context)) for finding in one.findings)


def examples(few: int) -> settings:
    return settings(
        max_examples=int(ASKED or few),
        derandomize=ASKED is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
@examples(40)
@given(histories)
def test_no_row_that_is_understood_makes_a_rule_raise(batches: list[list[Slice]]) -> None:
    check(batches)


@pytest.mark.slow
@examples(40)
@given(random_histories.histories, mutations, st.integers(1, 20))
def test_no_field_that_is_understood_makes_a_rule_raise(
    operations: list[random_histories.Operation], changed: list[tuple[int, Slice, list[str]]], size: int
) -> None:
    """A history in which most rows belong together."""
    history = random_histories.build(operations)
    history.mark(1.0)
    history.mark(20.0)
    for at, other, names in changed:
        row = history.rows[at % len(history.rows)]
        history.rows[at % len(history.rows)] = replace(row, **{name: getattr(other, name) for name in names})
    check([history.rows[first : first + size] for first in range(0, len(history.rows), size)])


@examples(20)
@given(random_histories.histories)
def test_the_highest_ids_make_no_rule_raise(operations: list[random_histories.Operation]) -> None:
    history = random_histories.build(operations)
    history.mark(20.0)
    top = {number(name): 2**63 - 1 - i for i, name in enumerate("wvtursqo")}

    def high(row: Slice) -> Slice:
        named: dict[str, Any] = {
            name: [run._replace(writer=top.get(run.writer, run.writer)) for run in getattr(row, name)]
            for name in ("sent", "polled", "sources", "irregular")
        }
        marks = [mark._replace(process=top.get(mark.process, mark.process)) for mark in row.marks]
        return replace(row, process=top.get(row.process, row.process), marks=marks, **named)

    rows = [high(row) for row in history.rows]
    check([rows, rows[:1]])


def check(batches: list[list[Slice]]) -> None:
    """Step by step, and as a history that is finished."""
    tables = [table for table in map(understood, batches) if table.num_rows]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = MemoryStore()
        for table in tables:
            stepped = store.step(table)
            told(list(stepped.values()))
            store.resolve(pa.concat_tables([one.facts for one in stepped.values()]))
            for place, one in stepped.items():
                for recheck in one.rechecks:
                    needed = by_place(table)[place]
                    explain(Readings(needed.filter(concerns(needed, [recheck]))), place, *recheck, finished=False)
        # A finished history takes records of unknown offset one by one: the longest runs are left out there.
        tables = [understood([row for row in batch if short(row)]) for batch in batches]
        tables = [table for table in tables if table.num_rows]
        if tables:
            whole = step({}, pa.concat_tables(tables).combine_chunks(), Objectives(), finished=True)
            told(list(whole.values()))
