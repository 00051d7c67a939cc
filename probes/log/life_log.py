"""The log of one life as a probe writes it: rows that carry the life's identity, over the life's journal.

It adds to the journal what every probe needs: operation numbers, the times of both clocks, rows about the process as a
whole (once for every partition of the probe topics), and the promise of `alive`. An operation that is not opened in the
journal is announced with `begin`: until its rows are appended (or it turned out to need none, `idle`), nothing invoked
later is promised to be logged.

A life can be abandoned from outside, when its probe does not return: what was open is then logged as `info`, its close
rows are written, and the probe's next call raises `Abandoned`.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from probes.clock import Clock
from probes.kafka.errors import ProbeError
from probes.log.journals.journal import Journal, Life
from probes.topology import Layout, Partition
from rules.vocabulary.slices import Function, Outcome, Slice

log = logging.getLogger("offsetwatch.probe")

RESERVED_AT_ONCE: Final = 65_536
"""Sequence numbers are reserved in ranges of this many: each reservation waits for the disk."""
PROMISE_INTERVAL: Final = 200_000_000
"""Nanoseconds between two promises of a life."""


class Abandoned(ProbeError):
    """This life was ended from outside; its probe must stop."""


class Instant(NamedTuple):
    """One moment by both clocks."""

    at: datetime
    mono: int


def random_id() -> int:
    """A random 63-bit number, for processes, writers and transactions."""
    return secrets.randbits(63)


class LifeLog:
    """One life's log. Used by the probe's thread; only `abandon` may be called by another."""

    def __init__(self, journal: Journal, life: Life, layout: Layout, clock: Clock) -> None:
        self._journal, self.life, self.layout, self._clock = journal, life, layout, clock
        self._topic_ids = {topic.name: topic.id for topic in layout.topics}
        self._lock = threading.RLock()
        self._ops = 0
        self._open: dict[int, list[Slice]] = {}
        self._begun: datetime | None = None
        self._promise_due = 0
        self._reserved: dict[Partition, int] = {}
        self._start: dict[str, Any] | None = None
        self._places = dict.fromkeys(layout.partitions())
        self.ended = False
        self.transactions_left = 0
        """How many transactions were open when it ended."""
        self.beat: Callable[[], None] = lambda: None
        """Called whenever the probe shows that it lives."""
        self.heard: Callable[[Sequence[Slice]], None] = lambda rows: None
        """Called with the rows of each outcome."""

    def now(self) -> Instant:
        return Instant(*self._clock.both())

    def next_op(self) -> int:
        self._ops += 1
        return self._ops - 1

    def begin(self) -> Instant:
        """The moment of an invocation that is not opened in the journal; ends with `append` or `idle`."""
        moment = self.now()
        self._begun = moment.at
        return moment

    def knows(self, topic: str) -> bool:
        """Is it a probe topic? Then rows may be about any partition of it, also one that is new."""
        return topic in self._topic_ids

    def idle(self) -> None:
        """What was begun needs no row."""
        self._begun = None
        self.alive()

    def row(
        self,
        where: Partition,
        f: Function,
        type: Outcome,
        op: int,
        invoked: Instant,
        completed: Instant | None = None,
        **fields: Any,
    ) -> Slice:
        """One slice of this life, with these `fields` of it; completed when it was invoked, and of the life's
        transactional id, if nothing is said."""
        completed = completed or invoked
        fields["transactional_id"] = fields.get("transactional_id") or self.life.transactional_id
        topic, partition = where
        return Slice(
            cluster=self.life.cluster,
            topic_id=self._topic_ids[topic],
            topic=topic,
            partition=partition,
            run=self.life.run,
            process=self.life.process,
            op=op,
            slice=-1,
            f=f,
            type=type,
            invoked=invoked.at,
            completed=completed.at,
            boot=self.life.boot,
            mono_invoked=invoked.mono,
            mono_completed=completed.mono,
            **fields,
        )

    def rows_of(
        self,
        each: Mapping[Partition, Mapping[str, Any]],
        f: Function,
        type: Outcome,
        op: int,
        invoked: Instant,
        completed: Instant | None = None,
        **fields: Any,
    ) -> list[Slice]:
        """One operation's rows, a `row` for each of these partitions: with `fields`, and what is said of it alone."""
        return [self.row(where, f, type, op, invoked, completed, **fields, **own) for where, own in each.items()]

    def everywhere(
        self,
        f: Function,
        type: Outcome,
        invoked: Instant,
        completed: Instant | None = None,
        *,
        each: Callable[[Partition], Mapping[str, Any]] | None = None,
        among: Collection[Partition] | None = None,
        **fields: Any,
    ) -> list[Slice]:
        """One operation's rows about the process as a whole: one for every partition of the probe topics, or for those
        `among` them."""
        op = self.next_op()
        if f == "start":
            self._start = fields
        places = [where for where in self._places if among is None or where in among]
        own = {where: each(where) if each else {} for where in places}
        return self.rows_of(own, f, type, op, invoked, completed, **fields)

    def opened(self, op: int, rows: Sequence[Slice]) -> None:
        """The operation's requests are about to leave; called again, the rows replace the earlier ones. It goes on: it
        completes no earlier than now."""
        moment = self.now()
        for row in rows:
            row.completed, row.mono_completed = moment.at, moment.mono
        with self._alive():
            self._journal.opened(op, rows)
            self._open[op] = list(rows)
        self.beat()

    def append(self, rows: Sequence[Slice]) -> None:
        """An operation's outcome. Ends what `begin` began."""
        with self._alive():
            self._journal.append([*self._begun_in_new(rows), *rows])
            self._begun = None
            for row in rows:
                self._open.pop(row.op, None)
        self.heard(rows)
        self.beat()

    def _begun_in_new(self, rows: Sequence[Slice]) -> list[Slice]:
        """Start rows for partitions that the layout did not have, when they are first heard of: they were added under a
        life that reads them by their topic."""
        new = sorted({(row.topic, row.partition) for row in rows} - self._places.keys())
        if not new or self._start is None:
            return []
        self._places |= dict.fromkeys(new)
        moment = self.now()
        return [self.row(where, "start", "ok", self.next_op(), moment, **self._start) for where in new]

    def reserve(self, where: Partition, upto: int) -> None:
        """Make sure that the sequence numbers below `upto` may be used in this partition."""
        if upto <= self._reserved.get(where, 0):
            return
        limit = -(-upto // RESERVED_AT_ONCE) * RESERVED_AT_ONCE
        with self._alive():
            self._journal.reserve(self._topic_ids[where[0]], where[0], where[1], limit)
            self._reserved[where] = limit

    def alive(self) -> None:
        """Everything invoked until now, or until what was begun, is logged or open. Written every fifth of a second at
        most: probes say it wherever they come by."""
        with self._alive():
            now = self._clock.monotonic_ns()
            if now >= self._promise_due:
                self._journal.alive(self._begun or self._clock.now())
                self._promise_due = now + PROMISE_INTERVAL
        self.beat()

    def end(self, type: Outcome, error: str | None = None, *, invoked: Instant | None = None) -> None:
        """The life is over: what is open becomes `info`, close rows everywhere, the journal is closed. `invoked`: when
        closing began, now if it is not said."""
        with self._lock:
            if not self.ended:
                self._end(type, error, invoked)

    def close_stuck(self, error: str, invoked: Instant) -> None:
        """The client does not return from closing: what is open becomes `info`, and so do the close rows. The journal
        stays open for what becomes of it: `alive` until `end`, or `leave`."""
        with self._alive():
            self._close_rows("info", error, invoked)
            self._begun = None

    def leave(self) -> None:
        """Close the journal of a life whose close rows are there; nothing more will be told of it."""
        with self._lock:
            if not self.ended:
                self.ended = True
                self._journal.close()

    def let_go(self) -> None:
        """Leave the journal as it is, as the process's death would: recovery finishes it."""
        with self._lock:
            if not self.ended:
                self.ended = True
                self._journal.release()

    def abandon(self, error: str) -> None:
        """`end` from another thread, for a probe that does not return. Never blocks for long, never raises."""
        if not self._lock.acquire(timeout=5.0):
            self.ended = True
            return
        try:
            self.end("info", error)
        except Exception as problem:
            log.warning("the journal of an abandoned life is left to recovery: %s", problem)
        finally:
            self._lock.release()

    def _close_rows(self, type: Outcome, error: str | None, invoked: Instant | None) -> None:
        moment = self.now()
        for rows in list(self._open.values()):
            self.transactions_left += any(row.f == "txn" for row in rows)
            for row in rows:
                row.completed, row.mono_completed = moment.at, moment.mono
                row.error = row.error or error
            self._journal.append(rows)
        self._open.clear()
        self._journal.append(self.everywhere("close", type, invoked or moment, moment, error=error))

    def _end(self, type: Outcome, error: str | None, invoked: Instant | None) -> None:
        try:
            self._close_rows(type, error, invoked)
            self._journal.close()
        except BaseException:
            self._journal.release()
            raise
        finally:
            self.ended = True

    def _alive(self) -> threading.RLock:
        if self.ended:
            raise Abandoned("this life was abandoned")
        return self._lock
