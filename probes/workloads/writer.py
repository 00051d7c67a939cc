"""The writer: batches of tagged records to a few partitions each, idempotent, acks=all.

One batch is one operation. Its sequence numbers are reserved and the operation is in the journal before its first
record is handed to the client; the next batch is not begun before every record of the last has been reported, timed out
or been given up. What a report says about the record decides the row: the acknowledged part of a partition's batch is
one `ok` row with offsets, what timed out is a row of an `info` operation of its own, and so on.

Partitions are drawn with exponentially falling frequency, so that some are busy and some nearly idle; the turn of one
partition comes in each batch, so that none is left out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, ClassVar, Final

from confluent_kafka import Producer

from probes.kafka.client import open_producer, producer_settings
from probes.kafka.errors import Crash
from probes.records.delivery import POLL, Batch, collect, fates, hand_over, runs_to_send
from probes.records.tag import Encoder
from probes.topology import Partition
from probes.workloads.in_vain import InVain
from probes.workloads.pace import Pace
from probes.workloads.probe import Probe
from rules.vocabulary.slices import Outcome, Slice
from rules.vocabulary.times import micros

BUSIEST_OVER_IDLEST: Final = 32.0
"""How many times more records the busiest partition gets than the idlest."""


@lru_cache(8)
def weights(count: int) -> tuple[float, ...]:
    """Exponentially falling weights of `count` partitions; they sum to 1."""
    decay = math.log(BUSIEST_OVER_IDLEST) / max(count - 1, 1)
    raw = [math.exp(-decay * i) for i in range(count)]
    return tuple(weight / sum(raw) for weight in raw)


def draw(
    partitions: Sequence[Partition], records: int, most: int, turn: int, rng: random.Random
) -> dict[Partition, int]:
    """How many of `records` each of at most `most` partitions gets; at least one each. `turn` counts the batches: the
    partition whose turn it is is always among them."""
    odds = weights(len(partitions))
    sums, every = list(accumulate(odds)), range(len(partitions))
    chosen = {turn % len(partitions)}
    while len(chosen) < min(most, records, len(partitions)):
        chosen.add(rng.choices(every, cum_weights=sums)[0])
    share = sum(odds[i] for i in chosen)
    counts = {i: 1 + int((records - len(chosen)) * odds[i] / share) for i in sorted(chosen)}
    counts[min(counts)] += records - sum(counts.values())
    return {partitions[i]: count for i, count in counts.items()}


class Writer(Probe):
    """One life of a writer with `in_flight` requests in flight."""

    kind: ClassVar[str] = "writer"
    sends: ClassVar[bool] = True

    def __init__(
        self, *args: Any, in_flight: int = 1, topic: str | None = None, rate: float | None = None, **kwargs: Any
    ) -> None:
        """`topic` and `rate` (records a second): others than those of the ordinary writers."""
        super().__init__(*args, **kwargs)
        self._config = self.world.config.writer
        self._in_flight = in_flight
        self._topic, self._rate = topic or self.world.config.topics.records, rate or self._config.rate
        self._producer: Producer | None = None
        self._targets = list(self.layout.partitions(self._topic))
        self._encoders: dict[Partition, Encoder] = {}
        self._batches = 0
        self._in_vain = InVain(self)
        self._pace = Pace(self.world.clock, self._config.batch_interval)

    def settings(self) -> Mapping[str, str]:
        return producer_settings(
            self.world.connection,
            client=self.client,
            in_flight=self._in_flight,
            delivery_timeout=self._config.delivery_timeout,
        )

    @property
    def sends_to(self) -> str:
        return self._topic

    def labels(self) -> dict[str, str]:
        return super().labels() | {"idempotent": "true", "in_flight": str(self._in_flight)}

    def open(self) -> None:
        self._encoders = self.encoders(self._targets, self._config.record_bytes)
        self._producer = open_producer(self.settings(), self.on_error)
        self._pace.start()

    def turn(self) -> None:
        if wait := self._pace.wait():
            self.pause(min(wait, 0.5))
            return
        records = max(1, min(round(self._rate * self._config.batch_interval), self._config.batch_records))
        self._send(draw(self._targets, records, self._config.partitions_per_batch, self._batches, self.rng))
        self._batches += 1

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _send(self, wanted: dict[Partition, int]) -> None:
        assert self.writer is not None and self._producer is not None
        expected = self.number(wanted)
        op, invoked = self.log.next_op(), self.log.now()
        runs = runs_to_send(self.writer, expected)
        self.log.opened(op, [self.log.row(where, "send", "info", op, invoked, sent=runs[where]) for where in expected])
        batch = Batch(self.writer, expected)
        hand_over(self._producer, batch, self._encoders, sent=micros(invoked.at))
        self.counters.sent += sum(wanted.values())
        if self.unrest.due():
            self._producer.poll(self.rng.random() * 0.02)
            raise Crash("the writer's client is abandoned with records in flight")
        collect(self._producer, batch, polls=int((self._config.delivery_timeout + 5.0) / POLL), beat=self.log.alive)
        result = fates(batch)
        completed = self.log.now()
        rows: list[Slice] = []
        ops: dict[tuple[Outcome, str | None], int] = {}
        for where, parts in result.items():
            for part in parts:
                key = (part.type, part.error)
                number = ops.setdefault(key, op if not ops else self.log.next_op())
                row = self.log.row(
                    where, "send", part.type, number, invoked, completed, error=part.error, sent=part.runs
                )
                rows.append(row)
        self.log.append(rows)
        self.counters.count(chain.from_iterable(result.values()))
        self.measure.produced(batch, result)
        if batch.fatal is not None:
            raise batch.fatal
        self._in_vain.judge(self._producer, result)
