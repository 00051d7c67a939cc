"""Lies that are of use on their own, and examples for all others: each is one published bug's mechanism."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from monitor.drill.proxy.edits import (
    acknowledged,
    answer,
    change_acknowledged,
    change_fetched,
    change_fetched_batches,
    produced,
)
from monitor.drill.proxy.exchange import Exchange, Place
from monitor.drill.proxy.lie import ALWAYS, CLOSE, DROP, EVERYWHERE, PASS, Answer, Lie, Verdict, When, Where
from monitor.drill.proxy.messages import Api
from monitor.drill.proxy.records import Batch, Record

Chosen = Callable[[Place, int, Record], bool]
"""Whether a record is meant, by its partition and offset and what is in it."""


class DropProduceResponse(Lie):
    """The broker appends, the acknowledgement is lost. With `close` the connection goes with it, and the client retries
    at once instead of waiting for its request to time out."""

    apis = frozenset({Api.PRODUCE})

    def __init__(self, where: Where = EVERYWHERE, when: When = ALWAYS, *, close: bool = True, **options: Any) -> None:
        super().__init__(where, when, **options)
        self._verdict: Verdict = CLOSE if close else DROP

    async def on_response(self, exchange: Exchange) -> Verdict:
        if not self.turn():
            return PASS
        for place, result in acknowledged(exchange).items():
            self.did("dropped the acknowledgement", exchange, place, base_offset=result.base_offset)
        return self._verdict


class LateProduceResponse(Lie):
    """The broker appends, and what it answers is kept until `lost` is set; then it is lost, and the connection with it:
    the client sends the batch again. What that is refused for is an act, too."""

    apis = frozenset({Api.PRODUCE})

    def __init__(self, where: Where = EVERYWHERE, when: When = ALWAYS, **options: Any) -> None:
        super().__init__(where, when, **options)
        self.lost = threading.Event()

    async def on_response(self, exchange: Exchange) -> Verdict:
        told = acknowledged(exchange)
        if not self.turn():
            for place, result in told.items():
                if self.lost.is_set() and result.error_code is not ErrorCode.none and place in self.where:
                    self.did(f"was refused: {result.error_code.name}", exchange, place)
            return PASS
        for place, result in told.items():
            self.did("kept an acknowledgement", exchange, place, base_offset=result.base_offset)
        while not self.lost.is_set():
            await asyncio.sleep(0.05)
        return CLOSE


class AnswerProduceWith(Lie):
    """The client is told `error`, whether the broker has appended the batch (`forward`) or never saw it."""

    apis = frozenset({Api.PRODUCE})

    def __init__(
        self,
        error: ErrorCode,
        where: Where = EVERYWHERE,
        when: When = ALWAYS,
        *,
        forward: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(where, when, **options)
        self._error = error
        self._forward = forward

    async def on_request(self, exchange: Exchange) -> Verdict:
        if self._forward or not self.turn():
            return PASS
        self.did(f"answered {self._error.name}, forwarded nothing", exchange)
        return Answer(answer(exchange, self._error, base_offset=-1))

    async def on_response(self, exchange: Exchange) -> Verdict:
        if not self._forward or not self.turn():
            return PASS

        def fail(place: Place, result: Any) -> Any:
            if place not in self.where or result.error_code is not ErrorCode.none:
                return None
            self.did(f"answered {self._error.name}", exchange, place, base_offset=result.base_offset)
            return replace(result, error_code=self._error, base_offset=-1)

        change_acknowledged(exchange, fail)
        return PASS


class ChangeAckOffset(Lie):
    """The acknowledged base offset is another's: `change` makes it of the real one."""

    apis = frozenset({Api.PRODUCE})

    def __init__(
        self, change: Callable[[int], int], where: Where = EVERYWHERE, when: When = ALWAYS, **options: Any
    ) -> None:
        super().__init__(where, when, **options)
        self._change = change

    async def on_response(self, exchange: Exchange) -> Verdict:
        def other(place: Place, result: Any) -> Any:
            if place not in self.where or result.error_code is not ErrorCode.none or not self.turn():
                return None
            told = self._change(result.base_offset)
            self.did("acknowledged another offset", exchange, place, real=result.base_offset, told=told)
            return replace(result, base_offset=told)

        change_acknowledged(exchange, other)
        return PASS


