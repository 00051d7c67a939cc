"""Where a real consumer stands after an abort, and that the probe which finds out does nobody harm."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import KafkaError, KafkaException

from probes.kafka.errors import ClientError, Crash
from probes.records.polls import Polled
from probes.records.tag import Decoded
from probes.workloads.reader import Reader
from probes.workloads.transactional.aborts import Aborts
from probes.workloads.transactional.transaction_course import Course
from probes.workloads.transactional.transactions import Transactions
from rules.vocabulary.slices import Slice
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import Handing, until
from tests.probes.test_transactions import transact


def put(one: Stage) -> Aborts:
    return one.put(Aborts, "aborts-1", group=f"{one.prefix}-aborts-1")


def filled(stage: MakeStage) -> Stage:
    one = stage()
    other = one.put(Transactions, "other", timeout=60.0, stable=True, group=f"{one.prefix}-other")
    transact(other)
    return one


def aborted(probe: Aborts, rebalance: str | None = None) -> list[Slice]:
    """The position rows of one aborted transaction."""
    before = len(witness(probe).of("position"))
    until(lambda: probe.transact("abort", rebalance))  # type: ignore[arg-type]
    return witness(probe).of("position")[before:]


def test_without_a_rebalance_the_consumer_stays_where_its_polls_had_ended(stage: MakeStage) -> None:
    one = filled(stage)
    probe = put(one)
    first = aborted(probe)
    txns = {row.txn for row in witness(probe).of("txn") if row.type == "fail"}
    assert {row.txn for row in first} == txns
    assert len(txns) == 1
    for row in first:
        assert (row.position_before, row.rebalanced) == (0, False)
        assert known(row.reached) > 0
        assert row.position_after == row.reached, "advance: it was not taken back"
    again = {row.partition: row for row in aborted(probe)}
    assert all(again[row.partition].position_before == 0 for row in first if row.partition in again), "we went back"


def test_a_position_that_is_stale_since_the_topic_was_made_anew_is_not_told(stage: MakeStage) -> None:
    one = filled(stage)
    probe = put(one)
    client, (stale, told, _) = probe._consumer, probe._targets
    course = Course(1, 2, "abort", probe.log.now(), {}, [])
    course.polled = {where: [Polled(Decoded([], []), 6, 0, 6)] for where in (stale, told)}
    course.before, course.after = {stale: 0, told: 0}, {stale: 6, told: 6}
    probe._consumer = Handing(position=388)
    probe._positions.after(probe._consumer, {stale: course.polled[stale][0]}, {stale: 20})
    probe._log_positions(course)
    found = {(row.topic, row.partition): row.position_after for row in witness(probe).of("position")}
    assert found == {stale: 6, told: 388}
    probe._consumer = client


def test_a_client_that_takes_the_topic_for_gone_is_left(stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> int:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))

    one = filled(stage)
    probe = put(one)
    monkeypatch.setattr("probes.records.delivery.queue", gone)
    with pytest.raises(ClientError, match=r"\(_UNKNOWN_TOPIC\)"):
        until(lambda: probe.transact("commit"))
    assert {(row.type, row.error) for row in witness(probe).of("txn")} == {("fail", "_UNKNOWN_TOPIC")}


@pytest.mark.parametrize("how", ["join", "leave"])
def test_with_a_rebalance_it_is_back_where_the_group_had_committed(stage: MakeStage, how: str) -> None:
    one = filled(stage)
    probe = put(one)
    until(lambda: probe.transact("commit"))
    moved = {row.partition: row.committed for row in witness(probe).of("txn") if row.committed}
    assert moved
    other = next(p for p in one.probes if isinstance(p, Transactions))
    transact(other)
    rows = aborted(probe, how)
    assert {row.rebalanced for row in rows} == {True}
    for row in rows:
        assert row.position_after == row.position_before == moved.get(row.partition, 0), "rewind"
        assert known(row.reached) > known(row.position_before)
    assert {row.type for row in witness(probe).of("txn") if row.txn == rows[0].txn} == {"fail"}


def test_it_is_taken_for_no_reader_and_its_aborted_records_are_seen_by_none(stage: MakeStage) -> None:
    one = filled(stage)
    probe = put(one)
    for _ in range(3):
        aborted(probe)
    until(lambda: probe.transact("commit"))
    rows = witness(probe).rows
    assert Counter(row.f for row in rows if row.f not in ("start", "init")).keys() == {"txn", "position"}
    assert not [row for row in rows if row.polled or row.assigned is not None or row.mode is not None]
    failed = {
        (row.partition, r.writer, r.seq) for row in witness(probe).of("txn") if row.type == "fail" for r in row.sent
    }
    kept = {(row.partition, r.writer, r.seq) for row in witness(probe).of("txn") if row.type == "ok" for r in row.sent}
    assert (len(failed), len(kept)) == (3, 1)
    reader = one.put(Reader, "reader", group=f"{one.prefix}-reader")
    until(lambda: reader.counters.polled >= 13, reader)
    polls = [(row.partition, run) for row in witness(reader).of("poll") for run in row.polled]
    seen = {(where, run.writer, run.seq + i) for where, run in polls for i in range(run.length)}
    assert kept <= seen
    assert not failed & seen


def test_it_aborts_and_commits_at_its_rate_and_is_abandoned_where_there_is_unrest(stage: MakeStage) -> None:
    one = stage(aborts={"rate": 5.0, "abort_share": 0.5, "rebalance_share": 0.0})
    other = one.put(Transactions, "other", timeout=60.0, stable=True, group=f"{one.prefix}-other")
    probe = put(one)

    def both() -> None:
        transact(other)
        probe.turn()

    until(
        lambda: probe.counters.transactions_aborted > 1 and probe.counters.transactions_committed > 1,
        doing=both,
    )
    probe.unrest.due = lambda: True  # type: ignore[method-assign]
    with pytest.raises(Crash):
        until(lambda: False, probe)
