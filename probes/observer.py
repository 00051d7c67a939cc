"""The observer: where each partition begins and ends, asked of its leader once a second; the probe log's heartbeat.

One row per partition and second holds the log start, the end as read_uncommitted sees it, and the last stable offset
(the end as read_committed sees it), with the moment they were asked for. Partitions are asked leader by leader, so that
a silent broker delays only its own. Where nothing came back there is a row all the same, `info` with the error.
What the probes' groups have committed is read back in rows of its own, absent where nothing is committed. Those rows
are written when something changed, and every ten seconds: most groups commit seldom. A consumer of each group that never
joins it asks for them: librdkafka's admin client crashes on an answer of NOT_COORDINATOR (librdkafka 5040).

It also watches the topics' ids: a topic that was deleted and created again is another log.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from probes.client import admin_settings, consumer_settings, open_admin, open_consumer
from probes.errors import translate
from probes.layout import Partition
from probes.probe import Probe
from probes.record import Instant
from rules.history import Slice

TELL_AGAIN: Final = 10_000_000_000
"""Nanoseconds after which committed offsets are written again although nothing changed."""
Committed = tuple[Partition, int | None, str | None]
"""What a group has committed in a partition (None: nothing), and the error's name where asking failed."""
FIELDS: Final = ("log_start", "log_end", "last_stable")