class HideRecords(Lie):
    """Chosen records are left out of what consumers fetch. Their offsets stay, so that consumers go on behind them."""

    apis = frozenset({Api.FETCH})

    def __init__(self, chosen: Chosen, where: Where = EVERYWHERE, when: When = ALWAYS, **options: Any) -> None:
        super().__init__(where, when, **options)
        self._chosen = chosen

    async def on_response(self, exchange: Exchange) -> Verdict:
        def without(place: Place, batches: list[Batch]) -> list[Batch] | None:
            if place not in self.where:
                return None
            left = [self._without(exchange, place, batch) for batch in batches]
            return left if left != batches else None

        change_fetched_batches(exchange, without)
        return PASS

    def _without(self, exchange: Exchange, place: Place, batch: Batch) -> Batch:
        if batch.is_control:
            return batch
        records = batch.records()
        hidden = {
            record.offset_delta
            for record in records
            if self._chosen(place, batch.base_offset + record.offset_delta, record) and self.turn()
        }
        if not hidden:
            return batch
        self.did("hid records", exchange, place, offsets=[batch.base_offset + delta for delta in sorted(hidden)])
        return batch.with_records([record for record in records if record.offset_delta not in hidden])


class CopyProduceWithoutProducerId(Lie):
    """A batch that was accepted is appended once more, as by a producer without idempotence."""

    apis = frozenset({Api.PRODUCE})

    async def on_response(self, exchange: Exchange) -> Verdict:
        results = acknowledged(exchange)
        for place, batches in produced(exchange).items():
            if place not in self.where or results[place].error_code is not ErrorCode.none or not self.turn():
                continue
            offset = await self.side.produce(place, [batch.without_producer() for batch in batches])
            self.did("appended a copy", exchange, place, original=results[place].base_offset, copy=offset)
        return PASS


class EmptyAbortedTransactions(Lie):
    """The list of aborted transactions is taken out of what consumers fetch: aborted records look committed to them."""

    apis = frozenset({Api.FETCH})

    async def on_response(self, exchange: Exchange) -> Verdict:
        def forget(place: Place, data: Any) -> Any:
            if place not in self.where or not data.aborted_transactions or not self.turn():
                return None
            first = [aborted.first_offset for aborted in data.aborted_transactions]
            self.did("emptied the list of aborted transactions", exchange, place, first_offsets=first)
            return replace(data, aborted_transactions=())

        change_fetched(exchange, forget)
        return PASS


class HoldEndTxn(Lie):
    """A copy of EndTxn reaches the broker late: after `records_of_next` Produce requests of the same producer's next
    transaction were acknowledged. The original is forwarded in time, as a client that had retried would have seen it.

    `committed` says which ends are held: commits, or aborts. A producer whose transaction was ended so behind its back
    can itself end it only if it first adds another partition; otherwise the coordinator tells it InvalidTxnState."""

    apis = frozenset({Api.END_TXN, Api.PRODUCE})

    def __init__(
        self,
        where: Where = EVERYWHERE,
        when: When = ALWAYS,
        *,
        committed: bool = True,
        records_of_next: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(where, when, **options)
        self._committed = committed
        self._after = records_of_next
        self._held: dict[str, Exchange] = {}
        self._acknowledged: dict[str, int] = {}

    async def on_request(self, exchange: Exchange) -> Verdict:
        if exchange.api == Api.END_TXN and exchange.request.committed is self._committed and self.turn():
            name = str(exchange.transactional_id)
            self._held[name], self._acknowledged[name] = exchange, 0
            self.did("kept a copy of EndTxn", exchange, committed=self._committed)
        return PASS

    async def on_response(self, exchange: Exchange) -> Verdict:
        name = exchange.transactional_id
        if exchange.api != Api.PRODUCE or name not in self._held:
            return PASS
        self._acknowledged[name] += 1
        if self._acknowledged[name] >= self._after:
            response = await self.side.resend(self._held.pop(name))
            self.did(
                "delivered the copy of EndTxn", exchange, committed=self._committed, answer=response.error_code.name
            )
        return PASS
