"""Transactions: sends and polls over several partitions, their offsets committed with them, some aborted on purpose.

One transaction is one operation, `txn`, with a row for each partition it sent to or polled. Its outcome is `ok` where
the commit returned, `fail` where it was never invoked and an abort returned, and `info` otherwise. Kafka's consumers do
not go back by themselves when a transaction fails, so this probe does: after an abort it seeks to where the transaction
began, and after a commit of unknown outcome it starts a new life.

A probe whose transactional id is stable takes it over from its earlier life, which is thereby fenced; the others take
a fresh one in each life, so that what a dead life left open is only ended by its timeout.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from probes.kafka.client import Transactional, open_consumer, producer_settings
from probes.kafka.coordinator_watch import CoordinatorWatch
from probes.kafka.errors import ClientError, ClientStuck, Crash, translate
from probes.kafka.starting_positions import beginnings, committed_at_last
from probes.log.life_log import Instant, random_id
from probes.records.delivery import Batch
from probes.records.polls import Positions, sort_out
from probes.records.tag import Encoder
from probes.topology import Partition
from probes.workloads.pace import Pace
from probes.workloads.probe import Probe
from probes.workloads.refusals import refusals
from probes.workloads.transactional.read_back import ReadBack
from probes.workloads.transactional.transaction_course import Course, Outline, epochs_of, outline, renumbered
from probes.workloads.transactional.transaction_run import TransactionRun
from probes.workloads.transactional.transactor import Transactor
from rules.vocabulary.slices import Isolation, Mode, Outcome, Run, Slice

POLL_WAIT: Final = 0.05


class Transactions(Probe):
    """One life of a transactional probe."""

    kind: ClassVar[str] = "transactions"
    sends: ClassVar[bool] = True
    isolation: ClassVar[Isolation | None] = "read_committed"

    def __init__(
        self, *args: Any, timeout: float, stable: bool, group: str, own_id: str | None = None, **kwargs: Any
    ) -> None:
        """`own_id`: the transactional id, instead of the probe's own."""
        super().__init__(*args, **kwargs)
        self._config = self.world.config.transaction
        self._timeout, self._stable, self.group = timeout, stable, group
        topic = self.world.config.topics.transactions
        self.targets = list(self.layout.partitions(topic))
        self._next_seq = dict.fromkeys(self.targets, 0)
        own = f"{self.world.config.topics.prefix}-{self.world.run}-{self.name}"
        self._transactional_id = own_id or (own if stable else f"{own}-{self.process:x}")
        self._transactor: Transactor | None = None
        self._consumer: Consumer | None = None
        self._encoders: dict[Partition, Encoder] = {}
        self.position: dict[Partition, int] = {}
        self._positions = Positions()
        self._pace = Pace(self.world.clock, 1 / self._config.rate)
        self._read_back: ReadBack | None = None
        self._unusable = False

    @property
    def transactional_id(self) -> str | None:
        return self._transactional_id

    @property
    def mode(self) -> Mode | None:
        return "assign"

    @property
    def transactor(self) -> Transactor:
        assert self._transactor is not None
        return self._transactor

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
            transactional=Transactional(self._transactional_id, self._timeout),
        )

    @property
    def reads_from(self) -> str:
        return self.sends_to

    @property
    def sends_to(self) -> str:
        return self.world.config.topics.transactions

    def labels(self) -> dict[str, str]:
        read = {"isolation.level": "read_committed", "enable.auto.commit": "false", "group.id": self.group}
        own = {"idempotent": "true", "in_flight": "1", "mode": "assign", "stable_id": str(self._stable).lower()}
        return super().labels() | read | own

    def open(self) -> None:
        self._encoders = self.encoders(self.targets, self._config.record_bytes)
        self._transactor = self.new_transactor()
        self._transactor.init(self.measure)
        self._consumer = open_consumer(self.consumer_settings(self.group), self.on_error)
        admin = self.open_admin()
        invoked = self.log.begin()
        carried = self.carried.positions
        known = {w: carried[self.topic_place(w)] for w in self.targets if self.topic_place(w) in carried}
        asked = partial(committed_at_last, self.consumer, beat=self.log.alive)
        begin = beginnings(admin, self.targets, known, self.log.alive, committed=asked)
        self.consumer.assign([TopicPartition(topic, p, at) for (topic, p), at in begin.items()])
        self.position = begin
        self.log.append(
            self.log.everywhere(
                "assign",
                "ok",
                invoked,
                self.log.now(),
                mode="assign",
                isolation=self.isolation,
                group=self.group,
                each=lambda where: {"assigned": where in begin},
            )
        )
        others = (where for topic in self.layout.topics for where in self.layout.partitions(topic.name))
        fence = next((where for where in others if where[0] != self.sends_to), None)
        if fence is not None:
            self._read_back = ReadBack(self, self.consumer, self.group, fence)
        self._pace.start()

    def new_transactor(self) -> Transactor:
        """The client that makes the transactions."""
        return Transactor(
            self.settings(),
            self.on_error,
            timeout=self._timeout,
            log=self.log,
            watch=partial(CoordinatorWatch, self.world.connection, self.client, self.group),
        )

    def turn(self) -> None:
        if wait := self._pace.wait():
            self.pause(min(wait, 0.5))
            return
        if self._read_back is not None:
            self._read_back.turn()
        plan = outline(
            self.targets,
            records=self._config.records,
            partitions=self._config.partitions,
            abort_share=self._config.abort_share,
            rng=self.rng,
        )
        self.transact(plan, crash_at=self.rng.choice(["sent", "offsets", "end"]) if self.unrest.due() else None)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        # A producer that is unusable cannot end its transaction; closing it would only try to.
        if self._transactor is not None and not self._unusable:
            self._transactor.close()

    def transact(self, plan: Outline, *, crash_at: str | None) -> None:
        """Make one transaction. `crash_at`: abandon the client when the records are "sent", after the "offsets" or in
        the "end". Raises ClientError, ClientStuck and Crash, after which this life must not go on."""
        run = self._prepare(plan)
        course = run.course
        try:
            self._run(run, crash_at)
        except (ClientError, ClientStuck) as error:
            run.rescue(error)
        outcome = run.finish()
        if outcome == "ok":
            for where, at in course.after.items():
                self.position[where] = self.carried.positions[self.topic_place(where)] = at
            if self._read_back is not None:
                self._read_back.note(course.after)
            return
        if course.error is not None and not course.aborted:
            self._unusable = True
            raise course.error
        self._go_back(course)

    def _prepare(self, plan: Outline) -> TransactionRun:
        """Number the records, reserve the numbers, and put the operation into the journal."""
        assert self.writer is not None
        op, txn = self.log.next_op(), random_id()
        batches = []
        for counts in plan.sends:
            expected = {}
            for where, count in counts.items():
                first = self._next_seq[where]
                self._next_seq[where] = first + count
                self.log.reserve(where, first + count)
                expected[where] = (first, count)
            batches.append(Batch(self.writer, expected))
        run = TransactionRun(
            course=Course(op, txn, plan.intent, self.log.now(), dict(self.position), batches),
            transactor=self.transactor,
            log=self.log,
            counters=self.counters,
            measure=self.measure,
            encoders=self._encoders,
            timeout=self._timeout,
            rows=self.rows,
            reading={"isolation": self.isolation, "mode": self.mode},
        )
        run.journal()
        return run

    def _run(self, run: TransactionRun, crash_at: str | None) -> None:
        course = run.course
        self.transactor.begin()
        for batch in course.batches:
            run.send(batch)
            self.poll(course)
        run.journal()
        if crash_at == "sent":
            raise Crash("the transaction's client is abandoned with records in flight")
        run.delivered()
        if course.polled:
            run.send_offsets(self.consumer.consumer_group_metadata())
        if crash_at == "offsets":
            raise Crash("the transaction's client is abandoned before the transaction's end")
        if course.intent == "abort":
            run.abort()
        else:
            run.commit(crash_within=self.rng.random() * 0.01 if crash_at == "end" else None)

    def poll(self, course: Course) -> None:
        """Poll once, as a part of the transaction. Called after each batch was handed to the client."""
        invoked = self.log.now()
        try:
            messages = self.consumer.consume(self._config.poll_records, POLL_WAIT)
        except Exception as error:
            raise translate(error) from error
        polled, problems = sort_out(messages, self.world.runs, self.allowance)
        after = self._positions.after(self.consumer, polled, self.position | course.after)
        for where, part in polled.items():
            known = self.position.get(where)
            course.before.setdefault(where, None if known == OFFSET_BEGINNING else known)
            course.polled.setdefault(where, []).append(part)
            course.after[where] = after[where]
            self.counters.polled += part.count
            self.counters.irregular += part.irregular
        if problems:
            self.log.append(
                refusals(self, problems, invoked, self.log.now(), reads=self.targets, assigned=self.targets)
            )
        self.log.alive()
        for problem in problems:
            if problem.error.fatal:
                raise problem.error

    def _go_back(self, course: Course) -> None:
        """Seek to where the transaction began, in what it polled."""
        for where in course.polled:
            at = course.began_at.get(where, OFFSET_BEGINNING)
            self.transactor.call(lambda w=where, o=at: self.consumer.seek(TopicPartition(*w, o)), "seek")  # type: ignore[misc]

    # Rows

    def rows(
        self, course: Course, type: Outcome, completed: Instant | None, sent: Mapping[Partition, list[Run]]
    ) -> list[Slice]:
        """The rows that tell of a transaction: see `probes.workloads.transactional.transaction_run.Rows`."""
        touched = course.touched
        rows = []
        for where in touched:
            parts = course.polled.get(where, [])
            rows.append(
                self.log.row(
                    where,
                    "txn",
                    type,
                    course.op,
                    course.invoked,
                    completed,
                    error=course.error.code if course.error else None,
                    txn=course.txn,
                    txn_partitions=touched,
                    txn_intent=course.intent,
                    sent=sent.get(where, ()),
                    polled=[run for part in parts for run in part.decoded.runs],
                    irregular=renumbered(parts),
                    altered=[one for part in parts for one in part.altered],
                    epochs=epochs_of(parts),
                    position_before=course.before.get(where),
                    position_after=course.after.get(where),
                    committed=course.after.get(where) if course.offsets_sent else None,
                    group=self.group if course.offsets_sent and where in course.after else None,
                    isolation=self.isolation,
                    mode="assign",
                    **course.ending,
                )
            )
        return rows
