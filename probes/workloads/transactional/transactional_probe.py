"""What the probes that work in transactions are made of: producers of a transactional id, and a consumer of a group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer

from probes.kafka.client import Transactional, producer_settings
from probes.kafka.coordinator_watch import CoordinatorWatch
from probes.kafka.errors import ClientError
from probes.kafka.leaving import close_member
from probes.records.polls import Positions
from probes.records.tag import Encoder
from probes.topology import Partition
from probes.workloads.lost_client import LostClient
from probes.workloads.probe import Probe
from probes.workloads.transactional.membership import Membership
from probes.workloads.transactional.transaction_course import Course, Intent
from probes.workloads.transactional.transaction_run import TransactionRun
from probes.workloads.transactional.transactor import Transactor
from rules.vocabulary.slices import Isolation, Run

_GONE: Final = ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
"""What a client says by itself, of what it was told last."""
WHOLE: Final = -1
"""The key of the one producer there is where the transactional id is not by partition."""


class TransactionalProbe(Probe):
    """One life of a probe whose transactions hold the offsets of its `group`."""

    sends: ClassVar[bool] = True
    isolation: ClassVar[Isolation | None] = "read_committed"

    _timeout: float
    """Its transactions', seconds."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self._transactional_id: str | None = f"{self.world.config.topics.prefix}-{self.world.run}-{self.name}"
        self._encoders: dict[Partition, Encoder] = {}
        self._transactors: dict[int, Transactor] = {}
        self._consumer: Consumer | None = None
        self._membership: Membership | None = None
        self.position: dict[Partition, int] = {}
        self._positions = Positions()
        self._lost = LostClient(self)
        self._unusable = False
        """A producer that is cannot end its transaction; closing it would only try to."""

    @property
    def transactional_id(self) -> str | None:
        return self._transactional_id

    @property
    def transactor(self) -> Transactor:
        """The one that there is."""
        return self._transactors[WHOLE]

    @property
    def consumer(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    @property
    def membership(self) -> Membership:
        assert self._membership is not None
        return self._membership

    def settings(self) -> Mapping[str, str]:
        return self.producer_settings(self._transactional_id)

    def producer_settings(self, transactional_id: str | None) -> Mapping[str, str]:
        """The settings of the producer of this id."""
        return producer_settings(
            self.world.connection,
            client=self.client,
            delivery_timeout=self.world.config.writer.delivery_timeout,
            linger_ms=0,
            transactional=None if transactional_id is None else Transactional(transactional_id, self._timeout),
        )

    def labels(self) -> dict[str, str]:
        read = {"isolation.level": "read_committed", "enable.auto.commit": "false", "group.id": self.group}
        return super().labels() | read | {"idempotent": "true", "in_flight": "1"}

    def take_over(self, settings: Mapping[str, str], key: int = WHOLE) -> None:
        """Open the producer with these settings, and end what an earlier life of its id left open."""
        transactor = self._transactors[key] = self.new_transactor(settings)
        transactor.init(self.measure)

    def new_transactor(self, settings: Mapping[str, str]) -> Transactor:
        """A client that makes transactions."""
        watch = partial(CoordinatorWatch, self.world.connection, self.client, self.group)
        return Transactor(settings, self.on_error, timeout=self._timeout, log=self.log, watch=watch)

    def draw_intent(self, abort_share: float) -> Intent:
        return "abort" if self.rng.random() < abort_share else "commit"

    @abstractmethod
    def tells(self, course: Course, where: Partition, sent: Sequence[Run]) -> Mapping[str, Any]:
        """What the row of a partition says of a transaction that sent these runs there."""

    def new_run(self, course: Course, transactor: Transactor) -> TransactionRun:
        """A transaction that this probe makes."""
        return TransactionRun(
            course=course,
            transactor=transactor,
            log=self.log,
            counters=self.counters,
            measure=self.measure,
            encoders=self._encoders,
            timeout=self._timeout,
            tells=self.tells,
            reading={"isolation": self.isolation, "mode": self.mode},
        )

    def leave_if_lost(self, course: Course) -> None:
        """End this life, by raising ClientError, where its producer takes a topic for gone. It may go on to for minutes
        after brokers tell of the topic again, as one that was restarted does only some moments later, before Kafka 2.8:
        a new client asks anew."""
        if isinstance(course.error, ClientError) and course.error.code in _GONE:
            raise course.error

    def close(self) -> None:
        if self._membership is not None:
            self._membership.close()
        if self._consumer is not None:
            close_member(self._consumer) if self._membership is not None else self._consumer.close()
        if not self._unusable:
            for transactor in self._transactors.values():
                transactor.close()

    def let_go(self) -> None:
        if self._membership is not None:
            self._membership.close()
