"""Without lies, nothing is altered: every frame, with every client, on both releases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local_kafka import LocalKafka
from monitor.drill.actors.java_client import JavaClients
from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy, records
from monitor.drill.proxy.edits import change_fetched_batches
from probes.kafka.wire.messages import ALL_APIS, encode_request, encode_response
from tests.monitor.drill.proxy.clients import LIMIT_S, producer, read, send, topic, values

pytestmark = pytest.mark.kafka


class Recode(Lie):
    """Takes every frame apart and puts it together again; the other side gets what was put together."""

    apis = ALL_APIS

    def __init__(self) -> None:
        super().__init__()
        self.frames = 0
        self.batches = 0
        self.differing: list[str] = []
        self.spoken: dict[int, int] = {}

    async def on_request(self, exchange: Exchange) -> Decision:
        self.spoken[exchange.api] = exchange.version
        frame, payload = exchange.request_frame, exchange.request
        self._compare(exchange, frame, encode_request(exchange.head, frame, payload))
        if exchange.api == Api.PRODUCE:
            self._recode(exchange, [data.records for one in payload.topic_data for data in one.partition_data])
        exchange.request = dataclasses.replace(payload)
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        frame, payload = exchange.response_frame, exchange.response
        assert frame is not None
        self._compare(exchange, frame, encode_response(exchange.head.correlation, payload))
        if exchange.api == Api.FETCH:
            self._recode(exchange, [data.records for one in payload.responses for data in one.partitions])
        exchange.response = dataclasses.replace(payload)
        return PASS

    def _compare(self, exchange: Exchange, before: bytes, after: bytes) -> None:
        self.frames += 1
        if before != after:
            self.differing.append(f"{type(exchange.request).__name__} v{exchange.version}")

    def _recode(self, exchange: Exchange, found: list[bytes | None]) -> None:
        for data in found:
            batches, rest = records.parse(bytes(data or b""))
            self.batches += len(batches)
            again = [batch if batch.is_control else batch.with_records(batch.records()) for batch in batches]
            for batch, put_together in zip(batches, again, strict=True):
                assert put_together.records() == batch.records()
                assert dataclasses.replace(put_together, payload=b"") == dataclasses.replace(batch, payload=b"")
            if records.encode(batches, rest) != data and data:
                self.differing.append(f"batches of {type(exchange.request).__name__}")


@pytest.fixture(params=["4.3.1", "3.8.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    yield request.getfixturevalue("kafka" if request.param == "4.3.1" else "kafka_of_3_8")


def session_of_librdkafka(bootstrap: str) -> str:
    """Producers with every codec, transactions, a consumer group that joins, commits, leaves; admin requests."""
    name = topic(bootstrap, partitions=2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        plain = producer(bootstrap, compression_type=codec, enable_idempotence=codec == "lz4", linger_ms=5)
        for number in range(50):
            plain.produce(name, f"{codec} {number} {'x' * 50}".encode(), key=b"k", partition=0, headers={"h": codec})
        assert plain.flush(LIMIT_S) == 0
    unanswered = producer(bootstrap, acks=0)
    unanswered.produce(name, b"unanswered", partition=0)
    unanswered.flush(LIMIT_S)
    transactional = producer(bootstrap, transactional_id=name)
    transactional.init_transactions(LIMIT_S)
    group = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest", "log_level": 0}
    )
    # Offsets without a generation are accepted only while nobody has joined: the group subscribes afterwards.
    for commits in (True, False):
        transactional.begin_transaction()
        transactional.produce(name, b"committed" if commits else b"aborted", partition=1)
        transactional.send_offsets_to_transaction([TopicPartition(name, 0, 7)], group.consumer_group_metadata())
        (transactional.commit_transaction if commits else transactional.abort_transaction)()
    group.subscribe([name])
    got = 0
    while got < 245 and (message := group.poll(LIMIT_S)) is not None:
        got += message.error() is None
    assert got == 245, "all but what the transaction's offsets passed over"
    group.commit(asynchronous=False)
    assert [one.offset for one in group.committed([TopicPartition(name, 0)])] == [251]
    assert group.get_watermark_offsets(TopicPartition(name, 0)) == (0, 251)
    group.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.describe_cluster().result(LIMIT_S)
    admin.delete_topics([name])[name].result(LIMIT_S)
    return name


def test_every_frame_of_a_session_is_encoded_byte_for_byte(cluster: LocalKafka) -> None:
    recode = Recode()
    with Proxy(cluster.bootstrap, [recode]) as proxy:
        session_of_librdkafka(proxy.bootstrap)
    assert recode.differing == []
    assert recode.frames > 150 and recode.batches > 12
    used = {Api.PRODUCE, Api.FETCH, Api.END_TXN, Api.JOIN_GROUP, Api.TXN_OFFSET_COMMIT, Api.DELETE_TOPICS}
    assert used <= recode.spoken.keys()
    print(f"\n{recode.frames} frames and {recode.batches} batches byte for byte, Kafka {cluster.version}")


def test_a_session_without_any_lie(kafka: LocalKafka) -> None:
    with Proxy(kafka.bootstrap) as proxy:
        session_of_librdkafka(proxy.bootstrap)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with JavaClients() as clients:
        yield clients


def session_of_java(java: JavaClients, bootstrap: str, name: str, **settings: Any) -> list[bytes]:
    """Transactions with every codec, read by a group with read_committed."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = java.producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{codec}", "compression.type": codec}
        )
        client.initTransactions()
        for commits in (False, True):
            client.beginTransaction()
            for number in range(3):
                client.send(java.record(name, 0, f"{codec} {number} {commits}".encode() * 20))
            client.commitTransaction() if commits else client.abortTransaction()
        client.close()
    consumer = java.consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **settings,
        }
    )
    consumer.subscribe([name])
    got: list[bytes] = []
    for _ in range(240):
        got += [value for _, _, value in java.poll(consumer, 0.5)]
        if len(got) >= 15:
            break
    consumer.commitSync()
    consumer.close()
    return got


