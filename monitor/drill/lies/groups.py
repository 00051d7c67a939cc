"""Lies about offsets that are kept for groups, about their members, and about where logs end."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from kio.schema.errors import ErrorCode

from monitor.drill.proxy import PASS, Answer, Api, Decision, Exchange, Lie, Place, answer

LATEST = -1


@dataclass(eq=False, kw_only=True)
class CommittedOffset(Lie):
    """What a group has committed is told as another offset: `change` makes it of the group and the real one."""

    apis = frozenset({Api.OFFSET_FETCH})

    change: Callable[[str, int], int]

    async def on_response(self, exchange: Exchange) -> Decision:
        def other(part: Any) -> Any:
            real = part.committed_offset
            told = self.change(str(exchange.group), real) if real >= 0 else real
            if told == real or not self.turn():
                return None
            self.did(f"told {told} for the committed offset {real} of {exchange.group}", exchange)
            return replace(part, committed_offset=told)

        changed = _mapped(exchange.response, "committed_offset", other)
        if changed is not None:
            exchange.response = changed
        return PASS


@dataclass(eq=False, kw_only=True)
class ListedEnd(Lie):
    """A log's end is listed as another offset."""

    apis = frozenset({Api.LIST_OFFSETS})

    told: int

    async def on_response(self, exchange: Exchange) -> Decision:
        asked = {one.timestamp for topic in exchange.request.topics for one in topic.partitions}
        if not asked <= {LATEST, None} and not all(_is_latest(one) for one in asked):
            return PASS

        def other(part: Any) -> Any:
            if part.offset <= self.told or not self.turn():
                return None
            self.did(f"listed {self.told} for the end {part.offset}", exchange)
            return replace(part, offset=self.told)

        changed = _mapped(exchange.response, "offset", other)
        if changed is not None:
            exchange.response = changed
        return PASS


def _is_latest(timestamp: Any) -> bool:
    return timestamp is None or timestamp == LATEST


class ForcedRebalance(Lie):
    """A member's heartbeat is answered that its group is rebalancing: it joins anew."""

    apis = frozenset({Api.HEARTBEAT})

    async def on_response(self, exchange: Exchange) -> Decision:
        if exchange.response.error_code is ErrorCode.none and self.turn():
            exchange.response = replace(exchange.response, error_code=ErrorCode.rebalance_in_progress)
            self.did("told a member that its group rebalances", exchange)
        return PASS


class SwallowCommits(Lie):
    """OffsetCommit is answered, and not forwarded."""

    apis = frozenset({Api.OFFSET_COMMIT})

    async def on_request(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        self.did(f"swallowed a commit of {exchange.group}", exchange)
        return Answer(answer(exchange))


@dataclass(eq=False, kw_only=True)
class ServeEarlierGenerations(Lie):
    """What a member commits as of an earlier generation of its group is forwarded as of the latest one."""

    apis = frozenset({Api.JOIN_GROUP, Api.OFFSET_COMMIT})

    _latest: dict[str, int] = field(default_factory=dict, init=False)

    async def on_request(self, exchange: Exchange) -> Decision:
        if exchange.api != Api.OFFSET_COMMIT:
            return PASS
        asked = int(exchange.request.generation_id_or_member_epoch)
        latest = self._latest.get(str(exchange.group), asked)
        if 0 <= asked < latest and self.turn():
            exchange.request = replace(exchange.request, generation_id_or_member_epoch=latest)
            self.did(f"forwarded a commit of generation {asked} as of {latest}", exchange)
        return PASS

    async def on_response(self, exchange: Exchange) -> Decision:
        if exchange.api == Api.JOIN_GROUP and exchange.response.error_code is ErrorCode.none:
            self._latest[str(exchange.group)] = int(exchange.response.generation_id)
        return PASS


@dataclass(eq=False, kw_only=True)
class StaleEnds(Lie):
    """Once `told` is set, listings of logs' beginnings and ends tell what was listed `age` seconds before.

    What is listed is remembered from the first, by partition, isolation and what was asked for."""

    apis = frozenset({Api.LIST_OFFSETS})

    age: float
    told: threading.Event = field(default_factory=threading.Event, init=False)
    _listed: dict[tuple[Place, int, Any], deque[tuple[float, Any]]] = field(default_factory=dict, init=False)

    async def on_response(self, exchange: Exchange) -> Decision:
        asked = {
            (Place(topic.name, one.partition_index), one.timestamp)
            for topic in exchange.request.topics
            for one in topic.partitions
        }
        isolation = int(getattr(exchange.request, "isolation_level", 0) or 0)
        now = asyncio.get_running_loop().time()

        def older(topic: Any, part: Any) -> Any:
            place = Place(topic.name, part.partition_index)
            kinds = [timestamp for where, timestamp in asked if where == place]
            if len(kinds) != 1 or part.error_code is not ErrorCode.none:
                return part
            known = self._listed.setdefault((place, isolation, kinds[0]), deque())
            known.append((now, part.offset))
            while len(known) > 1 and known[1][0] <= now - self.age:
                known.popleft()
            told = known[0][1]
            if not self.told.is_set() or told == part.offset:
                return part
            if not any(act.place == place for act in self.acts):
                self.did(f"listed {told} for {part.offset}", exchange, place)
            return replace(part, offset=told)

        topics = tuple(
            replace(topic, partitions=tuple(older(topic, part) for part in topic.partitions))
            for topic in exchange.response.topics
        )
        if topics != exchange.response.topics:
            exchange.response = replace(exchange.response, topics=topics)
        return PASS


class SwallowTxnOffsets(Lie):
    """TxnOffsetCommit is answered, and not forwarded: the transaction commits its records without its offsets."""

    apis = frozenset({Api.TXN_OFFSET_COMMIT})

    async def on_request(self, exchange: Exchange) -> Decision:
        if not self.turn():
            return PASS
        self.did("swallowed a transaction's offsets", exchange)
        return Answer(answer(exchange))


def _mapped(payload: Any, field: str, change: Callable[[Any], Any]) -> Any:
    """The payload with every part that has `field` passed through `change`; None where nothing was changed."""
    if isinstance(payload, tuple):
        parts = [_mapped(part, field, change) for part in payload]
        if all(part is None for part in parts):
            return None
        return tuple(old if new is None else new for old, new in zip(payload, parts, strict=True))
    if not is_dataclass(payload):
        return None
    if hasattr(payload, field):
        return change(payload)
    changed = {
        name: new
        for name in getattr(payload, "__dataclass_fields__", {})
        if (new := _mapped(getattr(payload, name), field, change)) is not None
    }
    return replace(payload, **changed) if changed else None  # type: ignore[type-var]
