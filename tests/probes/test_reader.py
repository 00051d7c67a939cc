"""The reader on a real broker: what it was given is what it logs, and where it stood."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from probes.kafka.errors import ClientError, Crash
from probes.records.tag import Encoder
from probes.topology import Partition
from probes.workloads.probe import Carried, Probe
from probes.workloads.reader import Reader
from rules.vocabulary.slices import LeaderEpoch, Run, Slice
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness

WRITER = 77


def produce(one: Stage, where: Partition, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": one.connection.bootstrap})
    for value in values:
        producer.produce(where[0], value, partition=where[1])
    assert producer.flush(60) == 0


def tagged(where: Partition, first: int, count: int, run: str = "run-a") -> list[bytes]:
    encoder = Encoder(run=run, writer=WRITER, topic=where[0], partition=where[1], size=120)
    return encoder.encode(range(first, first + count), sent=1)


def until(
    condition: Callable[[], object],
    *probes: Probe,
    doing: Callable[[], object] | None = None,
    within: float = 180.0,
) -> None:
    """`doing` comes before each look at the condition; the probes' turns, after each that was in vain."""

    def true() -> object:
        if doing is not None:
            doing()
        return condition()

    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        for probe in probes:
            probe.turn()


def polls(reader: Reader, where: Partition) -> list[Slice]:
    return [row for row in witness(reader).of("poll") if (row.topic, row.partition) == where]


def test_an_assigned_reader_logs_runs_and_positions_that_join_on(stage: MakeStage) -> None:
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
    assert {tuple(row.epochs) for row in rows} == {(LeaderEpoch(0),)}, "nobody else has led it"
    assert rows[0].polled[0][:3] == (WRITER, 0, 0)
    assert {(row.type, row.mode, row.isolation, row.rebalanced) for row in rows} == {
        ("ok", "assign", "read_committed", False)
    }
    (assigned,) = [row for row in witness(reader).of("assign") if (row.topic, row.partition) == here]
    assert (assigned.assigned, assigned.mode) == (True, "assign")


