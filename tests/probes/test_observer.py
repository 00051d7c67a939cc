"""The observer on a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from kio.schema.errors import ErrorCode

from deploy.local_kafka import LocalKafka
from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy
from probes.kafka.client import Connection, admin_settings, consumer_settings, open_admin
from probes.kafka.errors import ClientError
from probes.kafka.starting_positions import log_starts
from probes.log.life_log import Instant
from probes.topics.probe_topics import MARKING, ProbeTopics
from probes.topics.settings import creator
from probes.workloads.observer import Observer, Question
from probes.workloads.registers import Registers
from rules.triage.triage import Triage
from rules.vocabulary.settings import ASKED
from rules.vocabulary.slices import Run, Slice, to_table
from rules.vocabulary.times import micros
from tests.known import known
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.log.lives import wait_for


@pytest.fixture
def heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers is waited for, however slow the machine is, and nothing is told again meanwhile."""
    hour = 3_600_000_000_000
    monkeypatch.setattr("probes.workloads.observer.ANSWER_WITHIN", 60.0)
    monkeypatch.setattr("probes.workloads.observer.TELL_AGAIN", hour)
    monkeypatch.setattr("probes.workloads.telling.AGAIN", hour)
    monkeypatch.setattr("probes.topics.settings.TELL_AGAIN", 3600.0)


def patient(**config: Any) -> dict[str, Any]:
    return {"observer": {"request_timeout": 60.0}, **config}


def observe_until(observer: Observer, true: Callable[[], object]) -> None:
    limit = time.monotonic() + 180
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        observer.observe()


def test_committed_offsets_are_read_back_when_they_change_and_absent_is_not_zero(
    stage: MakeStage, heard_out: None
) -> None:
    one = stage(**patient())
    here, group = one.config.topics.records, f"{one.prefix}-g"
    consumer = Consumer(consumer_settings(one.connection, client="t", group=group))
    consumer.commit(offsets=[TopicPartition(here, 0, 0)], asynchronous=False)
    observer = one.put(Observer, "observer", groups=[group])

    def told_of() -> list[Slice]:
        return [row for row in witness(observer).of("offsets") if row.group == group]

    # Who coordinates the group is told of every partition, once that is known.
    observe_until(observer, lambda: any("group_coordinator" in (row.settings or {}) for row in told_of()))
    rows = told_of()
    assert {(row.topic, row.partition): row.committed for row in rows} == {
        where: (0 if where == (here, 0) else None) for where in one.layout.partitions()
    }
    consumer.commit(offsets=[TopicPartition(here, 1, 5)], asynchronous=False)
    observer.observe()
    consumer.close()
    news = told_of()[len(rows) :]
    assert [(row.partition, row.committed) for row in news] == [(1, 5)]


