"""One request of a client and its response, as lies see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from monitor.drill.proxy.addresses import AddressBook
from probes.kafka.wire.errors import Undecodable
from probes.kafka.wire.messages import (
    Payload,
    RequestHead,
    correlation_of,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    response_class,
)
from probes.kafka.wire.upstream import Address


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Exchange:
    """A request, and later its response.

    `request` and `response` are decoded when they are first asked for (`Undecodable` where kio cannot) and encoded
    again only when they were set. A response can also be set where none came: it is the proxy's own, then.

    `broker` is the address behind the proxy, `connection` a number that is the client connection's own, `started`
    the time on the event loop's clock at which the request had arrived."""

    __slots__ = (
        "_request",
        "_request_changed",
        "_response",
        "_response_changed",
        "book",
        "broker",
        "connection",
        "done",
        "head",
        "request_frame",
        "response_frame",
        "started",
    )

    def __init__(
        self, head: RequestHead, frame: bytes, book: AddressBook, broker: Address, connection: int, started: float
    ) -> None:
        self.head: Final = head
        self.book: Final = book
        self.broker: Final = broker
        self.connection: Final = connection
        self.started: Final = started
        self.request_frame = frame
        self.response_frame: bytes | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request: Payload = None
        self._response: Payload = None
        self._request_changed = self._response_changed = False

    @property
    def api(self) -> int:
        return self.head.api

    @property
    def version(self) -> int:
        return self.head.version

    @property
    def client_id(self) -> str | None:
        return self.head.client_id

    @property
    def node(self) -> int | None:
        """The broker's id, as far as it is known."""
        return self.book.node_at(self.broker)

    @property
    def request(self) -> Payload:
        if self._request is None:
            self._request = decode_request(self.head, self.request_frame)
        return self._request

    @request.setter
    def request(self, payload: Payload) -> None:
        self._request, self._request_changed = payload, True

    @property
    def response(self) -> Payload:
        if self._response is None:
            if self.response_frame is None:
                raise Undecodable("there is no response yet")
            self._response = decode_response(self.api, self.version, self.response_frame)
        return self._response

    @response.setter
    def response(self, payload: Payload) -> None:
        self._response, self._response_changed = payload, True

    @property
    def response_class(self) -> type[Payload]:
        """What an answer to this request is an instance of. Raises `Undecodable`."""
        kind = response_class(self.api, self.version)
        if kind is None:
            raise Undecodable(f"response {self.api} of version {self.version} is not known to kio")
        return kind

    @property
    def transactional_id(self) -> str | None:
        """The request's transactional id, if it has one."""
        for name in ("transactional_id", "v3_and_below_transactional_id"):
            found = getattr(self.request, name, None)
            if found is not None:
                return str(found)
        transactions: Sequence[Any] = getattr(self.request, "transactions", ())
        return str(transactions[0].transactional_id) if len(transactions) == 1 else None

    @property
    def group(self) -> str | None:
        """The request's consumer group, if it names one."""
        found = getattr(self.request, "group_id", None)
        groups: Sequence[Any] = getattr(self.request, "groups", None) or ()
        if found is None and len(groups) == 1:
            found = getattr(groups[0], "group_id", None)
        return None if found is None else str(found)

    def places(self) -> set[Place]:
        """The partitions that the request names and, once it is there, the response."""
        found = set(_places(self.request, self.book))
        if self.response_frame is not None or self._response is not None:
            found |= set(_places(self.response, self.book))
        return found

    def request_bytes(self) -> bytes:
        """The frame to forward: as it came, unless the request was changed."""
        if self._request_changed:
            self.request_frame = encode_request(self.head, self.request_frame, self._request)
            self._request_changed = False
        return self.request_frame

    def response_bytes(self) -> bytes:
        """The frame to hand to the client: as it came, unless the response was changed."""
        if self._response_changed or self.response_frame is None:
            self.response_frame = encode_response(self.head.correlation, self._response)
            self._response_changed = False
        return self.response_frame

    def answered_by(self, frame: bytes) -> None:
        """The broker's response has come."""
        assert correlation_of(frame) == self.head.correlation
        self.response_frame = frame


_LISTS: Final = (
    "topics",
    "topic_data",
    "responses",
    "groups",
    "transactions",
    "v3_and_below_topics",
    "results_by_transaction",
    "results_by_topic_v3_and_below",
    "topic_results",
)
_PARTITIONS: Final = (
    "partitions",
    "partition_data",
    "partition_responses",
    "partition_indexes",
    "results_by_partition",
)
_INDEXES: Final = ("partition_index", "partition", "index")


def _places(payload: Any, book: AddressBook) -> Iterator[Place]:
    """The partitions that a request or response names, whatever its version calls them."""
    for name in _LISTS:
        for topic in getattr(payload, name, None) or ():
            if isinstance(topic, str):
                continue
            named = False
            for inner in _PARTITIONS:
                for one in getattr(topic, inner, None) or ():
                    named = True
                    yield Place(book.name_of(topic), int(one) if isinstance(one, int) else _index(one))
            if not named:
                yield from _places(topic, book)


def _index(one: Any) -> int:
    return next(int(getattr(one, name)) for name in _INDEXES if hasattr(one, name))