def test_whatever_is_not_ours_is_listed_beside_the_runs(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
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
    (line,) = [record.getMessage() for record in caplog.records if "known_runs" in record.getMessage()]
    assert line.startswith(f"topic {here[0]} holds records of run run-z, which these probes do not know")


def test_it_commits_what_it_journalled_and_reads_it_back_and_the_next_life_goes_on_there(stage: MakeStage) -> None:
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


def test_a_group_shares_the_partitions_and_logs_each_rebalance(stage: MakeStage) -> None:
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


def test_a_restless_reader_changes_modes_and_partitions_and_says_so(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage(unrest={"enabled": True, "mean_interval": 2_592_000, "seed": 1})
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g", restless=True)
    monkeypatch.setattr(reader.rng, "choice", lambda options: {3: "partition"}.get(len(options), options[0]))
    reader._trouble()
    gone = next(iter(one.layout.partitions()))
    assert [(r.topic, r.partition) for r in witness(reader).of("assign")[-6:] if not r.assigned] == [gone]
    produce(one, gone, tagged(gone, 0, 3))
    reader.turn()
    assert reader.counters.polled == 0
    monkeypatch.setattr(reader.rng, "choice", lambda options: "mode")
    reader._trouble()
    assert {row.assigned for row in witness(reader).of("revoke", "subscribe")} == {False}
    until(lambda: reader.counters.polled == 3, reader)
    assert reader.mode == "subscribe"
    reader._trouble()
    assert (reader.mode, len(reader.assigned)) == ("assign", 6)
    monkeypatch.setattr(reader.rng, "choice", lambda options: "crash")
    with pytest.raises(Crash):
        reader._trouble()


@pytest.mark.kafka
def test_a_topic_made_anew_is_read_from_its_start_and_positions_say_so(stage: MakeStage) -> None:
    """librdkafka's own position stays at 20 while it returns 0 to 5, and so would what is committed."""
    one = stage(topics={"partitions": 1}, reader={"commit_interval": 0.3, "position_interval": 0.3})
    here = (one.config.topics.records, 0)
    produce(one, here, tagged(here, 0, 20))
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    until(lambda: reader.counters.polled == 20 and reader._committed.get(here) == 20, reader)
    one.admin.delete_topics([here[0]])[here[0]].result(60)
    until(lambda: here[0] not in one.admin.list_topics(timeout=60).topics, reader)
    one.topics.ensure()
    produce(one, here, tagged(here, 20, 3))
    until(lambda: reader.counters.polled == 23, reader)
    produce(one, here, tagged(here, 23, 2))
    until(lambda: reader.counters.polled == 25 and reader._committed.get(here) == 5, reader)
    went_back = [row for row in polls(reader, here) if row.polled[0].seq >= 20]
    assert [row.position_after for row in went_back] == [
        known(row.polled[-1].offset) + row.polled[-1].length for row in went_back
    ]
    since = went_back[0].completed
    told = [r for r in witness(reader).of("position", "commit") if (r.topic, r.partition) == here and r.invoked > since]
    assert told and max((row.committed or row.position_after or 0) for row in told) == 5


class Fetched:
    """A message of a client, or an error in place of one."""

    def __init__(self, where: Partition, offset: int, value: bytes | None, error: KafkaError | None = None) -> None:
        self.where, self._offset, self._value, self._error = where, offset, value, error

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    def leader_epoch(self) -> int:
        return 0


class Handing:
    """A consumer that returns these messages once, and says that it stands at `position` everywhere, or nowhere."""

    def __init__(self, *messages: Fetched, position: int = -1001) -> None:
        self._messages, self._position = list(messages), position

    def consume(self, *_: object) -> list[Fetched]:
        messages, self._messages = self._messages, []
        return messages

    def position(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(tp.topic, tp.partition, self._position) for tp in asked]

    def close(self) -> None: ...


@pytest.mark.kafka
def test_what_came_before_a_fatal_error_is_logged_and_so_is_the_error(stage: MakeStage) -> None:
    one = stage()
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    reader.close()
    here = (one.config.topics.records, 1)
    (value,) = tagged(here, 0, 1)
    fatal = KafkaError(KafkaError._FATAL, "it is over", fatal=True)
    reader._consumer = Handing(Fetched(here, 0, value), Fetched((here[0], -1), 0, None, fatal))
    with pytest.raises(ClientError, match="it is over"):
        reader.poll()
    rows = witness(reader).of("poll")
    assert [(row.topic, row.partition, row.type, row.error, list(row.polled)) for row in rows] == [
        (*here, "ok", None, [Run(WRITER, 0, 0, 1)]),
        *((here[0], p, "info", "_FATAL", []) for p in range(3)),
    ]


@pytest.mark.kafka
def test_a_member_whose_client_has_ended_for_good_ends_with_it(stage: MakeStage) -> None:
    """By the newer group protocol whoever is refused ends so: the name of another member, or a group that is gone after
    its members stood still for a minute. The library marks no such error as fatal."""
    one = stage()

    def member() -> Consumer:
        told = {"group.id": f"{one.prefix}-g", "group.protocol": "consumer", "group.instance.id": "the same"}
        consumer = Consumer({"bootstrap.servers": one.connection.bootstrap} | told)
        consumer.subscribe([one.config.topics.records])
        return consumer

    first = member()
    until(first.assignment, doing=lambda: first.consume(10, 0.2))
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    reader.close()
    reader._consumer = member()
    with pytest.raises(ClientError, match="UNRELEASED_INSTANCE_ID") as ended:
        until(lambda: False, doing=reader.poll)
    assert ended.value.fatal
    assert {(row.type, row.error) for row in witness(reader).of("poll")} == {("info", "UNRELEASED_INSTANCE_ID")}
    reader._consumer.close()
    first.close()


@pytest.mark.kafka
def test_a_partition_that_was_added_meanwhile_is_logged_with_a_beginning_and_an_end(stage: MakeStage) -> None:
    one = stage()
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    reader.close()
    added = (one.config.topics.records, 3)
    (value,) = tagged(added, 0, 1)
    reader._consumer = Handing(Fetched(added, 0, value))
    reader.poll()
    reader.log.end("ok")
    rows = [row for row in one.read_journal(reader) if (row.topic, row.partition) == added]
    assert [(row.f, row.slice, row.type) for row in rows] == [("start", 0, "ok"), ("poll", 1, "ok"), ("close", 2, "ok")]
    assert rows[0].kind == "reader" and list(rows[1].polled) == [Run(WRITER, 0, 0, 1)]
