"""The audit on a real broker: two passes over everything, at its rate, and the checks told to forget in between."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from probes.kafka.errors import Crash
from probes.topology import Partition
from probes.workloads.audit import Audit
from probes.workloads.probe import Carried
from probes.workloads.transactional.transactions import Transactions
from rules.vocabulary.slices import Slice
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import produce, tagged
from tests.probes.test_transactions import transact


def put(one: Stage, carried: Carried | None = None) -> Audit:
    return one.put(Audit, "audit", carried, group=f"{one.prefix}-audit")


def run_passes(audit: Audit, count: int, within: float = 180.0) -> None:
    end = time.monotonic() + within
    while audit.passes < count:
        assert time.monotonic() < end, "it did not happen in time"
        audit.turn()


def rows_of(audit: Audit, where: Partition) -> list[Slice]:
    return [row for row in witness(audit).rows if (row.topic, row.partition) == where]


def read(audit: Audit, where: Partition) -> Counter[int]:
    """How often each offset was polled."""
    polled = [run for row in rows_of(audit, where) for run in row.polled]
    return Counter(known(run.offset) + i for run in polled for i in range(run.length))


def test_two_passes_read_everything_twice_from_the_beginning(stage: MakeStage) -> None:
    one = stage(audit={"period": 0.5})
    places = list(one.layout.partitions(one.config.topics.records))
    for number, where in enumerate(places):
        produce(one, where, tagged(where, 0, 10 * number))
    other = one.put(Transactions, "other", timeout=60.0, stable=True, group=f"{one.prefix}-other")
    transact(other)
    transact(other, "abort")
    audit = put(one)
    run_passes(audit, 2)
    for number, where in enumerate(places):
        assert read(audit, where) == dict.fromkeys(range(10 * number), 2)
    ended_by_markers = (one.config.topics.transactions, 0)
    assert sorted(read(audit, ended_by_markers).values()) == [2] * 4, "and not what was aborted"
    for where in one.layout.partitions():
        told = [
            (row.f, row.assigned) for row in rows_of(audit, where) if row.assigned is not None and row.f != "position"
        ]
        turns = [index for index, one_of in enumerate(told) if one_of == ("assign", True)]
        assert len(turns) == 2
        assert all(told[index - 1] == ("assign", False) for index in turns), "forgotten before each turn"
        assert told[-1] == ("revoke", False)
        polls = [row for row in rows_of(audit, where) if row.f == "poll"]
        assert {(row.mode, row.isolation, row.type) for row in polls} <= {("assign", "read_committed", "ok")}
    first = next(row for row in rows_of(audit, places[2]) if row.f == "poll")
    assert first.position_before == 0
    assert not witness(audit).of("commit")
    group = f"{one.prefix}-audit"
    answer = one.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert [tp for tp in answer.topic_partitions if tp.offset >= 0] == []
    assert audit.counters.errors == 0


def test_a_pass_begins_at_the_log_start_and_ends_where_the_log_ended_when_it_began(stage: MakeStage) -> None:
    one = stage(audit={"period": 1000.0})
    here = (one.config.topics.records, 1)
    produce(one, here, tagged(here, 0, 30))
    first = TopicPartition(*here, 12)
    one.admin.delete_records([first])[first].result()
    audit = put(one)
    audit._begin_pass()
    produce(one, here, tagged(here, 30, 5))
    run_passes(audit, 1)
    assert set(range(12, 30)) <= set(read(audit, here)) <= set(range(12, 35))
    produce(one, here, tagged(here, 35, 5))
    polled = audit.counters.polled
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        audit.turn()
    assert audit.counters.polled == polled, "nothing until the next period"


def test_it_keeps_to_its_rate_and_logs_where_it_stands(stage: MakeStage) -> None:
    one = stage(audit={"period": 1000.0, "rate": 500.0}, reader={"position_interval": 0.5})
    here = (one.config.topics.records, 0)
    produce(one, here, tagged(here, 0, 1500))
    audit = put(one)
    paused: list[float] = []
    pause = audit.pause
    audit.pause = lambda seconds: paused.append(seconds) or pause(seconds)  # type: ignore[method-assign, func-returns-value]
    begun = time.monotonic()
    run_passes(audit, 1)
    assert time.monotonic() - begun > 2.5, "no faster"
    assert sum(paused) < 6, "and no slower, whatever else the machine does"
    assert (
        max(known(row.polled[-1].offset) + 1 - known(row.position_before) for row in rows_of(audit, here) if row.polled)
        <= 100
    )
    stands = [known(row.position_after) for row in rows_of(audit, here) if row.f == "position"]
    assert stands == sorted(set(stands))
    assert len(stands) >= 2


def test_a_partition_that_cannot_be_read_keeps_it_from_no_other(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage(audit={"period": 1000.0})
    here = (one.config.topics.records, 2)
    produce(one, here, tagged(here, 0, 7))
    audit = put(one)
    audit._begin_pass()
    audit._ends = dict.fromkeys(audit._ends, 10**6)
    audit.ended = lambda where: None  # type: ignore[method-assign]
    end = time.monotonic() + 180
    while not audit.passes:
        assert time.monotonic() < end, "it did not happen in time"
        awaited = next(iter(audit._ends), None) == here and audit.counters.polled < 7
        monkeypatch.setattr("probes.workloads.audit.IDLE_ENDS_TURN", 180.0 if awaited else 0.5)
        audit.turn()
    assert read(audit, here) == dict.fromkeys(range(7), 1)


def test_the_life_after_one_that_was_abandoned_goes_on_with_the_pass(stage: MakeStage) -> None:
    """However often that happens, each partition is read whole, and once."""
    one = stage(audit={"period": 1000.0})
    places = list(one.layout.partitions(one.config.topics.records))
    for number, where in enumerate(places):
        produce(one, where, tagged(where, 0, 5 + number))
    carried, lives = Carried(), list[Audit]()
    while not lives or not lives[-1].passes:
        assert len(lives) <= len(list(one.layout.partitions())), "one partition a life at least"
        lives.append(put(one, carried))
        lives[-1].unrest.due = lambda: True  # type: ignore[method-assign]
        with suppress(Crash):
            run_passes(lives[-1], 1)
    assert len(lives) > len(places)
    for number, where in enumerate(places):
        together = sum((read(life, where) for life in lives), Counter())
        assert together == dict.fromkeys(range(5 + number), 1)
    for life in lives:
        told = [(row.f, row.assigned) for row in rows_of(life, places[0]) if row.assigned is not None]
        assert told[0] == ("assign", False), "each life says first that it begins anew"
    lives[-1]._due = 0
    lives[-1].unrest.due = lambda: False  # type: ignore[method-assign]
    run_passes(lives[-1], 2)
    assert set(read(lives[-1], places[2])) == set(range(7)), "the next pass is one of all partitions"
