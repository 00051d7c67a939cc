"""What groups have committed, asked of real brokers: by connections of our own, and by consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from deploy.local_kafka import LocalKafka
from monitor.drill.proxy import CLOSE, DROP, ONCE, PASS, Answer, Api, Decision, Delay, Exchange, Lie, Proxy
from probes.kafka.client import Connection, consumer_settings
from probes.kafka.errors import ClientError, translate
from probes.kafka.group_offsets import ConsumerOffsets, GroupOffsets, open_group_offsets
from probes.kafka.wire.messages import build
from probes.kafka.wire.offset_fetch import WireOffsets
from tests.monitor.secured import PASSWORD, TOKEN_HOOK, USER, secured_broker
from tests.probes.conftest import MakeStage, Stage

LIMIT = 60.0
SORTS = ("connections", "consumers")
both = pytest.mark.parametrize("sort", SORTS)


@contextmanager
def asking(
    sort: str, connection: Connection, groups: list[str], places: list[Any], errors: list[ClientError] | None = None
) -> Iterator[GroupOffsets]:
    told: list[ClientError] = [] if errors is None else errors
    made: GroupOffsets
    if sort == "connections":
        made = WireOffsets(connection, "t", places, told.append)
    else:
        made = ConsumerOffsets(connection, "t", groups, places, told.append)
    try:
        yield made
    finally:
        made.close()


def commit(one: Stage, group: str, *offsets: tuple[int, int]) -> None:
    consumer = Consumer(consumer_settings(Connection(one.connection.bootstrap), client="other", group=group))
    topic = one.config.topics.records

    def done() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, p, at) for p, at in offsets], asynchronous=False)
        except KafkaException:  # the coordinator is loading: a cluster that has just begun
            return False
        return True

    until(done)
    consumer.close()


def told(asked: GroupOffsets, group: str, within: float = LIMIT) -> dict[int, int | str | None]:
    """What is told of each partition: its offset, or the error's name."""
    found = asked.ask(group, within).result(3 * LIMIT)
    return {p: problem or at for (_, p), at, problem in found}


def error_of(asked: GroupOffsets, group: str, within: float = LIMIT) -> str:
    with pytest.raises(Exception) as caught:
        asked.ask(group, within).result(3 * LIMIT)
    return translate(caught.value).code


def until(true: Callable[[], object], limit: float = 180) -> None:
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def places(one: Stage) -> list[Any]:
    return list(one.layout.partitions(one.config.topics.records))


@both
def test_what_is_committed_is_told_and_absent_is_not_zero(stage: MakeStage, sort: str) -> None:
    one = stage()
    group, nobody = f"{one.prefix}-g", f"{one.prefix}-nobody"
    commit(one, group, (0, 0), (2, 7))
    with asking(sort, one.connection, [group, nobody], places(one)) as asked:
        assert told(asked, group) == {0: 0, 1: None, 2: 7}
        assert told(asked, nobody) == {0: None, 1: None, 2: None}, "of a group that there is not"
        commit(one, group, (1, 5))
        assert told(asked, group) == {0: 0, 1: 5, 2: 7}

        def coordinator() -> str | None:
            asked.hear([])
            return asked.coordinator(group).get("group_coordinator")

        until(coordinator)
        assert coordinator() == "1"


def test_offsets_of_a_transaction_are_not_told_before_it_has_ended(stage: MakeStage) -> None:
    one = stage()
    group, topic = f"{one.prefix}-g", one.config.topics.records
    commit(one, group, (0, 1), (1, 1))
    producer = Producer({"bootstrap.servers": one.connection.bootstrap, "transactional.id": f"{one.prefix}-x"})
    member = Consumer(consumer_settings(one.connection, client="other", group=group))
    producer.init_transactions(LIMIT)
    with asking("connections", one.connection, [group], places(one)) as asked:
        for ending in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            offsets = [TopicPartition(topic, 0, 3)]
            producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), LIMIT)
            assert told(asked, group, 2.0) == {0: "UNSTABLE_OFFSET_COMMIT", 1: 1, 2: None}
            coming = asked.ask(group, LIMIT)
            ending(LIMIT)
            assert not [problem for _, _, problem in coming.result(LIMIT) if problem], "it was waited for"
            assert told(asked, group) == {0: 3, 1: 1, 2: None}
    member.close()


