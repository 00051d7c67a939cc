"""A consumer's membership in its group: what is assigned to it, in which generation, and the rows that say so.

Rebalances happen inside `consume`, and what a call returns may have been fetched before one of them: such records
belong to an assignment that is over. So `consume` tells which partitions were gained or lost in it (`rebalanced`), and
whoever processes records exactly once throws those of that call away and reads on from the committed offsets.

The group's metadata is taken once per assignment, when it begins. Taken later, it might be of a generation in which
somebody else owns the partitions, or of none at all: a consumer that was thrown out of its group has generation -1,
and a coordinator does not fence offsets that come without a generation.

By the consumer protocol (KIP-848) a member keeps what is not taken away, so that rows tell of what is gained and lost
alone, but for the first answer of its group, which tells of every partition that this life has come to read. And its
epoch moves whenever anybody comes or goes, of which it is told nothing. So the metadata is taken before each `consume`:
nobody else is given a partition before this member was told to give it up, inside that call, or was thrown out, and
then it joins again only when it was told of that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from probes.kafka.errors import NOT_ALLOWED, ClientError, ProbeError, translate
from probes.kafka.starting_positions import committed
from probes.log.life_log import Instant, LifeLog
from probes.topology import GroupProtocol, Partition
from rules.vocabulary.slices import Function, Isolation, Outcome, Slice

LEAVE_WITHIN: Final = 5.0
"""Seconds that leaving a group may take."""
TOLD_WITHIN: Final = 2.0
"""Seconds within which the coordinator tells what was committed, for the log alone."""
_METADATA: Final = struct.Struct("=7si")
_MAGIC: Final = b"CGMDv2:"
Begin = Callable[[list[Partition]], dict[Partition, int]]


class Membership:
    """One consumer in one group. `revoked` is called before partitions are given up, with those, `begin` once new ones
    are known: it tells the offset at which each begins, and of those that it leaves out nothing is read. `isolation`:
    None where rows about the assignment are not wanted."""

    _incremental: ClassVar[bool] = False

    def __init__(
        self,
        consumer: Consumer,
        group: str,
        log: LifeLog,
        *,
        isolation: Isolation | None,
        begin: Begin,
        revoked: Callable[[set[Partition]], None],
    ) -> None:
        self._consumer, self.group, self._log, self._isolation = consumer, group, log, isolation
        self._begin, self._revoked = begin, revoked
        self.assigned: set[Partition] = set()
        self.rebalanced: set[Partition] = set()
        """The partitions that were gained or lost in the last `consume`."""
        self.invoked: Instant = log.now()
        """When the last `consume` began."""
        self._metadata: bytes | None = None
        self._stashed: list[Slice] = []
        self._failure: ProbeError | None = None
        self._closing = False
        self._answered = False

    @property
    def metadata(self) -> bytes:
        """The group's metadata of the generation that gave us what is assigned. Raises ClientError where there is none
        any more: the transaction must be aborted."""
        if self._metadata is None:
            raise ClientError("_ASSIGNMENT_LOST", "nothing is assigned", abortable=True)
        return self._metadata

    def subscribe(self, topics: Sequence[str]) -> None:
        invoked = self._log.begin()
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        rows = self._rows("subscribe", invoked)
        self._log.append(rows) if rows else self._log.idle()

    def is_shut_out_by(self, error: ClientError) -> bool:
        """Does it say to a member without a partition that it may not read? It would wait for ever."""
        return not self.assigned and error.code in NOT_ALLOWED

    def consume(self, records: int, wait: float) -> list[Any]:
        """Messages, errors among them; rows about rebalances are in the journal then. Raises ClientError, and whatever
        `begin` and `revoked` raised.

        Where messages came without a rebalance, what was begun at `invoked` is not over: the caller logs what it makes
        of them, or says `idle`."""
        self.rebalanced = set()
        self.invoked = self._log.begin()
        messages: list[Any] = []
        try:
            if self._incremental and self.assigned:
                self._metadata = None
                with suppress(ClientError):  # it was thrown out, and is told so in this call
                    self._metadata = self._valid_metadata()
            messages = self._consumer.consume(records, wait)
        except Exception as error:
            raise self._failure or translate(error) from error
        finally:
            self._flush()
            if not messages:
                self._log.idle()
        if self._failure is not None:
            raise self._failure
        if self._isolation is not None and (gained := self.rebalanced & self.assigned):
            self._log_committed(gained)
        return messages

    def _log_committed(self, gained: Collection[Partition]) -> None:
        """What the group has committed, as it is told to a member that has just been given the partitions: nothing that
        was acknowledged before it joined may be missing."""
        op, invoked = self._log.next_op(), self._log.begin()
        code, found = None, dict[Partition, int | None].fromkeys(gained)
        try:
            found = committed(self._consumer, gained, self._log.alive, TOLD_WITHIN)
        except ClientError as error:
            code = error.code
        completed = self._log.now()
        each = {where: {"committed": at} for where, at in found.items()}
        how = {"error": code, "group": self.group, "isolation": self._isolation}
        outcome: Outcome = "ok" if code is None else "info"
        self._log.append(self._log.rows_of(each, "offsets", outcome, op, invoked, completed, **how))

    def leave(self, topics: Sequence[str]) -> None:
        """Leave the group and join it anew; what was assigned has been given up then. `rebalanced` tells what."""
        gone: set[Partition] = set()
        self._consumer.unsubscribe()
        limit = self._log.now().mono + int(LEAVE_WITHIN * 1e9)
        while self.assigned:
            if self._log.now().mono > limit:
                raise ClientError("_TIMED_OUT", "the group was not left in time")
            self.consume(1, 0.1)
            gone |= self.rebalanced
        self.rebalanced = gone
        self.subscribe(topics)

    def resume(self, positions: dict[Partition, int]) -> None:
        """Read on from here, whatever was fetched before; `positions` for every assigned partition. By the consumer
        protocol those that are left out go on where they are."""
        if self._incremental:
            self._consumer.incremental_unassign([TopicPartition(topic, p) for topic, p in positions])
        self._assign(positions)

    def _assign(self, positions: Mapping[Partition, int]) -> None:
        assign = self._consumer.incremental_assign if self._incremental else self._consumer.assign
        assign([TopicPartition(topic, p, at) for (topic, p), at in positions.items()])

    def _hold_back(self, partitions: Sequence[Partition]) -> None:
        """Hold them without reading: a client that has not taken all it was given does not leave its group, and closing
        it never returns (seen with librdkafka 2.16)."""
        if partitions:
            held = [TopicPartition(topic, p, OFFSET_END) for topic, p in partitions]
            self._consumer.incremental_assign(held)
            self._consumer.pause(held)

    def close(self) -> None:
        """The rebalance that closing brings is nobody's business."""
        self._closing = True

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:
            return
        gained = [(tp.topic, tp.partition) for tp in partitions]
        try:
            self._flush()
            begin = self._begin(gained) if gained else {}
            invoked = self._log.begin()
            self._assign(begin)
            if self._incremental:
                self._hold_back([where for where in gained if where not in begin])
            self._metadata = self._valid_metadata()
        except ProbeError as error:
            self._failure = error
        except Exception as error:
            self._failure = translate(error)
        else:
            self._changed("assign", set(begin) | (self.assigned if self._incremental else set()), invoked)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:
            return
        self._metadata = None
        lost = {(tp.topic, tp.partition) for tp in partitions}
        try:
            self._revoked(lost)
        except ProbeError as error:
            self._failure = error
        except Exception as error:
            self._failure = translate(error)
        invoked = self._log.begin()
        self._changed("revoke", self.assigned - lost, invoked)

    def _changed(self, f: Function, assigned: set[Partition], invoked: Instant) -> None:
        changed = self.assigned ^ assigned
        self.rebalanced |= changed
        self.assigned = assigned
        self._stashed += self._rows(f, invoked, changed if self._incremental and self._answered else None)
        self._answered = True

    def _rows(self, f: Function, invoked: Instant, among: Collection[Partition] | None = None) -> list[Slice]:
        if self._isolation is None:
            return []
        return self._log.everywhere(
            f,
            "ok",
            invoked,
            self._log.now(),
            mode="subscribe",
            isolation=self._isolation,
            group=self.group,
            each=lambda where: {"assigned": where in self.assigned},
            among=among,
        )

    def _valid_metadata(self) -> bytes:
        """The group's metadata, if it is of a generation; by the consumer protocol, of an epoch in which it has
        partitions. Raises ClientError where the consumer is in none."""
        held = bytes(self._consumer.consumer_group_metadata())
        if held.startswith(_MAGIC) and _METADATA.unpack_from(held)[1] < (1 if self._incremental else 0):
            raise ClientError("_ASSIGNMENT_LOST", "the group has thrown this consumer out")
        return held

    def _flush(self) -> None:
        stashed, self._stashed = self._stashed, []
        if stashed:
            self._log.append(stashed)


class IncrementalMembership(Membership):
    """One that keeps what is not taken away."""

    _incremental = True


MEMBERSHIPS: Final[Mapping[GroupProtocol, type[Membership]]] = {
    "classic": Membership,
    "consumer": IncrementalMembership,
}


def seek(consumer: Consumer, positions: Iterable[tuple[Partition, int]]) -> None:
    """Go to these offsets. Raises ClientError."""
    try:
        for (topic, partition), at in positions:
            consumer.seek(TopicPartition(topic, partition, at))
    except Exception as error:
        raise translate(error) from error