class Observer(Probe):
    """One life of the observer. `groups` are those whose committed offsets it reads back."""

    kind: ClassVar[str] = "observer"

    def __init__(self, *args: Any, groups: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.observer
        self._groups = tuple(groups)
        self._all = list(self.layout.partitions())
        self._admin: AdminClient | None = None
        self._leaders: dict[Partition, int | None] = {}
        self._due = 0
        self._consumers: dict[str, Consumer] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._asked: dict[str, Future[Any]] = {}
        self._told: dict[str, tuple[int, list[Committed]]] = {}

    @property
    def admin(self) -> AdminClient:
        assert self._admin is not None
        return self._admin

    def settings(self) -> Mapping[str, str]:
        return admin_settings(self.world.connection, client=f"offsetwatch-{self.name}")

    def open(self) -> None:
        self._admin = open_admin(self.settings(), self.on_error)
        for group in self._groups:
            settings = consumer_settings(self.world.connection, client=f"offsetwatch-{self.name}", group=group)
            self._consumers[group] = open_consumer(settings, self.on_error)
        if self._groups:
            self._pool = ThreadPoolExecutor(len(self._groups), "observer-group")
        self._due = self.world.clock.monotonic_ns()

    def turn(self) -> None:
        wait = self._due - self.world.clock.monotonic_ns()
        if wait > 0:
            self.pause(min(wait / 1e9, 0.5))
            return
        self._due = max(self._due + int(self._config.interval * 1e9), self.world.clock.monotonic_ns())
        self.observe()

    def finish(self) -> None:
        self.observe()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for consumer in self._consumers.values():
            consumer.close()
        self._admin = None

    def observe(self) -> None:
        """One observation of everything: offsets first, so that they are not delayed by what follows."""
        self._look_at_topics()
        op, invoked = self.log.next_op(), self.log.begin()
        self.log.append(self._offset_rows(op, invoked))
        if self._groups:
            self._log_committed()

    def _look_at_topics(self) -> None:
        names = [topic.name for topic in self.layout.topics]
        try:
            futures = self.admin.describe_topics(TopicCollection(names), request_timeout=self._config.request_timeout)
            found = {name: self._wait([future]) and future.result() for name, future in futures.items()}
        except Exception as error:
            problem = translate(error)
            self.on_error(problem)
            if problem.code in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                self.world.places_changed()
            return
        for name, topic in found.items():
            if not topic:
                continue
            self._leaders |= {(name, p.id): p.leader.id if p.leader is not None else None for p in topic.partitions}
            known = [t for t in self.layout.topics if t.name == name]
            if known and (str(topic.topic_id), len(topic.partitions)) != (known[0].id, known[0].partitions):
                self.world.places_changed()

    def _offset_rows(self, op: int, invoked: Instant) -> list[Slice]:
        by_leader: dict[int | None, list[Partition]] = {}
        for where in self._all:
            by_leader.setdefault(self._leaders.get(where), []).append(where)
        asked: dict[tuple[Partition, str], Future[Any]] = {}
        for partitions in by_leader.values():
            for name in FIELDS:
                asked |= {(where, name): future for where, future in self._ask(partitions, name).items()}
        self._wait(list(asked.values()))
        completed = self.log.now()
        rows = []
        for where in self._all:
            values: dict[str, int] = {}
            errors = []
            for name in FIELDS:
                value = _result(asked.get((where, name)))
                if isinstance(value, str):
                    errors.append(value)
                else:
                    values[name] = value.offset
            if errors:
                self.counters.errors += 1
                self.counters.last_error = errors[0]
            rows.append(
                self.log.row(
                    where, "offsets", "info" if errors else "ok", op, invoked, completed,
                    error=errors[0] if errors else None, **values,
                )
            )  # fmt: skip
        return rows

    def _ask(self, partitions: Sequence[Partition], name: str) -> dict[Partition, Future[Any]]:
        spec = OffsetSpec.earliest() if name == "log_start" else OffsetSpec.latest()
        level = IsolationLevel.READ_COMMITTED if name == "last_stable" else IsolationLevel.READ_UNCOMMITTED
        futures = self.admin.list_offsets(
            {TopicPartition(topic, p): spec for topic, p in partitions},
            isolation_level=level,
            request_timeout=self._config.request_timeout,
        )
        return {(tp.topic, tp.partition): future for tp, future in futures.items()}

    def _log_committed(self) -> None:
        """What each group has committed, as its coordinator tells. Who has not answered yet is not asked again."""
        op, invoked = self.log.next_op(), self.log.begin()
        assert self._pool is not None
        for group, consumer in self._consumers.items():
            if (last := self._asked.get(group)) is None or last.done():
                asked = [TopicPartition(topic, p) for topic, p in self._all]
                self._asked[group] = self._pool.submit(consumer.committed, asked, self._config.request_timeout)
        self._wait(list(self._asked.values()))
        completed = self.log.now()
        rows = [row for group in self._consumers for row in self._committed_rows(group, op, invoked, completed)]
        self.log.append(rows) if rows else self.log.idle()

    def _committed_rows(self, group: str, op: int, invoked: Instant, completed: Instant) -> list[Slice]:
        answer = _result(self._asked.get(group))
        found: list[Committed]
        if isinstance(answer, str):
            self.counters.errors += 1
            self.counters.last_error = answer
            found = [(where, None, answer) for where in self._all]
        else:
            found = [
                ((tp.topic, tp.partition), tp.offset if tp.offset >= 0 else None, _code(tp.error)) for tp in answer
            ]
        told_at, told = self._told.get(group, (0, []))
        again = invoked.mono - told_at >= TELL_AGAIN
        self._told[group] = (invoked.mono if again else told_at, found)
        return [
            self.log.row(
                where, "offsets", "info" if problem else "ok", op, invoked, completed, error=problem, committed=at,
                group=group,
            )
            for where, at, problem in found
            if again or (where, at, problem) not in told
        ]  # fmt: skip

    def _wait(self, futures: Sequence[Future[Any]]) -> bool:
        """Until all are done, or the time is over; says meanwhile that we live. Tells whether all are done."""
        left = threading.Event()
        missing = len(futures)
        lock = threading.Lock()

        def one_less(_: Future[Any]) -> None:
            nonlocal missing
            with lock:
                missing -= 1
                if not missing:
                    left.set()

        for future in futures:
            future.add_done_callback(one_less)
        waited = 0.0
        while futures and not left.wait(0.25):
            waited += 0.25
            self.log.alive()
            if waited > self._config.request_timeout + 0.5:
                return False
        return True


def _code(error: Any) -> str | None:
    return translate(error).code if error is not None else None


def _result(future: Future[Any] | None) -> Any:
    """The future's result, or the name of the error."""
    if future is None or not future.done():
        return "_TIMED_OUT"
    error = future.exception()
    return future.result() if error is None else translate(error).code
