"""What the group of a transactional probe has committed, read back now and then by the probe that commits.

Anybody else who is told too little may have asked a coordinator that was deposed, and cut off so that it does not know
it yet. The producer's client, to which the commits were acknowledged, cannot ask; the consumer's finds the coordinator
by itself. So the consumer commits something first, for a partition that no transaction of the group polls: a
coordinator that was cut off finds nobody to agree. What the one that acknowledges it tells next is what the group has
committed, that very offset among it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from probes.kafka.calls import bounded
from probes.kafka.errors import ClientError, ClientStuck, classify, translate
from probes.kafka.starting_positions import committed
from probes.log.life_log import Instant
from probes.topology import Partition
from probes.workloads.probe import Probe
from rules.vocabulary.slices import Outcome, Slice

EVERY: Final = 10.0
"""Seconds between two times that it asks."""
WITHIN: Final = 5.0
"""Seconds that the coordinator is given for each answer."""
UNSTABLE: Final = "UNSTABLE_OFFSET_COMMIT"
"""The last transaction has ended, and its marker has not reached the coordinator yet."""
SETTLES: Final = 3.0
"""Seconds after which that marker has come for sure. Not every implementation says that it has not."""
AGAIN: Final = 0.25


class ReadBack:
    """Asks for the probe's `consumer`, of `group`; `fence` is the partition of which it commits something itself."""

    def __init__(self, probe: Probe, consumer: Consumer, group: str, fence: Partition) -> None:
        self._probe, self._consumer, self._group, self._fence = probe, consumer, group, fence
        self._asked: dict[Partition, int] = {}
        self._number = 0
        self._due = probe.world.clock.monotonic_ns() + int(EVERY * 1e9)

    def note(self, offsets: Mapping[Partition, int]) -> None:
        """A transaction has committed these."""
        self._asked |= offsets

    def turn(self) -> None:
        """Ask, if it is time. To be called between two transactions. Raises ClientStuck."""
        now = self._probe.world.clock.monotonic_ns()
        if now < self._due or not self._asked:
            return
        self._due = now + int(EVERY * 1e9)
        if self._commit():
            self._ask()

    def _commit(self) -> bool:
        """Whether the coordinator acknowledges a commit of the fence's."""
        self._number += 1
        log, offset = self._probe.log, TopicPartition(*self._fence, self._number)
        op, invoked = log.next_op(), log.now()
        log.opened(op, self._commit_rows("info", None, op, invoked, None))
        problem = None
        try:
            (told,) = bounded(
                lambda: self._consumer.commit(offsets=[offset], asynchronous=False), 2 * WITHIN, log.alive, "commit"
            )
            problem = translate(told.error) if told.error is not None else None
        except ClientStuck:
            raise
        except Exception as error:
            problem = translate(error)
        code = problem.code if problem is not None else None
        outcome = "ok" if code is None else classify(code, "commit")
        log.append(self._commit_rows(outcome, code, op, invoked, log.now()))
        if problem is not None:
            self._probe.on_error(problem)
        return outcome == "ok"

    def _commit_rows(
        self, type: Outcome, error: str | None, op: int, invoked: Instant, completed: Instant | None
    ) -> Sequence[Slice]:
        how = {"group": self._group, "isolation": self._probe.isolation, "mode": self._probe.mode, "error": error}
        each = {self._fence: {"committed": self._number}}
        return self._probe.log.rows_of(each, "commit", type, op, invoked, completed, **how)

    def _agrees(self, found: Mapping[Partition, int | None]) -> bool:
        return all(found[where] == offset for where, offset in self._asked.items())

    def _ask(self) -> None:
        log, asked = self._probe.log, [*sorted(self._asked), self._fence]
        op = log.next_op()
        until = log.now().mono + int(SETTLES * 1e9)
        found: Mapping[Partition, int | None] = dict.fromkeys(asked)
        code = None
        try:
            while True:
                invoked = log.begin()
                found = committed(self._consumer, asked, log.alive, WITHIN)
                if self._agrees(found) or invoked.mono > until:
                    break
                if self._probe.stopping.is_set():
                    log.idle()
                    return
                self._probe.pause(AGAIN)
            self._asked.clear()
        except ClientError as error:
            code = error.code
            if code == UNSTABLE:
                self._due = 0  # with the next turn
            else:
                self._probe.on_error(error)
        completed = log.now()
        each = {where: {"committed": at} for where, at in found.items()}
        how = {"error": code, "group": self._group, "isolation": self._probe.isolation}
        outcome: Outcome = "ok" if code is None else "info"
        log.append(log.rows_of(each, "offsets", outcome, op, invoked, completed, **how))
