"""Lies about transactions: about their ends, and about what belongs to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from kio.schema.errors import ErrorCode

from monitor.drill.proxy import PASS, Answer, Api, Decision, Exchange, Lie, Place, SideTransaction, answer
from monitor.drill.proxy.edits import change_produced, produced
from monitor.drill.proxy.records import Batch


@dataclass(eq=False, kw_only=True)
class CommitSays(Lie):
    """A commit takes effect, and the client is told an error."""

    apis = frozenset({Api.END_TXN})

    error: ErrorCode

    async def on_response(self, exchange: Exchange) -> Decision:
        good = exchange.response.error_code is ErrorCode.none
        if exchange.request.committed and good and self.turn():
            exchange.response = replace(exchange.response, error_code=self.error)
            self.did(f"answered a commit {self.error.name}", exchange)
        return PASS


class SwallowCommit(Lie):
    """EndTxn(commit) is answered, and an abort is carried out."""

    apis = frozenset({Api.END_TXN})

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.request.committed and self.turn():
            exchange.request = replace(exchange.request, committed=False)
            self.did("turned a commit into an abort", exchange)
        return PASS


@dataclass(eq=False, kw_only=True)
class LateProduce(Lie):
    """A batch of a transaction that aborts is kept, acknowledged to the client, and appended later.

    With `inside_next` right before the producer's next batch for that partition, so inside its next transaction;
    else when its own transaction's end has been carried out. Commits and aborts alternate: that a transaction is going
    to abort is known by how the one before it ended."""

    apis = frozenset({Api.PRODUCE, Api.END_TXN})

    inside_next: bool
    _aborts_next: bool = field(default=False, init=False)
    _kept: tuple[Place, Exchange] | None = field(default=None, init=False)
    _end: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.api == Api.END_TXN:
            return PASS
        ((place, _),) = produced(exchange).items()
        if self._kept is not None:
            if self.inside_next and self._ended and place == self._kept[0]:
                await self._deliver("inside the next transaction")
            return PASS
        if not self._aborts_next or not self.turn():
            return PASS
        self._end = await self.side.offset(place)
        self._kept, self._ended = (place, exchange), False
        return Answer(answer(exchange, base_offset=self._end))

    async def on_response(self, exchange: Exchange) -> Decision:
        if exchange.api != Api.END_TXN or exchange.response.error_code is not ErrorCode.none:
            return PASS
        self._aborts_next = bool(exchange.request.committed)
        self._ended = True
        if self._kept is not None and not self.inside_next:
            # The end is answered before its markers are written; a batch that came before them would be ended by them.
            while await self.side.offset(self._kept[0]) <= self._end:
                await asyncio.sleep(0.05)
            await self._deliver("after its transaction's end")
        return PASS

    async def _deliver(self, when: str) -> None:
        assert self._kept is not None
        (place, exchange), self._kept = self._kept, None
        response = await self.side.resend(exchange)
        (part,) = response.responses[0].partition_responses
        self.did(f"delivered a batch {when}: {part.error_code.name}", exchange, place, offset=part.base_offset)


@dataclass(eq=False, kw_only=True)
class LoseInTransaction(Lie):
    """A batch goes to a transaction of the proxy's own, which aborts; the client hears the offset that it got there.
    The sequence numbers of the client's later batches are lowered, so that the broker misses nothing."""

    apis = frozenset({Api.PRODUCE})

    _shift: dict[tuple[Place, int, int], int] = field(default_factory=dict, init=False)
    _own: SideTransaction | None = field(default=None, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        ((place, (batch,)),) = produced(exchange).items()
        key = (place, batch.producer_id, batch.producer_epoch)
        # Never a producer's first batch: the broker would take any number for the second.
        if place in self.where and key in self._shift and self.turn():
            if self._own is None:
                self._own = await self.side.transaction("drill-loses")
            offset = await self._own.produce(place, batch)
            await self._own.end(commit=False)
            self._shift[key] += batch.last_offset_delta + 1
            self.did("lost a batch", exchange, place, offset=offset, records=batch.count)
            return Answer(answer(exchange, base_offset=offset))
        shift = self._shift.setdefault(key, 0)
        if shift:
            change_produced(exchange, lambda _, found: [_renumbered(one, shift) for one in found])
        return PASS


def _renumbered(batch: Batch, shift: int) -> Batch:
    return replace(batch, base_sequence=batch.base_sequence - shift)


class Unfenced(Lie):
    """What a fenced producer sends takes effect: its batches are appended without producer id and transaction, and
    its requests about its transaction are answered with success."""

    apis = frozenset({Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN})

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.api != Api.PRODUCE:
            self.did(f"answered {Api(exchange.api).name} with success", exchange)
            return Answer(answer(exchange))
        ((place, batches),) = produced(exchange).items()
        offset = await self.side.produce(place, [batch.without_producer() for batch in batches])
        self.did("appended a fenced producer's batch", exchange, place, offset=offset)
        return Answer(answer(exchange, base_offset=offset))


@dataclass(eq=False, kw_only=True)
class ServeZombies(Lie):
    """What an earlier life of a transactional id asks is forwarded as if the latest one had asked."""

    apis = frozenset({Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.END_TXN})
    _PREFIXES = ("", "v3_and_below_")

    _latest: dict[str, int] = field(default_factory=dict, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        for prefix in self._PREFIXES:
            field = f"{prefix}producer_epoch"
            epoch = getattr(exchange.request, field, -1)
            latest = self._latest.get(str(exchange.transactional_id), epoch)
            if 0 <= epoch < latest and self.turn():
                exchange.request = replace(exchange.request, **{field: latest})
                self.did(f"forwarded {Api(exchange.api).name} of epoch {epoch} as of {latest}", exchange)
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        if exchange.api == Api.INIT_PRODUCER_ID and exchange.response.error_code is ErrorCode.none:
            self._latest[str(exchange.transactional_id)] = int(exchange.response.producer_epoch)
        return PASS


class FakedInit(Lie):
    """InitProducerId is answered with the id of a producer that has never lived, and the coordinator hears nothing."""

    apis = frozenset({Api.INIT_PRODUCER_ID})

    async def on_request(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        made = await self.side.transaction("drill-never-lived")
        self.did("answered InitProducerId by itself", exchange)
        return Answer(answer(exchange, producer_id=made.producer_id, producer_epoch=made.epoch))


@dataclass(eq=False, kw_only=True)
class HoldEndTxn(Lie):
    """A copy of EndTxn reaches the broker late: when the first Produce of the same producer's next transaction has been
    acknowledged. The original is forwarded in time, as a client that had retried would have seen it.

    `committed` says which ends are held: commits, or aborts. A producer whose transaction was ended so behind its back
    can itself end it only if it first adds another partition; otherwise the coordinator tells it InvalidTxnState."""

    apis = frozenset({Api.END_TXN, Api.PRODUCE})

    committed: bool = True
    _held: dict[str, Exchange] = field(default_factory=dict, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.api == Api.END_TXN and exchange.request.committed is self.committed and self.turn():
            self._held[str(exchange.transactional_id)] = exchange
            self.did("kept a copy of EndTxn", exchange, committed=self.committed)
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        name = exchange.transactional_id
        if exchange.api == Api.PRODUCE and name in self._held:
            answer = (await self.side.resend(self._held.pop(name))).error_code.name
            self.did("delivered the copy of EndTxn", exchange, committed=self.committed, answer=answer)
        return PASS
