"""The protocol on the wire: order, versions, addresses, ends of connections, sizes."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from deploy.local_kafka import LocalKafka
from monitor.drill.proxy import (
    CLOSE,
    DROP,
    ONCE,
    PASS,
    Answer,
    Api,
    Decision,
    Delay,
    Exchange,
    Lie,
    Place,
    Proxy,
    ProxyFailed,
    When,
    answer,
    records,
)
from monitor.drill.proxy.addresses import AddressBook, rewritten
from monitor.drill.proxy.versions import known, narrowed
from probes.kafka.wire.messages import build, decode_response, element, request_class, response_class
from probes.kafka.wire.upstream import Address
from tests.monitor.drill.proxy.clients import producer, read, send, topic, values
from tests.monitor.drill.proxy.raw import Raw, correlation


class Decide(Lie):
    """Gives one verdict for Metadata requests, or for their responses."""

    apis = frozenset({Api.METADATA})

    def __init__(self, verdict: Decision, when: When = ONCE, *, response: bool = False) -> None:
        super().__init__(when=when)
        self._verdict = verdict
        self._on_response = response

    async def on_request(self, exchange: Exchange) -> Decision:
        return PASS if self._on_response else self._decide(exchange)

    async def on_response(self, exchange: Exchange) -> Decision:
        return self._decide(exchange) if self._on_response else PASS

    def _decide(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        self.did("decided", exchange)
        return self._verdict


class AnswerFast(Lie):
    apis = frozenset({Api.END_TXN})

    async def on_request(self, exchange: Exchange) -> Decision:
        return Answer(answer(exchange, ErrorCode.not_coordinator))


@pytest.mark.kafka
def test_answers_of_the_proxys_own_wait_for_their_turn(kafka: LocalKafka) -> None:
    slow = Decide(Delay(0.5), response=True)
    with Proxy(kafka.bootstrap, [slow, AnswerFast()]) as proxy, Raw(proxy.bootstrap) as client:
        client.send(Api.METADATA, 9, 1)
        client.send(Api.END_TXN, 1, 2, transactional_id="t", committed=True)
        for number in range(3, 40):
            client.send(Api.METADATA, 9, number)
        frames = [client.receive() for _ in range(39)]
    assert [correlation(frame) for frame in frames] == list(range(1, 40))
    assert frames[1] is not None
    assert decode_response(Api.END_TXN, 1, frames[1]).error_code is ErrorCode.not_coordinator


@pytest.mark.kafka
@pytest.mark.parametrize("response", [False, True], ids=["request", "response"])
def test_verdicts(kafka: LocalKafka, response: bool) -> None:
    with Proxy(kafka.bootstrap, [Decide(DROP, response=response)]) as proxy, Raw(proxy.bootstrap) as client:
        client.send(Api.METADATA, 9, 1)
        client.send(Api.METADATA, 9, 2)
        assert correlation(client.receive()) == 2, "the first was never answered"
    with Proxy(kafka.bootstrap, [Decide(CLOSE, response=response)]) as proxy:
        with Raw(proxy.bootstrap) as client:
            client.send(Api.METADATA, 9, 1)
            assert client.receive() is None
        with Raw(proxy.bootstrap) as client:
            assert client.call(Api.METADATA, 9).brokers
    with Proxy(kafka.bootstrap, [Decide(Delay(0.4), response=response)]) as proxy, Raw(proxy.bootstrap) as client:
        began = time.monotonic()
        client.call(Api.METADATA, 9)
        assert time.monotonic() - began >= 0.4


@pytest.mark.kafka
def test_a_client_that_ends_its_half_gets_what_it_asked_for(kafka: LocalKafka) -> None:
    with Proxy(kafka.bootstrap, [Decide(Delay(0.3), response=True)]) as proxy, Raw(proxy.bootstrap) as client:
        client.send(Api.METADATA, 9, 1)
        time.sleep(0.1)
        client.socket.shutdown(socket.SHUT_WR)
        assert correlation(client.receive()) == 1
        assert client.receive() is None


@pytest.mark.kafka
def test_requests_that_nobody_here_knows_pass_untouched(kafka: LocalKafka) -> None:
    unknown = struct.pack(">hhih3s", 999, 0, 7, 3, b"raw") + b"\x00whatever"
    with Proxy(kafka.bootstrap) as proxy, Raw(proxy.bootstrap) as client:
        client.send_frame(unknown)
        assert client.receive() is None, "what the broker does with it: it closes the connection"
    assert proxy.errors == []


@pytest.mark.kafka
def test_versions_are_narrowed_and_a_newer_client_asks_again(kafka: LocalKafka) -> None:
    newer = struct.pack(">hhih3s", Api.API_VERSIONS, 99, 7, 3, b"raw") + b"\x00\x01\x00"
    with Proxy(kafka.bootstrap) as proxy, Raw(proxy.bootstrap) as client:
        client.send_frame(newer)
        frame = client.receive()
        assert correlation(frame) == 7 and frame is not None
        told = decode_response(Api.API_VERSIONS, 99, frame)
        assert told.error_code is ErrorCode.unsupported_version
        assert [(one.api_key, one.min_version, one.max_version) for one in told.api_keys] == [(18, 0, 4)]
        seen = client.call(Api.API_VERSIONS, 4, client_software_name="raw", client_software_version="1")
    with Raw(kafka.bootstrap) as direct:
        real = direct.call(Api.API_VERSIONS, 4, client_software_name="raw", client_software_version="1")
    assert {one.api_key for one in seen.api_keys} == {one.api_key for one in real.api_keys}
    # The epoch goes up with every record of the controllers, those that only say that they live among them.
    seen, real = (dataclasses.replace(told, api_keys=(), finalized_features_epoch=0) for told in (seen, real))
    assert seen == real, "features are kept"
    for one in seen.api_keys:
        ours = known(one.api_key)
        assert ours is None or (ours[0] <= one.min_version and one.max_version <= ours[1])


def test_narrowing() -> None:
    kind = response_class(Api.API_VERSIONS, 3)
    assert kind is not None
    row = element(kind, "api_keys")

    def offer(*rows: tuple[int, int, int]) -> object:
        return build(kind, api_keys=tuple(build(row, api_key=k, min_version=a, max_version=b) for k, a, b in rows))

    assert narrowed(offer((Api.FETCH, 0, 99), (999, 0, 9), (Api.PRODUCE, 90, 99))) == offer(
        (Api.FETCH, 4, 18), (999, 0, 9), (Api.PRODUCE, 90, 99)
    )
    within = offer((Api.FETCH, 5, 6))
    assert narrowed(within) is within


@pytest.mark.kafka
def test_every_answer_that_names_brokers_names_listeners(kafka3: LocalKafka) -> None:
    real = {int(address.rpartition(":")[2]) for address in kafka3.bootstrap.split(",")}
    with Proxy(kafka3.bootstrap) as proxy:
        name = topic(proxy.bootstrap, replicas=3)
        listeners = {int(address.rpartition(":")[2]) for address in proxy.bootstrap.split(",")}
        with Raw(proxy.bootstrap.split(",")[0]) as client:
            ports = {broker.port for broker in client.call(Api.METADATA, 12).brokers}
            ports |= {broker.port for broker in client.call(Api.DESCRIBE_CLUSTER, 1, endpoint_type=1).brokers}
            assert ports == listeners
            while (found := client.call(Api.FIND_COORDINATOR, 2, key="g")).error_code is not ErrorCode.none:
                assert found.error_code is ErrorCode.coordinator_not_available, "the groups' topic is being made"
                time.sleep(0.1)
            assert found.port in listeners
            several = client.call(Api.FIND_COORDINATOR, 4, coordinator_keys=("g", "h"))
            assert {one.port for one in several.coordinators} <= listeners
        place = Place(name, 0)
        leader = proxy.run(proxy.side.leader(place))
        follower = next(a for a in proxy.bootstrap.split(",") if real_of(proxy, a) != leader)
        with Raw(follower) as client:
            batch = records.batch_of([(None, b"v")], int(time.time() * 1000))
            kind = element(_request(Api.PRODUCE, 10), "topic_data")
            data = build(element(kind, "partition_data"), index=0, records=batch.encode())
            wanted = build(kind, name=place.topic, partition_data=(data,))
            told = client.call(Api.PRODUCE, 10, acks=-1, topic_data=(wanted,))
            (result,) = told.responses[0].partition_responses
            assert result.error_code is ErrorCode.not_leader_or_follower
            (endpoint,) = told.node_endpoints
            assert endpoint.port in listeners and endpoint.port not in real


def real_of(proxy: Proxy, listener: str) -> Address:
    return next(real for real in proxy.book.bootstrap if str(proxy.run(proxy.listen(real))) == listener)


def _request(api: int, version: int) -> type:
    kind = request_class(api, version)
    assert kind is not None
    return kind


def test_a_broker_that_is_new_gets_a_listener() -> None:
    opened: list[Address] = []

    async def listen(broker: Address) -> Address:
        opened.append(broker)
        return Address("127.0.0.1", 1000 + broker.port)

    book = AddressBook(())
    for api, version, where in ((Api.FETCH, 16, "node_endpoints"), (Api.SHARE_FETCH, 1, "node_endpoints")):
        kind = response_class(api, version)
        assert kind is not None
        end = build(element(kind, where), node_id=9, host="broker-9", port=92)
        payload = asyncio.run(rewritten(book, api, build(kind, **{where: (end,)}), listen))
        assert getattr(payload, where)[0] == dataclasses.replace(end, host="127.0.0.1", port=1092)
        without = build(kind)
        assert asyncio.run(rewritten(book, api, without, listen)) is without
    assert book.brokers == {9: Address("broker-9", 92)}
    kind = response_class(Api.FIND_COORDINATOR, 2)
    assert kind is not None
    nobody = build(kind, error_code=ErrorCode.coordinator_not_available, node_id=-1, host="", port=-1)
    assert asyncio.run(rewritten(book, Api.FIND_COORDINATOR, nobody, listen)) is nobody
    assert set(opened) == {Address("broker-9", 92)}


@pytest.mark.kafka
def test_large_frames(kafka: LocalKafka) -> None:
    large = [bytes([65 + number]) * 900_000 for number in range(12)]
    with Proxy(kafka.bootstrap) as proxy:
        name = topic(proxy.bootstrap)
        send(producer(proxy.bootstrap), name, *large)
        got = read(proxy.bootstrap, name, fetch_max_bytes=20_000_000, max_partition_fetch_bytes=20_000_000)
    assert values(got) == large


@pytest.fixture
def flood() -> Iterator[tuple[str, list[int]]]:
    """A broker that answers every request with 1 MiB, and how much of that it got rid of."""
    sent = [0]
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            try:
                with peer:
                    while len(head := peer.recv(4, socket.MSG_WAITALL)) == 4:
                        frame = peer.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
                        body = frame[4:8] + bytes(1 << 20)
                        peer.sendall(struct.pack(">I", len(body)) + body)
                        sent[0] += 1
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}", sent
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(60)


def test_who_does_not_read_is_not_read_for(flood: tuple[str, list[int]]) -> None:
    bootstrap, sent = flood
    heartbeats = 200
    with Proxy(bootstrap) as proxy, Raw(proxy.bootstrap) as client:
        for number in range(heartbeats):
            client.send(Api.HEARTBEAT, 0, number)
        before, limit = 0, time.monotonic() + 60
        while not before or before != sent[0]:
            assert time.monotonic() < limit, "it does not come to rest"
            before = sent[0]
            time.sleep(1.0)
        assert 0 < sent[0] < 40, "MiB are between a broker that sends 200 and a client that does not read"
        got = [correlation(client.receive()) for _ in range(heartbeats)]
    assert got == list(range(heartbeats))
    assert sent[0] == heartbeats


class Broken(Lie):
    """It has a defect."""

    apis = frozenset({Api.METADATA})

    async def on_request(self, exchange: Exchange) -> Decision:
        raise ZeroDivisionError("a defect")


@pytest.mark.kafka
def test_an_error_in_a_lie_is_not_swallowed(kafka: LocalKafka) -> None:
    with (
        pytest.raises(ProxyFailed, match="the lying proxy failed: ZeroDivisionError: a defect"),
        Proxy(kafka.bootstrap, [Broken()]) as proxy,
        Raw(proxy.bootstrap) as client,
    ):
        client.send(Api.METADATA, 9, 1)
        assert client.receive() is None


@pytest.mark.kafka
def test_an_error_in_a_lie_is_told_beside_what_it_led_to(kafka: LocalKafka) -> None:
    with (
        pytest.raises(AssertionError, match="no answer") as raised,
        Proxy(kafka.bootstrap, [Broken()]) as proxy,
        Raw(proxy.bootstrap) as client,
    ):
        client.send(Api.METADATA, 9, 1)
        assert client.receive() is not None, "no answer"
    assert raised.value.__notes__ == ["the lying proxy failed: ZeroDivisionError: a defect"]


def test_a_broker_that_is_down_is_down_for_the_client() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{free.getsockname()[1]}"
        with Proxy(bootstrap) as proxy, Raw(proxy.bootstrap) as client:
            assert client.receive() is None
        assert proxy.errors == []


@pytest.mark.parametrize("bootstrap", ["", "broker", "broker:", ":9092", "broker:http"])
def test_a_bad_address_is_named(bootstrap: str) -> None:
    with pytest.raises(ProxyFailed, match=f'^"{bootstrap}" is not a broker\'s address: write host:port$'):
        Proxy(bootstrap)


def test_another_protocol_is_refused(flood: tuple[str, list[int]]) -> None:
    with (
        pytest.raises(ProxyFailed, match="this is not Kafka's protocol"),
        Proxy(flood[0]) as proxy,
        Raw(proxy.bootstrap) as client,
    ):
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.receive() is None
