"""The reader: polls all probe topics at read_committed, logs what came, commits where it stands and reads that back.

In mode `assign` it begins where it stood before, or where its group had committed, or at the log's start, and names the
offset itself, so that the log knows from where it read. In mode `subscribe` the group decides; each rebalance becomes
assign or revoke rows that tell for every partition whether it is assigned now, and the poll it happened in says so. By
the consumer protocol (KIP-848) a reader goes on with what it keeps: only what it gained or lost has rows then.

One consume call is one operation, with one row for each partition it returned records of. Empty polls make no row;
every few seconds a `position` row per assigned partition tells that the reader lives and where it stands. Offsets are
committed only for records whose poll rows are in the journal.

A restless reader changes between the modes, and in mode `assign` it abandons a partition and takes up another.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from probes.kafka.client import admin_settings, consumer_settings, open_admin, open_consumer
from probes.kafka.errors import ClientError, Crash, classify, translate
from probes.kafka.leaving import close_member
from probes.kafka.starting_positions import beginnings, committed, committed_at_last
from probes.log.life_log import Instant
from probes.records.polls import Polled, Positions, Problem, sort_out
from probes.topology import GroupProtocol, Partition
from probes.workloads.lost_client import LostClient
from probes.workloads.probe import Probe
from probes.workloads.refusals import refusals
from rules.vocabulary.slices import Function, Isolation, Mode, Outcome, Slice

COMMIT_TIMEOUT: Final = 30.0
READ_UP_WITHIN: Final = 5.0
LEAVE_WITHIN: Final = 5.0
SECOND: Final = 1_000_000_000
STRANGERS_TOLD: Final = 16
"""Of so many runs that are none of ours a line is written."""

_log: Final = logging.getLogger("offsetwatch.probe")


class Reader(Probe):
    """One life of a reader."""

    kind: ClassVar[str] = "reader"
    isolation: ClassVar[Isolation | None] = "read_committed"

    def __init__(
        self,
        *args: Any,
        group: str,
        mode: Mode = "assign",
        restless: bool = False,
        bootstrap: str | None = None,
        from_start: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.reader
        self.group, self._mode, self._restless, self._from_start = group, mode, restless, from_start
        # A client that was a member by the consumer protocol cannot be assigned by hand any more.
        stays_a_member = mode == "subscribe" and not restless
        self._protocol: GroupProtocol = self.world.config.group_protocol if stays_a_member else "classic"
        self._connection = self.world.connection.through(bootstrap) if bootstrap else self.world.connection
        self._bootstrap_alone = bootstrap is not None
        self._consumer: Consumer | None = None
        self._all = list(self.layout.partitions())
        self._topic_partitions = frozenset(self._all)
        self.assigned: set[Partition] = set()
        self.position: dict[Partition, int] = {}
        self._positions = Positions()
        self._lost = LostClient(self)
        self._committed: dict[Partition, int] = {}
        self._committing: tuple[int, Instant, dict[Partition, int]] | None = None
        self._read_back: list[Partition] = []
        self._stashed: list[Slice] = []
        self._rebalanced: set[Partition] = set()
        self._closing = False
        self._answered = False
        now = self.world.clock.monotonic_ns()
        self._commit_due = now + int(self._config.commit_interval * SECOND)
        self._position_due = now + int(self._config.position_interval * SECOND)

    @property
    def mode(self) -> Mode | None:
        return self._mode

    @property
    def poll_records(self) -> int:
        """At most this many records may come now."""
        return self._config.poll_records

    @property
    def consumer(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def settings(self) -> Mapping[str, str]:
        return consumer_settings(self._connection, client=self.client, group=self.group, protocol=self._protocol)

    def labels(self) -> dict[str, str]:
        alone = {"bootstraps_from": self._connection.bootstrap} if self._bootstrap_alone else {}
        return super().labels() | {"mode": self._mode} | alone

    def _open_consumer(self) -> None:
        self._consumer = open_consumer(self.settings(), self.on_error, self._on_commit)

    def open(self) -> None:
        self._open_consumer()
        if self._mode == "assign":
            self._assign(self._all)
        else:
            self._subscribe()

    def turn(self) -> None:
        if self.unrest.due():
            self._trouble()
        self.poll()
        now = self.world.clock.monotonic_ns()
        if self._read_back:
            self._log_read_back()
        if now >= self._commit_due:
            self._commit_due = now + int(self._config.commit_interval * SECOND)
            self._commit()
        if now >= self._position_due:
            self._position_due = now + int(self._config.position_interval * SECOND)
            self._log_positions()

    def finish(self) -> None:
        """Read what is there, and commit it."""
        limit = self.world.clock.monotonic_ns() + int(READ_UP_WITHIN * SECOND)
        while self.poll() and self.world.clock.monotonic_ns() < limit:
            pass
        self._commit()
        while self._committing is not None and self.world.clock.monotonic_ns() < limit:
            self.poll()

    def close(self) -> None:
        self._closing = True
        if self._consumer is None:
            return
        if self._mode == "subscribe":
            close_member(self._consumer)
        else:
            self._consumer.close()

    def let_go(self) -> None:
        """What its client still tells is nobody's business."""
        self._closing = True

    def poll(self) -> int:
        """One consume call and its rows; returns how many records came."""
        op, invoked = self.log.next_op(), self.log.begin()
        self._rebalanced = set()
        try:
            messages = self.consumer.consume(self.poll_records, self._config.poll_wait)
        except Exception as error:
            problem = translate(error)
            if problem.fatal:
                raise problem from error
            messages, problems = [], [Problem(None, problem)]
        else:
            problems = []
        polled, more = sort_out(messages, self.world.runs, self.allowance)
        after = self._positions.after(self.consumer, polled, self.position)
        completed = self.log.now()
        each = {
            where: part.columns(self.position.get(where), after[where]) | {"rebalanced": where in self._rebalanced}
            for where, part in polled.items()
            if self.log.knows(where[0])
        }
        rows = self.log.rows_of(each, "poll", "ok", op, invoked, completed, isolation=self.isolation, mode=self._mode)
        rows += self._problem_rows(problems + more, invoked, completed)
        self._committing_too_long()
        stashed, self._stashed = self._stashed, []
        if stashed or rows:
            # In one write: rebalances inside the call happened after it was invoked, and before what it returned.
            self.log.append(stashed + rows)
            self.log.alive()
        else:
            self.log.idle()
        for where, part in polled.items():
            self.position[where] = after[where]
            self.carried.positions[self.topic_place(where)] = self.position[where]
            self.saw(where, part)
            self.counters.polled += part.count
            self.counters.irregular += part.irregular
            if part.irregular:
                self._tell_of_strangers(where[0], part)
        fatal = [one.error for one in more if one.error.fatal]
        if fatal:
            raise fatal[0]
        self._lost.judge(self.consumer, self._all, heard=bool(messages))
        return len(messages) - len(more)

    def saw(self, where: Partition, part: Polled) -> None:
        """For readers that remember; called once the rows are in the journal."""

    def ended(self, where: Partition) -> None:
        """For readers whose client tells that it is at a partition's end."""

    def _tell_of_strangers(self, topic: str, part: Polled) -> None:
        """Write a line of each run that these probes do not know: it may be that of a host that they should know."""
        told = self.world.strangers
        for one in part.decoded.irregular:
            if one.status == "foreign" and one.run and one.run not in told and len(told) < STRANGERS_TOLD:
                told.add(one.run)
                _log.warning(
                    "topic %s holds records of run %s, which these probes do not know: if it is one of yours, in the"
                    " same probe log, name it in probes.known_runs",
                    topic,
                    ascii(one.run)[1:-1][:80],
                )

    def _problem_rows(self, problems: Sequence[Problem], invoked: Instant, completed: Instant) -> list[Slice]:
        ends = [p.where for p in problems if p.error.code == "_PARTITION_EOF" and p.where is not None]
        for where in ends:
            self.ended(where)
        others = [p for p in problems if p.error.code != "_PARTITION_EOF" or p.where is None]
        return refusals(self, others, invoked, completed, reads=self._all, assigned=self.assigned)

    # Assignment

    def _assignment_rows(
        self, f: Function, invoked: Instant, among: Collection[Partition] | None = None
    ) -> list[Slice]:
        return self.log.everywhere(
            f,
            "ok",
            invoked,
            self.log.now(),
            mode=self._mode,
            isolation=self.isolation,
            group=self.group,
            each=lambda where: {"assigned": where in self.assigned},
            among=among,
        )

    def _assign(self, partitions: Sequence[Partition]) -> None:
        invoked = self.log.begin()
        admin = open_admin(admin_settings(self._connection, client=f"{self.client}-admin"))
        known = {} if self._from_start else self._known_positions(partitions)
        asked = None if self._from_start else partial(committed_at_last, self.consumer, beat=self.log.alive)
        begin = beginnings(admin, partitions, known, self.log.alive, committed=asked)
        self.consumer.assign([TopicPartition(topic, p, begin[topic, p]) for topic, p in partitions])
        self.assigned = set(partitions)
        self.position = {where: at for where, at in begin.items() if at != OFFSET_BEGINNING}
        # Where it merely begins is not committed: a group that committed nothing has no offset, which is not 0.
        self._committed = dict(self.position)
        self.log.append(self._assignment_rows("assign", invoked))

    def _known_positions(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        carried = self.carried.positions
        return {w: carried[self.topic_place(w)] for w in partitions if self.topic_place(w) in carried}

    def _subscribe(self) -> None:
        invoked = self.log.begin()
        self.assigned, self.position = set(), {}
        self.measure.joining(invoked)
        self.consumer.subscribe(
            [topic.name for topic in self.layout.topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )
        self.log.append(self._assignment_rows("subscribe", invoked))

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        kept = self.assigned if self._protocol == "consumer" else set()
        self._rebalance("assign", kept | {(tp.topic, tp.partition) for tp in partitions})

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalance("revoke", self.assigned - {(tp.topic, tp.partition) for tp in partitions})

    def _rebalance(self, f: Function, assigned: set[Partition]) -> None:
        if self._closing:
            return
        now = self.log.now()
        changed = self.assigned ^ assigned
        self.assigned = assigned & self._topic_partitions
        if f == "assign":
            self.measure.assigned(now)
        elif not self.assigned:
            self.measure.unassigned(now)
        for where in changed:
            self.position.pop(where, None)
            self._committed.pop(where, None)
        self._rebalanced |= changed
        # What a member is told that has just joined, before it commits: who joined later has not committed it.
        self._read_back += changed & self.assigned
        # What is kept goes on without a word, once the group's first answer has told of every partition.
        of_all = self._protocol == "classic" or not self._answered
        self._stashed += self._assignment_rows(f, now, None if of_all else changed)
        self._answered = True

    # Commits and positions

    def _commit(self) -> None:
        """Begin to commit the positions that moved; the outcome comes with a later poll."""
        moved = {w: at for w, at in self.position.items() if w in self.assigned and self._committed.get(w) != at}
        if not moved or self._committing is not None:
            return
        op, invoked = self.log.next_op(), self.log.now()
        self.log.opened(op, self._commit_rows("info", None, op, invoked, invoked, moved))
        self._committing = (op, invoked, moved)
        try:
            self.consumer.commit(offsets=[TopicPartition(t, p, at) for (t, p), at in moved.items()], asynchronous=True)
        except Exception as error:
            self._committed_with(translate(error), {})

    def _commit_rows(
        self,
        type: Outcome,
        error: str | None,
        op: int,
        invoked: Instant,
        completed: Instant,
        moved: Mapping[Partition, int],
    ) -> list[Slice]:
        each = {where: {"committed": at} for where, at in moved.items()}
        how = {"group": self.group, "isolation": self.isolation, "mode": self._mode}
        return self.log.rows_of(each, "commit", type, op, invoked, completed, error=error, **how)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if self._committing is None or self._closing:
            return
        _, _, moved = self._committing
        if {(tp.topic, tp.partition): tp.offset for tp in partitions} != moved:
            return
        each = {(tp.topic, tp.partition): translate(tp.error) for tp in partitions if tp.error is not None}
        self._committed_with(translate(error) if error is not None else None, each)

    def _committed_with(self, error: ClientError | None, each: Mapping[Partition, ClientError]) -> None:
        """Stash the rows of the commit's outcome: one operation for each outcome there was."""
        assert self._committing is not None
        op, invoked, moved = self._committing
        self._committing = None
        completed = self.log.now()
        self.measure.committed(invoked, completed, [one.code for one in (*each.values(), error) if one is not None])
        by_code: dict[str | None, dict[Partition, int]] = {}
        for where, at in moved.items():
            problem = each.get(where) or error
            by_code.setdefault(problem.code if problem else None, {})[where] = at
        for number, (code, part) in enumerate(by_code.items()):
            outcome = classify(code, "commit") if code is not None else "ok"
            own = op if number == 0 else self.log.next_op()
            self._stashed += self._commit_rows(outcome, code, own, invoked, completed, part)
            if outcome == "ok":
                self._committed |= part
                self._read_back += part
                self.counters.commits += 1
            else:
                self.counters.errors += 1
                self.counters.last_error = code or ""

    def _committing_too_long(self) -> None:
        if self._committing is None:
            return
        _, invoked, _ = self._committing
        if self.world.clock.monotonic_ns() - invoked.mono > COMMIT_TIMEOUT * SECOND:
            self._committed_with(ClientError("_TIMED_OUT", "no answer to a commit"), {})

    def _log_read_back(self) -> None:
        """What the group's coordinator says was committed, of the partitions that we just committed."""
        asked, self._read_back = self._read_back, []
        op, invoked = self.log.next_op(), self.log.begin()
        try:
            found = committed(self.consumer, asked, self.log.alive, within=2.0)
        except ClientError as error:
            self.on_error(error)
            self._offset_rows(op, invoked, dict.fromkeys(asked), error.code)
        else:
            self._offset_rows(op, invoked, found, None)

    def _offset_rows(self, op: int, invoked: Instant, found: Mapping[Partition, int | None], error: str | None) -> None:
        each = {where: {"committed": at} for where, at in found.items()}
        outcome: Outcome = "ok" if error is None else "info"
        moment = self.log.now()
        self.log.append(self.log.rows_of(each, "offsets", outcome, op, invoked, moment, error=error, group=self.group))

    def _log_positions(self) -> None:
        op, invoked = self.log.next_op(), self.log.begin()
        self.log_positions(op, invoked, self._positions.now(self.consumer, self.assigned, self.position))

    # Unrest

    def _trouble(self) -> None:
        what = self.rng.choice(["crash", "mode", "partition"]) if self._restless else "crash"
        if what == "crash":
            raise Crash("the reader's client is abandoned")
        if what == "mode":
            self._change_mode()
        elif self._mode == "assign":
            dropped = self.rng.choice(self._all)
            self._assign([where for where in self._all if where != dropped])

    def _change_mode(self) -> None:
        if self._mode == "assign":
            invoked = self.log.begin()
            self.consumer.unassign()
            self.assigned, self.position = set(), {}
            self.log.append(self._assignment_rows("revoke", invoked))
            self._mode = "subscribe"
            self._subscribe()
            return
        self.consumer.unsubscribe()
        limit = self.world.clock.monotonic_ns() + int(LEAVE_WITHIN * SECOND)
        while self.assigned and self.world.clock.monotonic_ns() < limit:
            self.poll()
        if self.assigned:
            raise Crash("the group was not left in time")
        self._mode = "assign"
        self._assign(self._all)
