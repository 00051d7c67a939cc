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
from typing import Any, ClassVar, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from probes.beginnings import beginnings
from probes.client import open_consumer, producer_settings
from probes.course import Course, Outline, count_outcome, outline, renumbered, unsent
from probes.delivery import POLL, Batch, Fate, collect, fates, hand_over
from probes.errors import ClientError, ClientStuck, Crash, transaction_outcome, translate
from probes.layout import Partition
from probes.pace import Pace
from probes.polls import Positions, sort_out
from probes.probe import Probe
from probes.record import Instant, random_id
from probes.tag import Encoder
from probes.transactor import GRACE, Transactor
from rules.vocabulary.slices import Isolation, Mode, Outcome, Run, Slice, micros

POLL_WAIT: Final = 0.05


class Transactions(Probe):
    """One life of a transactional probe."""

    kind: ClassVar[str] = "transactions"
    sends: ClassVar[bool] = True
    isolation: ClassVar[Isolation | None] = "read_committed"

    def __init__(self, *args: Any, timeout: float, stable: bool, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.transaction
        self._timeout, self._stable, self.group = timeout, stable, group
        topic = self.world.config.topics.transactions
        self._targets = list(self.layout.partitions(topic))
        self._next_seq = dict.fromkeys(self._targets, 0)
        own = f"{self.world.config.topics.prefix}-{self.world.run}-{self.name}"
        self._transactional_id = own if stable else f"{own}-{self.process:x}"
        self._transactor: Transactor | None = None
        self._consumer: Consumer | None = None
        self._encoders: dict[Partition, Encoder] = {}
        self.position: dict[Partition, int] = {}
        self._positions = Positions()
        self._pace = Pace(self.world.clock, 1 / self._config.rate)
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
            transactional_id=self._transactional_id,
            transaction_timeout=self._timeout,
        )

    def labels(self) -> dict[str, str]:
        read = {"isolation.level": "read_committed", "enable.auto.commit": "false", "group.id": self.group}
        own = {"idempotent": "true", "in_flight": "1", "mode": "assign", "stable_id": str(self._stable).lower()}
        return super().labels() | read | own

    def open(self) -> None:
        self._encoders = self.encoders(self._targets, self._config.record_bytes)
        self._transactor = self._new_transactor()
        self._transactor.init()
        self._consumer = open_consumer(self.consumer_settings(self.group), self.on_error)
        admin = self.open_admin()
        invoked = self.log.begin()
        carried = self.carried.positions
        known = {w: carried[self.topic_place(w)] for w in self._targets if self.topic_place(w) in carried}
        begin = beginnings(self.consumer, admin, self._targets, known, self.log.alive)
        self.consumer.assign([TopicPartition(topic, p, at) for (topic, p), at in begin.items()])
        self.position = begin
        self.log.append(
            self.log.everywhere(
                "assign", "ok", invoked, self.log.now(), mode="assign", isolation=self.isolation, group=self.group,
                each=lambda where: {"assigned": where in begin},
            )
        )  # fmt: skip
        self._pace.start()

    def _new_transactor(self) -> Transactor:
        return Transactor(self.settings(), self.on_error, timeout=self._timeout, log=self.log)

    def turn(self) -> None:
        if wait := self._pace.wait():
            self.pause(min(wait, 0.5))
            return
        plan = outline(
            self._targets,
            records=self._config.records,
            partitions=self._config.partitions,
            abort_share=self._config.abort_share,
            rng=self.rng,
        )
        self._transact(plan, crash_at=self.rng.choice(["sent", "offsets", "end"]) if self.unrest.due() else None)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        # A producer that is unusable cannot end its transaction; closing it would only try to.
        if self._transactor is not None and not self._unusable:
            self._transactor.close()

    def _transact(self, plan: Outline, *, crash_at: str | None) -> None:
        course = self._prepare(plan)
        try:
            self._run(course, crash_at)
        except (ClientError, ClientStuck) as error:
            course.error = error
            if not course.committed:
                self._rescue(course)
        outcome = transaction_outcome(
            commit_invoked=course.commit_invoked, committed=course.committed, aborted=course.aborted
        )
        self.log.append(self._outcome_rows(course, outcome))
        count_outcome(self.counters, course, outcome)
        if outcome == "ok":
            for where, at in course.after.items():
                self.position[where] = self.carried.positions[self.topic_place(where)] = at
            return
        if course.error is not None and not course.aborted:
            self._unusable = True
            raise course.error
        self._go_back(course)

    def _prepare(self, plan: Outline) -> Course:
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
        course = Course(op, txn, plan.intent, self.log.now(), dict(self.position), batches)
        self._journal(course)
        return course

    def _run(self, course: Course, crash_at: str | None) -> None:
        self.transactor.begin()
        producer = self.transactor.producer
        for batch in course.batches:
            hand_over(producer, batch, self._encoders, sent=micros(self.log.now().at), txn=course.txn)
            self.counters.sent += sum(count for _, count in batch.expected.values())
            self._poll(course)
        self._journal(course)
        if crash_at == "sent":
            raise Crash("the transaction's client is abandoned with records in flight")
        for batch in course.batches:
            collect(producer, batch, polls=int((self._timeout + GRACE) / POLL), beat=self.log.alive)
            if batch.fatal is not None:
                raise batch.fatal
        if course.polled:
            course.offsets_sent = True
            self.transactor.send_offsets(course.after, self.consumer.consumer_group_metadata())
        if crash_at == "offsets":
            raise Crash("the transaction's client is abandoned before the transaction's end")
        if course.intent == "abort":
            self._abort(course)
            return
        course.commit_invoked = True
        self._ending(course)
        if crash_at == "end":
            self.transactor.crash_in_commit(self.rng.random() * 0.01)
        self.transactor.commit()
        course.committed = True

    def _journal(self, course: Course) -> None:
        """Put into the journal how far it has come."""
        self.log.opened(course.op, self._rows(course, "info", None, unsent(course)))

    def _ending(self, course: Course) -> None:
        """Its end is about to be invoked: the journal must know before the request leaves."""
        if course.end_invoked is None:
            course.end_invoked = self.log.now()
            self._journal(course)

    def _poll(self, course: Course) -> None:
        try:
            messages = self.consumer.consume(self._config.poll_records, POLL_WAIT)
        except Exception as error:
            raise translate(error) from error
        polled, problems = sort_out(messages, self.world.runs)
        after = self._positions.after(self.consumer, polled, self.position | course.after)
        for where, part in polled.items():
            known = self.position.get(where)
            course.before.setdefault(where, None if known == OFFSET_BEGINNING else known)
            course.polled.setdefault(where, []).append(part)
            course.after[where] = after[where]
            self.counters.polled += part.count
            self.counters.irregular += len(part.decoded.irregular)
        self.log.alive()
        for problem in problems:
            self.on_error(problem.error)
            if problem.error.fatal:
                raise problem.error

    def _abort(self, course: Course) -> None:
        self._ending(course)
        self.transactor.abort()
        course.aborted = True

    def _rescue(self, course: Course) -> None:
        """Abort after an error, where the client can still do so."""
        error = course.error
        if isinstance(error, ClientStuck) or (error is not None and error.fatal):
            return
        try:
            self._abort(course)
        except (ClientError, ClientStuck) as worse:
            self.counters.last_error = str(worse)

    def _go_back(self, course: Course) -> None:
        """Seek to where the transaction began, in what it polled."""
        for where in course.polled:
            at = course.began_at.get(where, OFFSET_BEGINNING)
            self.transactor.call(lambda w=where, o=at: self.consumer.seek(TopicPartition(*w, o)), "seek")  # type: ignore[misc]

    # Rows

    def _rows(
        self, course: Course, type: Outcome, completed: Instant | None, sent: Mapping[Partition, list[Run]]
    ) -> list[Slice]:
        touched = course.touched
        rows = []
        for where in touched:
            parts = course.polled.get(where, [])
            rows.append(
                self.log.row(
                    where, "txn", type, course.op, course.invoked, completed,
                    error=course.error.code if course.error else None,
                    txn=course.txn, txn_partitions=touched, txn_intent=course.intent, sent=sent.get(where, ()),
                    polled=[run for part in parts for run in part.decoded.runs], irregular=renumbered(parts),
                    altered=[one for part in parts for one in part.altered],
                    position_before=course.before.get(where), position_after=course.after.get(where),
                    committed=course.after.get(where) if course.offsets_sent else None,
                    group=self.group if course.offsets_sent and where in course.after else None,
                    isolation=self.isolation, mode="assign", **course.ending,
                )
            )  # fmt: skip
        return rows

    def _outcome_rows(self, course: Course, outcome: Outcome) -> list[Slice]:
        """The transaction's rows. Records that a commit cannot have covered are kept apart, as `info`."""
        known: dict[Partition, list[Run]] = {}
        doubtful: list[tuple[Partition, Fate]] = []
        for batch in course.batches:
            for where, parts in fates(batch).items():
                for part in parts:
                    if outcome == "ok" and part.type != "ok":
                        doubtful.append((where, part))
                    else:
                        known.setdefault(where, []).extend(part.runs)
        completed = self.log.now()
        ordered = {where: sorted(runs, key=lambda run: run.seq) for where, runs in known.items()}
        rows = self._rows(course, outcome, completed, ordered)
        for where, part in doubtful:
            op = self.log.next_op()
            rows.append(
                self.log.row(
                    where, "txn", "info", op, course.invoked, completed, error=part.error, txn=course.txn,
                    txn_partitions=course.touched, txn_intent=course.intent, sent=part.runs, isolation=self.isolation,
                    mode="assign", **course.ending,
                )
            )  # fmt: skip
        return rows
