"""One client connection and the connection to the broker behind it.

Three tasks. One reads requests, asks the lies, and forwards them in their order. One reads the broker's responses and
pairs them with the requests by correlation id. One hands responses to the client in the order of the requests: a broker
answers in order, and so must an answer of the proxy's own wait for its turn.

A side that reads slowly slows the other down: nothing is read while what was read before cannot be written, and
responses that wait for their turn are bounded (`_UNSENT`). A client that ends its half of the connection still gets
what it asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from monitor.drill.proxy import addresses, versions
from monitor.drill.proxy.addresses import AddressBook
from monitor.drill.proxy.exchange import Exchange
from monitor.drill.proxy.lie import Answer, Close, Drop, Lie, first_decision
from probes.kafka.wire.errors import Refused, Undecodable
from probes.kafka.wire.frames import read_frame, write_frame
from probes.kafka.wire.messages import Api, acknowledged, correlation_of, request_head
from probes.kafka.wire.upstream import Address, Stream

_UNSENT: Final = 8 * 1024 * 1024
"""Bytes of responses that may wait for their turn before no more are read; one more response may always come."""
_IN_FLIGHT: Final = 10_000
"""Requests of one connection that are not answered yet, before no more are read."""


class Proxying(Protocol):
    """What a connection asks of the proxy whose client it serves."""

    book: AddressBook
    lies: list[Lie]

    async def listen(self, broker: Address) -> Address:
        """The address that clients are told instead of a broker's."""

    async def connect(self, broker: Address) -> Stream:
        """A new connection to a broker. Raises `OSError` and `Refused`."""

    def failed(self, error: Exception) -> None:
        """An error that is not the network's."""


class _Closed(Exception):
    """The connection is over: one side has gone, or a lie has closed it."""


class Connection:
    """From a client's connecting until one side has gone. `run` does not raise."""

    def __init__(
        self,
        proxy: Proxying,
        number: int,
        broker: Address,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._broker = broker
        self._from_client, self._to_client = client
        self._from_broker: asyncio.StreamReader
        self._to_broker: asyncio.StreamWriter
        self._clock = asyncio.get_running_loop().time
        self._turns: asyncio.Queue[Exchange | None] = asyncio.Queue(_IN_FLIGHT)
        self._in_flight: dict[int, Exchange] = {}
        self._unsent = 0
        self._room = asyncio.Event()

    async def run(self) -> None:
        try:
            self._from_broker, self._to_broker = await self._proxy.connect(self._broker)
        except OSError:
            # The broker is down: the client must see just that.
            self._to_client.transport.abort()
            return
        except Refused as error:
            self._proxy.failed(error)
            self._to_client.transport.abort()
            return
        in_order = False
        try:
            await _first_end(self._responses_to_client(), self._requests(), self._responses())
            in_order = True
        except (_Closed, OSError):
            pass
        except Exception as error:
            # A defect of a lie's or of ours. The client sees a closed connection; leaving the proxy raises it.
            self._proxy.failed(error)
        finally:
            # Closing in order still sends what was written; the other end is not waited for. A broker has got all by
            # then, and TLS would wait for its farewell for longer than the proxy may live.
            self._to_client.close() if in_order else self._to_client.transport.abort()
            self._to_broker.transport.abort()

    async def _requests(self) -> None:
        while (frame := await read_frame(self._from_client)) is not None:
            head = request_head(frame)
            if head.api == Api.API_VERSIONS and head.body_at is None:
                await self._answer_unsupported(frame, head.correlation)
                continue
            exchange = Exchange(head, frame, self._proxy.book, self._broker, self._number, self._clock())
            decision = await first_decision(self._proxy.lies, exchange, response=False)
            match decision:
                case Close():
                    raise _Closed
                case Drop():
                    continue
                case Answer(payload):
                    exchange.response = payload
                    exchange.done.set_result(None)
                    await self._turns.put(exchange)
                    continue
            forwarded = exchange.request_bytes()
            if acknowledged(head, forwarded):
                self._in_flight[head.correlation] = exchange
                await self._turns.put(exchange)
            await write_frame(self._to_broker, forwarded)
        if self._to_broker.can_write_eof():
            self._to_broker.write_eof()

    async def _responses(self) -> None:
        while (frame := await read_frame(self._from_broker)) is not None:
            exchange = self._in_flight.pop(correlation_of(frame), None)
            if exchange is None:
                raise Undecodable(f"{self._broker} answered {correlation_of(frame)}, which was not asked")
            self._unsent += len(frame)
            exchange.answered_by(frame)
            exchange.done.set_result(None)
            while self._unsent > _UNSENT:
                self._room.clear()
                await self._room.wait()
        for unanswered in self._in_flight.values():
            unanswered.done.set_exception(_Closed())
            unanswered.done.exception()  # nobody may be left to ask for it
        self._in_flight.clear()
        await self._turns.put(None)

    async def _responses_to_client(self) -> None:
        while (exchange := await self._turns.get()) is not None:
            await exchange.done
            frame = await self._seen_by_lies(exchange)
            if frame is not None:
                await write_frame(self._to_client, frame)

    async def _seen_by_lies(self, exchange: Exchange) -> bytes | None:
        """What the client gets, or None for nothing."""
        came = exchange.response_frame
        if came is None:
            return exchange.response_bytes()
        try:
            decision = await first_decision(self._proxy.lies, exchange, response=True)
        finally:
            self._unsent -= len(came)
            self._room.set()
        match decision:
            case Close():
                raise _Closed
            case Drop():
                return None
            case Answer(payload):
                exchange.response = payload
        await self._without_brokers_addresses(exchange)
        return exchange.response_bytes()

    async def _without_brokers_addresses(self, exchange: Exchange) -> None:
        if exchange.api == Api.API_VERSIONS:
            narrowed = versions.narrowed(exchange.response)
            if narrowed is not exchange.response:
                exchange.response = narrowed
        elif addresses.tells_addresses(exchange.api, exchange.version):
            if exchange.head.body_at is None:
                return  # a version that ApiVersions did not offer: it is not ours
            payload = await addresses.rewritten(self._proxy.book, exchange.api, exchange.response, self._proxy.listen)
            if payload is not exchange.response:
                exchange.response = payload

    async def _answer_unsupported(self, frame: bytes, correlation: int) -> None:
        """The client's ApiVersions is newer than what can be read here. It is the first request of a connection, so
        that nothing waits before it."""
        await write_frame(self._to_client, versions.unsupported(correlation))


async def _first_end(answers: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until `answers` is over or one raises; the rest are cancelled. Raises what was raised."""
    final = asyncio.ensure_future(answers)
    tasks = {final, *map(asyncio.ensure_future, others)}
    try:
        waiting = set(tasks)
        while not final.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task
