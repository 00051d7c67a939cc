"""The observer: where each partition begins and ends, asked of its leader once a second; the probe log's heartbeat.

One row per partition and second holds the log start, the end as read_uncommitted sees it, and the last stable offset
(the end as read_committed sees it), with the moment they were asked for. Partitions are asked leader by leader, and
whoever has not answered is not waited for: a silent broker delays only its own. Where nothing comes back within the
time there is a row all the same, `info` with the error; its `settings` name the `leader` that was asked, or the last
one known where there was none: whoever leads the partition by the time that we give up was not asked. While somebody
does not answer, the rows of all partitions name those that were asked in vain (`silent`), and all that hold replicas
(`brokers`); the last leader of a partition that nobody leads is one of them where it answers nothing else either, and
nobody is that acknowledges what writers send: a writer waits longer for an answer than the observer does.
While brokers throttle clients of these probes, by a quota, the rows name them with the seconds of the last time, and
for which part of the time (`throttled`).

What the probes' groups have committed is read back in rows of its own, absent where nothing is committed. Those rows
are written when something changed, and every ten seconds: most groups commit seldom. It is asked on connections of our
own (`probes.kafka.group_offsets`): librdkafka would take a client with four threads for each group.

The rows of what a group has committed also tell who coordinates it (`group_coordinator`), as it is known there.

Who leads a partition (`led_by`), in which leader epoch (`leader_epoch`), who has replicas (`replicas_on`) and which of
these are in sync (`in_sync`) is told by its row's `settings` at first, then whenever it changed, and once a minute.

It also watches the topics' ids: a topic that was deleted and created again is another log. And what the cluster says of
the topics' settings (`probes.topics.settings`): a partition's row carries them at first, then whenever they change, and
once a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from probes.kafka.calls import listed
from probes.kafka.client import admin_settings, open_admin
from probes.kafka.errors import NOT_ALLOWED, translate
from probes.kafka.group_offsets import GroupOffsets, open_group_offsets
from probes.kafka.starting_positions import NO_GROUP
from probes.kafka.topic_id import topic_id
from probes.kafka.wire.offset_fetch import Committed
from probes.kafka.wire.upstream import Address
from probes.log.life_log import Instant
from probes.topics.probe_topics import UNKNOWN
from probes.topics.settings import TopicSettings
from probes.topology import Partition
from probes.workloads.probe import Probe
from probes.workloads.telling import Telling
from probes.workloads.unanswered import Unanswered
from rules.vocabulary.slices import Outcome, Slice

log = logging.getLogger("offsetwatch.probe")

SECOND: Final = 1_000_000_000
TELL_AGAIN: Final = 10 * SECOND
"""Nanoseconds after which committed offsets are written again although nothing changed."""
ANSWER_WITHIN: Final = 0.4
"""Seconds that everybody is given to answer before the observer goes on; who is later is heard later."""
LATE: Final = 0.5
"""Seconds beyond its own timeout after which a request is given up."""
LATELY: Final = 15.0
"""Seconds for which a broker that acknowledged what a writer sent is not silent."""
BETWEEN: Final = 2.0
"""Seconds for which a client that is throttled may be told nothing new: it waits, and then asks again."""
FIELDS: Final = ("log_start", "log_end", "last_stable")


@dataclass(slots=True)
class Question:
    """One operation on its way: about the partitions that one broker leads (`leader`, None where there is none), or
    (`group`) about what a group committed.

    `within`: seconds after which it is given up. `futures`: by (partition, field) for the former, one by None for the
    latter."""

    op: int
    invoked: Instant
    partitions: Sequence[Partition]
    within: float
    group: str | None = None
    leader: int | None = None
    futures: dict[tuple[Partition, str] | None, Future[Any]] = field(default_factory=dict)
    done: list[Future[Any]] = field(default_factory=list)
    came: int | None = None
    """When the last answer was there, by the monotonic clock."""
    opened: bool = False

    @property
    def answered(self) -> bool:
        return len(self.done) >= len(self.futures)

    @property
    def found_nobody(self) -> bool:
        """Whether the client answered all of it by itself, without a broker."""
        return all(_by_the_client(future.exception()) for future in self.done)


class Observer(Probe):
    """One life of the observer. `groups` are those whose committed offsets it reads back."""

    kind: ClassVar[str] = "observer"

    def __init__(self, *args: Any, groups: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = self.world.config.observer
        self._groups = tuple(groups)
        self._all = list(self.layout.partitions())
        self._admin: AdminClient | None = None
        self._offsets: GroupOffsets | None = None
        self._leaders: dict[Partition, int | None] = {}
        self._led_by: dict[Partition, int] = {}
        """The same, and the last leader where there is none."""
        self._replicas: dict[Partition, list[int]] = {}
        self._in_sync: dict[Partition, list[int]] = {}
        self._epochs: dict[Partition, int] = {}
        self._leadership = Telling()
        self._brokers: set[Address] = set()
        self._telling = {group: Telling() for group in self._groups}
        self._unanswered = Unanswered(self._config.request_timeout)
        self._descriptions: dict[str, Future[Any]] = {}
        self._describing = 0
        """When these were asked for, by the monotonic clock."""
        self._described = -1
        """When the last that came were."""
        self._not_allowed: dict[str, str] = {}
        """By topic, the error by which brokers say that these probes may not know of it, as they did last."""
        self._pending: dict[int | str | None, Question] = {}
        """By leader, or by group."""
        self._news = threading.Event()
        self._told: dict[str, tuple[int, list[Committed]]] = {}
        self._settings = TopicSettings(self.layout, self.world.config.topics, self._complain)
        self._complaints: set[str] = set()
        self._due = 0

    @property
    def admin(self) -> AdminClient:
        assert self._admin is not None
        return self._admin

    def settings(self) -> Mapping[str, str]:
        return admin_settings(self.world.connection, client=self.client)

    def open(self) -> None:
        self._admin = open_admin(self.settings(), self.on_error)
        if self._groups:
            self._offsets = open_group_offsets(
                self.world.connection, self.client, self._groups, self._all, self.on_error
            )
        self._describe()
        self._wait_until(lambda: all(future.done() for future in self._descriptions.values()), 2 * ANSWER_WITHIN)
        self._look_at_descriptions()
        self._ask_settings()
        self._due = self.world.clock.monotonic_ns()

    def turn(self) -> None:
        self.admin.poll(0)  # or it would not say that its login is refused
        self._hear()
        wait = self._due - self.world.clock.monotonic_ns()
        if wait > 0:
            self.pause(min(wait / SECOND, 0.1 if self._pending else 0.5))
            return
        self._due = max(self._due + int(self._config.interval * SECOND), self.world.clock.monotonic_ns())
        self.observe()

    def finish(self) -> None:
        """Observe once more, and hear everybody out."""
        self.observe()
        patience = max(question.within for question in self._pending.values()) if self._pending else 0.0
        limit = self.world.clock.monotonic_ns() + int((patience + 2 * LATE) * SECOND)
        while self._pending and self.world.clock.monotonic_ns() < limit:
            self.pause_even_when_stopping(0.1)
            self._hear()

    def close(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
        self._admin = None

    def let_go(self) -> None:
        self.close()  # an admin client and the callback that it was given hold each other for ever

    def observe(self) -> None:
        """Ask everybody who is not still to answer, and log the answers that come at once."""
        if self._offsets is not None:
            self._offsets.hear(self._brokers)
        self._look_at_descriptions()
        self._settings.hear()
        self._ask_settings()
        # One moment for all: what the journal promises by the rows of some holds for the others too.
        invoked = self.log.begin()
        self._describe()
        asked = [self._ask_leader(leader, invoked) for leader in self._leaders_now() if leader not in self._pending]
        asked += [self._ask_group(group, invoked) for group in self._groups if group not in self._pending]
        self._wait_until(lambda: all(question.answered for question in asked), ANSWER_WITHIN)
        self._hear(alive=False)
        for question in self._pending.values():
            if not question.opened:
                question.opened = True
                rows = self._rows(question, invoked, whole=True)  # whatever the last question's answer was
                for row in rows:
                    row.error = None  # nobody has refused or timed out yet
                self.log.opened(question.op, rows)
        self.log.idle()

    def pause_even_when_stopping(self, seconds: float) -> None:
        """Wait, whether the fleet is stopping or not."""
        self._news.wait(seconds)
        self.log.alive()

    # Asking

    def _leaders_now(self) -> list[int | None]:
        return sorted({self._leaders.get(where) for where in self._all}, key=lambda leader: (leader is None, leader))

    def _ask_leader(self, leader: int | None, invoked: Instant) -> Question:
        partitions = [where for where in self._all if self._leaders.get(where) == leader]
        within = self._unanswered.patience(leader)
        question = self._pending[leader] = Question(self.log.next_op(), invoked, partitions, within, leader=leader)
        for name in FIELDS:
            spec = OffsetSpec.earliest() if name == "log_start" else OffsetSpec.latest()
            level = IsolationLevel.READ_COMMITTED if name == "last_stable" else IsolationLevel.READ_UNCOMMITTED
            futures = self.admin.list_offsets(
                {TopicPartition(topic, p): spec for topic, p in partitions},
                isolation_level=level,
                request_timeout=within,
            )
            for tp, future in futures.items():
                question.futures[(tp.topic, tp.partition), name] = future
        self._watch(question)
        return question

    def _ask_group(self, group: str, invoked: Instant) -> Question:
        assert self._offsets is not None
        within = self._config.request_timeout
        question = self._pending[group] = Question(self.log.next_op(), invoked, self._all, within, group)
        question.futures[None] = self._offsets.ask(group, within)
        self._watch(question)
        return question

    def _describe(self) -> None:
        if not self._descriptions:
            names = [topic.name for topic in self.layout.topics]
            asked = self.log.now()
            self._describing = asked.mono
            found = self.admin.describe_topics(TopicCollection(names), request_timeout=self._config.request_timeout)
            self._descriptions = {name: self._watched(future) for name, future in found.items()}
            # One request asks for all of them.
            next(iter(found.values())).add_done_callback(lambda future: self._measure_answer(future, asked))

    def _measure_answer(self, future: Future[Any], asked: Instant) -> None:
        """Called by the client's thread, when the answer is there: a topic that is not is an answer."""
        error = future.exception()
        if error is None or translate(error).code in UNKNOWN:
            self.measure.took("metadata", asked, self.log.now())
        else:
            self.measure.failed("metadata")

    def _ask_settings(self) -> None:
        broker = min((leader for leader in self._leaders.values() if leader is not None), default=None)
        self._settings.ask(self.admin, broker, self.log.now(), self._config.request_timeout)

    def _complain(self, sentence: str) -> None:
        if sentence not in self._complaints:
            self._complaints.add(sentence)
            log.warning("%s", sentence)

    def _watch(self, question: Question) -> None:
        """Wake up once all is answered: each partition has answers of its own, and all come at once."""

        def note(future: Future[Any]) -> None:
            question.done.append(future)
            if question.answered:
                question.came = self.world.clock.monotonic_ns()
                self._news.set()

        for future in question.futures.values():
            future.add_done_callback(note)

    def _watched(self, future: Future[Any]) -> Future[Any]:
        future.add_done_callback(lambda _: self._news.set())
        return future

    def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for news until the condition holds, at most this long. Says no sign of life: see `observe`."""
        limit = self.world.clock.monotonic_ns() + int(seconds * SECOND)
        while not condition() and (left := limit - self.world.clock.monotonic_ns()) > 0:
            self._news.wait(left / SECOND)
            self._news.clear()

    # Hearing

    def _hear(self, *, alive: bool = True) -> None:
        """Log what has been answered, and what is given up."""
        self._look_at_descriptions()
        for key, question in list(self._pending.items()):
            now = self.log.now()
            if self._understood(question) or now.mono - question.invoked.mono > int((question.within + LATE) * SECOND):
                del self._pending[key]
                # What the journal holds open of a partition ends with a row there, not with another partition's.
                rows = self._rows(question, now, whole=question.opened)
                # Later than the answers were there, however long this thread was kept waiting meanwhile.
                now = self.log.now()
                for row in rows:
                    row.completed, row.mono_completed = now.at, now.mono
                if question.group is None:
                    self._tell_of(question, rows, now.mono)
                self.log.append(rows)
                for error in {row.error for row in rows if row.error is not None}:
                    self.counters.errors += 1
                    self.counters.last_error = error
        if alive:
            self.log.alive()

    def _understood(self, question: Question) -> bool:
        """Whether it is answered, and why nobody was found where nobody was: a client that is refused to know who leads
        asks nobody and says no more than that, and a description that was asked no earlier says whether it was."""
        if not question.answered or question.group is not None:
            return question.answered
        return self._described >= question.invoked.mono or not question.found_nobody

    def _tell_of(self, question: Question, rows: Sequence[Slice], now: int) -> None:
        """Add what is to be told of the partitions: their topics' settings, and who does not answer. Whom the question
        asked leads them, or did: the leader may be another by now."""
        took = ((now if question.came is None else question.came) - question.invoked.mono) / SECOND
        unanswered, asked = self._unanswered, question.invoked.mono
        unanswered.took(question.leader, took, question.within)
        for row in rows:
            where = (row.topic, row.partition)
            if row.error is not None and row.error in NOT_ALLOWED:
                unanswered.refused(where)
            elif all(getattr(row, name) is None for name in FIELDS):
                if took >= question.within and row.error == "_NO_OFFSET":
                    row.error = (
                        "_TIMED_OUT"  # the client leaves out whom it waited for in vain, and calls that an answer
                    )
                unanswered.in_vain(
                    where, self._led_by.get(where) if question.leader is None else question.leader, asked
                )
            else:
                unanswered.answered(where, question.leader, asked)
        silent = unanswered.silent(self._acknowledged(now))
        brokers = {broker for replicas in self._replicas.values() for broker in replicas}
        throttled = self._throttled(now)
        for row in rows:
            where = (row.topic, row.partition)
            told = self._settings.to_tell(where, now)
            if leadership := self._leadership_to_tell(where, now):
                told = {**(told or {}), **leadership}
            if silent:
                told = (told or {}) | {"silent": _listed(silent), "brokers": _listed(brokers)}
            if throttled:
                told = (told or {}) | {"throttled": throttled}
            if (leader := unanswered.asked(where)) is not None:
                told = (told or {}) | {"leader": str(leader)}
            row.settings = told

    def _acknowledged(self, now: int) -> dict[int, int]:
        """By broker, when the newest write of ours was sent that it acknowledged `LATELY`: a writer waits longer than
        we do. Who led a partition that nobody leads any more may answer all the same. A write that was sent after a
        question in vain may have been acknowledged before it died."""
        found: dict[int, int] = {}
        for where, (sent, acknowledged) in self.world.acknowledged.newest().items():
            broker = self._led_by.get(where)
            if broker is not None and now - acknowledged <= LATELY * SECOND:
                found[broker] = max(sent, found.get(broker, -1))
        return found

    def _throttled(self, now: int) -> str:
        """Which brokers throttle the clients of these probes, each with the seconds of the last time, and which part of
        the time of one of them it is."""
        lately = self.world.held_back.lately(now, BETWEEN)
        return ",".join(f"{broker}:{seconds:.1f}:{share:.2f}" for broker, seconds, share in lately)

    def _leadership_to_tell(self, where: Partition, now: int) -> Mapping[str, str]:
        """Who leads the partition now, nothing where its rows said so before."""
        if where not in self._leaders:
            return {}
        leader = self._leaders[where]
        present = {
            "led_by": "nobody" if leader is None else str(leader),
            "replicas_on": _listed(self._replicas[where]),
            "in_sync": _listed(self._in_sync[where]),
        }
        if where in self._epochs:
            present["leader_epoch"] = str(self._epochs[where])
        return self._leadership.due(where, present, now)

    def _rows(self, question: Question, completed: Instant, *, whole: bool = False) -> list[Slice]:
        if question.group is None:
            return self._offset_rows(question, completed)
        return self._committed_rows(question, question.group, completed, whole=whole)

    def _offset_rows(self, question: Question, completed: Instant) -> list[Slice]:
        rows = []
        for where in question.partitions:
            values: dict[str, Any] = {}
            errors = []
            for name in FIELDS:
                future = question.futures.get((where, name))
                if future is None or not future.done():
                    errors.append("_TIMED_OUT")
                    continue
                try:
                    values[name] = listed(future)
                    self._note_epoch(where, future.result().leader_epoch)
                except Exception as error:
                    errors.append(translate(error).code)
            told = next(iter(errors), None)
            if told is not None and told.startswith("_") and not values:
                refusal = self.login_refused
                # A client that is not told who leads asks nobody, and says no more than that it found nobody.
                told = refusal.code if refusal is not None else self._not_allowed.get(where[0], told)
            outcome: Outcome = "info" if errors else "ok"
            times = question.invoked, completed
            rows.append(self.log.row(where, "offsets", outcome, question.op, *times, error=told, **values))
        return rows

    def _note_epoch(self, where: Partition, epoch: int | None) -> None:
        """An answer tells the epoch of the record that it found: the newest is the leader's, as far as it wrote."""
        if epoch is not None and epoch >= self._epochs.get(where, 0):
            self._epochs[where] = epoch

    def _committed_rows(self, question: Question, group: str, completed: Instant, *, whole: bool) -> list[Slice]:
        answer = _result(question.futures[None])
        found: list[Committed]
        if answer == NO_GROUP:
            found = [(where, None, None) for where in question.partitions]
        elif isinstance(answer, str):
            found = [(where, None, answer) for where in question.partitions]
        else:
            found = [(where, at, None if problem == NO_GROUP else problem) for where, at, problem in answer]
        told_at, told = self._told.get(group, (0, []))
        again = whole or question.invoked.mono - told_at >= TELL_AGAIN
        if question.answered:
            self._told[group] = (question.invoked.mono if again else told_at, found)
        assert self._offsets is not None
        telling = self._telling[group]
        # What is only journalled is not told yet.
        known = self._offsets.coordinator(group) if question.answered else {}
        due = {where: telling.due(where, known, completed.mono) for where, _, _ in found if known}
        return [
            self.log.row(
                where,
                "offsets",
                "info" if problem else "ok",
                question.op,
                question.invoked,
                completed,
                error=problem,
                committed=at,
                group=group,
                settings=due.get(where) or None,
            )
            for where, at, problem in found
            if again or due.get(where) or (where, at, problem) not in told
        ]

    def _look_at_descriptions(self) -> None:
        """Who leads what now, and whether the topics are still those of the layout."""
        if not all(future.done() for future in self._descriptions.values()):
            return
        if self._descriptions:
            self._described = self._describing
        descriptions, self._descriptions = self._descriptions, {}
        known = {topic.name: (topic.id, topic.partitions + topic.left_alone) for topic in self.layout.topics}
        brokers: set[Address] = set()
        for name, future in descriptions.items():
            error = future.exception()
            if error is not None:
                problem = translate(error)
                self.on_error(problem)
                if problem.code in UNKNOWN:
                    self.world.places_changed()
                if problem.code in NOT_ALLOWED:
                    self._not_allowed[name] = problem.code
                else:
                    self._not_allowed.pop(name, None)  # who answers nobody any more refuses nobody either
                continue
            topic = future.result()
            self._not_allowed.pop(name, None)
            self._leaders |= {(name, p.id): p.leader.id if p.leader is not None else None for p in topic.partitions}
            self._led_by |= {(name, p.id): p.leader.id for p in topic.partitions if p.leader is not None}
            self._replicas |= {(name, p.id): [broker.id for broker in p.replicas] for p in topic.partitions}
            self._in_sync |= {(name, p.id): [broker.id for broker in p.isr] for p in topic.partitions}
            brokers |= {
                Address(broker.host, broker.port) for p in topic.partitions for broker in p.replicas if broker.host
            }
            self._settings.replicas |= {(name, p.id): len(p.replicas) for p in topic.partitions}
            if known.get(name) != (topic_id(name, topic), len(topic.partitions)):
                self.world.places_changed()
        self._brokers = brokers or self._brokers


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(str(broker) for broker in sorted(brokers))


def _by_the_client(error: BaseException | None) -> bool:
    return error is not None and translate(error).code.startswith("_")


def _result(future: Future[Any]) -> Any:
    """The future's result, or the name of the error."""
    if not future.done():
        return "_TIMED_OUT"
    error = future.exception()
    return future.result() if error is None else translate(error).code
