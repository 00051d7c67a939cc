"""The topic of the probe log, as a committer sees it: each append is one transaction in a cluster of evidence.

The topic has one partition that is written to, so that whoever reads it meets the appends of each committer in their
order. A committer's transactional id is its name: what its last life left open is ended by its first words.

Whether a transaction whose end nobody heard of was committed is not asked for. The same append is made again, row for
row, and the intake takes each version once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from probes.kafka.client import (
    Connection,
    Transactional,
    admin_settings,
    consumer_settings,
    open_admin,
    open_consumer,
    open_producer,
    producer_settings,
)
from probes.kafka.cluster import cluster
from probes.kafka.errors import NOT_ALLOWED, ClientError, translate
from probes.kafka.topic_id import topic_id
from probes.log.commits.numbers import number_of, start_of
from probes.log.errors import FolderCopied, HistoryConflict, HistoryUnavailable
from probes.log.evidence.messages import packed

log = logging.getLogger("offsetwatch.committer")
T = TypeVar("T")

PARTITION: Final = 0
ANSWERED_WITHIN: Final = 10.0
"""Seconds for a question to the cluster."""
COMMITTED_WITHIN: Final = 15.0
"""Seconds for a transaction to be committed; then it is made again."""
OPEN_FOR: Final = 10.0
"""Seconds after which the cluster aborts a transaction: for so long one of a dead host holds up what others append."""
MESSAGE_BYTES: Final = 1_048_588
"""The largest message: Kafka's default."""
MADE_WITHIN: Final = 5.0
"""Seconds until a topic that was made is known to the broker that is asked."""
COPIED: Final = (
    "through {} another host goes on with what {} had appended, the committer of this journal folder: it has a copy of "
    "it, or this is one. Where a copy is at work, stop one of the two; else move this folder away, so that its probes "
    "begin a run of their own"
)
MOST_IN_VAIN: Final = 3
"""Claims of one committer that fail where the topic itself answers; then it does without."""
FOUND_WITHIN: Final = 3.0
"""Seconds until a group has a coordinator that knows of it."""
_NO_COORDINATOR: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})
_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_ABSENT: Final = "UNKNOWN_TOPIC_OR_PART"
_THERE: Final = "TOPIC_ALREADY_EXISTS"


@dataclass(frozen=True, slots=True)
class TopicOf:
    """Which topic, in which cluster. `replication` and `retention_hours` are those of a topic that is made anew."""

    connection: Connection
    name: str
    replication: int = 3
    retention_hours: float = 72.0

    def __str__(self) -> str:
        return f"the topic {self.name} at {self.connection.bootstrap}"

    def asker(self) -> AdminClient:
        """A client for the questions of `id`. Raises ClientError."""
        return open_admin(admin_settings(self.connection, client="offsetwatch-evidence"))

    def id(self, admin: AdminClient) -> str:
        """The topic's id; it is made where it is not there. Raises ClientError."""
        found = described(admin, self.name)
        if found is None:
            self._make(admin)
            until = time.monotonic() + MADE_WITHIN
            while (found := described(admin, self.name)) is None and time.monotonic() < until:
                time.sleep(0.1)
        if found is None:
            raise ClientError(_ABSENT, f"{self} was made, and is not there")
        return topic_id(self.name, found)

    def _make(self, admin: Any) -> None:
        try:
            told = cluster(admin, ANSWERED_WITHIN)
            if lack := told.lack(f"at {self.connection.bootstrap}"):
                raise ClientError("BROKER_NOT_AVAILABLE", lack)
            replication = min(self.replication, len(told.brokers))
            settings = {
                "cleanup.policy": "delete",
                "retention.ms": str(int(self.retention_hours * 3_600_000)),
                "retention.bytes": "-1",
                "max.message.bytes": str(MESSAGE_BYTES),
                "min.insync.replicas": str(min(2, replication)),
            }
            new = NewTopic(self.name, 1, replication, config=settings)
            admin.create_topics([new], operation_timeout=ANSWERED_WITHIN)[self.name].result(2 * ANSWERED_WITHIN)
        except Exception as error:
            problem = translate(error)
            if problem.code != _THERE:  # another host was first
                raise problem from error


def described(admin: Any, name: str) -> Any:
    """What the cluster tells of a topic, None where it is not there. Raises ClientError."""
    try:
        told = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWERED_WITHIN)[name]
        return told.result(ANSWERED_WITHIN + 1.0)
    except Exception as error:
        problem = translate(error)
        if problem.code == _ABSENT:
            return None
        raise problem from error


