"""One transaction, run: how it is journalled, sent, ended, rescued and logged, whichever probe makes it.

The journal knows each step before its requests leave: what was going to be sent and what was polled, and that the end
is invoked. A probe gives what its rows tell at any time, and calls the steps in its own order:

    run.journal()                what it is going to do, and what it has polled by now
    run.send(batch)              hand a batch to the client
    run.delivered()              wait for what became of each record
    run.send_offsets(metadata)   commit what was polled, in the transaction
    run.commit() or run.abort()
    run.rescue(error)            after an error: abort, where the client can still do so
    run.finish()                 log the outcome, and tell it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from probes.kafka.errors import ClientError, ClientStuck, transaction_outcome
from probes.log.life_log import Instant, LifeLog
from probes.records.delivery import POLL, Batch, Fate, collect, fates, hand_over
from probes.records.tag import Encoder
from probes.topology import Partition
from probes.workloads.measure import Measure
from probes.workloads.probe import Counters
from probes.workloads.transactional.transaction_course import Course, count_outcome, unsent
from probes.workloads.transactional.transactor import GRACE, Transactor
from rules.vocabulary.slices import Outcome, Run, Slice
from rules.vocabulary.times import micros

Tells = Callable[[Course, Partition, Sequence[Run]], Mapping[str, Any]]
"""What the row of a partition says of a transaction that sent these runs there."""


@dataclass(slots=True, kw_only=True)
class TransactionRun:
    """One transaction of one producer. `timeout`: the transaction's, seconds. `reading`: what every row of its tells of
    how the probe reads. The steps raise ClientError and ClientStuck."""

    course: Course
    transactor: Transactor
    log: LifeLog
    counters: Counters
    measure: Measure
    encoders: Mapping[Partition, Encoder]
    timeout: float
    tells: Tells
    reading: Mapping[str, Any] = field(default_factory=dict)

    def journal(self) -> None:
        """Put into the journal how far it has come."""
        self.log.opened(self.course.op, self._rows("info", None, unsent(self.course)))

    def send(self, batch: Batch) -> None:
        """Hand the batch, which is journalled, to the client."""
        hand_over(self.transactor.producer, batch, self.encoders, sent=micros(self.log.now().at), txn=self.course.txn)
        records = sum(count for _, count in batch.expected.values())
        self.course.handed += records
        self.counters.sent += records

    def delivered(self, *, whole: bool = False) -> None:
        """Wait until every record has been reported or is given up. `whole`: raises ClientError where one failed."""
        polls = int((self.timeout + GRACE) / POLL)
        for batch in self.course.batches:
            collect(self.transactor.producer, batch, polls=polls, beat=self.log.alive)
            if batch.fatal is not None:
                raise batch.fatal
            for fate in chain.from_iterable(fates(batch).values()) if whole else ():
                if fate.type != "ok":
                    raise ClientError(fate.error or "_FAIL", "a record was not delivered", abortable=True)

    def send_offsets(self, metadata: Any) -> None:
        """`metadata`: the group's, of the generation in which it was polled."""
        self.course.offsets_sent = True
        self.transactor.send_offsets(self.course.after, metadata)

    def commit(self, *, crash_within: float | None = None) -> None:
        """Commit. `crash_within`: abandon the client within so many seconds of it, which raises Crash."""
        self.course.commit_invoked = True
        self._ending()
        if crash_within is not None:
            self.transactor.crash_in_commit(crash_within)
        invoked = self.log.now()
        try:
            self.transactor.commit()
        except (ClientError, ClientStuck):
            self.measure.failed("transaction-commit")
            raise
        self.course.committed = True
        self.measure.took("transaction-commit", invoked, self.log.now())

    def abort(self) -> None:
        """Abort, once."""
        if self.course.aborted:
            return
        self._ending()
        self.transactor.abort()
        self.course.aborted = True

    def rescue(self, error: ClientError | ClientStuck) -> None:
        """Note the error and abort, where the client can still do so and nothing was committed."""
        self.course.error = error
        if self.course.committed or isinstance(error, ClientStuck) or error.fatal:
            return
        try:
            self.abort()
        except (ClientError, ClientStuck) as worse:
            self.counters.last_error = str(worse)

    def finish(self) -> Outcome:
        """Log and count the outcome. Records that a commit cannot have covered are kept apart, as `info`."""
        course = self.course
        outcome = transaction_outcome(
            commit_invoked=course.commit_invoked, committed=course.committed, aborted=course.aborted
        )
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
        rows = self._rows(outcome, completed, ordered)
        for where, part in doubtful:
            told = {**course.columns, **self.reading, "error": part.error, "sent": part.runs}
            rows.append(self.log.row(where, "txn", "info", self.log.next_op(), course.invoked, completed, **told))
        for row in rows:
            row.settings = self.transactor.to_tell(row)
        self.log.append(rows)
        count_outcome(self.counters, course, outcome)
        return outcome

    def _rows(
        self, outcome: Outcome, completed: Instant | None, sent: Mapping[Partition, Sequence[Run]]
    ) -> list[Slice]:
        """Its rows with this outcome, completed then (None: it goes on)."""
        course = self.course
        each = {where: self.tells(course, where, sent.get(where, ())) for where in course.touched}
        how = {**course.columns, **self.reading}
        return self.log.rows_of(each, "txn", outcome, course.op, course.invoked, completed, **how)

    def _ending(self) -> None:
        """Its end is about to be invoked: the journal must know before the request leaves."""
        if self.course.end_invoked is None:
            self.course.end_invoked = self.log.now()
            self.journal()
