"""Requests of the proxy's own: what a lie needs a broker to do behind the clients' backs.

A `Side` has one connection to each broker, for one request at a time, and `resend` opens a new one for a client's own
frame. It speaks versions that every broker from 2.1 to 4.x has, so that it need not ask which: their topics go by
name, and transactions are those of before transactions v2, whose partitions are added by a request of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from monitor.drill.proxy import records
from monitor.drill.proxy.addresses import AddressBook
from monitor.drill.proxy.exchange import Exchange, Place
from monitor.drill.proxy.records import Batch
from probes.kafka.wire.errors import Refused
from probes.kafka.wire.frames import read_frame, write_frame
from probes.kafka.wire.messages import (
    Api,
    Payload,
    build,
    decode_response,
    element,
    milliseconds,
    new_request,
    request_class,
)
from probes.kafka.wire.upstream import Address

Result = TypeVar("Result")
Connect = Callable[[Address], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

CLIENT_ID: Final = "drill-side"
LATEST: Final = -1
EARLIEST: Final = -2

_VERSIONS: Final = {
    Api.PRODUCE: 7,
    Api.LIST_OFFSETS: 4,
    Api.METADATA: 7,
    Api.FIND_COORDINATOR: 2,
    Api.DELETE_RECORDS: 1,
    Api.INIT_PRODUCER_ID: 1,
    Api.ADD_PARTITIONS_TO_TXN: 1,
    Api.END_TXN: 1,
}
_PASSING: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
    }
)
"""Errors that go away by themselves."""
_TRIES: Final = 100
_PAUSE_S: Final = 0.1
_SPREADING: Final = 20
"""Tries for which a topic may be unknown: it can have been made a moment ago, at another broker than the one asked."""
_TRANSACTION: Final = 1
"""The key type of FindCoordinator; 0 is a group's."""
_LIMIT_MS: Final = 10_000


class Side:
    """For use on the proxy's event loop. Everything raises `Refused` (a broker's error) or `OSError`."""

    def __init__(self, book: AddressBook, connect: Connect) -> None:
        self._book = book
        self._connect = connect
        self._lines: dict[Address, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._locks: dict[Address, asyncio.Lock] = {}
        self._correlation = 0

    async def call(self, broker: Address, api: Api, **values: Any) -> Payload:
        """One request of the version in `_VERSIONS`, and its response, whatever it says."""
        self._correlation += 1
        payload = build(_request(api), **values)
        frame = new_request(api, _VERSIONS[api], self._correlation, CLIENT_ID, payload)
        async with self._locks.setdefault(broker, asyncio.Lock()):
            if broker not in self._lines:
                self._lines[broker] = await self._connect(broker)
            reader, writer = self._lines[broker]
            try:
                await write_frame(writer, frame)
                response = await read_frame(reader)
            except BaseException:
                # Who waits no longer leaves an answer behind that the next would take for its own.
                self._forget(broker)
                raise
            if response is None:
                self._forget(broker)
                raise ConnectionResetError(f"{broker} closed the connection")
        return decode_response(api, _VERSIONS[api], response)

    async def resend(self, exchange: Exchange) -> Payload:
        """Send a client's request, as it is or as it was changed, once more to the same broker on a new connection.

        Returns the broker's response, decoded."""
        reader, writer = await self._connect(exchange.broker)
        try:
            await write_frame(writer, exchange.request_bytes())
            response = await read_frame(reader)
        finally:
            writer.transport.abort()
        if response is None:
            raise ConnectionResetError(f"{exchange.broker} closed the connection")
        return decode_response(exchange.api, exchange.version, response)

    async def leader(self, place: Place) -> Address:
        """The broker that leads the partition, waited for where there is none."""
        kind = element(_request(Api.METADATA), "topics")

        async def ask() -> tuple[ErrorCode, Address | None]:
            response = await self._ask_anyone(Api.METADATA, topics=(build(kind, name=place.topic),))
            brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
            for topic in response.topics:
                for one in topic.partitions:
                    if one.partition_index == place.partition:
                        return one.error_code, brokers.get(one.leader_id)
                return topic.error_code, None
            return ErrorCode.unknown_topic_or_partition, None

        found = await _patiently(f"the leader of {place}", ask, unknown_for=_SPREADING)
        if found is None:
            raise Refused(f"the leader of {place}", "there is no such partition")
        return found

    async def produce(
        self, place: Place, batches: Sequence[Batch], *, transactional_id: str | None = None, acks: int = -1
    ) -> int:
        """Append batches as they are, and return the first one's offset. See `Batch.without_producer`."""
        topic_kind = element(_request(Api.PRODUCE), "topic_data")
        part_kind = element(topic_kind, "partition_data")
        data = build(part_kind, index=place.partition, records=records.encode(batches))
        topic = build(topic_kind, name=place.topic, partition_data=(data,))
        values = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": milliseconds(_LIMIT_MS),
            "topic_data": (topic,),
        }

        async def append() -> tuple[ErrorCode, int]:
            response = await self.call(await self.leader(place), Api.PRODUCE, **values)
            (result,) = response.responses[0].partition_responses
            return result.error_code, result.base_offset

        return await _patiently(f"a batch for {place}", append)

    async def offset(self, place: Place, at: int = LATEST, *, committed_only: bool = False) -> int:
        """The end of the partition's log, `at=EARLIEST` its start, or the first offset at a timestamp (ms).

        `committed_only` asks for the last stable offset instead of the end."""
        kind = element(_request(Api.LIST_OFFSETS), "topics")
        part = build(element(kind, "partitions"), partition_index=place.partition, timestamp=at)
        topic = build(kind, name=place.topic, partitions=(part,))

        async def ask() -> tuple[ErrorCode, int]:
            response = await self.call(
                await self.leader(place),
                Api.LIST_OFFSETS,
                replica_id=-1,
                isolation_level=int(committed_only),
                topics=(topic,),
            )
            (result,) = response.topics[0].partitions
            return result.error_code, result.offset

        return await _patiently(f"an offset of {place}", ask)

    async def delete_records(self, place: Place, before: int) -> int:
        """Delete what is before the offset; the log's new start."""
        kind = element(_request(Api.DELETE_RECORDS), "topics")
        part = build(element(kind, "partitions"), partition_index=place.partition, offset=before)
        topic = build(kind, name=place.topic, partitions=(part,))

        async def ask() -> tuple[ErrorCode, int]:
            leader = await self.leader(place)
            response = await self.call(leader, Api.DELETE_RECORDS, topics=(topic,), timeout=milliseconds(_LIMIT_MS))
            (result,) = response.topics[0].partitions
            return result.error_code, result.low_watermark

        return await _patiently(f"deleting records of {place}", ask)

    async def coordinator(self, transactional_id: str) -> Address:
        async def ask() -> tuple[ErrorCode, Address]:
            found = await self._ask_anyone(Api.FIND_COORDINATOR, key=transactional_id, key_type=_TRANSACTION)
            return found.error_code, Address(found.host, found.port)

        return await _patiently(f"the coordinator of {transactional_id}", ask)

    async def transaction(self, transactional_id: str, timeout_ms: int = 60_000) -> SideTransaction:
        """A transactional producer of the proxy's own. It fences whoever else has that transactional id."""

        async def ask() -> tuple[ErrorCode, Payload]:
            response = await self.call(
                await self.coordinator(transactional_id),
                Api.INIT_PRODUCER_ID,
                transactional_id=transactional_id,
                transaction_timeout=milliseconds(timeout_ms),
            )
            return response.error_code, response

        made = await _patiently(f"a producer id for {transactional_id}", ask)
        return SideTransaction(self, transactional_id, made.producer_id, made.producer_epoch)

    async def close(self) -> None:
        for broker in list(self._lines):
            self._forget(broker)

    def _forget(self, broker: Address) -> None:
        _, writer = self._lines.pop(broker)
        writer.transport.abort()  # nothing is left to be sent, and a broker that has stopped would hold it open

    async def _ask_anyone(self, api: Api, **values: Any) -> Payload:
        """The first broker that can be reached: one may be down."""
        known = [*dict.fromkeys([*self._book.brokers.values(), *self._book.bootstrap])]
        for broker in known[:-1]:
            with suppress(OSError):
                return await self.call(broker, api, **values)
        return await self.call(known[-1], api, **values)


