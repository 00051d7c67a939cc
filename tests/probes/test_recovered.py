"""What recovery says of a real client that was killed in mid-flight: nothing that it polled came after its end."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future

import pyarrow as pa
import pytest

from probes.log.commits.recovery import recover
from probes.log.life_log import Instant
from probes.workloads.observer import FIELDS, Observer, Question
from probes.workloads.transactional.transaction_course import outline
from probes.workloads.transactional.transactions import Transactions
from rules.cycles.search import search
from rules.vocabulary.slices import DIED, Slice, to_table
from tests.known import known
from tests.probes.conftest import MakeStage, Stage
from tests.probes.test_reader import until
from tests.probes.test_transactions import transact


def put(one: Stage, name: str) -> Transactions:
    return one.put(Transactions, name, timeout=60.0, stable=True, group=f"{one.prefix}-{name}")


@pytest.mark.kafka
def test_what_a_killed_transaction_polled_was_polled_before_its_end(stage: MakeStage) -> None:
    """Its row was opened before its polls were made: what these return may be younger than the row."""
    one = stage()
    killed, other = put(one, "killed"), put(one, "other")
    plan = outline(killed.targets, records=1, partitions=1, abort_share=0.0, rng=random.Random(1))
    run = killed._prepare(plan)
    course = run.course
    killed.transactor.begin()
    rows = transact(other)
    until(lambda: course.polled, doing=lambda: killed.poll(course))
    run.journal()
    journalled = one.clock.now()
    killed.log._journal.release()
    killed.log.ended = True
    killed.close()

    recover(one.folder, one.clock)
    recovered = [row for row in one.read_journal(killed) if row.error == DIED]
    txn = [row for row in recovered if row.f == "txn"]
    assert sum(run.length for row in txn for run in row.polled) > 0
    assert {row.type for row in txn} == {"info"}
    assert [found.anomaly for found in search(table(rows + txn)).findings] == []
    assert all(row.invoked < journalled <= row.completed <= one.clock.now() for row in txn)
    assert all(known(row.mono_invoked) < known(row.mono_completed) <= time.monotonic_ns() for row in txn)
    assert {row.f: row.invoked for row in recovered}["close"] == txn[0].completed


def table(rows: list[Slice]) -> pa.Table:
    for number, row in enumerate(rows):
        row.slice = number
    return to_table(rows)


@pytest.mark.kafka
def test_what_an_observer_had_asked_when_it_was_killed_has_not_timed_out(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage()
    observer = one.put(Observer, "observer")

    def asked(leader: int | None, invoked: Instant) -> Question:
        question = observer._pending[leader] = Question(observer.log.next_op(), invoked, observer._all, 2.5)
        question.futures = {(where, name): Future() for where in observer._all for name in FIELDS}
        return question

    monkeypatch.setattr(observer, "_ask_leader", asked)
    observer.observe()
    observer.log._journal.release()
    observer.log.ended = True
    observer.close()
    recover(one.folder, one.clock)
    rows = [row for row in one.read_journal(observer) if row.f == "offsets"]
    assert {(row.type, row.error) for row in rows} == {("info", DIED)}