class Refuse(Lie):
    """The coordinator answers so once, whatever it is asked about a group's offsets."""

    apis = frozenset({Api.OFFSET_FETCH})

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(when=ONCE)
        self._code = code

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            told, refused = exchange.response, {"error_code": self._code, "topics": ()}
            groups = {"groups": tuple(replace(one, **refused) for one in told.groups)} if exchange.version > 7 else None
            exchange.response = replace(told, **(groups or refused))
            self.did("refused", exchange)
        return PASS


@both
@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.not_coordinator, "NOT_COORDINATOR"),
        (ErrorCode.coordinator_not_available, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.group_authorization_failed, "GROUP_AUTHORIZATION_FAILED"),
        (ErrorCode.group_id_not_found, "GROUP_ID_NOT_FOUND"),
    ],
)
def test_what_the_coordinator_refuses_is_told_by_its_name_and_asked_again(
    stage: MakeStage, sort: str, code: ErrorCode, name: str
) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    with (
        Proxy(one.connection.bootstrap, [lie := Refuse(code)]) as proxy,
        asking(sort, Connection(proxy.bootstrap), [group], places(one)) as asked,
    ):
        assert error_of(asked, group) == name
        assert told(asked, group) == {0: 4, 1: None, 2: None}
        assert len(lie.acts) == 1


@both
def test_a_coordinator_that_is_loading_is_waited_for(stage: MakeStage, sort: str) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    lie = Refuse(ErrorCode.coordinator_load_in_progress)
    with Proxy(one.connection.bootstrap, [lie]) as proxy:
        with asking(sort, Connection(proxy.bootstrap), [group], places(one)) as asked:
            assert told(asked, group) == {0: 4, 1: None, 2: None}
        assert len(lie.acts) == 1


class Trouble(Lie):
    """The first answers about a group's offsets, or about its coordinator, come so."""

    def __init__(self, api: Api, decision: Decision) -> None:
        super().__init__(when=ONCE)
        self.apis = frozenset({api})  # type: ignore[misc]  # to others a constant of their class
        self._decision = decision

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            self.did("made trouble", exchange)
            return self._decision
        return PASS


@both
def test_who_does_not_answer_is_given_its_time_and_asked_again(stage: MakeStage, sort: str) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    with (
        Proxy(one.connection.bootstrap, [lie := Trouble(Api.OFFSET_FETCH, DROP)]) as proxy,
        asking(sort, Connection(proxy.bootstrap), [group], places(one)) as asked,
    ):
        until(lambda: lie.acts or error_of(asked, group, 1.0) == "_TIMED_OUT")
        until(lambda: asked.ask(group, LIMIT).exception(3 * LIMIT) is None)
        assert told(asked, group) == {0: 4, 1: None, 2: None}


@both
@pytest.mark.parametrize("api", [Api.OFFSET_FETCH, Api.FIND_COORDINATOR])
def test_a_connection_that_breaks_is_made_again_within_the_same_question(stage: MakeStage, sort: str, api: Api) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    with Proxy(one.connection.bootstrap, [lie := Trouble(api, CLOSE)]) as proxy:
        with asking(sort, Connection(proxy.bootstrap), [group], places(one)) as asked:
            assert told(asked, group) == {0: 4, 1: None, 2: None}
        assert len(lie.acts) == 1


def test_a_group_that_waits_for_its_answer_holds_up_no_other(stage: MakeStage) -> None:
    one = stage()
    slow, other = f"{one.prefix}-slow", f"{one.prefix}-other"
    commit(one, slow, (0, 4))
    commit(one, other, (0, 9))
    with (
        Proxy(one.connection.bootstrap, [lie := Trouble(Api.OFFSET_FETCH, Delay(20.0))]) as proxy,
        asking("connections", Connection(proxy.bootstrap), [slow, other], places(one)) as asked,
    ):
        late = asked.ask(slow, 2 * LIMIT)
        until(lambda: lie.acts)
        assert told(asked, other) == {0: 9, 1: None, 2: None}
        assert not late.done()
        assert [at for _, at, _ in late.result(3 * LIMIT)] == [4, None, None]


