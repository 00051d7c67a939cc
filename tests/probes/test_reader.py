"""The reader on a real broker: what it was given is what it logs, and where it stood."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from probes.errors import Crash
from probes.layout import Partition
from probes.probe import Carried
from probes.reader import Reader
from probes.tag import Encoder
from rules.vocabulary.slices import Run, Slice
from tests.probes.conftest import Stage, witness

WRITER = 77


def produce(one: Stage, where: Partition, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": one.connection.bootstrap})
    for value in values:
        producer.produce(where[0], value, partition=where[1])
    assert producer.flush(10) == 0


def tagged(where: Partition, first: int, count: int, run: str = "run-a") -> list[bytes]:
    return Encoder(run=run, writer=WRITER, topic=where[0], partition=where[1], size=120).encode(first, count, sent=1)


def until(condition: Callable[[], object], *readers: Reader, within: float = 20.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        for reader in readers:
            reader.turn()


def polls(reader: Reader, where: Partition) -> list[Slice]:
    return [row for row in witness(reader).of("poll") if (row.topic, row.partition) == where]


def test_an_assigned_reader_logs_runs_and_positions_that_join_on(stage):
    one = stage()
    here = (one.config.topics.records, 1)
    produce(one, here, tagged(here, 0, 30))
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    until(lambda: reader.counters.polled == 30, reader)
    produce(one, here, tagged(here, 30, 5))
    until(lambda: reader.counters.polled == 35, reader)
    rows = polls(reader, here)
    assert rows[0].position_before == 0
    assert [row.position_before for row in rows[1:]] == [row.position_after for row in rows[:-1]]
    assert rows[-1].position_after == 35
    assert sum(run.length for row in rows for run in row.polled) == 35
    assert rows[0].polled[0][:3] == (WRITER, 0, 0)
    assert {(row.type, row.mode, row.isolation, row.rebalanced) for row in rows} == {
        ("ok", "assign", "read_committed", False)
    }
    (assigned,) = [row for row in witness(reader).of("assign") if (row.topic, row.partition) == here]
    assert (assigned.assigned, assigned.mode) == (True, "assign")


def test_whatever_is_not_ours_is_listed_beside_the_runs(stage):
    one = stage()
    here, other = (one.config.topics.records, 0), (one.config.topics.records, 2)
    values = [*tagged(here, 0, 2), b"junk", *tagged(other, 9, 1), *tagged(here, 5, 1, run="run-z"), *tagged(here, 2, 2)]
    produce(one, here, values)
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    until(lambda: reader.counters.polled == 7, reader)
    rows = polls(reader, here)
    assert [run for row in rows for run in row.polled] == [Run(WRITER, 0, 0, 2), Run(WRITER, 2, 5, 2)]
    listed = [(i.offset, i.status, i.partition, i.run) for row in rows for i in row.irregular]
    assert listed == [(2, "corrupted", None, None), (3, "relocated", 2, "run-a"), (4, "foreign", 0, "run-z")]


def test_it_commits_what_it_journalled_and_reads_it_back_and_the_next_life_goes_on_there(stage):
    one = stage(reader={"commit_interval": 0.3, "position_interval": 0.3})
    here = (one.config.topics.records, 1)
    produce(one, here, tagged(here, 0, 10))
    group = f"{one.prefix}-g"
    reader = one.put(Reader, "reader", group=group)
    until(lambda: [row for row in witness(reader).of("offsets") if row.committed == 10], reader)
    until(lambda: [row for row in witness(reader).of("position") if row.position_after == 10], reader)
    commit = witness(reader).of("commit")[-1]
    assert (commit.type, commit.committed, commit.group, commit.partition) == ("ok", 10, group, 1)
    back = witness(reader).of("offsets")[-1]
    assert (back.type, back.committed, back.group, back.partition) == ("ok", 10, group, 1)
    position = [row for row in witness(reader).of("position") if (row.topic, row.partition) == here][-1]
    assert (position.position_before, position.position_after) == (10, 10)
    numbers = [row.f for row in one.read_journal(reader) if (row.topic, row.partition) == here]
    assert numbers.index("poll") < numbers.index("commit") < numbers.index("offsets")
    produce(one, here, tagged(here, 10, 3))
    later = one.put(Reader, "reader", group=group)
    until(lambda: later.counters.polled == 3, later)
    assert polls(later, here)[0].position_before == 10
    carried = one.put(Reader, "other", Carried({later.topic_place(here): 12}), group=f"{one.prefix}-h")
    until(lambda: carried.counters.polled == 1, carried)
    assert polls(carried, here)[0].position_before == 12


def test_a_group_shares_the_partitions_and_logs_each_rebalance(stage):
    one = stage()
    group = f"{one.prefix}-g"
    first = one.put(Reader, "first", group=group, mode="subscribe")
    until(lambda: len(first.assigned) == 6, first)
    assert len(witness(first).of("subscribe")) == 6
    assert [row.assigned for row in witness(first).of("assign")] == [True] * 6
    for where in one.layout.partitions():
        produce(one, where, tagged(where, 0, 4))
    until(lambda: first.counters.polled == 24, first)
    second = one.put(Reader, "second", group=group, mode="subscribe")
    until(lambda: len(first.assigned) + len(second.assigned) == 6 and second.assigned, first, second)
    assert not first.assigned & second.assigned
    for reader in (first, second):
        last = witness(reader).of("assign", "revoke")[-6:]
        assert {(row.topic, row.partition) for row in last if row.assigned} == reader.assigned
        assert {row.mode for row in last} == {"subscribe"}
    assert len(witness(first).of("revoke")) == 6
    for where in one.layout.partitions():
        produce(one, where, tagged(where, 4, 2))
    until(
        lambda: {w for r in (first, second) for w in r.assigned if _polled(r, w, 5)} == set(one.layout.partitions()),
        first,
        second,
    )


def _polled(reader: Reader, where: Partition, seq: int) -> bool:
    return any(run.seq <= seq < run.seq + run.length for row in polls(reader, where) for run in row.polled)


def test_a_restless_reader_changes_modes_and_partitions_and_says_so(stage):
    one = stage(unrest={"enabled": True, "mean_interval": 1e9, "seed": 1})
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g", restless=True)
    reader.rng.choice = lambda options: {3: "partition"}.get(len(options), options[0])  # type: ignore[method-assign, assignment]
    reader._trouble()
    gone = next(iter(one.layout.partitions()))
    assert [(r.topic, r.partition) for r in witness(reader).of("assign")[-6:] if not r.assigned] == [gone]
    produce(one, gone, tagged(gone, 0, 3))
    reader.turn()
    assert reader.counters.polled == 0
    reader.rng.choice = lambda options: "mode"  # type: ignore[method-assign, assignment]
    reader._trouble()
    assert {row.assigned for row in witness(reader).of("revoke", "subscribe")} == {False}
    until(lambda: reader.counters.polled == 3, reader)
    assert reader.mode == "subscribe"
    reader._trouble()
    assert (reader.mode, len(reader.assigned)) == ("assign", 6)
    reader.rng.choice = lambda options: "crash"  # type: ignore[method-assign, assignment]
    with pytest.raises(Crash):
        reader._trouble()
