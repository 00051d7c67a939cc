"""Aborts without going back: where does a consumer stand after the transaction that holds its offsets was aborted?

Kafka's documentation once let expect that it is where the transaction began; clients stay where their polls had ended
(KAFKA-17582), and with a rebalance inside the transaction they may be anywhere in between or before. The probe polls
the transactional topic as the only lasting member of a group, sends a record and the offsets within a transaction,
and aborts most of them, some with a rebalance forced in: a second consumer joins for a moment, or it leaves the group
and comes back.

After each abort a `position` row with the transaction's id tells, of each partition that was polled in it,

    position_before   where the consumer stood when the transaction began
    reached           where the transaction's polls had ended
    position_after    where it stands now: what the client says, or after a rebalance where the assignment begins, at
                      the offset that the group's coordinator tells (the log's start if it tells none)
    rebalanced        whether the partition was taken away in between

and only then the probe goes back by itself. Where a partition has not come back, `position_after` is absent.

Its polls are no evidence of the order of reads, so they are not logged, and neither is its assignment: no check takes
this probe for a reader. What it sends is logged as by all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal

from confluent_kafka import OFFSET_BEGINNING

from probes.kafka.client import open_consumer
from probes.kafka.errors import ClientError, ClientStuck, Crash
from probes.kafka.leaving import close_member
from probes.kafka.starting_positions import beginnings, committed_at_last
from probes.log.life_log import random_id
from probes.records.delivery import Batch
from probes.records.polls import Polled, sort_out
from probes.topology import Partition
from probes.workloads.pace import Pace
from probes.workloads.transactional.membership import Membership
from probes.workloads.transactional.transaction_course import Course, Intent
from probes.workloads.transactional.transaction_run import TransactionRun
from probes.workloads.transactional.transactional_probe import TransactionalProbe
from rules.vocabulary.slices import Run

POLL_WAIT: Final = 1.0
COME_BACK_WITHIN: Final = 15.0
"""Seconds that partitions get to come back after a rebalance."""
JOIN_WITHIN: Final = 10.0
"""Seconds that a second consumer stays until it is noticed."""
Rebalance = Literal["join", "leave"]


class Aborts(TransactionalProbe):
    """One life of a probe that aborts."""

    kind: ClassVar[str] = "aborts"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.aborts
        self._timeout, self._topic = self._config.timeout, self.world.config.topics.transactions
        self._targets = list(self.layout.partitions(self._topic))
        self.gone: set[Partition] = set()
        self._open: TransactionRun | None = None
        """The transaction whose offsets are sent, and whose end is not invoked."""
        self._pace = Pace(self.world.clock, 1 / self._config.rate)

    @property
    def sends_to(self) -> str:
        return self._topic

    def open(self) -> None:
        self._encoders = self.encoders(self._targets, self._config.record_bytes)
        self.take_over(self.settings())
        self._consumer = open_consumer(self.consumer_settings(self.group), self.on_error)
        self._membership = Membership(
            self._consumer, self.group, self.log, isolation=None, begin=self._begin, revoked=self._revoked
        )
        self._membership.subscribe([self._topic])
        self._pace.start()

    def turn(self) -> None:
        if wait := self._pace.wait():
            # Its group has no other lasting member, so that no rebalance waits for a poll meanwhile.
            self.pause(min(wait, 0.5))
            return
        if self.unrest.due():
            raise Crash("the aborting client is abandoned")
        intent = self.draw_intent(self._config.abort_share)
        kinds: list[Rebalance] = ["join", "leave"]
        rebalance = self.rng.choice(kinds) if self.rng.random() < self._config.rebalance_share else None
        self.transact(intent, rebalance if intent == "abort" else None)

    def transact(self, intent: Intent, rebalance: Rebalance | None = None) -> bool:
        """One transaction, if there is something to poll; with a rebalance inside, if wanted. Whether there was one.

        Raises ClientError, ClientStuck and Crash, after which this life must not go on."""
        polled = self._poll(self._config.poll_records, POLL_WAIT)
        if not polled:
            self.log.idle()
            return False
        run = self._outline(intent, polled)
        self.gone = set()
        try:
            self._run(run, rebalance)
        except (ClientError, ClientStuck) as error:
            run.rescue(error)
        course, outcome = run.course, run.finish()
        if outcome == "info":
            self._unusable = True
            raise course.error or ClientError("_STATE", "the transaction's outcome is not known")
        if outcome == "fail":
            self.leave_if_lost(course)
            self._log_positions(course)
            self.go_back(course)
        return True

    # Reading

    def _begin(self, partitions: list[Partition]) -> dict[Partition, int]:
        if self._open is not None:
            # The coordinator does not tell the committed offsets while our own transaction holds some of them.
            self._open.abort()
        admin = self.open_admin()
        asked = partial(committed_at_last, self.consumer, beat=self.log.alive, in_callback=True)
        begin = beginnings(admin, partitions, {}, self.log.alive, committed=asked)
        self.position = dict(begin)
        return begin

    def _revoked(self, _: set[Partition]) -> None:
        self.gone |= self.membership.assigned
        self.position = {}

    def _poll(self, records: int, wait: float) -> dict[Partition, Polled]:
        messages = self.membership.consume(records, wait)
        polled, problems = sort_out(messages, self.world.runs, self.allowance)
        for problem in problems:
            self.on_error(problem.error)
            if problem.error.fatal or self.membership.is_shut_out_by(problem.error):
                raise problem.error
        self._lost.judge(self.consumer, self._targets, heard=bool(messages))
        if self.membership.rebalanced and messages:
            # What came may belong to the assignment that is over.
            self._rewind()
            return {}
        return polled

    def _rewind(self) -> None:
        """Read on from where this probe stands, as it sees it."""
        if self.membership.assigned:
            self.membership.resume({w: self.position.get(w, OFFSET_BEGINNING) for w in self.membership.assigned})

    # One transaction

    def _outline(self, intent: Intent, polled: Mapping[Partition, Polled]) -> TransactionRun:
        assert self.writer is not None
        numbers = self.number({self.rng.choice(self._targets): 1})
        course = Course(
            self.log.next_op(),
            random_id(),
            intent,
            self.membership.invoked,
            dict(self.position),
            [Batch(self.writer, numbers)],
        )
        # The client's own word: it runs past the markers of transactions, beyond the last record.
        reached = self._positions.after(self.consumer, polled, self.position)
        for where, part in polled.items():
            course.polled[where] = [part]
            before = self.position.get(where)
            course.before[where] = None if before == OFFSET_BEGINNING else before
            course.after[where] = reached[where]
            self.counters.polled += part.count
        run = self.new_run(course, self.transactor)
        run.journal()
        return run

    def _run(self, run: TransactionRun, rebalance: Rebalance | None) -> None:
        course = run.course
        self.transactor.begin()
        for batch in course.batches:
            run.send(batch)
        run.delivered()
        run.send_offsets(self.membership.metadata)
        if rebalance is not None:
            self._open = run
            self._rebalance(rebalance)
            self._open = None
        if course.intent == "abort":
            run.abort()
            return
        run.commit()
        self.position |= {w: at for w, at in course.after.items() if w in self.membership.assigned}

    def _rebalance(self, how: Rebalance) -> None:
        if how == "leave":
            self.membership.leave([self._topic])
            return
        guest = open_consumer(self.consumer_settings(self.group), self.on_error)
        guest.subscribe([self._topic])
        limit = self.log.now().mono + int(JOIN_WITHIN * 1e9)
        while not self.gone and self.log.now().mono < limit:
            guest.poll(0.05)
            self._poll(1, 0.05)
            self.log.alive()
        # It has just joined, and may be about to be told of its assignment: when a plain close waits for itself.
        self.transactor.call(partial(close_member, guest), "close")

    def go_back(self, course: Course) -> None:
        """To where the transaction began; where a rebalance fell into it, the assignment's beginning."""
        if not self.gone:
            self.position |= {w: OFFSET_BEGINNING if at is None else at for w, at in course.before.items()}
        self._rewind()

    # Rows

    def tells(self, course: Course, where: Partition, sent: Sequence[Run]) -> Mapping[str, Any]:
        return {"sent": sent, **course.offsets(where, self.group)}

    def _log_positions(self, course: Course) -> None:
        """Where the consumer stands, asked before it is sent back."""
        op, invoked = self.log.next_op(), self.log.begin()
        after: Mapping[Partition, int] = {}
        if self.gone:
            after = self._assigned_again(set(course.polled))
            invoked = self.log.begin()
        else:
            try:
                after = self._positions.now(self.consumer, course.polled, course.after)
            except Exception:
                after = {}
        completed = self.log.now()
        each = {
            where: {
                "position_before": course.before.get(where),
                "reached": course.after[where],
                "position_after": after.get(where),
                "rebalanced": where in self.gone,
            }
            for where in course.polled
        }
        how = {"txn": course.txn, "isolation": self.isolation}
        self.log.append(self.log.rows_of(each, "position", "ok", op, invoked, completed, **how))

    def _assigned_again(self, wanted: set[Partition]) -> dict[Partition, int]:
        """Where each partition begins now, of those that have come back within the time."""
        limit = self.log.now().mono + int(COME_BACK_WITHIN * 1e9)
        while not wanted <= self.membership.assigned and self.log.now().mono < limit:
            self._poll(1, 0.1)
            self.log.idle()
        return {w: at for w, at in self.position.items() if w in wanted and at != OFFSET_BEGINNING}