@dataclass(slots=True)
class EvidenceTopic:
    """A committer's `Destination`. One thread."""

    topic: TopicOf
    _id: str | None = None
    _admin: AdminClient | None = None
    _producer: Producer | None = None
    _done: dict[str, int] = field(default_factory=dict)
    _refused: list[str] = field(default_factory=list)
    _claimed: tuple[str, int] | None = None
    """Whose start has its claim there, or can make none."""
    _in_vain: int = 0

    @property
    def uri(self) -> str:
        return str(self.topic)

    @property
    def knows(self) -> bool:
        return False

    def id(self, *, made: bool = False) -> str:
        """The topic's id, which is made where it is missing. Raises `HistoryUnavailable`."""
        return self._do("use", self._there)

    def _there(self) -> str:
        if self._id is None:
            self._admin = self._admin or self.topic.asker()
            self._id = self.topic.id(self._admin)
        return self._id

    def has(self, app: str, version: int, of: Path, after: int | None = None) -> bool:
        """Whether this object has appended the version last; what another one did is not known here."""
        return self._done.get(app) == version

    def append(self, rows: pa.Table, app: str, version: int, starts: Collection[int] = ()) -> None:
        """Append as one transaction. Raises `HistoryUnavailable`: it may be there all the same, and is made again;
        `FolderCopied` where a start that is none of `starts` has claimed the committer's name."""
        claim = (app, start_of(version))
        self._do("append to", lambda: self._append(rows, app, version, () if self._claimed == claim else starts))
        self._done[app] = version
        self._claimed = claim

    def close(self) -> None:
        """Leave the cluster; a transaction that is open is aborted by the next one, or by the cluster."""
        producer, self._producer, self._admin = self._producer, None, None
        if producer is not None:
            with suppress(KafkaException):  # each call of one that was fenced fails
                producer.purge()
                producer.poll(0)

    def _append(self, rows: pa.Table, app: str, version: int, starts: Collection[int]) -> None:
        self._there()  # somebody may have deleted it since
        producer = self._opened(app)
        self._refused.clear()
        group = self._claiming(app, version, lambda: self._group(app, starts)) if starts else None
        producer.begin_transaction()
        for headers, value in packed(rows, app, number_of(version), start_of(version)):
            producer.produce(
                self.topic.name,
                partition=PARTITION,
                value=bytes(value),
                headers=headers,
                on_delivery=self._delivered,
            )
        if group is not None:
            told = [self._place(start_of(version))]
            self._claiming(app, version, lambda: producer.send_offsets_to_transaction(told, group, ANSWERED_WITHIN))
        producer.commit_transaction(COMMITTED_WITHIN)
        if self._refused:
            raise ClientError("_FAIL", self._refused[0])

    def _claiming(self, app: str, version: int, action: Callable[[], T]) -> T:
        """Rows are not kept back for a claim that cannot be made, as by who may use no groups there."""
        try:
            return action()
        except FolderCopied:
            raise
        except Exception as error:
            problem = translate(error)
            self._in_vain += problem.code not in _FENCED
            if problem.code in NOT_ALLOWED or self._in_vain >= MOST_IN_VAIN:
                log.warning("whether a copy of this journal folder is at work is not known: %s: %s", self.uri, problem)
                self._claimed = (app, start_of(version))
                raise HistoryConflict(str(problem)) from error  # and it is appended without
            raise

    def _group(self, app: str, starts: Collection[int]) -> Any:
        """By what the transaction commits the number of its start as an offset, which is the claim. The one that is
        there now stands, or the transaction fails: of all producers of one name only that which was opened last can
        commit."""
        settings = consumer_settings(self.topic.connection, client="offsetwatch-evidence", group=app)
        consumer = open_consumer(settings, lambda error: None)
        try:
            told = self._committed(consumer)
            if told.offset >= 0 and told.offset not in starts:
                raise FolderCopied(COPIED.format(self.uri, app))
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _committed(self, consumer: Consumer) -> TopicPartition:
        """The coordinator is being looked for, as where nobody has used a group in that cluster before."""
        until = time.monotonic() + FOUND_WITHIN
        while True:
            try:
                (told,) = consumer.committed([self._place()], ANSWERED_WITHIN)
                if told.error is not None:
                    raise KafkaException(told.error)
                return told
            except KafkaException as error:
                if translate(error).code not in _NO_COORDINATOR or time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def _place(self, start: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self.topic.name, PARTITION, start)

    def _opened(self, app: str) -> Producer:
        if self._producer is None:
            settings = producer_settings(
                self.topic.connection,
                client="offsetwatch-evidence",
                delivery_timeout=OPEN_FOR,
                transactional=Transactional(app, OPEN_FOR),
            )
            self._producer = open_producer(settings, lambda error: None)
            self._producer.init_transactions(ANSWERED_WITHIN)
        return self._producer

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(str(error))

    def _do(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            # Begin anew: the next producer's first words end what this one has left open.
            self._id = None
            self.close()
            if isinstance(error, FolderCopied | HistoryConflict):
                raise
            problem = error if isinstance(error, ClientError) else translate(error)
            if problem.code in _FENCED:
                # Somebody has opened a producer of this name since: perhaps to claim it.
                self._claimed = None
                raise HistoryConflict(f"cannot {what} {self.uri}: {problem}") from error
            raise HistoryUnavailable(f"cannot {what} {self.uri}: {problem}") from error
