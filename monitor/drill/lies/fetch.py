"""Lies on the way of what is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.drill.proxy import PASS, Api, Decision, Delay, Exchange, Lie, Place
from monitor.drill.proxy.edits import change_fetched, change_fetched_batches
from monitor.drill.proxy.records import Batch, Record, encode, parse

_EMPTY_EVERY_S = 0.1
"""A fetch that brings nothing is asked again at once: not quite at once."""


@dataclass(eq=False, kw_only=True)
class RewriteRecord(Lie):
    """One record is shown as another: `change` makes it of the record before it and itself. The batch's checksum is
    made to fit."""

    apis = frozenset({Api.FETCH})

    change: Callable[[Record, Record], Record]

    async def on_response(self, exchange: Exchange) -> Decision:
        def rewritten(place: Place, batches: list[Batch]) -> list[Batch] | None:
            if place not in self.where:
                return None
            for i, batch in enumerate(batches):
                if batch.is_control or batch.count < 2 or not self.turn():
                    continue
                before, record, *rest = batch.records()
                self.did("showed another record", exchange, place, offset=batch.base_offset + record.offset_delta)
                changed = batch.with_records([before, self.change(before, record), *rest])
                return [*batches[:i], changed, *batches[i + 1 :]]
            return None

        change_fetched_batches(exchange, rewritten)
        return PASS


@dataclass(eq=False, kw_only=True)
class RewriteBatch(Lie):
    """A whole batch is shown as `change` makes it, its checksum made to fit."""

    apis = frozenset({Api.FETCH})

    change: Callable[[Batch], Batch]

    async def on_response(self, exchange: Exchange) -> Decision:
        def rewritten(place: Place, batches: list[Batch]) -> list[Batch] | None:
            if place not in self.where:
                return None
            return [
                batch if batch.is_control or not self.turn() else self._told(exchange, place, batch)
                for batch in batches
            ]

        change_fetched_batches(exchange, rewritten)
        return PASS

    def _told(self, exchange: Exchange, place: Place, batch: Batch) -> Batch:
        self.did("showed a batch with something else beside its values", exchange, place, offset=batch.base_offset)
        return self.change(batch)


def of_1970(batch: Batch) -> Batch:
    """The batch with all its timestamps in the first second of 1970."""
    return replace(batch, base_timestamp=0, max_timestamp=batch.max_timestamp - batch.base_timestamp)


def of_the_broker(batch: Batch) -> Batch:
    """The batch with the broker's time of appending, as in a topic with LogAppendTime."""
    return batch.with_append_time()


def keyless(batch: Batch) -> Batch:
    """The batch without its records' keys."""
    return batch.with_records([replace(record, key=None) for record in batch.records()])


def with_header(batch: Batch) -> Batch:
    """The batch with one header more at each of its records."""
    more = ((b"unsent", b"1"),)
    return batch.with_records([replace(record, headers=record.headers + more) for record in batch.records()])


@dataclass(eq=False, kw_only=True)
class HideFrom(Lie):
    """From an offset on, chosen for each partition when it is first fetched while armed, nothing is shown: the log
    seems to end there. With `ends` the ends that the broker tells are left as they are."""

    apis = frozenset({Api.FETCH})

    ends: bool = False
    hidden_from: dict[Place, int] = field(default_factory=dict, init=False)

    async def on_response(self, exchange: Exchange) -> Decision:
        hid = False

        def cut(place: Place, data: Any) -> Any:
            nonlocal hid
            if place not in self.where or not data.records:
                return None
            batches, _ = parse(bytes(data.records))
            if not batches:
                return None
            begin = self.hidden_from.setdefault(place, batches[0].base_offset)
            left = [batch for batch in batches if batch.last_offset < begin]
            if len(left) == len(batches):
                return None
            hid = True
            if not any(act.place == place for act in self.acts):
                self.did(f"hid everything from offset {begin} on", exchange, place, offset=begin)
            ends = {} if self.ends else {"high_watermark": begin, "last_stable_offset": begin}
            return replace(data, records=encode(left), **ends)

        change_fetched(exchange, cut)
        return Delay(_EMPTY_EVERY_S) if hid else PASS


class ReadUncommitted(Lie):
    """Fetches are forwarded as read_uncommitted: the broker hands out what is past the last stable offset, too."""

    apis = frozenset({Api.FETCH})

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.request.isolation_level and self.turn():
            exchange.request = replace(exchange.request, isolation_level=type(exchange.request.isolation_level)(0))
            if not self.acts:
                self.did("asked for what is not committed", exchange)
        return PASS


def flipped(_: Record, record: Record) -> Record:
    """The record with one bit of its value's middle byte changed."""
    value = record.value or b""
    at = len(value) // 2
    return replace(record, value=value[:at] + bytes([value[at] ^ 0x10]) + value[at + 1 :])


def predecessor(before: Record, record: Record) -> Record:
    """The record before it, with all that goes with its value."""
    return replace(before, offset_delta=record.offset_delta)


@dataclass(eq=False, kw_only=True)
class HideRange(Lie):
    """A range of offsets in the middle is left out of fetches: `length` records from the first offset that is fetched
    while armed, plus `skip`. The range is the same for everybody who is meant."""

    apis = frozenset({Api.FETCH})

    length: int
    skip: int = 10
    _range: range | None = field(default=None, init=False)

    async def on_response(self, exchange: Exchange) -> Decision:
        def without(place: Place, batches: list[Batch]) -> list[Batch] | None:
            if place not in self.where:
                return None
            if self._range is None:
                begin = batches[0].base_offset + self.skip
                self._range = range(begin, begin + self.length)
            left = [self._cleared(batch) for batch in batches]
            if left == batches:
                return None
            self.did(f"hid offsets {self._range.start} to {self._range.stop - 1}", exchange, place)
            return left

        change_fetched_batches(exchange, without)
        return PASS

    def _cleared(self, batch: Batch) -> Batch:
        assert self._range is not None
        if batch.is_control or batch.last_offset < self._range.start or batch.base_offset >= self._range.stop:
            return batch
        records: tuple[Record, ...] = batch.records()
        shown = [one for one in records if batch.base_offset + one.offset_delta not in self._range]
        return batch.with_records(shown) if len(shown) < len(records) else batch


class EmptyAbortedTransactions(Lie):
    """The list of aborted transactions is taken out of what consumers fetch: aborted records look committed to them."""

    apis = frozenset({Api.FETCH})

    async def on_response(self, exchange: Exchange) -> Decision:
        def forget(place: Place, data: Any) -> Any:
            if place not in self.where or not data.aborted_transactions or not self.turn():
                return None
            first = [aborted.first_offset for aborted in data.aborted_transactions]
            self.did("emptied the list of aborted transactions", exchange, place, first_offsets=first)
            return replace(data, aborted_transactions=())

        change_fetched(exchange, forget)
        return PASS
