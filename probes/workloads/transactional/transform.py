"""Consume-transform-produce: reads a topic as a member of a group, and writes one output record for each input.

An output goes to the output partition of its input's number and names the input in its tag (`Source`). The
offsets are committed in the transaction that writes the outputs, with the group's metadata of the generation in which
the inputs were polled. So every input must be reflected exactly once in the committed output; the protocol that this
rests on is, in this order:

- a new life takes over its transactional id (`init_transactions`) before it joins the group: what its predecessor left
  open is ended, or was committed, before anything is read;
- what is assigned begins at the group's committed offsets. A consumer at read_committed is not told them while a
  transaction holds offsets that are neither committed nor aborted; the transform waits for that;
- a transaction is aborted inside the callback that revokes its partitions, before the group gets to know that they are
  given up. Where they were lost, somebody else may own them already: then the coordinator fences the offsets by their
  generation, and the transaction cannot commit;
- what a poll returned in which a rebalance happened is thrown away, and read again from where the assignment began; by
  the consumer protocol (KIP-848), of what the member keeps, from the committed offsets;
- after an abort the consumer is sent back to the committed offsets. After a commit of unknown outcome (`info`) the life
  is over, and the next one begins with `init_transactions`.

With `id_per_partition` each input partition has a transactional id and a producer of its own, taken over by whoever is
assigned the partition, before its committed offset is read: the epoch fences, the generation only helps.

One transaction is one operation, `txn`: its rows in the input partitions hold what was polled, those in the output
partitions what was sent and its `sources`. Records that are broken or not ours are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import OFFSET_BEGINNING

from probes.kafka.client import open_consumer
from probes.kafka.errors import ClientError, ClientStuck, Crash, translate
from probes.kafka.starting_positions import beginnings, committed_at_last
from probes.log.life_log import random_id
from probes.records.delivery import Batch
from probes.records.polls import Polled, Problem, sort_out
from probes.topology import Partition
from probes.workloads.pace import Pace
from probes.workloads.refusals import refusals
from probes.workloads.transactional.membership import MEMBERSHIPS, seek
from probes.workloads.transactional.transaction_course import Course
from probes.workloads.transactional.transaction_run import TransactionRun
from probes.workloads.transactional.transactional_probe import WHOLE, TransactionalProbe
from rules.vocabulary.slices import Mode, Run

FIRST_POLL_WAIT: Final = 0.5
SECOND_POLL_WAIT: Final = 0.1
"""Each transaction has two polls: a rebalance that falls into the second one falls into the transaction."""
COORDINATOR_GRACE: Final = 30.0
"""Seconds beyond the longest transaction timeout that the group's coordinator is given to tell committed offsets."""