def test_an_answer_that_comes_late_is_no_answer_to_what_was_asked_later(stage: MakeStage) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    with (
        Proxy(one.connection.bootstrap, [lie := Trouble(Api.OFFSET_FETCH, Delay(5.0))]) as proxy,
        asking("connections", Connection(proxy.bootstrap), [group], places(one)) as asked,
    ):
        # Shorter than the delay: the question is given up before its answer comes.
        until(lambda: error_of(asked, group, 2.0) == "_TIMED_OUT" and lie.acts)
        commit(one, group, (0, 5))
        assert told(asked, group) == {0: 5, 1: None, 2: None}
        assert told(asked, group) == {0: 5, 1: None, 2: None}


class Changed(Lie):
    """An answer is changed, whenever it comes."""

    def __init__(self, api: Api, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.apis = frozenset({api})  # type: ignore[misc]  # to others a constant of their class
        self._change = change
        self.versions: set[int] = set()

    async def on_response(self, exchange: Exchange) -> Decision:
        self.versions.add(exchange.version)
        exchange.response = self._change(exchange.response)
        return PASS


def test_a_partition_that_the_answer_leaves_out_has_no_offset_and_not_none(stage: MakeStage) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))

    def shortened(answer: Any) -> Any:
        topics = tuple(replace(topic, partitions=topic.partitions[:1]) for topic in answer.topics)
        return replace(answer, topics=topics)

    with (
        Proxy(one.connection.bootstrap, [Changed(Api.OFFSET_FETCH, shortened)]) as proxy,
        asking("connections", Connection(proxy.bootstrap), [group], places(one)) as asked,
    ):
        found = told(asked, group)
    assert sorted(map(str, found.values())) == sorted([str(found[0]), "_NO_OFFSET", "_NO_OFFSET"])


def test_a_broker_that_knows_only_older_requests_is_asked_in_those(stage: MakeStage) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    newest = {int(Api.OFFSET_FETCH): 5, int(Api.FIND_COORDINATOR): 1}

    def narrowed(answer: Any) -> Any:
        keys = tuple(
            replace(key, max_version=min(key.max_version, newest.get(int(key.api_key), 99))) for key in answer.api_keys
        )
        return replace(answer, api_keys=keys)

    seen = Changed(Api.OFFSET_FETCH, lambda answer: answer)
    found = Changed(Api.FIND_COORDINATOR, lambda answer: answer)
    with (
        Proxy(one.connection.bootstrap, [Changed(Api.API_VERSIONS, narrowed), seen, found]) as proxy,
        asking("connections", Connection(proxy.bootstrap), [group], places(one)) as asked,
    ):
        assert told(asked, group) == {0: 4, 1: None, 2: None}
    assert (seen.versions, found.versions) == ({5}, {1})


class NoCoordinator(Lie):
    """The cluster has no coordinator for anybody."""

    apis = frozenset({Api.FIND_COORDINATOR})

    async def on_request(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        values = {"error_code": ErrorCode.coordinator_not_available, "node_id": -1, "host": "", "port": -1}
        self.did("knew none", exchange)
        return Answer(build(exchange.response_class, **values))


@both
def test_a_group_that_nobody_coordinates_is_waited_for_until_its_time_is_over(stage: MakeStage, sort: str) -> None:
    one = stage()
    group = f"{one.prefix}-g"
    commit(one, group, (0, 4))
    with (
        Proxy(one.connection.bootstrap, [lie := NoCoordinator()]) as proxy,
        asking(sort, Connection(proxy.bootstrap), [group], places(one)) as asked,
    ):
        assert error_of(asked, group, 2.0) == "_TIMED_OUT"
        assert asked.coordinator(group) == {}
        coming = asked.ask(group, LIMIT)
        lie.disarm()
        assert coming.result(3 * LIMIT)[0][1:] == (4, None)


@pytest.mark.kafka
def test_what_was_committed_in_a_topic_is_gone_with_it(stage: MakeStage) -> None:
    one = stage()
    group, topic = f"{one.prefix}-g", f"{one.prefix}-again"

    def made() -> None:
        one.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT)

    made()
    consumer = Consumer(consumer_settings(one.connection, client="other", group=group))
    consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    consumer.close()
    with asking("connections", one.connection, [group], [(topic, 0)]) as asked:
        assert told(asked, group) == {0: 6}
        one.admin.delete_topics([topic])[topic].result(LIMIT)
        until(lambda: told(asked, group) == {0: None})
        made()
        assert told(asked, group) == {0: None}
    one.admin.delete_topics([topic])[topic].result(LIMIT)


