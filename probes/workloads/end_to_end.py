"""End to end: one record to each partition once a second, read back at once by a consumer of the same process.

What it measures is the service itself: no other client shares its producer and its consumer, nothing is batched, no
group is joined, and both ends of a latency are read off one monotonic clock. It writes to the topic of the plain
writers, where no open transaction holds readers up, and what it sends is logged as by all. Its polls are no evidence:
they are not logged, and no check takes it for a reader.

While records are on their way it looks for acknowledgements and for records in turn, each five milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from probes.kafka.client import open_consumer, open_producer, producer_settings
from probes.kafka.errors import translate
from probes.kafka.starting_positions import log_ends_when_led
from probes.records.delivery import Batch, fates, hand_over, runs_to_send
from probes.records.round_trips import RoundTrips
from probes.records.tag import KEY, Encoder, sequence_number
from probes.topology import Partition
from probes.workloads.in_vain import InVain
from probes.workloads.pace import Pace
from probes.workloads.probe import Probe
from rules.vocabulary.slices import Outcome, Slice
from rules.vocabulary.times import micros

LOOK: Final = 0.005
"""Seconds between two looks for acknowledgements."""
AT_ONCE: Final = 10_000
"""At most this many records a poll."""
BEAT: Final = 250_000_000
"""Nanoseconds between two signs of life, and two looks at what is overdue."""
GIVEN_UP: Final = 5.0
"""Seconds beyond the delivery timeout after which a record's report is not waited for."""


class EndToEnd(Probe):
    """One life of the probe."""

    kind: ClassVar[str] = "end-to-end"
    sends: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.end_to_end
        self._targets = list(self.layout.partitions(self.world.config.topics.records))
        self._encoders: dict[Partition, Encoder] = {}
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._own = b""
        self._turns = 0
        self._in_vain = InVain(self)
        self._beat_due = 0
        self._pace = Pace(self.world.clock, self._config.interval)
        self.trips = RoundTrips(self._config.objective, self._tally, self._took)

    def settings(self) -> Mapping[str, str]:
        return producer_settings(
            self.world.connection,
            client=self.client,
            delivery_timeout=self.world.config.writer.delivery_timeout,
            linger_ms=0,
        )

    @property
    def sends_to(self) -> str:
        return self.world.config.topics.records

    def labels(self) -> dict[str, str]:
        return super().labels() | {"idempotent": "true", "in_flight": "1"}

    def open(self) -> None:
        assert self.writer is not None
        self._own = self.writer.to_bytes(8, "little")
        self._encoders = self.encoders(self._targets, self.world.config.writer.record_bytes)
        self._producer = open_producer(self.settings(), self.on_error)
        group = f"{self.world.config.topics.prefix}-{self.world.run}-{self.name}"
        self._consumer = open_consumer(self.consumer_settings(group, prompt=True), self.on_error)
        ends = log_ends_when_led(self.open_admin, self._targets, self.log.alive, self.pause)
        self._consumer.assign([TopicPartition(topic, p, at) for (topic, p), at in ends.items()])
        self._pace.start()

    def turn(self) -> None:
        if wait := self._pace.wait():
            if self.trips:
                self._poll(min(wait, 0.25))
            else:
                self.pause(min(wait, 0.25))  # others' records can wait
            return
        self._poll(0.0)
        count = min(self._config.partitions, len(self._targets))
        first = self._turns * count
        self._turns += 1
        self.send([self._targets[(first + i) % len(self._targets)] for i in range(count)])

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        if self._producer is not None:
            self._producer.close()

    def send(self, targets: Sequence[Partition]) -> None:
        """One record to each of these partitions, and what became of them."""
        assert self.writer is not None and self._producer is not None
        expected = self.number(dict.fromkeys(targets, 1))
        op, invoked = self.log.next_op(), self.log.now()
        runs = runs_to_send(self.writer, expected)
        self.log.opened(op, [self.log.row(where, "send", "info", op, invoked, sent=runs[where]) for where in expected])
        batch = Batch(self.writer, expected)
        handed = self.world.clock.monotonic_ns()
        for where, (seq, _) in expected.items():
            self.trips.sent(where, seq, handed)
        hand_over(self._producer, batch, self._encoders, sent=micros(invoked.at))
        self.counters.sent += len(expected)
        self._wait_for(batch)
        result = fates(batch)
        completed = self.log.now()
        rows: list[Slice] = []
        ops: dict[tuple[Outcome, str | None], int] = {}
        for where, (fate,) in result.items():
            number = ops.setdefault((fate.type, fate.error), op if not ops else self.log.next_op())
            rows.append(
                self.log.row(where, "send", fate.type, number, invoked, completed, error=fate.error, sent=fate.runs)
            )
        self.log.append(rows)
        for where, (fate,) in result.items():
            if fate.type == "fail":
                self.trips.failed(where, fate.runs[0].seq)
        self.counters.count(fate for (fate,) in result.values())
        self.measure.produced(batch, result)
        if batch.fatal is not None:
            raise batch.fatal
        self._in_vain.judge(self._producer, result)

    def _wait_for(self, batch: Batch) -> None:
        """Wait until each record is reported or given up; poll meanwhile."""
        assert self._producer is not None
        clock, known = self.world.clock, 0
        limit = clock.monotonic_ns() + int((self.world.config.writer.delivery_timeout + GIVEN_UP) * 1e9)
        while not batch.complete and batch.fatal is None and clock.monotonic_ns() < limit and self.measure.in_place:
            try:
                self._producer.poll(0)
            except Exception as error:
                batch.fatal = translate(error)
            now = clock.monotonic_ns()
            for message in batch.reports[known:]:
                where, seq = (message.topic(), message.partition()), sequence_number(message.value())
                if message.error() is None:
                    self.trips.acknowledged(where, seq, now)
            known = len(batch.reports)
            if not batch.complete:
                self._poll(LOOK)

    def _poll(self, wait: float) -> None:
        """Take what is there, after at most `wait` seconds."""
        assert self._consumer is not None
        try:
            messages = self._consumer.consume(1, wait)
            if messages:
                messages += self._consumer.consume(AT_ONCE, 0.0)
        except Exception as error:
            raise translate(error) from error
        now = self.world.clock.monotonic_ns()
        own: dict[Partition, list[bytes]] = {}
        for message in messages:
            if message.error() is not None:
                problem = translate(message.error())
                self.on_error(problem)
                if problem.fatal:
                    raise problem
            elif (value := message.value()) is not None and value[KEY].startswith(self._own):
                own.setdefault((message.topic(), message.partition()), []).append(value)
        for where, values in own.items():
            self.counters.polled += len(values)
            self.trips.came(where, [sequence_number(value) for value in values], now)
        if now >= self._beat_due:
            self._beat_due = now + BEAT
            if self.measure.in_place:
                self.trips.judge(now)
            else:
                self.trips.forget()
            self.log.alive()

    def _tally(self, operation: str, total: int, failed: int, where: Partition, *, late: int = 0) -> None:
        self.measure.tried(operation, total, failed, self.measure.place(where), late=late)

    def _took(self, where: Partition, seconds: float) -> None:
        self.measure.levels.took("end-to-end", seconds, self.measure.place(where))