class Transform(TransactionalProbe):
    """One life of a transform. `id_per_partition` and everything else is told by the configuration."""

    kind: ClassVar[str] = "transform"

    def __init__(self, *args: Any, timeout: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config, self._timeout = self.world.config.transform, timeout
        self._input, self._output = self.world.config.topics.transform_in, self.world.config.topics.transform_out
        self._outputs = list(self.layout.partitions(self._output))
        if self._config.id_per_partition:
            self._transactional_id = None
        self._began: dict[Partition, int] = {}
        self._runs: dict[int, TransactionRun] = {}
        self._pace = Pace(self.world.clock, 1 / self._config.rate)
        self._position_due = 0

    @property
    def mode(self) -> Mode | None:
        return "subscribe"

    @property
    def reads_from(self) -> str:
        return self._input

    @property
    def sends_to(self) -> str:
        return self._output

    def labels(self) -> dict[str, str]:
        ids = {"id_per_partition": str(self._config.id_per_partition).lower()}
        return super().labels() | {"mode": "subscribe"} | ids

    def open(self) -> None:
        self._encoders = self.encoders(self._outputs, self._config.record_bytes)
        if self._transactional_id is not None:
            self.take_over(self.settings())
        protocol = self.world.config.group_protocol
        self._consumer = open_consumer(self.consumer_settings(self.group, protocol=protocol), self.on_error)
        self._membership = MEMBERSHIPS[protocol](
            self._consumer, self.group, self.log, isolation=self.isolation, begin=self._begin, revoked=self._revoked
        )
        self._membership.subscribe([self._input])
        self._pace.start()
        self._position_due = self.world.clock.monotonic_ns()

    def turn(self) -> None:
        if wait := self._pace.wait():
            self.pause(min(wait, 0.5))
            return
        trouble = self.rng.choice(["sent", "offsets", "end", "rebalance"]) if self.unrest.due() else None
        self.transform(trouble)
        if self.world.clock.monotonic_ns() >= self._position_due:
            self._position_due += int(self.world.config.reader.position_interval * 1e9)
            self._log_positions()

    def transform(self, trouble: str | None = None) -> None:
        """Transform what is there, if anything is. `trouble`: crash when the outputs are "sent", after the "offsets" or
        in the "end", or provoke a "rebalance" inside the transaction. Raises ClientError, ClientStuck and Crash, after
        which this life must not go on."""
        self._runs = {}
        self._unusable = True
        self._take(self._poll(FIRST_POLL_WAIT))
        if self._runs:
            if trouble == "rebalance":
                self.membership.leave([self._input])
            else:
                self._take(self._poll(SECOND_POLL_WAIT))
            if trouble == "sent" and self._runs:
                raise Crash("the transform's client is abandoned with outputs in flight")
            for key in list(self._runs):
                self._end(key, trouble)
        self._unusable = False

    # The assignment

    def _begin(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Partitions are assigned: take over their transactional ids, then find out where they begin. Those without an
        output partition of their number are not read."""
        partitions = [where for where in partitions if (self._output, where[1]) in self._outputs]
        if self._transactional_id is None:
            for _, number in partitions:
                self.take_over(self.producer_settings(f"{self.group}-{number}"), number)
        admin = self.open_admin()
        asked = partial(committed_at_last, self.consumer, beat=self.log.alive, within=self._patience, in_callback=True)
        begin = beginnings(admin, partitions, {}, self.log.alive, committed=asked)
        self._began |= begin
        self.position |= {where: at for where, at in begin.items() if at != OFFSET_BEGINNING}
        return begin

    @property
    def _patience(self) -> float:
        """Seconds within which the coordinator tells what was committed, whoever's transaction it waits for."""
        return max(self._config.timeouts) + COORDINATOR_GRACE

    def _revoked(self, lost: set[Partition]) -> None:
        """Partitions are about to be given up, or are lost: nothing of theirs may be committed."""
        failure: ClientError | ClientStuck | None = None
        for key in list(self._runs):
            run = self._runs[key]
            run.course.rebalanced = True
            run.course.error = ClientError("_REVOKE_PARTITIONS", "a rebalance took the partitions", abortable=True)
            try:
                run.abort()
            except (ClientError, ClientStuck) as error:
                failure = run.course.error = error
            run.finish()
            del self._runs[key]
        for where in lost:
            self.position.pop(where, None)
            self._began.pop(where, None)
        if failure is not None:
            raise failure
        if self._transactional_id is None:
            for _, number in lost:
                if (transactor := self._transactors.pop(number, None)) is not None:
                    transactor.call(transactor.close, "close")

    # One transaction

    def _poll(self, wait: float) -> dict[Partition, Polled]:
        messages = self.membership.consume(self._config.records, wait)
        polled, problems = sort_out(messages, self.world.runs, self.allowance)
        if problems:
            self._log_problems(problems, polled)
        if self.membership.rebalanced:
            self._read_anew(bool(messages))
            polled = {}
        if not polled:
            self.log.idle()
        self._lost.judge(self.consumer, list(self.layout.partitions(self._input)), heard=bool(messages))
        return polled

    def _log_problems(self, problems: Sequence[Problem], polled: Mapping[Partition, Polled]) -> None:
        """Log what a poll returned in place of records. Raises ClientError where this life is over by it: then no
        transaction takes up what came beside it, which is logged as it came."""
        invoked, completed = self.membership.invoked, self.log.now()
        reads = list(self.layout.partitions(self._input))
        rows = refusals(self, problems, invoked, completed, reads=reads, assigned=self.membership.assigned)
        over = [p.error for p in problems if p.error.fatal or self.membership.is_shut_out_by(p.error)]
        if over:
            each = {
                where: part.columns(self.position.get(where), part.next)
                | {"rebalanced": where in self.membership.rebalanced}
                for where, part in polled.items()
            }
            how = {"isolation": self.isolation, "mode": self.mode}
            rows += self.log.rows_of(each, "poll", "ok", self.log.next_op(), invoked, completed, **how)
        self.log.append(rows)
        if over:
            raise over[0]

    def _read_anew(self, came: bool) -> None:
        """After a rebalance, in which records came or not: what came may belong to the assignment that is over, and a
        transaction that it ended may have polled of what is kept. One that is open still, since nothing was taken away,
        is ahead of the committed offsets: it is read on from where it stands."""
        kept = self.membership.assigned - self.membership.rebalanced
        if not kept and not came:
            return
        polled = {where: at for run in self._runs.values() for where, at in run.course.after.items()}
        found = committed_at_last(self.consumer, kept - polled.keys(), self.log.alive, self._patience)
        positions = self._began | {where: at for where, at in found.items() if at is not None} | polled
        if positions:
            self._stand_at(positions)
            self.membership.resume(positions)

    def _take(self, polled: Mapping[Partition, Polled]) -> None:
        """Send the outputs of what was polled, in the transactions that are open or begin now."""
        by_key: dict[int, dict[Partition, Polled]] = {}
        for where, part in polled.items():
            by_key.setdefault(WHOLE if self._transactional_id else where[1], {})[where] = part
            self.counters.polled += part.count
            self.counters.irregular += part.irregular
        # Asked here for what it tells of polls that went back; the offsets that are committed are those of the inputs.
        self._positions.after(self.consumer, polled, self.position)
        for key, parts in by_key.items():
            fresh = key not in self._runs
            run = self._runs[key] if not fresh else self._outline(key)
            self._extend(run.course, parts)
            run.journal()
            if fresh:
                run.transactor.begin()
            run.send(run.course.batches[-1])

    def _outline(self, key: int) -> TransactionRun:
        intent = self.draw_intent(self._config.abort_share)
        transactor = self._transactors[key]
        course = Course(
            self.log.next_op(),
            random_id(),
            intent,
            self.membership.invoked,
            {},
            [],
            transactional_id=transactor.transactional_id,
        )
        run = self._runs[key] = self.new_run(course, transactor)
        return run

    def _extend(self, course: Course, parts: Mapping[Partition, Polled]) -> None:
        """Note what was polled, and number and reserve its outputs as one more batch."""
        assert self.writer is not None
        expected: dict[Partition, tuple[int, int]] = {}
        sources: dict[Partition, list[Run]] = {}
        for where, part in parts.items():
            course.before.setdefault(where, self.position.get(where))
            course.polled.setdefault(where, []).append(part)
            course.after[where] = self.position[where] = part.next
            out = (self._output, where[1])
            if part.decoded.runs:
                expected |= self.number({out: sum(run.length for run in part.decoded.runs)})
                sources[out] = part.decoded.runs
        course.batches.append(Batch(self.writer, expected, sources=sources))

    def _end(self, key: int, trouble: str | None) -> None:
        run = self._runs[key]
        try:
            self._finish(run, trouble)
        except (ClientError, ClientStuck) as error:
            run.rescue(error)
        outcome = run.finish()
        del self._runs[key]
        if outcome == "fail":
            self.leave_if_lost(run.course)
            self._go_back(run.course)
        elif outcome == "info":
            raise run.course.error or ClientError("_STATE", "the transaction's outcome is not known")

    def _finish(self, run: TransactionRun, trouble: str | None) -> None:
        run.delivered(whole=True)
        run.send_offsets(self.membership.metadata)
        if trouble == "offsets":
            raise Crash("the transform's client is abandoned before its transaction's end")
        if run.course.intent == "abort":
            run.abort()
        else:
            run.commit(crash_within=self.rng.random() * 0.01 if trouble == "end" else None)

    def _go_back(self, course: Course) -> None:
        """Send the consumer to the committed offsets of what the transaction polled."""
        mine = [where for where in course.polled if where in self.membership.assigned]
        invoked_at = committed_at_last(self.consumer, mine, self.log.alive, self._timeout + COORDINATOR_GRACE)
        back = {where: self._began[where] if at is None else at for where, at in invoked_at.items()}
        self._stand_at(back)
        try:
            seek(self.consumer, back.items())
        except ClientError:
            # A partition that is not being fetched yet cannot be sought.
            self.membership.resume({w: self.position.get(w, self._began[w]) for w in self.membership.assigned})

    def _stand_at(self, positions: Mapping[Partition, int]) -> None:
        for where, at in positions.items():
            if at == OFFSET_BEGINNING:
                self.position.pop(where, None)
            else:
                self.position[where] = at

    # Rows

    def tells(self, course: Course, where: Partition, sent: Sequence[Run]) -> Mapping[str, Any]:
        if where[0] == self._output:
            sources = [run for batch in course.batches for run in batch.sources.get(where, ())]
            return {"sent": sent, "sources": sources, "group": self.group}
        own = {**course.polls(where), **course.offsets(where, self.group)}
        return {**own, "rebalanced": course.rebalanced}

    def _log_positions(self) -> None:
        """Where the client says that it stands, in what is assigned to it and as far as it knows."""
        op, invoked = self.log.next_op(), self.log.begin()
        try:
            found = self._positions.now(self.consumer, self.membership.assigned, self.position)
        except Exception as error:
            self.on_error(translate(error))
            found = {}
        self.log_positions(op, invoked, found)
