"""Lies on the way of what is written."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kio.schema.errors import ErrorCode

from monitor.drill.proxy import CLOSE, DROP, PASS, Answer, Api, Decision, Delay, Exchange, Lie, Place
from monitor.drill.proxy.edits import acknowledged, answer, change_acknowledged, change_produced, produced
from monitor.drill.proxy.records import Batch, batch_of
from probes.records.tag import Encoder, read

AHEAD = 100_000
"""How far beyond a writer's numbers a forged record lies."""


@dataclass(eq=False, kw_only=True)
class CopyElsewhere(Lie):
    """A copy of an accepted batch is appended, without producer id, to a partition that it was not sent to."""

    apis = frozenset({Api.PRODUCE})

    to: int

    async def on_response(self, exchange: Exchange) -> Decision:
        for place, batches in produced(exchange).items():
            if place not in self.where or place.partition == self.to or not self.turn():
                continue
            other = Place(place.topic, self.to)
            offset = await self.side.produce(other, [batch.without_producer() for batch in batches])
            self.did(f"appended a copy to {other}", exchange, place, copy=offset)
        return PASS


@dataclass(eq=False, kw_only=True)
class CopyLater(Lie):
    """Accepted batches are appended once more, without producer id, when `behind` others have been accepted."""

    apis = frozenset({Api.PRODUCE})

    behind: int
    _kept: deque[tuple[Place, list[Batch]]] = field(default_factory=deque, init=False)

    async def on_response(self, exchange: Exchange) -> Decision:
        for place, batches in produced(exchange).items():
            if place in self.where:
                self._kept.append((place, [batch.without_producer() for batch in batches]))
        while len(self._kept) > self.behind:
            place, batches = self._kept.popleft()
            if self.turn():
                offset = await self.side.produce(place, batches)
                self.did("appended a copy of an earlier batch", exchange, place, copy=offset)
        return PASS