@pytest.mark.kafka
def test_a_coordinator_that_is_frozen_is_left_for_the_one_that_follows(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", brokers=3) as cluster:
        one = Stage(cluster.bootstrap, tmp_path / "journal")
        group = f"{one.prefix}-g"
        commit(one, group, (0, 4))
        errors: list[ClientError] = []
        with asking("connections", one.connection, [group], places(one), errors) as asked:
            until(lambda: asked.ask(group, 2.0).exception(LIMIT) is None)
            first = asked.coordinator(group)["group_coordinator"]
            broker = cluster.broker(int(first))
            broker.pause()
            try:
                assert error_of(asked, group, 2.0) == "_TIMED_OUT"
                until(lambda: asked.ask(group, 2.0).exception(LIMIT) is None)
                assert told(asked, group) == {0: 4, 1: None, 2: None}
                assert asked.coordinator(group)["group_coordinator"] not in (first, "nobody")
                asked.hear([])
                assert {error.code for error in errors} == {"_TRANSPORT"}
                assert len(errors) <= 6, "the same trouble is told once"
            finally:
                broker.resume()
            assert told(asked, group) == {0: 4, 1: None, 2: None}
        one.end()


@pytest.mark.kafka
def test_brokers_that_want_tls_and_a_login_are_asked_and_no_secret_is_told(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.plain})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(LIMIT)
        consumer = Consumer({"bootstrap.servers": broker.plain, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
        consumer.close()
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
            security = broker.security(mechanism)
            if mechanism == "OAUTHBEARER":
                security = {k: v for k, v in security.items() if k not in ("sasl.username", "sasl.password")}
                security["sasl.oauthbearer.config"] = USER
            token = TOKEN_HOOK if mechanism == "OAUTHBEARER" else None
            connection = Connection(broker.bootstrap, security, token)
            asked = open_group_offsets(connection, "t", ["g"], [("t", 0)], lambda error: None)
            assert isinstance(asked, WireOffsets)
            assert told(asked, "g") == {0: 4}, mechanism
            asked.close()
        errors: list[ClientError] = []
        secret = f"wrong-{PASSWORD}"
        wrong = Connection(broker.bootstrap, broker.security(sasl__password=secret))
        with asking("connections", wrong, ["g"], [("t", 0)], errors) as refused:
            assert error_of(refused, "g", 3.0) == "_TIMED_OUT"
            refused.hear([])
        assert [error.code for error in errors] == ["_AUTHENTICATION"], "once"
        assert secret not in str(errors)


def test_where_our_connections_cannot_follow_the_settings_consumers_ask() -> None:
    security = {"security.protocol": "ssl", "ssl.keystore.location": "/no/such/store.p12"}
    connection = Connection("127.0.0.1:9", security)
    with pytest.raises(ClientError, match="keystore"):  # it is the consumer that refuses the file
        open_group_offsets(connection, "t", ["g"], [("t", 0)], lambda error: None)
    unusual = Connection("127.0.0.1:9", {"ssl.cipher.suites": "DEFAULT", "security.protocol": "ssl"})
    asked = open_group_offsets(unusual, "t", ["g"], [("t", 0)], lambda error: None)
    assert isinstance(asked, ConsumerOffsets)
    asked.close()
