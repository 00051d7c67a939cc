"""Short names for what real clients do in these tests."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT_S = 120.0


def topic(bootstrap: str, partitions: int = 1, replicas: int = 1) -> str:
    """A new topic, made through whatever is at `bootstrap`."""
    name = f"drill-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        made.result(LIMIT_S)
    _known_everywhere(bootstrap, name, partitions)
    return name


def _known_everywhere(bootstrap: str, name: str, partitions: int) -> None:
    """Wait until each broker knows the topic: one that has not heard of it refuses what its own leader is sent."""
    end = time.monotonic() + LIMIT_S
    for address in bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address})
        while True:
            told = admin.list_topics(name, timeout=LIMIT_S).topics[name]
            if len(told.partitions) == partitions and all(one.leader >= 0 for one in told.partitions.values()):
                break
            assert time.monotonic() < end, f"{address} does not know {name}"
            time.sleep(0.1)


def producer(bootstrap: str, **settings: Any) -> Producer:
    """`client_id="x"` is client.id; so with every setting."""
    return Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0, **_dotted(settings)},
    )


def send(client: Producer, name: str, *values: bytes, partition: int = 0) -> list[int | str]:
    """Send one after the other, each waited for: its offset, or the name of the error."""
    told: list[int | str] = []
    for value in values:
        client.produce(
            name,
            value,
            partition=partition,
            on_delivery=lambda error, message: told.append(error.name() if error else message.offset()),
        )
        client.flush(LIMIT_S)
    assert len(told) == len(values), "a delivery report is missing"
    return told


def read(
    bootstrap: str,
    name: str,
    partition: int = 0,
    *,
    until: int = 0,
    committed: bool = True,
    **settings: Any,
) -> list[tuple[int, bytes]]:
    """(offset, value) of everything from the beginning, until the consumer is at the end, or at offset `until`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
            **_dotted(settings),
        }
    )
    found: list[tuple[int, bytes]] = []
    try:
        consumer.assign([TopicPartition(name, partition, 0)])
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                found.append((message.offset(), message.value()))
            elif message is not None and message.error().name() == "_PARTITION_EOF" and message.offset() >= until:
                return found
        raise AssertionError(f"the end of {name}/{partition} was not reached, only {found[-3:]}")
    finally:
        consumer.close()


def values(read: list[tuple[int, bytes]]) -> list[bytes]:
    return [value for _, value in read]


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