@dataclass(eq=False, kw_only=True)
class Exchanged(Lie):
    """The records of two batches that follow each other are exchanged, and their acknowledged offsets with them.

    The first is acknowledged at once, at the offset at which it will stand, and kept; when the second comes, its
    records are appended in the first one's place, under the first one's sequence numbers, and those of the first in
    its own. Both batches have one record, and nobody else writes to the partition."""

    apis = frozenset({Api.PRODUCE})

    _kept: Exchange | None = field(default=None, init=False)
    _first: int | None = field(default=None, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        ((place, batches),) = produced(exchange).items()
        if self._kept is None:
            if place not in self.where or [batch.count for batch in batches] != [1] or not self.turn():
                return PASS
            end = await self.side.offset(place)
            self._kept = exchange
            return Answer(answer(exchange, base_offset=end + 1))
        ((kept_place, (kept,)),) = produced(self._kept).items()
        if place != kept_place:
            return PASS
        (second,) = batches
        ours = self._kept
        change_produced(ours, lambda _, __: [kept.with_records_of(second)])
        response = await self.side.resend(ours)
        (part,) = response.responses[0].partition_responses
        change_produced(exchange, lambda _, __: [second.with_records_of(kept)])
        self._first = part.base_offset
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        if self._first is None:
            return PASS
        first, self._first, self._kept = self._first, None, None
        ((place, result),) = acknowledged(exchange).items()
        self.did("exchanged two records", exchange, place, offsets=[first, result.base_offset])
        change_acknowledged(exchange, lambda _, one: replace(one, base_offset=first))
        return PASS


@dataclass(eq=False, kw_only=True)
class NeverAnswered(Lie):
    """Requests are taken, and neither forwarded nor answered."""

    api: int

    def __post_init__(self) -> None:
        self.apis = frozenset({self.api})  # type: ignore[misc]  # to others a constant of their class

    async def on_request(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        self.did(f"swallowed a request {exchange.api}", exchange)
        return DROP


@dataclass(eq=False, kw_only=True)
class ReusedSequence(Lie):
    """A batch re-uses its predecessor's sequence numbers, and later ones are shifted: the broker takes it for what it
    has already, acknowledges it, and keeps nothing of it."""

    apis = frozenset({Api.PRODUCE})

    _shift: dict[tuple[Place, int], int] = field(default_factory=dict, init=False)
    _last: dict[tuple[Place, int], tuple[int, int]] = field(default_factory=dict, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        def renumbered(place: Place, batches: list[Any]) -> list[Any] | None:
            (batch,) = batches
            key = (place, batch.producer_id)
            last = self._last.get(key)
            shift = self._shift.get(key, 0)
            # The broker recognises a batch by its first and last sequence number.
            alike = last is not None and last[1] == batch.last_offset_delta
            if place in self.where and alike and not shift and self.turn():
                assert last is not None
                shift = self._shift[key] = batch.base_sequence - last[0]
                self.did("re-used a batch's sequence numbers", exchange, place, records=batch.count)
            sequence = batch.base_sequence - shift
            self._last[key] = sequence, batch.last_offset_delta
            return [replace(batch, base_sequence=sequence)] if shift else None

        change_produced(exchange, renumbered)
        return PASS


class Forged(Lie):
    """A record that no probe sent is appended: a well-formed tag of a writer that is there, with a sequence number that
    it has not come to."""

    apis = frozenset({Api.PRODUCE})

    async def on_response(self, exchange: Exchange) -> Decision:
        for place, batches in produced(exchange).items():
            if place not in self.where or not self.turn():
                continue
            last = batches[-1].records()[-1].value
            tag = read(last)
            assert tag is not None and last is not None
            encoder = Encoder(run=tag.run, writer=tag.writer, topic=tag.topic, partition=tag.partition, size=len(last))
            seq = tag.seq + AHEAD
            (value,) = encoder.encode(range(seq, seq + 1), sent=tag.sent)
            offset = await self.side.produce(place, [batch_of([(None, value)], batches[-1].max_timestamp)])
            self.did("appended a forged record", exchange, place, seq=seq, offset=offset)
        return PASS


@dataclass(eq=False, kw_only=True)
class DropProduceResponse(Lie):
    """The broker appends, the acknowledgement is lost. With `close` the connection goes with it, and the client retries
    at once instead of waiting for its request to time out."""

    apis = frozenset({Api.PRODUCE})

    close: bool = True

    async def on_response(self, exchange: Exchange) -> Decision:
        told = acknowledged(exchange)
        if all(result.error_code is not ErrorCode.none for result in told.values()) or not self.turn():
            return PASS  # where nothing was appended, a leader that is not ready say, there is nothing to lose
        for place, result in told.items():
            self.did("dropped the acknowledgement", exchange, place, base_offset=result.base_offset)
        return CLOSE if self.close else DROP


@dataclass(eq=False, kw_only=True)
class LateProduceResponse(Lie):
    """The broker appends, and what it answers is kept until `lost` is set; then it is lost, and the connection with it:
    the client sends the batch again. What that is refused for is an act, too."""

    apis = frozenset({Api.PRODUCE})

    lost: threading.Event = field(default_factory=threading.Event, init=False)

    async def on_response(self, exchange: Exchange) -> Decision:
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


@dataclass(eq=False, kw_only=True)
class SlowProduceResponse(Lie):
    """Each answer to a Produce comes `seconds` late: a producer that waits for them commits so much later."""

    apis = frozenset({Api.PRODUCE})

    seconds: float

    async def on_response(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        if not self.acts:
            self.did("kept an acknowledgement", exchange, seconds=self.seconds)
        return Delay(self.seconds)


@dataclass(eq=False, kw_only=True)
class AnswerProduceWith(Lie):
    """The client is told `error`, whether the broker has appended the batch (`forward`) or never saw it."""

    apis = frozenset({Api.PRODUCE})

    error: ErrorCode
    forward: bool = True

    async def on_request(self, exchange: Exchange) -> Decision:
        if self.forward or not self.turn():
            return PASS
        self.did(f"answered {self.error.name}, forwarded nothing", exchange)
        return Answer(answer(exchange, self.error, base_offset=-1))

    async def on_response(self, exchange: Exchange) -> Decision:
        if not self.forward or not self.turn():
            return PASS

        def fail(place: Place, result: Any) -> Any:
            if place not in self.where or result.error_code is not ErrorCode.none:
                return None
            self.did(f"answered {self.error.name}", exchange, place, base_offset=result.base_offset)
            return replace(result, error_code=self.error, base_offset=-1)

        change_acknowledged(exchange, fail)
        return PASS


@dataclass(eq=False, kw_only=True)
class ChangeAckOffset(Lie):
    """The acknowledged base offset is another's: `change` makes it of the real one."""

    apis = frozenset({Api.PRODUCE})

    change: Callable[[int], int]

    async def on_response(self, exchange: Exchange) -> Decision:
        def other(place: Place, result: Any) -> Any:
            if place not in self.where or result.error_code is not ErrorCode.none or not self.turn():
                return None
            told = self.change(result.base_offset)
            self.did("acknowledged another offset", exchange, place, real=result.base_offset, told=told)
            return replace(result, base_offset=told)

        change_acknowledged(exchange, other)
        return PASS


class CopyProduceWithoutProducerId(Lie):
    """A batch that was accepted is appended once more, as by a producer without idempotence."""

    apis = frozenset({Api.PRODUCE})

    async def on_response(self, exchange: Exchange) -> Decision:
        results = acknowledged(exchange)
        for place, batches in produced(exchange).items():
            if place not in self.where or results[place].error_code is not ErrorCode.none or not self.turn():
                continue
            offset = await self.side.produce(place, [batch.without_producer() for batch in batches])
            self.did("appended a copy", exchange, place, original=results[place].base_offset, copy=offset)
        return PASS
