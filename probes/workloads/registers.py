"""Registers on top of the log: several clients write, compare-and-set and read them, each by a copy of its own.

An operation is appended to the register's partition as a record whose payload names it, and takes effect where the
log puts it (`probes.records.register_copy`). The client then polls its consumer until its copy has caught up to the
record's acknowledged offset, and so knows the outcome: what a read found, whether a cas was accepted. An operation
logs an ordinary `send` row, the `poll` rows of what it read, and one `register` row from before the send until the
answer:

- `ok`: a read with the id it found, a write, a cas that was accepted;
- `fail`: a cas that was refused, with the id it found; a write that certainly was not appended;
- `info`: the record was not acknowledged, or did not turn up in the log within the time.

Each life begins at the log's end, and writes a register that it does not know; otherwise most operations are cas and
reads, some of the cas with an old id, so that they are refused. Registers are numbered anew for each run and boot:
their times are of one clock, and hosts that share a topic do not share registers. `nonlinearizable-register` is found
in the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from crc32c import crc32c

from probes.kafka.client import open_consumer, open_producer, producer_settings
from probes.kafka.errors import Crash, ProbeError, translate
from probes.kafka.starting_positions import log_ends_when_led
from probes.log.life_log import random_id
from probes.records.delivery import POLL, Batch, Fate, collect, fates, hand_over
from probes.records.polls import Polled, Positions, Problem, sort_out
from probes.records.register_copy import AwaitedOperation, Copy, Entry
from probes.records.tag import Encoder, read
from probes.topology import Partition
from probes.workloads.lost_client import LostClient
from probes.workloads.pace import Pace
from probes.workloads.probe import Probe
from probes.workloads.refusals import refusals
from rules.vocabulary.slices import Isolation, Mode, Outcome, Run
from rules.vocabulary.times import micros

READS: Final = 0.45
WRITES: Final = 0.05
OLD_IDS: Final = 0.1
"""The shares of reads and plain writes among the operations, and of cas that expect an old id."""
ASK_WITHIN: Final = 5.0
IDLE_POLL: Final = 0.1


class Registers(Probe):
    """One life of a client."""

    kind: ClassVar[str] = "registers"
    sends: ClassVar[bool] = True
    isolation: ClassVar[Isolation | None] = "read_committed"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.registers
        self._targets = list(self.layout.partitions(self.world.config.topics.registers))
        if not self._targets:
            raise ProbeError(f"topic {self.sends_to} is not there")
        first = (crc32c(f"{self.world.run} {self.world.clock.boot}".encode()) & 0x7FFFFFFF) << 16
        self.registers = [(self._targets[i % len(self._targets)], first + i) for i in range(self._config.registers)]
        self._encoders: dict[Partition, Encoder] = {}
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._old: dict[int, int] = {}
        self.copy = Copy()
        self._positions = Positions()
        self._lost = LostClient(self)
        self._pace = Pace(self.world.clock, 1 / self._config.rate)

    @property
    def mode(self) -> Mode | None:
        return "assign"

    @property
    def consumer(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def settings(self) -> Mapping[str, str]:
        return producer_settings(
            self.world.connection,
            client=self.client,
            delivery_timeout=self.world.config.writer.delivery_timeout,
            linger_ms=0,
        )

    @property
    def reads_from(self) -> str:
        return self.sends_to

    @property
    def sends_to(self) -> str:
        return self.world.config.topics.registers

    def labels(self) -> dict[str, str]:
        return super().labels() | {"idempotent": "true", "in_flight": "1", "mode": "assign"}

    def open(self) -> None:
        self._encoders = self.encoders(self._targets, self._config.record_bytes)
        self._producer = open_producer(self.settings(), self.on_error)
        group = f"{self.world.config.topics.prefix}-{self.world.run}-{self.name}"
        self._consumer = open_consumer(self.consumer_settings(group, prompt=True), self.on_error)
        invoked = self.log.begin()
        ends = log_ends_when_led(self.open_admin, self._targets, self.log.alive, self.pause)
        self.consumer.assign([TopicPartition(topic, p, at) for (topic, p), at in ends.items()])
        for where, at in ends.items():
            self.copy.begin(where, at)
        self.log.append(
            self.log.everywhere(
                "assign",
                "ok",
                invoked,
                self.log.now(),
                mode="assign",
                isolation=self.isolation,
                group=group,
                each=lambda where: {"assigned": where in ends},
            )
        )
        self._pace.start()

    def turn(self) -> None:
        if wait := self._pace.wait():
            self.poll(min(wait, IDLE_POLL))
            return
        where, register = self.rng.choice(self.registers)
        self.operate(where, self._draw(where, register), crash=self.unrest.due())

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        if self._producer is not None:
            self._producer.close()

    def _draw(self, where: Partition, register: int) -> Entry:
        held, roll = self.copy.holds(where, register), self.rng.random()
        if held is None or roll < WRITES:
            return Entry("write", register, random_id())
        if roll < WRITES + READS:
            return Entry("read", register)
        expected = self._old.get(register, held) if self.rng.random() < OLD_IDS else held
        self._old[register] = held
        return Entry("cas", register, random_id(), expected)

    def operate(self, where: Partition, entry: Entry, *, crash: bool = False) -> Outcome:
        """One operation, from its send until its answer; its rows are in the log then."""
        assert self.writer is not None and self._producer is not None
        ((seq, _),) = self.number({where: 1}).values()
        op, send, invoked = self.log.next_op(), self.log.next_op(), self.log.now()
        self.log.opened(op, [self.log.row(where, "register", "info", op, invoked, registers=[entry.told()])])
        run = Run(self.writer, seq, None, 1)
        self.log.opened(send, [self.log.row(where, "send", "info", send, invoked, sent=[run])])
        batch = Batch(self.writer, {where: (seq, 1)}, payloads={where: [entry.encode()]})
        hand_over(self._producer, batch, self._encoders, sent=micros(invoked.at))
        self.counters.sent += 1
        if crash:
            raise Crash("the client is abandoned with an operation in flight")
        within = self.world.config.writer.delivery_timeout + 5.0
        collect(self._producer, batch, polls=int(within / POLL), beat=self.log.alive)
        (fate,) = fates(batch)[where]
        row = self.log.row(where, "send", fate.type, send, invoked, self.log.now(), error=fate.error, sent=fate.runs)
        self.log.append([row])
        self.counters.count([fate])
        self.measure.produced(batch, {where: [fate]})
        type, observed, error = self._answer(where, entry, seq, fate)
        completed = self.log.now()
        told = entry.told(observed)
        row = self.log.row(where, "register", type, op, invoked, completed, error=error, registers=[told])
        self.log.append([row])
        if batch.fatal is not None:
            raise batch.fatal
        return type

    def _answer(self, where: Partition, entry: Entry, seq: int, fate: Fate) -> tuple[Outcome, int | None, str | None]:
        """(outcome, id observed, error) of an operation whose record met this fate."""
        assert self.writer is not None
        if fate.type != "ok":
            return fate.type, None, fate.error
        asked = AwaitedOperation(where, entry.register, self.writer, seq, fate.runs[0].offset)
        self.copy.ask(asked)
        limit = self.world.clock.monotonic_ns() + int(self._config.catch_up_within * 1e9)
        while not asked.answered and self.world.clock.monotonic_ns() < limit:
            self.poll(IDLE_POLL)
        self.copy.asked = None
        if entry.action == "read":
            return ("ok", asked.held, None) if asked.held is not None else ("info", None, None)
        if entry.action == "write":
            return "ok", None, None  # it was acknowledged, whether or not it turned up
        if not asked.applied or asked.before is None:
            return "info", None, None
        return ("ok", None, None) if asked.held == entry.id else ("fail", asked.before, None)

    def poll(self, wait: float) -> None:
        """One consume call: its rows, and what it tells of the registers."""
        op, invoked = self.log.next_op(), self.log.begin()
        try:
            messages = self.consumer.consume(self._config.poll_records, wait)
        except Exception as error:
            problem = translate(error)
            if problem.fatal:
                raise problem from error
            messages, of_call = [], [Problem(None, problem)]
        else:
            of_call = []
        polled, problems = sort_out(messages, self.world.runs, self.allowance)
        after = self._positions.after(self.consumer, polled, self.copy.next)
        completed = self.log.now()
        each = {where: part.columns(self.copy.next.get(where), after[where]) for where, part in polled.items()}
        rows = self.log.rows_of(each, "poll", "ok", op, invoked, completed, isolation=self.isolation, mode="assign")
        rows += refusals(self, of_call + problems, invoked, completed, reads=self._targets, assigned=self._targets)
        self.log.append(rows) if rows else self.log.idle()
        self.log.alive()
        for one in problems:
            if one.error.fatal:
                raise one.error
        self._apply(messages, polled)
        self._lost.judge(self.consumer, self._targets, heard=bool(messages))

    def _apply(self, messages: list[Any], polled: Mapping[Partition, Polled]) -> None:
        for where, part in polled.items():
            if part.first > self.copy.next[where] and self._expired(where, part.first):
                self.copy.forget(where)
            own = [m for m in messages if m.error() is None and (m.topic(), m.partition()) == where]
            tags = [(m.offset(), read(m.value())) for m in own]
            ours = [(offset, tag if tag is not None and tag.run == self.world.run else None) for offset, tag in tags]
            self.copy.apply(where, ours, part.next)
            self.counters.polled += part.count
            self.counters.irregular += part.irregular

    def _expired(self, where: Partition, first: int) -> bool:
        """Did the consumer move on because the records before `first` are gone? Any other hole is the broker's."""
        try:
            low, _ = self.consumer.get_watermark_offsets(TopicPartition(*where), timeout=ASK_WITHIN)
        except Exception as error:
            self.on_error(translate(error))
            return True
        return bool(low >= first)
