"""What the lying proxy costs when it tells no lie: records through it against records past it, one real broker.

The producer sends values of 120 bytes without a delivery callback for each, with `acks=all` and idempotence; the
consumer takes them in blocks. Client, proxy and broker share the machine. The proxy is also measured with a lie that
decodes every Produce and Fetch and changes none, and with one that takes every batch apart and puts it together again.

BENCH_PROXY_RECORDS: records sent in each way (default 200,000).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local_kafka import LocalKafka
from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy
from monitor.drill.proxy.edits import change_fetched_batches, change_produced
from monitor.drill.proxy.lie import ALWAYS, Where
from tests.bench.report import machine, show

LIMIT_S = 120.0
VALUE = b"v" * 120
NEEDED = 20_000
"""Records per second that must pass where no lie is told."""


class Decode(Lie):
    """Decodes every Produce and Fetch, and changes none."""

    apis = frozenset({Api.PRODUCE, Api.FETCH})

    async def on_request(self, exchange: Exchange) -> Decision:
        exchange.places()
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        exchange.places()
        return PASS


class Rebuild(Lie):
    """Takes every batch apart, record by record, and puts it together again."""

    apis = Decode.apis

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.api == Api.PRODUCE:
            change_produced(exchange, lambda _, batches: [batch.with_records(batch.records()) for batch in batches])
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        if exchange.api == Api.FETCH:
            change_fetched_batches(
                exchange, lambda _, batches: [batch.with_records(batch.records()) for batch in batches]
            )
        return PASS


def run() -> bool:
    """Print records per second, produced and consumed, each way; whether the proxy without lies let `NEEDED` pass."""
    records = int(os.environ.get("BENCH_PROXY_RECORDS", "200000").replace("_", ""))
    ways: dict[str, Sequence[Lie] | None] = {
        "direct": None,
        "proxy without lies": (),
        "proxy, a lie of another client": (Decode(Where(client_id="somebody else"), ALWAYS),),
        "proxy, every frame decoded": (Decode(),),
        "proxy, every record rebuilt": (Rebuild(),),
    }
    print(machine(), flush=True)
    slowest = float("inf")
    with tempfile.TemporaryDirectory() as folder, LocalKafka(folder, brokers=1) as kafka:
        _measure(kafka.bootstrap, records // 4)  # the broker's code is compiled then
        for name, lies in ways.items():
            with ExitStack() as around:
                bootstrap = kafka.bootstrap
                if lies is not None:
                    bootstrap = around.enter_context(Proxy(bootstrap, lies)).bootstrap
                produced, consumed = _measure(bootstrap, records)
            if name == "proxy without lies":
                slowest = min(produced, consumed)
            show(name, {"produced": f"{produced:,.0f} records/s", "consumed": f"{consumed:,.0f} records/s"})
    return slowest >= NEEDED


def _measure(bootstrap: str, records: int) -> tuple[float, float]:
    """Records per second, produced and consumed."""
    name = f"rate-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(LIMIT_S)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    producer.list_topics(name, LIMIT_S)
    began = time.perf_counter()
    for number in range(records):
        producer.produce(name, VALUE, partition=number % 2)
    if producer.flush(LIMIT_S):
        raise SystemExit("not all records were acknowledged in time")
    produced = records / (time.perf_counter() - began)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, partition, 0) for partition in (0, 1)])
    got, began, deadline = 0, time.perf_counter(), time.monotonic() + LIMIT_S
    while got < records and time.monotonic() < deadline:
        got += sum(message.error() is None for message in consumer.consume(10_000, 0.5))
    consumed = got / (time.perf_counter() - began)
    consumer.close()
    if got != records:
        raise SystemExit(f"{got} of {records} records were read in time")
    return produced, consumed