@dataclass
class SideTransaction:
    """A transactional producer: any number of transactions, one after the other. Counts its own sequences."""

    side: Side
    transactional_id: str
    producer_id: int
    epoch: int
    _sequences: dict[Place, int] = field(default_factory=dict)
    _added: set[Place] = field(default_factory=set)

    async def add(self, places: Collection[Place]) -> None:
        """Add partitions to the transaction; `produce` does it by itself."""
        request = _request(Api.ADD_PARTITIONS_TO_TXN)
        kind = element(request, "v3_and_below_topics")
        topics = tuple(
            build(kind, name=topic, partitions=tuple(place.partition for place in of_topic))
            for topic, of_topic in groupby(sorted(places), key=lambda place: place.topic)
        )

        async def ask() -> tuple[ErrorCode, None]:
            response = await self.side.call(
                await self.side.coordinator(self.transactional_id),
                Api.ADD_PARTITIONS_TO_TXN,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            )
            errors = [
                result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
            return next((error for error in errors if error is not ErrorCode.none), ErrorCode.none), None

        await _patiently(f"partitions of a transaction of {self.transactional_id}", ask)
        self._added |= set(places)

    async def produce(self, place: Place, batch: Batch) -> int:
        """Append the batch's records as this producer's; the offset of the first."""
        if place not in self._added:
            await self.add({place})
        sequence = self._sequences.get(place, 0)
        own = batch.of_producer(self.producer_id, self.epoch, sequence, transactional=True)
        own = replace(own, base_offset=0)
        offset = await self.side.produce(place, [own], transactional_id=self.transactional_id)
        self._sequences[place] = sequence + batch.last_offset_delta + 1
        return offset

    async def end(self, *, commit: bool) -> None:
        """Commit or abort. Returns when the coordinator has decided; the markers follow."""

        async def ask() -> tuple[ErrorCode, None]:
            response = await self.side.call(
                await self.side.coordinator(self.transactional_id),
                Api.END_TXN,
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            return response.error_code, None

        await _patiently(f"the end of a transaction of {self.transactional_id}", ask)
        self._added.clear()


async def _patiently(
    what: str, ask: Callable[[], Awaitable[tuple[ErrorCode, Result]]], *, unknown_for: int = 0
) -> Result:
    """Ask again while the error is one that goes away, up to ten seconds. Raises `Refused`.

    An unknown topic is asked for again `unknown_for` times."""
    for attempt in range(_TRIES):
        error, result = await ask()
        if error is ErrorCode.none:
            return result
        unknown = error is ErrorCode.unknown_topic_or_partition and attempt < unknown_for
        if error not in _PASSING and not unknown:
            break
        await asyncio.sleep(_PAUSE_S)
    raise Refused(what, error.name)


def _request(api: Api) -> type[Payload]:
    kind = request_class(api, _VERSIONS[api])
    assert kind is not None
    return kind
