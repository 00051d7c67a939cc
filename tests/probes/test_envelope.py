"""What is sent with a value, and what is said of a record with which something else came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message, Producer

from probes.records.delivery import Batch, fates, hand_over
from probes.records.envelope import HEADER, alterations, headers_of
from probes.records.tag import KEY, Encoder, decode
from rules.vocabulary.slices import Altered, Run

HERE = ("canary-records", 3)
SENT = 1_763_741_823_123_456
MILLIS = SENT // 1000
SIZE = 120


def values_of(first: int, count: int, sent: int = SENT, *, enveloped: bool = True) -> list[bytes]:
    encoder = Encoder(run="run-a", writer=7, topic=HERE[0], partition=HERE[1], size=SIZE)
    return encoder.encode(range(first, first + count), sent=sent, enveloped=enveloped)


def record(offset: int, value: bytes, **changes: Any) -> Message:
    """The record as it was sent, but for the changes."""
    told = {
        "key": value[KEY],
        "timestamp": (TIMESTAMP_CREATE_TIME, int.from_bytes(value[28:36], "little") // 1000),
        "headers": headers_of(value) if value[4] & 16 else None,
        **changes,
    }
    return Message(topic=HERE[0], partition=HERE[1], offset=offset, value=value, leader_epoch=5, **told)


def said(records: Sequence[Message], irregular: Sequence[int] = ()) -> list[Altered]:
    return alterations(records, [one.value() for one in records], irregular)


def made_of(values: Sequence[bytes], **changes: dict[int, Any]) -> list[Message]:
    """Records at consecutive offsets, from 40 on; `changes` are by field, then by place."""
    return [
        record(40 + i, value, **{name: by[i] for name, by in changes.items() if i in by})
        for i, value in enumerate(values)
    ]


def test_what_was_sent_is_as_it_was_sent() -> None:
    values = [*values_of(0, 3), *values_of(3, 1, SENT + 5_000), *values_of(9, 2, SENT - 7_000_000)]
    assert said(made_of(values)) == []


def altered(what: str, sent: str, told: str) -> Altered:
    return Altered(7, 1, 41, 1, what, sent, told, 5)


KEY_OF_1 = values_of(1, 1)[0][KEY].hex()
CHECKSUM_OF_0 = values_of(0, 3)[0][-4:].hex()
OURS = f"timestamp {MILLIS} CreateTime"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"key": b"other"}, altered("key", f"key {KEY_OF_1}", f"key {b'other'.hex()}")),
        ({"key": None}, altered("key", f"key {KEY_OF_1}", "key none")),
        ({"key": b""}, altered("key", f"key {KEY_OF_1}", "key empty")),
        ({"timestamp": (TIMESTAMP_CREATE_TIME, 0)}, altered("timestamp", OURS, "timestamp 0 CreateTime")),
        (
            {"timestamp": (TIMESTAMP_LOG_APPEND_TIME, MILLIS)},
            altered("timestamp-type", OURS, f"timestamp {MILLIS} LogAppendTime"),
        ),
        ({"headers": [("x", b"1")]}, altered("headers", "headers none", "headers x=31")),
        (
            {"key": None, "headers": [("x", None)], "timestamp": (TIMESTAMP_CREATE_TIME, 9)},
            altered(
                "key,headers,timestamp",
                f"key {KEY_OF_1}, headers none, {OURS}",
                "key none, headers x=none, timestamp 9 CreateTime",
            ),
        ),
    ],
)
def test_what_came_instead_is_told(changes: dict[str, Any], expected: Altered) -> None:
    assert said(made_of(values_of(0, 3), **{name: {1: value} for name, value in changes.items()})) == [expected]


def test_a_lost_header_is_told() -> None:
    assert said(made_of(values_of(0, 3), headers={0: None})) == [
        Altered(7, 0, 40, 1, "headers", f"headers {HEADER}={CHECKSUM_OF_0}", "headers none", 5)
    ]


def test_two_keys_that_make_the_same_bytes_are_not_as_they_were_sent() -> None:
    values = values_of(0, 2)
    first, second = (value[KEY] for value in values)
    found = said(made_of(values, key={0: first + second[:1], 1: second[1:]}))
    assert [(one.seq, one.length, one.what) for one in found] == [(0, 2, "key")]


def test_neighbours_that_differ_alike_are_told_together() -> None:
    values = values_of(0, 8)
    zero = (TIMESTAMP_CREATE_TIME, 0)
    records = made_of(values, timestamp={1: zero, 2: zero, 3: zero, 5: zero, 6: zero}, key={6: None})
    records[2:] = [record(one.offset() + 1, one.value(), **_kept(one)) for one in records[2:]]  # a marker before it
    told = [(one.seq, one.offset, one.length, one.what) for one in said(records)]
    assert told == [
        (1, 41, 1, "timestamp"),
        (2, 43, 2, "timestamp"),
        (5, 46, 1, "timestamp"),
        (6, 47, 1, "key,timestamp"),
    ]


def _kept(one: Message) -> dict[str, Any]:
    return {"timestamp": one.timestamp(), "key": one.key(), "headers": one.headers()}


def test_of_a_record_without_promise_nothing_is_said() -> None:
    values = [*values_of(0, 2), *values_of(2, 2, enveloped=False)]
    everything = {"key": None, "timestamp": (TIMESTAMP_CREATE_TIME, 0), "headers": [("x", b"")]}
    changes = {name: {1: value, 3: value} for name, value in everything.items()}
    assert [(one.seq, one.length) for one in said(made_of(values, **changes))] == [(1, 1)]


def test_of_an_irregular_record_nothing_is_said() -> None:
    values = [values_of(0, 1)[0], b"junk", values_of(1, 1)[0]]
    decoded = decode(values, [40, 41, 42], topic=HERE[0], partition=HERE[1], runs=["run-a"])
    records = [record(40, values[0], key=None), Message(value=b"junk", offset=41), record(42, values[2])]
    assert [(one.index, one.status) for one in decoded.irregular] == [(1, "corrupted")]
    assert [(one.seq, one.offset, one.what) for one in said(records, [one.index for one in decoded.irregular])] == [
        (0, 40, "key")
    ]


class Full(Producer):  # type: ignore[misc]  # its library tells no types
    """A client whose queue has room for `room` records."""

    room: int

    def produce(self, *args: Any, **kwargs: Any) -> None:
        if not self.room:
            raise BufferError("full")
        self.room -= 1


@pytest.mark.parametrize("room", [0, 1, 2, 4])
def test_what_the_client_has_no_room_for_has_failed(room: int) -> None:
    producer = Full({})
    producer.room = room
    batch = Batch(7, {HERE: (10, 4)})
    hand_over(producer, batch, {HERE: Encoder(run="r", writer=7, topic=HERE[0], partition=3, size=SIZE)}, sent=SENT)
    assert batch.queued == room
    found = [(fate.type, fate.error, fate.runs) for fate in fates(batch)[HERE]]
    queued = [("info", "_TIMED_OUT", [Run(7, 10, None, room)])] if room else []
    refused = [("fail", "_QUEUE_FULL", [Run(7, 10 + room, None, 4 - room)])] if room < 4 else []
    assert found == queued + refused


Stage = Callable[..., Any]


def test_on_a_real_broker_nothing_is_altered_and_the_broker_s_own_time_is_told(stage: Stage) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    from probes.kafka.client import admin_settings, open_admin
    from probes.workloads.reader import Reader
    from probes.workloads.writer import Writer
    from tests.probes.test_reader import polls, until

    one = stage()
    writer = one.put(Writer, "writer")
    reader = one.put(Reader, "reader", group=f"{one.prefix}-g")
    until(lambda: reader.counters.polled > 20, writer, reader)
    here = (one.config.topics.records, 0)
    assert [row.altered for row in polls(reader, here) if row.altered] == []
    admin = open_admin(admin_settings(one.connection, client="test"))
    entry = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, here[0], incremental_configs=[entry])]
    ).values()
    done.result(60)
    until(lambda: any(row.altered for row in polls(reader, here)), writer, reader)
    told = next(row.altered[0] for row in polls(reader, here) if row.altered)
    assert told.what == "timestamp-type"
    assert told.told.endswith(" LogAppendTime")
    assert told.leader_epoch is not None
