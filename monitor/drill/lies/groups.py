"""Lies about offsets that are kept for groups, about their members, and about where logs end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

from kio.schema.errors import ErrorCode

from monitor.drill.proxy import ALWAYS, EVERYWHERE, PASS, Answer, Api, Exchange, Lie, Verdict, When, Where, answer

LATEST = -1


class CommittedOffset(Lie):
    """What a group has committed is told as another offset: `change` makes it of the group and the real one."""

    apis = frozenset({Api.OFFSET_FETCH})

    def __init__(
        self, change: Callable[[str, int], int], where: Where = EVERYWHERE, when: When = ALWAYS, **options: Any
    ) -> None:
        super().__init__(where, when, **options)
        self._change = change

    async def on_response(self, exchange: Exchange) -> Verdict:
        def other(part: Any) -> Any:
            real = part.committed_offset
            told = self._change(str(exchange.group), real) if real >= 0 else real
            if told == real or not self.turn():
                return None
            self.did(f"told {told} for the committed offset {real} of {exchange.group}", exchange)
            return replace(part, committed_offset=told)

        changed = _mapped(exchange.response, "committed_offset", other)
        if changed is not None:
            exchange.response = changed
        return PASS


class ListedEnd(Lie):
    """A log's end is listed as another offset."""

    apis = frozenset({Api.LIST_OFFSETS})

    def __init__(self, told: int, where: Where = EVERYWHERE, when: When = ALWAYS, **options: Any) -> None:
        super().__init__(where, when, **options)
        self._told = told

    async def on_response(self, exchange: Exchange) -> Verdict:
        asked = {one.timestamp for topic in exchange.request.topics for one in topic.partitions}
        if not asked <= {LATEST, None} and not all(_is_latest(one) for one in asked):
            return PASS

        def other(part: Any) -> Any:
            if part.offset <= self._told or not self.turn():
                return None
            self.did(f"listed {self._told} for the end {part.offset}", exchange)
            return replace(part, offset=self._told)

        changed = _mapped(exchange.response, "offset", other)
        if changed is not None:
            exchange.response = changed
        return PASS


def _is_latest(timestamp: Any) -> bool:
    return timestamp is None or timestamp == LATEST


class ForcedRebalance(Lie):
    """A member's heartbeat is answered that its group is rebalancing: it joins anew."""

    apis = frozenset({Api.HEARTBEAT})

    async def on_response(self, exchange: Exchange) -> Verdict:
        if exchange.response.error_code is ErrorCode.none and self.turn():
            exchange.response = replace(exchange.response, error_code=ErrorCode.rebalance_in_progress)
            self.did("told a member that its group rebalances", exchange)
        return PASS


class SwallowTxnOffsets(Lie):
    """TxnOffsetCommit is answered, and not forwarded: the transaction commits its records without its offsets."""

    apis = frozenset({Api.TXN_OFFSET_COMMIT})

    async def on_request(self, exchange: Exchange) -> Verdict:
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
