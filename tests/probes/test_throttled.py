"""A quota that the canary exceeds: what brokers hold back is counted, and said once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kio.schema.alter_client_quotas.v1 import request
from kio.static.primitive import f64

from alerts.probe_metrics import ProbeMetrics
from probes.kafka.client import Connection
from probes.kafka.errors import ClientError, Throttled
from probes.kafka.wire.line import Line
from probes.kafka.wire.messages import decode_response, new_request
from probes.kafka.wire.upstream import addresses, upstream
from probes.workloads.held_back import HeldBack
from probes.workloads.observer import Observer, Question
from probes.workloads.probe import Counters
from probes.workloads.reader import Reader
from probes.workloads.writer import Writer
from tests.probes.conftest import MakeStage

ALTER_CLIENT_QUOTAS = 49
S = 1_000_000_000


@contextmanager
def quota(connection: Connection, client: str, key: str, value: float) -> Iterator[None]:
    """The client may not exceed this rate meanwhile."""

    def set_to(value: float, remove: bool) -> None:
        entity = request.EntityData(entity_type="client-id", entity_name=client)
        entry = request.EntryData(
            entity=(entity,), ops=(request.OpData(key=key, value=f64(float(value)), remove=remove),)
        )
        asyncio.run(_altered(connection, request.AlterClientQuotasRequest(entries=(entry,), validate_only=False)))

    set_to(value, False)
    try:
        yield
    finally:
        set_to(value, True)


async def _altered(connection: Connection, payload: object) -> None:
    (address,) = addresses(connection.bootstrap)
    line = await Line.open(upstream(connection.security), address, "test", 10.0)
    try:
        answer = await line.answer(new_request(ALTER_CLIENT_QUOTAS, 1, 0, "test", payload))
        (told,) = decode_response(ALTER_CLIENT_QUOTAS, 1, answer).entries
        assert told.error_code.value == 0, told.error_message
    finally:
        line.close()


@pytest.mark.kafka
def test_what_a_quota_holds_back_is_counted_and_said_once(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    one = stage(writer={"rate": 1000, "batch_interval": 0.02, "record_bytes": 4000})
    writer = one.put(Writer, "held-back-writer")
    writer.turn()
    assert writer.counters.throttled == 0
    with caplog.at_level(logging.WARNING), quota(one.connection, writer.client, "producer_byte_rate", 20_000):
        for _ in range(400):
            writer.turn()
            if writer.counters.throttled > 1:
                break
    assert writer.counters.throttled > 1
    assert writer.counters.errors == 0, "nothing failed"
    said = [one.getMessage() for one in caplog.records if "throttles" in one.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("broker 1 throttles the client of held-back-writer, by a quota (")


@pytest.mark.kafka
def test_a_reader_is_told_of_its_quota_too(stage: MakeStage) -> None:
    one = stage(writer={"rate": 1000, "batch_interval": 0.02, "record_bytes": 4000})
    writer, reader = one.put(Writer, "writer"), one.put(Reader, "held-back-reader", group=f"{one.prefix}-g")
    with quota(one.connection, reader.client, "consumer_byte_rate", 20_000):
        for _ in range(400):
            writer.turn()
            reader.turn()
            if reader.counters.throttled > 0:
                break
    assert reader.counters.throttled > 0


def test_it_is_no_error_of_the_client() -> None:
    told = Throttled(2, 1.25)
    assert isinstance(told, ClientError)
    assert not told.fatal
    assert str(told) == "broker 2 holds an answer back for 1.2 s, by a quota (THROTTLED)"


def test_it_is_a_metric() -> None:
    counters = Counters("writer-1", "writer", throttled=2.5)
    (family,) = [
        one
        for one in ProbeMetrics(lambda: [counters], cluster=lambda: "c").collect()
        if one.name == "offsetwatch_probe_throttled_seconds"
    ]
    assert [(one.name, one.labels, one.value) for one in family.samples] == [
        ("offsetwatch_probe_throttled_seconds_total", {"cluster": "c", "probe": "writer-1", "kind": "writer"}, 2.5)
    ]


def test_the_observers_rows_name_who_throttles_us_while_it_lasts(stage: MakeStage) -> None:
    one = stage()
    observer = one.put(Observer, "observer")
    now = observer.log.now()
    said = []
    for broker, ago, seconds in ((1, 3.0, 1.5), (2, 9.0, 8.0), (3, 9.0, 1.0)):
        assert observer.world.held_back.note(broker, "writer-1", seconds, now.mono - int(ago * 1e9))
        row = observer.log.row((one.config.topics.records, 0), "offsets", "ok", 1, now, now, log_end=9)
        observer._tell_of(Question(1, now, [(row.topic, 0)], 2.5, leader=1), [row], now.mono)
        said.append(dict(row.settings or {}).get("throttled"))
    assert said == ["1:1.5:0.15", "1:1.5:0.15,2:8.0:0.80", "1:1.5:0.15,2:8.0:0.80"]


def test_a_client_that_is_held_back_for_a_moment_again_and_again_is_all_the_time() -> None:
    held = HeldBack()
    for tenth in range(0, 200, 11):
        held.note(1, "reader-1", 1.0, tenth * S // 10)
        held.note(1, "writer-1", 0.1, tenth * S // 10)
        held.note(2, "writer-1", 0.1, tenth * S // 10)
    (one, two) = held.lately(20 * S, 2.0)
    assert (one.broker, two.broker, two.seconds) == (1, 2, 0.1)
    assert 0.88 < one.share < 0.92 and 0.08 < two.share < 0.1
    held.note(1, "reader-1", 30.0, 20 * S)
    assert held.lately(25 * S, 2.0)[0].share == pytest.approx(0.5 + 4.5 / 10, abs=0.05), "of what has passed by now"
