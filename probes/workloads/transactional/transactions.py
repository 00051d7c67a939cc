"""Transactions: sends and polls over several partitions, their offsets committed with them, some aborted on purpose.

One transaction is one operation, `txn`, with a row for each partition it sent to or polled. Its outcome is `ok` where
the commit returned, `fail` where it was never invoked and an abort returned, and `info` otherwise. Kafka's consumers do
not go back by themselves when a transaction fails, so this probe does: after an abort it seeks to where the transaction
began, and after a commit of unknown outcome it starts a new life.

A probe whose transactional id is stable takes it over from its earlier life, which is thereby fenced; the others take
a fresh one in each life, so that what a dead life left open is only ended by its timeout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from probes.kafka.client import open_consumer
from probes.kafka.errors import ClientError, ClientStuck, Crash, translate
from probes.kafka.starting_positions import beginnings, committed_at_last
from probes.log.life_log import random_id
from probes.records.delivery import Batch
from probes.records.polls import sort_out
from probes.topology import Partition
from probes.workloads.pace import Pace
from probes.workloads.refusals import refusals
from probes.workloads.transactional.read_back import ReadBack
from probes.workloads.transactional.transaction_course import Course, Outline, outline
from probes.workloads.transactional.transaction_run import TransactionRun
from probes.workloads.transactional.transactional_probe import TransactionalProbe
from rules.vocabulary.slices import Mode, Run

POLL_WAIT: Final = 0.05


class Transactions(TransactionalProbe):
    """One life of a transactional probe."""

    kind: ClassVar[str] = "transactions"

    def __init__(self, *args: Any, timeout: float, stable: bool, own_id: str | None = None, **kwargs: Any) -> None:
        """`own_id`: the transactional id, instead of the probe's own."""
        super().__init__(*args, **kwargs)
        self._config, self._timeout, self._stable = self.world.config.transaction, timeout, stable
        self.targets = list(self.layout.partitions(self.world.config.topics.transactions))
        if own_id is not None or not stable:
            self._transactional_id = own_id or f"{self._transactional_id}-{self.process:x}"
        self._pace = Pace(self.world.clock, 1 / self._config.rate)
        self._read_back: ReadBack | None = None
        self._heard = False
        """Has a poll returned anything since the last turn began?"""

    @property
    def mode(self) -> Mode | None:
        return "assign"

    @property
    def reads_from(self) -> str:
        return self.sends_to

    @property
    def sends_to(self) -> str:
        return self.world.config.topics.transactions

    def labels(self) -> dict[str, str]:
        return super().labels() | {"mode": "assign", "stable_id": str(self._stable).lower()}

    def open(self) -> None:
        self._encoders = self.encoders(self.targets, self._config.record_bytes)
        self.take_over(self.settings())
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

    def turn(self) -> None:
        if wait := self._pace.wait():
            self.pause(min(wait, 0.5))
            return
        self._lost.judge(self.consumer, self.targets, heard=self._heard)  # in a transaction it would merely be aborted
        self._heard = False
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
        self.leave_if_lost(course)
        self._go_back(course)

    def _prepare(self, plan: Outline) -> TransactionRun:
        """Number the records, reserve the numbers, and put the operation into the journal."""
        assert self.writer is not None
        op, txn = self.log.next_op(), random_id()
        batches = [Batch(self.writer, self.number(counts)) for counts in plan.sends]
        course = Course(op, txn, plan.intent, self.log.now(), dict(self.position), batches)
        run = self.new_run(course, self.transactor)
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
        self._heard = self._heard or bool(messages)

    def _go_back(self, course: Course) -> None:
        """Seek to where the transaction began, in what it polled."""
        for where in course.polled:
            at = course.began_at.get(where, OFFSET_BEGINNING)
            self.transactor.call(lambda w=where, o=at: self.consumer.seek(TopicPartition(*w, o)), "seek")  # type: ignore[misc]

    def tells(self, course: Course, where: Partition, sent: Sequence[Run]) -> Mapping[str, Any]:
        return {"sent": sent, **course.polls(where), **course.offsets(where, self.group)}
