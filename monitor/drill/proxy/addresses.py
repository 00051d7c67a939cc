"""Where brokers are, and where they seem to be.

Clients learn of brokers from answers to Metadata, FindCoordinator and DescribeCluster, and from the endpoints that a
newer Produce, Fetch, ShareFetch or ShareAcknowledge answer names beside the error "not the leader". Every address in
them is replaced by that of a listener of the proxy's, which is opened when the address is first seen; otherwise clients
would walk past the proxy. On the way the book learns the brokers' ids and the topics' names, because newer requests
name topics by id only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from probes.kafka.wire.messages import Api, Payload
from probes.kafka.wire.upstream import Address

Listen = Callable[[Address], Awaitable[Address]]
"""From a broker's address to that of the proxy's listener for it, which is open when this returns."""

_BROKERS_ENDPOINTS: Final = 1
"""DescribeCluster can be asked for the controllers' addresses (2) instead; these are not for clients."""


@dataclass
class AddressBook:
    """What was learnt from answers. Bounded by the brokers and topics of the cluster.

    `brokers` are real addresses by node id, `topics` the names by topic id."""

    bootstrap: tuple[Address, ...]
    brokers: dict[int, Address] = field(default_factory=dict)
    topics: dict[UUID, str] = field(default_factory=dict)

    def node_at(self, address: Address) -> int | None:
        """The id of the broker there, as far as it is known."""
        return next((node for node, known in self.brokers.items() if known == address), None)

    def name_of(self, topic: Any) -> str:
        """The topic's name, from any structure that has it as `name`, `topic` or `topic_id`; an unknown id as text."""
        for attribute in ("name", "topic"):
            name = getattr(topic, attribute, None)
            if name:
                return str(name)
        topic_id = getattr(topic, "topic_id", None)
        return self.topics.get(topic_id, str(topic_id)) if topic_id is not None else ""


def tells_addresses(api: int, version: int) -> bool:
    """Whether answers of this kind may hold an address of a broker, and so must be decoded."""
    oldest = _SINCE.get(api)
    return oldest is not None and version >= oldest


_SINCE: Final[dict[int, int]] = {
    Api.METADATA: 0,
    Api.FIND_COORDINATOR: 0,
    Api.DESCRIBE_CLUSTER: 0,
    Api.PRODUCE: 10,
    Api.FETCH: 16,
    Api.SHARE_FETCH: 1,
    Api.SHARE_ACKNOWLEDGE: 1,
}


async def rewritten(book: AddressBook, api: int, payload: Payload, listen: Listen) -> Payload:
    """The answer with the listeners' addresses instead of the brokers'; the same object where it names none."""
    match api:
        case Api.METADATA:
            return await _metadata(book, payload, listen)
        case Api.FIND_COORDINATOR if hasattr(payload, "coordinators"):
            return await _each(book, payload, "coordinators", listen)
        case Api.FIND_COORDINATOR:
            return await _one(book, payload, listen)
        case Api.DESCRIBE_CLUSTER:
            if getattr(payload, "endpoint_type", _BROKERS_ENDPOINTS) != _BROKERS_ENDPOINTS:
                return payload
            return await _each(book, payload, "brokers", listen)
        case _:
            return await _each(book, payload, "node_endpoints", listen)


async def _metadata(book: AddressBook, payload: Payload, listen: Listen) -> Payload:
    for topic in payload.topics:
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is not None and topic.name:
            book.topics[topic_id] = str(topic.name)
    return await _each(book, payload, "brokers", listen)


async def _each(book: AddressBook, payload: Payload, name: str, listen: Listen) -> Payload:
    ends = getattr(payload, name)
    if not ends:
        return payload
    return replace(payload, **{name: tuple([await _one(book, end, listen) for end in ends])})


async def _one(book: AddressBook, end: Any, listen: Listen) -> Any:
    real = Address(str(end.host), int(end.port))
    if not real.host or real.port <= 0:
        return end  # a coordinator that is not available has no address
    node = end.node_id if hasattr(end, "node_id") else end.broker_id
    if node >= 0:
        book.brokers[int(node)] = real
    seeming = await listen(real)
    return replace(end, host=seeming.host, port=seeming.port)
