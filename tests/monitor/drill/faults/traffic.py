"""A producer and two consumers that go on through faults, and what they know: what was acknowledged, what was read."""

from __future__ import annotations

import threading
import time
from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

QUIET = {"log_level": 0}
FRESH = {"topic.metadata.refresh.interval.ms": 2_000}
"""A leader that is cut off answers fetches without an error and without a record, for as long as somebody asks it: a
consumer leaves it when it looks for the leader again, after five minutes by default."""

IN_FLIGHT = 20
PACE = 0.02
"""Seconds between records, so that brokers have time for the fault: at 5 ms, and as fast as it goes all the more, this
traffic took as much of the machine as the brokers did."""

IDLE = 600
"""After so many tenths of a second without a record nothing is expected any more."""


class Traffic:
    """Writes numbers to every partition of a topic, idempotent and acks=all, and reads them twice: assigned to the
    partitions (`read`), and as a group of one (`read_by_group`)."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: list[int] = []
        self.read: Counter[int] = Counter()
        self.read_by_group: Counter[int] = Counter()
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._enough, self._written_all = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._write),
            threading.Thread(target=self._poll, args=("unused", self.read)),
            threading.Thread(target=self._poll, args=("traffic", self.read_by_group)),
        ]

    def start(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(300)
            assert not thread.is_alive()

    def goes_on(self, seconds: float = 180) -> bool:
        """Whether something that is written from now on is acknowledged and read within this time."""
        return self._comes(self.read, seconds)

    def group_goes_on(self, seconds: float = 180) -> bool:
        """As `goes_on`, by the group: a member whose coordinator is gone has to find the next one first."""
        return self._comes(self.read_by_group, seconds)

    def told(self) -> str:
        """How far each has come."""
        read, by_group = sum(self.read.values()), sum(self.read_by_group.values())
        return f"{len(self.acknowledged)} acknowledged, {read} read, {by_group} read by the group"

    def _comes(self, read: Counter[int], seconds: float) -> bool:
        limit = time.monotonic() + seconds
        before = len(self.acknowledged) + 2 * IN_FLIGHT  # whatever was in flight is not of now
        while time.monotonic() < limit:
            done = self.acknowledged[before:]
            if done and read[done[0]]:
                return True
            time.sleep(0.05)
        return False

    def _write(self) -> None:
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 5_000,
                **FRESH,
            }
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                self.acknowledged.append(int(value))

        number = 0
        while not self._enough.wait(PACE):
            if len(producer) < IN_FLIGHT:
                producer.produce(
                    self._topic, str(number).encode(), partition=number % self._partitions, on_delivery=delivered
                )
                number += 1
            producer.poll(0)
        producer.flush(180)
        self._written_all.set()

    def _all_in(self, read: Counter[int]) -> bool:
        return all(read[number] for number in self.acknowledged)

    def _poll(self, group: str, read: Counter[int]) -> None:
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "socket.timeout.ms": 5_000,
                **FRESH,
            }
        )
        if read is self.read:
            consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
        else:
            consumer.subscribe([self._topic])
        idle = 0
        while not (self._written_all.is_set() and (idle > IDLE or (idle and self._all_in(read)))):
            try:
                messages = consumer.consume(500, 0.1)
            except KafkaException:
                continue
            idle = 0 if messages else idle + 1
            for message in messages:
                value = message.value()
                if message.error() is None and isinstance(value, bytes):
                    read[int(value)] += 1
        consumer.close()
