"""What each lie makes a real client see, beside what really stands in the log; and where it is not told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode

from deploy.local_kafka import LocalKafka
from monitor.drill.actors.java_client import JavaClients
from monitor.drill.lies.fetch import EmptyAbortedTransactions
from monitor.drill.lies.produce import (
    AnswerProduceWith,
    ChangeAckOffset,
    CopyProduceWithoutProducerId,
    DropProduceResponse,
)
from monitor.drill.lies.transactions import HoldEndTxn
from monitor.drill.proxy import ONCE, PASS, Api, Decision, Exchange, Lie, Place, Proxy, When, Where
from monitor.drill.proxy.edits import change_fetched_batches, change_produced
from monitor.drill.proxy.records import Batch
from tests.monitor.drill.proxy.clients import LIMIT_S, producer, read, send, topic, values

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(("idempotent", "stands"), [(False, [b"a", b"a", b"b"]), (True, [b"a", b"b"])])
def test_a_dropped_acknowledgement(kafka: LocalKafka, idempotent: bool, stands: list[bytes]) -> None:
    lie = DropProduceResponse(Where(client_id="vict*"), ONCE)
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap, client_id="victim", enable_idempotence=idempotent, retry_backoff_ms=10)
        offsets = send(client, name, b"a", b"b")
    assert values(read(kafka.bootstrap, name)) == stands
    assert offsets[-1] == len(stands) - 1
    (act,) = lie.acts
    assert (act.what, act.client_id, act.place) == ("dropped the acknowledgement", "victim", Place(name, 0))
    assert act.facts == {"base_offset": 0}


def test_an_acknowledgement_that_is_never_answered(kafka: LocalKafka) -> None:
    lie = DropProduceResponse(when=When(after=1), close=False)
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap, message_timeout_ms=8000, enable_idempotence=False)
        assert send(client, name, b"before", b"a") == [0, "_MSG_TIMED_OUT"]
    assert set(values(read(kafka.bootstrap, name))) == {b"before", b"a"}


@pytest.mark.parametrize(("forward", "stands"), [(True, [b"a", b"b"]), (False, [b"b"])])
def test_an_error_instead_of_the_truth(kafka: LocalKafka, forward: bool, stands: list[bytes]) -> None:
    lie = AnswerProduceWith(error=ErrorCode.invalid_record, when=ONCE, forward=forward)
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap, enable_idempotence=False)
        assert send(client, name, b"a", b"b") == ["INVALID_RECORD", stands.index(b"b")]
    assert values(read(kafka.bootstrap, name)) == stands
    assert len(lie.acts) == 1


def test_another_offset_is_acknowledged(kafka: LocalKafka) -> None:
    lie = ChangeAckOffset(Where(partitions={1}), When(after=1), change=lambda real: real + 100)
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap, partitions=2)
        client = producer(proxy.bootstrap)
        told = [send(client, name, b"a", b"b", b"c", partition=partition) for partition in (0, 1)]
    assert told == [[0, 1, 2], [0, 101, 102]]
    assert read(kafka.bootstrap, name, 1) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [act.facts for act in lie.acts] == [{"real": 1, "told": 101}, {"real": 2, "told": 102}]


class HideValues(Lie):
    """Values are left out of what is fetched. Their offsets stay, so that consumers go on behind them."""

    apis = frozenset({Api.FETCH})
    hidden = frozenset({b"3", b"7"})

    async def on_response(self, exchange: Exchange) -> Decision:
        change_fetched_batches(exchange, lambda _, batches: [self._without(batch) for batch in batches])
        return PASS

    def _without(self, batch: Batch) -> Batch:
        shown = [record for record in batch.records() if record.value not in self.hidden]
        return batch.with_records(shown) if len(shown) < batch.count else batch


@pytest.mark.parametrize(
    ("codec", "batched"),
    [*((codec, True) for codec in ("none", "gzip", "snappy", "lz4", "zstd")), ("none", False), ("lz4", False)],
)
def test_hidden_records(kafka: LocalKafka, codec: str, batched: bool) -> None:
    """Within a batch, and all that a batch holds."""
    every = [(number, b"%d" % number) for number in range(9)]
    with Proxy(kafka.bootstrap, [HideValues(Where(client_id="victim"))]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(kafka.bootstrap, compression_type=codec, linger_ms=50 if batched else 0)
        for _, value in every:
            client.produce(name, value, partition=0)
            if not batched:
                client.flush(LIMIT_S)
        client.flush(LIMIT_S)
        seen = read(proxy.bootstrap, name, client_id="victim", check_crcs=True)
        other = read(proxy.bootstrap, name, client_id="bystander")
    assert seen == [(offset, value) for offset, value in every if value not in (b"3", b"7")]
    assert other == read(kafka.bootstrap, name) == every


def test_an_accepted_batch_is_appended_once_more(kafka: LocalKafka) -> None:
    lie = CopyProduceWithoutProducerId(when=When(after=1, times=1))
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap, enable_idempotence=True, compression_type="zstd")
        assert send(client, name, b"a", b"b" * 200, b"c") == [0, 1, 3]
    assert values(read(kafka.bootstrap, name)) == [b"a", b"b" * 200, b"b" * 200, b"c"]
    assert [act.facts for act in lie.acts] == [{"original": 1, "copy": 2}]


def transaction(client: Producer, name: str, value: bytes, end: Callable[[], None]) -> None:
    client.begin_transaction()
    send(client, name, value)
    end()


def test_aborted_records_are_exposed(kafka: LocalKafka) -> None:
    lie = EmptyAbortedTransactions(Where(client_id="victim"))
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap, transactional_id=name)
        client.init_transactions(LIMIT_S)
        transaction(client, name, b"aborted", client.abort_transaction)
        transaction(client, name, b"committed", client.commit_transaction)
        exposed = read(proxy.bootstrap, name, until=4, client_id="victim")
        honest = read(proxy.bootstrap, name, until=4, client_id="bystander")
    assert values(exposed) == [b"aborted", b"committed"]
    assert values(honest) == [b"committed"]
    assert lie.acts[0].facts == {"first_offsets": [0]}


@pytest.mark.parametrize("version", ["4.3.1", "3.8.1"])
def test_a_late_end_of_a_transaction_ends_the_next_one(version: str, request: pytest.FixtureRequest) -> None:
    """With librdkafka, which speaks the transactions of before KIP-890, on both. The next transaction can only be
    aborted because it adds a partition after that: the coordinator takes this for the beginning of another."""
    cluster: LocalKafka = request.getfixturevalue("kafka" if version == "4.3.1" else "kafka_of_3_8")
    lie = HoldEndTxn(when=ONCE)
    with Proxy(cluster.bootstrap, [lie]) as proxy:
        name = topic(cluster.bootstrap, partitions=2)
        client = producer(proxy.bootstrap, transactional_id=name)
        client.init_transactions(LIMIT_S)
        transaction(client, name, b"committed", client.commit_transaction)
        client.begin_transaction()
        send(client, name, b"aborted")
        kept, delivered = lie.wait(2, timeout=60)
        send(client, name, b"aborted", partition=1)
        client.abort_transaction()
        assert values(read(cluster.bootstrap, name, until=4)) == [b"committed", b"aborted"]
        assert values(read(cluster.bootstrap, name, 1, until=2)) == []
    assert (kept.what, delivered.what) == ("kept a copy of EndTxn", "delivered the copy of EndTxn")
    assert delivered.facts == {"committed": True, "answer": "none"}


def test_a_late_end_is_fenced_from_a_client_with_the_newer_transactions(kafka: LocalKafka) -> None:
    lie = HoldEndTxn(when=ONCE)
    with JavaClients() as java, Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        client = java.producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": name})
        client.initTransactions()
        for value, end in ((b"committed", client.commitTransaction), (b"aborted", client.abortTransaction)):
            client.beginTransaction()
            client.send(java.record(name, 0, value)).get()
            end()
        lie.wait(2, timeout=60)
        client.close()
    assert values(read(kafka.bootstrap, name, until=4)) == [b"committed"]
    assert lie.acts[1].facts["answer"] == "producer_fenced"


def test_a_lie_is_told_only_while_it_is_armed_and_where_it_is_meant(kafka: LocalKafka) -> None:
    by_name = ChangeAckOffset(Where(topic="drill-*", transactional_id="none"), change=lambda real: 7)
    by_topic = ChangeAckOffset(Where(topic="other-*"), change=lambda real: 8)
    on_call = ChangeAckOffset(change=lambda real: 9, only_if=lambda exchange: exchange.version >= 3, armed=False)
    with Proxy(kafka.bootstrap, [by_name, by_topic, on_call]) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap)
        before = send(client, name, b"a")
        on_call.arm()
        armed = send(client, name, b"b")
        on_call.disarm()
        after = send(client, name, b"c")
    assert (before, armed, after) == ([0], [9], [2])
    assert not by_name.acts and not by_topic.acts and len(on_call.acts) == 1


def test_a_drill_can_hold_a_request_and_let_it_go(kafka: LocalKafka) -> None:
    class Hold(Lie):
        """The first Produce is held, and the connection with it, until the drill lets go."""

        apis = frozenset({Api.PRODUCE})
        kept: Exchange

        async def on_request(self, exchange: Exchange) -> Decision:
            if self.turn():
                self.kept = exchange
                self.did("held", exchange)
                change_produced(exchange, lambda place, batches: [batch.without_producer() for batch in batches])
            return PASS

    lie = Hold(when=ONCE)
    with Proxy(kafka.bootstrap, [lie]) as proxy:
        name = topic(kafka.bootstrap)
        send(producer(proxy.bootstrap), name, b"a")
        lie.wait(1, timeout=60)
        late = proxy.run(proxy.side.resend(lie.kept))
        assert late.responses[0].partition_responses[0].base_offset == 1
    assert values(read(kafka.bootstrap, name)) == [b"a", b"a"]


def test_clients_come_back_after_all_connections_were_cut(kafka: LocalKafka) -> None:
    """Idempotence is asked for: without it a client may send again what was appended before it lost the connection."""
    settings = {"enable_idempotence": True, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}
    with Proxy(kafka.bootstrap) as proxy:
        name = topic(kafka.bootstrap)
        client = producer(proxy.bootstrap, **settings)
        for number in range(3):
            assert send(client, name, b"%d" % number) == [number]
            proxy.disconnect()
    assert values(read(kafka.bootstrap, name)) == [b"0", b"1", b"2"]


def test_occasions_are_counted_and_chance_is_seeded(kafka: LocalKafka) -> None:
    def taken(seed: int, when: When) -> list[bool]:
        lie = Lie(when=when)
        with Proxy("127.0.0.1:1", [lie], seed=seed):
            return [lie.turn() for _ in range(40)]

    assert taken(0, When(after=2, times=3))[:8] == [False, False, True, True, True, False, False, False]
    half = taken(7, When(chance=0.5))
    assert 8 < sum(half) < 32
    assert half == taken(7, When(chance=0.5)) != taken(8, When(chance=0.5))
    assert sum(taken(7, When(chance=0.5, times=4))) == 4


def test_waiting_for_an_act_ends() -> None:
    lie = Lie()
    with Proxy("127.0.0.1:1", [lie]):
        threading.Timer(0.1, lambda: lie.did("at last")).start()
        assert [act.what for act in lie.wait(1, timeout=60)] == ["at last"]
        with pytest.raises(TimeoutError, match=r"^Lie did 1 of 2 things within 0:00:00\.100000$"):
            lie.wait(2, timeout=0.1)
    assert replace(lie.acts[0], at=lie.acts[0].at) == lie.acts[0]
