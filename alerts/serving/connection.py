"""A connection that cannot be held: a request has to come within some seconds, and its answer has to be taken.

uvicorn closes a connection that is idle after an answer, and waits for ever for a request that was begun, or never was,
and for who does not read. It counts connections, but not whose they are: one address may not take them all.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST: Final = 1_000
_SHARE: Final = 4
"""Of the file descriptors that this process may have open, one in so many is for connections: the rest is Spark's and
the clients'."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`connections` are open at a time: one more is answered 503, those beyond it are closed, and so are those of one
    address beyond `of_one` (None: no limit of its own). `request`: seconds in which a request has come, from connecting
    or from its first byte on a connection that is used again; `answer`: seconds in which an answer is taken."""

    connections: int
    request: float = 5.0
    answer: float = 30.0
    of_one: int | None = None

    @classmethod
    def of_process(cls) -> Limits:
        """As many connections as this process can bear, half of them of one address."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST if files == resource.RLIM_INFINITY else max(1, min(_MOST, files // _SHARE))
        return cls(most, of_one=max(1, most // 2))


def connections(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of connections within these limits, as uvicorn's `Config(http=...)` takes it."""

    class Within(_Bounded):
        bounds = limits

    return Within


class _Bounded(H11Protocol):
    bounds: Limits
    origin: str | None = None
    _overdue: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.origin = _origin(self.client)
        if self._one_too_many():
            transport.abort()
        else:
            # Whatever waits to be read is told to `pause_writing`. At 0 asyncio's TLS pauses also where nothing waits.
            transport.set_write_buffer_limits(high=1, low=0)
            self._time()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        self._stop_waiting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.bounds.answer, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()

    def _one_too_many(self) -> bool:
        """Is this one beyond a limit? Those that were just refused are not gone yet, and count no more."""
        open_ = [one for one in self.connections if not one.transport.is_closing()]
        if len(open_) > self.bounds.connections:
            return True
        most = self.bounds.of_one
        if most is None or self.origin is None:
            return False
        return len([one for one in open_ if getattr(one, "origin", None) == self.origin]) > most

    def _time(self) -> None:
        """Time the request until all of it is here. Between two requests uvicorn's own limit holds."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timing()
        elif self._overdue is None:
            self._overdue = self.loop.call_later(self.bounds.request, self.transport.abort)

    def _stop_timing(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def _origin(client: tuple[str, int] | None) -> str | None:
    """Whose connection it is: an address, of IPv6 the network of one site."""
    if client is None:
        return None
    try:
        address = ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(int(address) >> 64)
    return str(address)
