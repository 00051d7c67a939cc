"""The writer on a real broker: what it logs is what it did."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy, When
from monitor.drill.proxy.edits import change_acknowledged
from probes.kafka.client import Connection, consumer_settings
from probes.kafka.errors import Crash
from probes.records.tag import read
from probes.workloads.writer import BUSIEST_OVER_IDLEST, Writer, draw, weights
from tests.probes.conftest import MakeStage, witness


@given(st.integers(1, 40), st.integers(1, 500), st.integers(1, 8), st.integers(0, 100), st.integers())
def test_a_draw_gives_every_record_to_few_partitions_and_the_one_whose_turn_it_is(
    partitions: int, records: int, most: int, turn: int, seed: int
) -> None:
    places = [("t", p) for p in range(partitions)]
    drawn = draw(places, records, most, turn, random.Random(seed))
    assert sum(drawn.values()) == records
    assert min(drawn.values()) >= 1
    assert len(drawn) <= most
    assert ("t", turn % partitions) in drawn


def test_frequencies_fall_exponentially_and_nobody_is_left_out() -> None:
    odds = weights(6)
    assert sum(odds) == pytest.approx(1)
    assert odds[0] / odds[-1] == pytest.approx(BUSIEST_OVER_IDLEST)
    total: Counter[tuple[str, int]] = Counter()
    rng = random.Random(1)
    for turn in range(200):
        total.update(draw([("t", p) for p in range(6)], 50, 3, turn, rng))
    assert total["t", 0] > 4 * total["t", 5] > 0


def test_rows_tell_where_every_record_is(stage: MakeStage) -> None:
    one = stage(writer={"rate": 500, "batch_interval": 0.02, "record_bytes": 150})
    writer = one.put(Writer, "writer")
    while writer.counters.sent < 300:
        writer.turn()
    assert writer.counters.acknowledged == writer.counters.sent
    rows = witness(writer).of("send")
    assert {row.type for row in rows} == {"ok"}
    assert {(row.topic, row.partition) for row in rows} == set(one.layout.partitions(one.config.topics.records))
    said = {
        (row.partition, run.offset + i): (run.writer, run.seq + i)
        for row in rows
        for run in row.sent
        if run.offset is not None
        for i in range(run.length)
    }
    assert len(said) == writer.counters.sent
    consumer = Consumer(consumer_settings(one.connection, client="t", group="t"))
    consumer.assign([TopicPartition(one.config.topics.records, p, 0) for p in range(3)])
    found: dict[tuple[int, int], tuple[int, int]] = {}
    while len(found) < len(said):
        for message in consumer.consume(1000, 1.0):
            tag = read(message.value())
            assert tag is not None
            assert (tag.run, tag.topic, tag.partition) == ("run-a", message.topic(), message.partition())
            assert len(message.value()) == 150
            found[message.partition(), message.offset()] = (tag.writer, tag.seq)
    consumer.close()
    assert found == said


def test_the_start_row_says_what_kind_of_writer_it_is_in_every_partition(stage: MakeStage) -> None:
    one = stage()
    writer = one.put(Writer, "writer-five-1", in_flight=5)
    rows = witness(writer).of("start")
    assert {(row.topic, row.partition) for row in rows} == set(one.layout.partitions())
    assert {row.kind for row in rows} == {"writer"}
    settings = rows[0].settings
    assert settings is not None
    assert settings["writer"] == str(writer.writer)
    assert settings["in_flight"] == settings["max.in.flight.requests.per.connection"] == "5"
    assert settings["idempotent"] == settings["enable.idempotence"] == "true"
    assert settings["sends_to"] == one.world.config.topics.records


def test_what_the_broker_refuses_for_its_size_is_in_doubt(stage: MakeStage) -> None:
    """The limit may have been lowered between an attempt whose answer was lost and its retry."""
    one = stage(writer={"rate": 100, "record_bytes": 2000})
    resource = ConfigResource(
        ResourceType.TOPIC,
        one.config.topics.records,
        incremental_configs=[ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)],
    )
    one.admin.incremental_alter_configs([resource])[resource].result()
    writer = one.put(Writer, "writer")
    while not witness(writer).of("send"):
        writer.turn()
    rows = witness(writer).of("send")
    assert {(row.type, row.error) for row in rows} == {("info", "MSG_SIZE_TOO_LARGE")}
    assert writer.counters.indefinite == writer.counters.sent == 10
    assert all(run.offset is None for row in rows for run in row.sent)


def test_a_crash_leaves_its_batch_in_doubt_and_the_log_complete(stage: MakeStage) -> None:
    one = stage(writer={"rate": 1000}, unrest={"enabled": True, "mean_interval": 0.001})
    writer = one.put(Writer, "writer")
    with pytest.raises(Crash):
        for _ in range(100):
            writer.turn()
    writer.log.end("info", Crash.code)
    rows = witness(writer).of("send")
    assert rows == [], "the open operation goes to the journal alone"
    lived = one.read_journal(writer)
    sends = [row for row in lived if row.f == "send"]
    assert {(row.type, row.error) for row in sends} == {("info", "_CRASHED")}
    assert sum(run.length for row in sends for run in row.sent) == writer.counters.sent == 100
    assert {(row.f, row.type) for row in lived[-6:]} == {("close", "info")}
    for where in one.layout.partitions():
        numbers = [row.slice for row in lived if (row.topic, row.partition) == where]
        assert numbers == list(range(len(numbers)))


@dataclass(eq=False)
class HadAlready(Lie):
    """The broker says of batches that it had them already, and does not know any more where they stand."""

    apis = frozenset({Api.PRODUCE})

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            code = ErrorCode.duplicate_sequence_number
            change_acknowledged(exchange, lambda _, one: replace(one, error_code=code, base_offset=-1))
            self.did("said to have had", exchange)
        return PASS


def test_what_a_broker_had_already_is_acknowledged_without_an_offset(stage: MakeStage) -> None:
    one = stage(writer={"rate": 500, "batch_interval": 0.02, "record_bytes": 150})
    with Proxy(one.connection.bootstrap, [lie := HadAlready(when=When(after=3, times=2))]) as proxy:
        one.connection = Connection(proxy.bootstrap)
        writer = one.put(Writer, "writer")
        while writer.counters.sent < 300:
            writer.turn()
        one.end()
    assert len(lie.acts) == 2
    rows = witness(writer).of("send")
    assert {(row.type, row.error) for row in rows} == {("ok", None)}
    assert writer.counters.acknowledged == writer.counters.sent == sum(run.length for row in rows for run in row.sent)
    assert 0 < sum(run.length for row in rows for run in row.sent if run.offset is None) < 300