def test_a_slow_answer_is_told_of_every_partition_that_the_journal_heard_it_asked_of(
    stage: MakeStage, heard_out: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage(**patient())
    here, group = one.config.topics.records, f"{one.prefix}-g"
    consumer = Consumer(consumer_settings(one.connection, client="t", group=group))
    observer = one.put(Observer, "observer", groups=[group])

    def told_of() -> list[Slice]:
        return [row for row in witness(observer).of("offsets") if row.group == group]

    observe_until(observer, lambda: any("group_coordinator" in (row.settings or {}) for row in told_of()))
    consumer.commit(offsets=[TopicPartition(here, 1, 5)], asynchronous=False)
    consumer.close()
    before = len(told_of())
    assert observer._offsets is not None
    slow, ask, answers = Future[Any](), observer._offsets.ask, list[Future[Any]]()

    def later(*args: Any) -> Future[Any]:
        answers.append(ask(*args))
        return slow

    monkeypatch.setattr(observer._offsets, "ask", later)
    monkeypatch.setattr("probes.workloads.observer.ANSWER_WITHIN", 0.0)
    observer.observe()
    (asked,) = (question for question in observer._pending.values() if question.group == group)
    assert asked.opened
    slow.set_result(answers[0].result(60))
    observer._hear()
    news = [row for row in told_of()[before:] if row.op == asked.op]
    assert {(row.topic, row.partition): row.committed for row in news} == {
        where: (5 if where == (here, 1) else None) for where in one.layout.partitions()
    }


def test_what_has_no_answer_again_is_in_the_journal_before_it_is_given_up(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last answer was that nobody answered, too: that it is the same is no reason not to open it."""
    one = stage(observer={"request_timeout": 0.5})
    one.connection = Connection("127.0.0.1:9")
    observer = one.put(Observer, "observer", groups=["g"])
    observer.finish()
    monkeypatch.setattr("probes.workloads.observer.ANSWER_WITHIN", 0.0)
    observer.observe()
    (asked,) = (question for question in observer._pending.values() if question.group == "g")
    assert len(observer.log._journal.progress.open[asked.op]) == 6
    observer.finish()


def test_it_observes_once_a_second_and_keeps_the_time_of_asking(stage: MakeStage, heard_out: None) -> None:
    one = stage(observer={"interval": 0.3, "request_timeout": 60.0})
    observer = one.put(Observer, "observer")
    paused: list[float] = []
    pause = observer.pause
    observer.pause = lambda seconds: paused.append(seconds) or pause(seconds)  # type: ignore[method-assign, func-returns-value]

    def rows() -> list[Slice]:
        return [r for r in witness(observer).of("offsets") if (r.topic, r.partition) == (one.config.topics.records, 0)]

    began, limit = time.monotonic(), time.monotonic() + 180
    while len(rows()) < 6:
        assert time.monotonic() < limit
        observer.turn()
    assert time.monotonic() - began > 4 * 0.3, "no more often"
    assert sum(paused) < 6 * 0.3, "and as often, whatever else the machine does"
    assert all(row.invoked < row.completed for row in rows())
    assert all(known(row.mono_invoked) < known(row.mono_completed) for row in rows())


def test_a_topic_that_was_made_again_is_another_place(stage: MakeStage, heard_out: None) -> None:
    one = stage(**patient())
    observer = one.put(Observer, "observer")

    def look() -> int:
        """How many changes it notices when it looks at what it has asked."""
        wait_for(lambda: all(future.done() for future in observer._descriptions.values()))
        before = one.changes
        observer.observe()
        return one.changes - before

    assert (look(), look()) == (0, 0)
    name = one.config.topics.records
    one.admin.delete_topics([name])[name].result()
    look()
    observe_until(observer, look)  # that it has gone is noticed
    before = one.layout.topic_id(name)
    again = one.topics.ensure()
    assert again.topic_id(name) != before
    assert not again.same_places(one.layout)

    def by_its_id() -> bool:
        """Not because a client that asks for its offsets has not heard of it yet."""
        errors = observer.counters.errors
        return look() == 1 and observer.counters.errors == errors

    look()
    observe_until(observer, by_its_id)


def test_partitions_that_are_left_alone_are_no_change(stage: MakeStage, heard_out: None) -> None:
    one = stage(**patient(transform={"count": 1}))
    source = one.config.topics.transform_in
    one.admin.create_partitions([NewPartitions(source, 5)])[source].result()
    wait_for(lambda: len(one.topics.view().topics[source].replicas) == 5)
    one.layout = one.topics.ensure()
    assert [topic.left_alone for topic in one.layout.topics if topic.name == source] == [2]
    observer = one.put(Observer, "observer")
    before = one.changes
    observer.observe()
    wait_for(lambda: all(future.done() for future in observer._descriptions.values()))
    observer.observe()
    assert one.changes == before


class LeaveOut(Lie):
    """The answer to ListOffsets has no partitions: its client says that all went well, and the offset is -1001."""

    apis = frozenset({Api.LIST_OFFSETS})

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            exchange.response = replace(exchange.response, topics=())
            self.did("left everything out", exchange)
        return PASS


def test_an_answer_without_an_offset_is_none_whoever_asks(stage: MakeStage, heard_out: None) -> None:
    one = stage(**patient(registers={"count": 1}))
    here = (one.config.topics.records, 0)
    lie = LeaveOut()
    with Proxy(one.connection.bootstrap, [lie]) as proxy:
        one.connection = Connection(proxy.bootstrap)
        observer = one.put(Observer, "observer")
        observer.observe()
        (row,) = (r for r in witness(observer).of("offsets") if (r.topic, r.partition) == here)
        assert (row.type, row.error) == ("info", "_NO_OFFSET")
        assert (row.log_start, row.log_end, row.last_stable) == (None, None, None)
        assert log_starts(open_admin(admin_settings(one.connection, client="t")), [here]) == {}
        with pytest.raises(ClientError, match="_NO_OFFSET"):
            one.put(Registers, "registers")
        assert lie.acts


def test_where_nobody_answers_there_is_a_row_all_the_same(stage: MakeStage) -> None:
    one = stage(observer={"request_timeout": 0.5})
    one.connection = Connection("127.0.0.1:9")
    observer = one.put(Observer, "observer", groups=["g"])
    observer.finish()
    rows = witness(observer).of("offsets")
    assert {(row.type, row.group) for row in rows} == {("info", None), ("info", "g")}
    assert len(rows) == 12
    assert all(row.error and row.log_end is None and row.committed is None for row in rows)


@pytest.mark.parametrize("refused", [True, False])
def test_that_its_login_is_refused_is_the_error_of_what_has_no_answer(stage: MakeStage, refused: bool) -> None:
    one = stage(observer={"request_timeout": 0.5})
    one.connection = Connection("127.0.0.1:9")
    observer = one.put(Observer, "observer")
    observer.on_error(ClientError("_SSL" if refused else "_TRANSPORT", "told beside"))
    observer.finish()
    errors = {row.error for row in witness(observer).of("offsets")}
    assert errors and ("_SSL" in errors) == refused and (len(errors) == 1 or not refused)


def test_who_does_not_answer_is_named_while_it_lasts(stage: MakeStage) -> None:
    one = stage(observer={"request_timeout": 0.5})
    here = (one.config.topics.records, 0)
    with Proxy(one.connection.bootstrap, []) as proxy:
        one.connection = Connection(proxy.bootstrap)
        observer = one.put(Observer, "observer")

        def rows() -> list[Slice]:
            return [row for row in witness(observer).of("offsets") if (row.topic, row.partition) == here]

        observe_until(observer, lambda: here in observer._led_by and rows() and rows()[-1].type == "ok")
    answered = rows()[-1]
    for _ in range(3):
        observer.finish()
    silent = rows()[-1]
    assert (answered.type, "silent" in dict(answered.settings or {})) == ("ok", False)
    assert silent.type == "info" and silent.log_end is None
    named = {
        name: value for name, value in dict(silent.settings or {}).items() if name in ("leader", "silent", "brokers")
    }
    assert named == {"leader": "1", "silent": "1", "brokers": "1"}


class NotAllowed(Lie):
    """Who asks has no right to any topic: brokers say so, and not who leads what."""

    apis = frozenset({Api.METADATA, Api.LIST_OFFSETS})
    code = ErrorCode.topic_authorization_failed

    async def on_response(self, exchange: Exchange) -> Decision:
        listing = exchange.api == Api.LIST_OFFSETS
        topics = tuple(self.refused(topic, listing) for topic in exchange.response.topics)
        exchange.response = replace(exchange.response, topics=topics)
        self.did("refused", exchange)
        return PASS

    def refused(self, topic: Any, listing: bool) -> Any:
        if not listing:
            return replace(topic, error_code=self.code, partitions=())
        return replace(topic, partitions=tuple(replace(p, error_code=self.code, offset=-1) for p in topic.partitions))


def test_a_right_that_is_taken_away_is_a_refusal_and_no_silence(stage: MakeStage) -> None:
    one = stage(observer={"request_timeout": 5.0})
    lie = NotAllowed(armed=False)
    with Proxy(one.connection.bootstrap, [lie]) as proxy:
        one.connection = Connection(proxy.bootstrap)
        observer = one.put(Observer, "observer")
        rows = witness(observer).of

        def newest() -> set[str | None]:
            observer.turn()
            return {row.error for row in rows("offsets") if row.completed == rows("offsets")[-1].completed}

        observe_until(observer, lambda: newest() == {None})
        lie.armed = True
        observe_until(observer, lambda: newest() == {"TOPIC_AUTHORIZATION_FAILED"})
        for _ in range(20):
            observer.turn()
    assert {row.error for row in rows("offsets")} == {None, "TOPIC_AUTHORIZATION_FAILED"}
    assert not any({"silent", "leader"} & set(row.settings or {}) for row in rows("offsets"))
    # Whoever refused it is away now: that is an outage, and no refusal any more.
    observe_until(observer, lambda: all((error or "").startswith("_") for error in newest()))
    assert "silent" in (rows("offsets")[-1].settings or {})


class LateDescriptions:
    """The observer's client, whose descriptions of topics come later than all else that is asked at the same time."""

    seconds = 2.0

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin

    def __getattr__(self, name: str) -> Any:
        return getattr(self.admin, name)

    def describe_topics(self, *args: Any, **kwargs: Any) -> dict[str, Future[Any]]:
        return {name: self._later(future) for name, future in self.admin.describe_topics(*args, **kwargs).items()}

    def _later(self, future: Future[Any]) -> Future[Any]:
        later: Future[Any] = Future()

        def answer() -> None:
            error = future.exception()
            later.set_result(future.result()) if error is None else later.set_exception(error)

        future.add_done_callback(lambda _: threading.Timer(self.seconds, answer).start())
        return later


def test_by_whom_it_is_refused_may_be_told_later_than_that_nobody_was_found(stage: MakeStage) -> None:
    one = stage(observer={"request_timeout": 5.0})
    lie = NotAllowed(armed=False)
    with Proxy(one.connection.bootstrap, [lie]) as proxy:
        one.connection = Connection(proxy.bootstrap)
        observer = one.put(Observer, "observer")
        observer._admin = cast(AdminClient, LateDescriptions(observer.admin))
        rows = witness(observer).of
        observe_until(observer, lambda: {row.error for row in rows("offsets")} == {None})
        lie.armed = True
        refused_at = time.monotonic()
        # Longer than its client remembers who led.
        observe_until(observer, lambda: time.monotonic() - refused_at > 4 * LateDescriptions.seconds)
        for _ in range(30):
            observer.turn()
    assert {row.error for row in rows("offsets")} == {None, "TOPIC_AUTHORIZATION_FAILED"}
    assert not any({"silent", "leader"} & set(row.settings or {}) for row in rows("offsets"))


class Slow(Lie):
    """Each answer to ListOffsets takes so long, and they come one after the other."""

    apis = frozenset({Api.LIST_OFFSETS})
    seconds = 1.0

    async def on_response(self, exchange: Exchange) -> Decision:
        await asyncio.sleep(self.seconds)
        self.did("took its time", exchange)
        return PASS


def test_a_leader_that_is_slow_is_given_longer_and_not_called_silent(stage: MakeStage) -> None:
    """Three answers that take a second each do not come within the one that a question has: for ever, with more and
    more of them that wait."""
    one = stage(observer={"request_timeout": 1.0})
    with Proxy(one.connection.bootstrap, [Slow()]) as proxy:
        one.connection = Connection(proxy.bootstrap)
        observer = one.put(Observer, "observer")
        rows = witness(observer).of

        def heard() -> list[Slice]:
            observer.turn()
            return [row for row in rows("offsets") if row.type == "ok"]

        observe_until(observer, heard)
        assert "silent" not in (rows("offsets")[-1].settings or {})
        took = [((row.mono_completed or 0) - (row.mono_invoked or 0)) / 1e9 for row in rows("offsets")]
        assert 1.0 < took[0] < took[-1] < 9.0


def test_whoever_leads_by_now_was_not_asked(stage: MakeStage) -> None:
    """A question to a leader that died is given up when another leads: that one answers all the time."""
    one = stage()
    here, there = ((one.config.topics.records, n) for n in range(2))
    observer = one.put(Observer, "observer")
    observe_until(observer, lambda: {here, there} <= set(observer._led_by))

    def told(where: Any, asked: int | None, **fields: Any) -> dict[str, str]:
        now = observer.log.now()
        row = observer.log.row(where, "offsets", "ok" if fields else "info", 1, now, now, **fields)
        observer._tell_of(Question(1, now, [where], 2.5, leader=asked), [row], now.mono)
        return {name: value for name, value in (row.settings or {}).items() if name in ("leader", "silent")}

    observer._led_by |= {here: 3, there: 1}
    assert told(here, 2) == {"leader": "2", "silent": "2"}
    assert told(there, 1, log_end=9) == {"silent": "2"}
    assert told(here, 3, log_end=9) == {}
    # Nobody leads it any more: who did is not silent as long as it answers elsewhere.
    observer._led_by[here] = 1
    assert told(here, None) == {"leader": "1", "silent": "1"}
    assert told(there, 1, log_end=9) == {}
    assert told(here, None) == {"leader": "1"}
    assert told(there, 1) == {"leader": "1", "silent": "1"}


@pytest.mark.parametrize(
    ("f", "sent_at", "acknowledged_at", "is_silent"),
    [
        ("send", 11.0, 19.0, False),
        ("txn", 11.0, 19.0, False),
        ("send", 9.0, 19.0, True),  # it may have answered before it died
        ("send", 11.0, 14.0, True),  # that was long ago
        ("poll", 11.0, 19.0, True),  # what is polled may have been fetched before
    ],
)
def test_who_acknowledges_what_writers_send_is_slow_and_not_silent(
    stage: MakeStage, f: Any, sent_at: float, acknowledged_at: float, is_silent: bool
) -> None:
    """Where an answer takes longer than an observer waits, and a writer waits longer."""
    one = stage()
    here, there = ((one.config.topics.records, n) for n in range(2))
    observer = one.put(Observer, "observer")
    observer._led_by |= {here: 1, there: 1}
    start = observer.log.now()

    def at(seconds: float) -> Instant:
        return Instant(start.at + timedelta(seconds=seconds), start.mono + int(seconds * 1e9))

    run = [Run(7, 0, 3, 1)]
    wrote = observer.log.row(there, f, "ok", 1, at(sent_at), at(acknowledged_at), sent=run, polled=run)
    observer.world.acknowledged.note([wrote])
    for asked, given_up in ((10.0, 12.5), (27.0, 30.0)):
        row = observer.log.row(here, "offsets", "info", 2, at(asked), at(given_up))
        observer._tell_of(Question(2, at(asked), [here], 2.5, leader=1), [row], at(given_up).mono)
    named = {name: value for name, value in (row.settings or {}).items() if name in ("leader", "silent")}
    assert named == {"leader": "1"} | ({"silent": "1"} if is_silent else {})


@pytest.mark.parametrize(("took", "error"), [(0.1, "_NO_OFFSET"), (2.6, "_TIMED_OUT")])
def test_a_leader_that_the_client_waited_for_in_vain_has_timed_out(stage: MakeStage, took: float, error: str) -> None:
    """librdkafka calls it a success without an offset, as where an answer leaves a partition out."""
    one = stage()
    here = (one.config.topics.records, 0)
    observer = one.put(Observer, "observer")
    asked = observer.log.now()
    row = observer.log.row(here, "offsets", "info", 1, asked, asked, error="_NO_OFFSET")
    observer._tell_of(Question(1, asked, [here], 2.5, leader=1), [row], asked.mono + int(took * 1e9))
    assert row.error == error


def test_an_answer_that_comes_while_the_observer_is_kept_waiting_was_not_there_before(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine an answer came after the time that its row gave: the commit that it told of was invoked only
    after that, and it was called a commit that nobody had made."""
    one = stage()
    here, group = (one.config.topics.records, 0), f"{one.prefix}-g"
    observer = one.put(Observer, "observer", groups=[group])
    question = observer._pending[group] = Question(7, observer.log.now(), [here], 60.0, group)
    answer = question.futures[None] = Future()
    observer._watch(question)
    read, came = observer.log.now, list[Instant]()

    def and_is_kept_waiting() -> Instant:
        moment = read()
        if not came:
            answer.set_result([(here, 26, None)])
            came.append(read())
        return moment

    monkeypatch.setattr(observer.log, "now", and_is_kept_waiting)
    while group in observer._pending:
        observer._hear()
    (row,) = [row for row in witness(observer).of("offsets") if row.group == group]
    assert row.committed == 26
    assert (row.completed, known(row.mono_completed)) >= (came[0].at, came[0].mono)


LEADERSHIP = ("led_by", "leader_epoch", "replicas_on", "in_sync")


def told(observer: Observer, topic: str, *, leadership: bool = False) -> list[dict[str, str]]:
    """What rows of the topic's first partition told of its settings, or of who leads it."""
    rows = [row for row in witness(observer).of("offsets") if (row.topic, row.partition) == (topic, 0)]
    found = [{k: v for k, v in dict(row.settings or {}).items() if (k in LEADERSHIP) == leadership} for row in rows]
    return [one for one in found if one]


def test_who_leads_is_told_once_then_when_it_changes(
    stage: MakeStage, heard_out: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage(**patient())
    topic = one.config.topics.records
    observer = one.put(Observer, "observer")
    observe_until(observer, lambda: "leader_epoch" in (told(observer, topic, leadership=True) or [{}])[-1])
    for _ in range(3):
        observer.observe()
    led = {"led_by": "1", "replicas_on": "1", "in_sync": "1"}
    first, *further = told(observer, topic, leadership=True)
    assert {name: first[name] for name in led} == led
    assert all(set(one) == set(LEADERSHIP) for one in further) and len(further) <= 1, "the epoch may come later"
    assert told(observer, topic, leadership=True)[-1] == led | {"leader_epoch": "0"}
    before = len(told(observer, topic, leadership=True))
    monkeypatch.setitem(observer._leaders, (topic, 0), None)
    nobody = led | {"led_by": "nobody", "leader_epoch": "0"}
    assert observer._leadership_to_tell((topic, 0), 0) == nobody
    monkeypatch.setattr("probes.workloads.telling.AGAIN", 0)
    observer.observe()
    assert len(told(observer, topic, leadership=True)) == before + 1


def test_what_the_cluster_says_of_a_topic_is_told_once_then_when_it_changes(
    stage: MakeStage, heard_out: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.topics.settings.ASK_EVERY", 0.0)
    one = stage(**patient(topics={"retention_hours": 2}))
    topic, began = one.config.topics.records, micros(datetime.now(UTC))
    observer = one.put(Observer, "observer")
    observe_until(observer, lambda: told(observer, topic))
    for _ in range(4):
        observer.observe()
    asked = {"replicas_asked": "3", "min_insync_asked": "2"}
    has = {
        "replicas": "1",
        "min_insync": "1",
        "created_by": "offsetwatch",
        "unclean_leader_election": "false",
        "transaction_max_timeout_ms": "900000",
        "retention_ms": "7200000",
        "cleanup_policy": "delete",
        "timestamp_type": "CreateTime",
        "offsets_retention_minutes": "10080",
    }
    (first,) = told(observer, topic)
    assert {name: value for name, value in first.items() if name != ASKED} == asked | has
    assert began <= int(first[ASKED]) <= micros(datetime.now(UTC))
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    one.admin.incremental_alter_configs([altered])[altered].result()
    observe_until(observer, lambda: len(told(observer, topic)) > 1)
    for _ in range(4):
        observer.observe()
    (second,) = told(observer, topic)[1:]
    assert second == asked | has | {"cleanup_policy": "compact", ASKED: second[ASKED]}
    assert int(second[ASKED]) > int(first[ASKED])
    monkeypatch.setattr("probes.topics.settings.TELL_AGAIN", 0.0)
    observer.observe()
    assert len(told(observer, topic)) == 3
    # The half minute after a sign is checked second by second: what is told each half minute must not be one.
    observe_until(observer, lambda: int(told(observer, topic)[-1][ASKED]) > int(second[ASKED]))
    rows = witness(observer).of("offsets")
    again = [row for row in rows if row.topic == topic and (row.settings or {}).get("cleanup_policy") == "compact"]
    assert len(again) > 1
    assert Triage().signs(to_table(again)) == []


@pytest.mark.parametrize(
    ("own", "broker", "replicas", "partitions", "by"),
    [
        ({"cleanup.policy", "min.insync.replicas", "retention.ms", "retention.bytes"}, {}, 1, 6, "offsetwatch"),
        (set(), {"auto.create.topics.enable": "true"}, 1, 1, "auto"),
        ({"retention.ms"}, {"auto.create.topics.enable": "true"}, 1, 6, "auto"),
        (set(), {"auto.create.topics.enable": "false"}, 1, 1, "unknown"),
        (set(), {"auto.create.topics.enable": "true"}, 3, 1, "unknown"),
        (set(), {"auto.create.topics.enable": "true"}, 1, 6, "unknown"),
        ({"segment.ms"}, {"auto.create.topics.enable": "true"}, 1, 1, "unknown"),
        (set(), {}, 1, 1, "unknown"),
    ],
)
def test_who_made_a_topic_is_said_where_it_can_be_told(
    own: set[str], broker: dict[str, str], replicas: int, partitions: int, by: str
) -> None:
    usual = {"default.replication.factor": "1", "num.partitions": "1"}
    brokers = {name: Entry(value, 5) for name, value in (usual | broker).items()} if broker else {}
    topic = {name: Entry("x", 1 if name in own else 5) for name in {"segment.ms", *MARKING}}
    assert creator(topic, brokers, replicas, partitions) == by


@pytest.mark.kafka
def test_a_topic_that_was_made_by_asking_for_it_is_told_from_one_of_ours(tmp_path: Path, heard_out: None) -> None:
    overrides = {"auto.create.topics.enable": True}
    with LocalKafka(tmp_path / "kafka", brokers=1, overrides=overrides) as cluster:
        prefix = "taken"
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce(f"{prefix}-records", b"somebody was here first")
        assert producer.flush(60) == 0
        one = Stage(cluster.bootstrap, tmp_path / "journal", **patient(topics={"prefix": prefix}))
        one.config = one.config.model_copy(
            update={"topics": one.config.topics.model_copy(update={"prefix": prefix, "partitions": 1})}
        )
        one.topics = ProbeTopics(one.admin, one.config.topics, one.said.append, one.config.topic_names)
        one.layout = one.topics.ensure()
        observer = one.put(Observer, "observer")
        observe_until(
            observer, lambda: told(observer, f"{prefix}-records") and told(observer, f"{prefix}-transactions")
        )
        assert told(observer, f"{prefix}-records")[-1]["created_by"] == "auto"
        assert told(observer, f"{prefix}-transactions")[-1]["created_by"] == "offsetwatch"
        one.end()


class Entry(NamedTuple):
    """As the client tells a setting."""

    value: str
    source: int
