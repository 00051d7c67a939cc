"""The proxy's own requests, by what they do to the log."""

from __future__ import annotations

import time

import pytest

from deploy.local_kafka import LocalKafka
from monitor.drill.proxy import Place, Proxy, Refused
from monitor.drill.proxy.compression import Codec
from monitor.drill.proxy.records import Batch, batch_of
from monitor.drill.proxy.side import EARLIEST
from tests.monitor.drill.proxy.clients import producer, read, send, topic, values

pytestmark = pytest.mark.kafka


def batch(*found: bytes, codec: Codec = Codec.NONE) -> Batch:
    return batch_of([(None, value) for value in found], int(time.time() * 1000), codec)


@pytest.fixture(params=["three brokers", "3.8.1"])
def cluster(request: pytest.FixtureRequest) -> LocalKafka:
    names = {"three brokers": "kafka3", "3.8.1": "kafka_of_3_8"}
    found: LocalKafka = request.getfixturevalue(names[request.param])
    return found


def test_appending_offsets_and_deleting(cluster: LocalKafka) -> None:
    with Proxy(cluster.bootstrap) as proxy:
        side, place = proxy.side, Place(topic(cluster.bootstrap, partitions=4), 3)
        for number, codec in enumerate(Codec):
            assert proxy.run(side.produce(place, [batch(b"a" * 99, b"b", codec=codec)])) == 2 * number
        assert send(producer(proxy.bootstrap), place.topic, b"client", partition=3) == [10]
        assert proxy.run(side.offset(place)) == 11
        assert proxy.run(side.delete_records(place, 9)) == 9
        assert proxy.run(side.offset(place, EARLIEST)) == 9
    assert read(cluster.bootstrap, *place, auto_offset_reset="earliest") == [(9, b"b"), (10, b"client")]


def test_transactions(cluster: LocalKafka) -> None:
    with Proxy(cluster.bootstrap) as proxy:
        name = topic(cluster.bootstrap, partitions=2)
        places = [Place(name, 0), Place(name, 1)]
        mine = proxy.run(proxy.side.transaction(name))
        for value, commit in ((b"first", True), (b"aborted", False), (b"second", True)):
            for place in places:
                proxy.run(mine.produce(place, batch(value, value)))
            assert proxy.run(proxy.side.offset(places[0], committed_only=True)) < proxy.run(
                proxy.side.offset(places[0])
            ), "it is open"
            proxy.run(mine.end(commit=commit))
        for place in places:
            expected = [b"first", b"first", b"second", b"second"]
            assert values(read(cluster.bootstrap, *place, until=9)) == expected
            assert len(values(read(cluster.bootstrap, *place, until=9, committed=False))) == 6


def test_what_the_broker_refuses_is_named(kafka: LocalKafka) -> None:
    with Proxy(kafka.bootstrap) as proxy:
        place = Place(topic(kafka.bootstrap), 0)
        stale = batch(b"a").of_producer(10**12, 3, 5, transactional=False)
        with pytest.raises(Refused, match=r"^the broker refused a batch for drill-\w+/0: \w+$"):
            proxy.run(proxy.side.produce(place, [stale.with_records(stale.records()), stale]))
        with pytest.raises(Refused, match="the leader of nowhere/0: unknown_topic_or_partition"):
            proxy.run(proxy.side.leader(Place("nowhere", 0)))
        assert proxy.run(proxy.side.offset(place)) == 0