def test_a_java_client_passes_byte_for_byte(java: JavaClients, cluster: LocalKafka) -> None:
    recode = Recode()
    with Proxy(cluster.bootstrap, [recode]) as proxy:
        name = topic(proxy.bootstrap)
        got = session_of_java(java, proxy.bootstrap, name)
    expected = [
        f"{codec} {n} True".encode() * 20 for codec in ("none", "gzip", "snappy", "lz4", "zstd") for n in range(3)
    ]
    assert got == expected
    assert recode.differing == []
    if cluster.version == "4.3.1":
        assert recode.spoken[Api.END_TXN] == 5, "the transactions of KIP-890 are not cut off"
        assert recode.spoken[Api.PRODUCE] == 13
        got = session_of_java_with_new_groups(java, cluster, name)
        assert got == expected


def session_of_java_with_new_groups(java: JavaClients, cluster: LocalKafka, name: str) -> list[bytes]:
    recode = Recode()
    with Proxy(cluster.bootstrap, [recode]) as proxy:
        consumer = java.consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": f"{name}-new",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([name])
        got: list[bytes] = []
        for _ in range(240):
            got += [value for _, _, value in java.poll(consumer, 0.5)]
            if len(got) >= 15:
                break
        consumer.close()
    assert recode.differing == []
    assert Api.CONSUMER_GROUP_HEARTBEAT in recode.spoken
    return got


def test_what_the_proxy_compressed_is_read_by_both_clients(java: JavaClients, kafka: LocalKafka) -> None:
    class Compress(Lie):
        apis = frozenset({Api.FETCH})

        async def on_response(self, exchange: Exchange) -> Decision:
            change_fetched_batches(
                exchange, lambda place, batches: [batch.with_records(batch.records()) for batch in batches]
            )
            self.did("compressed anew", exchange)
            return PASS

    expected = [b"%d " % number * 30_000 for number in range(3)]
    with Proxy(kafka.bootstrap, [Compress()]) as proxy:
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            name = topic(kafka.bootstrap)
            send(producer(kafka.bootstrap, compression_type=codec), name, *expected)
            assert values(read(proxy.bootstrap, name, check_crcs=True)) == expected
            consumer = java.consumer({"bootstrap.servers": proxy.bootstrap, "max.partition.fetch.bytes": 1 << 20})
            consumer.assign([java.partition(name, 0)])
            consumer.seek(java.partition(name, 0), 0)
            got: list[bytes] = []
            while len(got) < 3:
                polled = java.poll(consumer, 60)
                assert polled, codec
                got += [value for _, _, value in polled]
            assert got == expected
            consumer.close()


def test_three_brokers_have_three_listeners(kafka3: LocalKafka) -> None:
    class Watch(Lie):
        apis = ALL_APIS

        async def on_request(self, exchange: Exchange) -> Decision:
            self.did("saw", exchange, broker=exchange.broker, node=exchange.node)
            return PASS

    watch = Watch()
    first = kafka3.bootstrap.split(",")[0]
    with Proxy(first, [watch]) as proxy:
        name = topic(proxy.bootstrap, partitions=6, replicas=3)
        client = producer(proxy.bootstrap)
        for partition in range(6):
            send(client, name, b"%d" % partition, partition=partition)
        got = [values(read(proxy.bootstrap, name, partition)) for partition in range(6)]
        session_of_librdkafka(proxy.bootstrap)
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        told = {f"{node.host}:{node.port}" for node in admin.describe_cluster().result(LIMIT_S).nodes}
        listed = {f"{broker.host}:{broker.port}" for broker in admin.list_topics(timeout=LIMIT_S).brokers.values()}
    assert got == [[b"%d" % partition] for partition in range(6)]
    assert {act.facts["node"] for act in watch.acts} >= {1, 2, 3}
    assert {str(act.facts["broker"]) for act in watch.acts} == set(kafka3.bootstrap.split(","))
    assert told == listed and len(told) == 3
    assert not told & set(kafka3.bootstrap.split(",")), "clients are told no broker's own address"
