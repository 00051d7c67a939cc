"""What groups have committed, asked without being a member of them.

On connections of our own (`probes.kafka.wire.offset_fetch`) wherever the cluster's settings can be followed there: a
client of librdkafka for each group has four threads and connections of its own. Its admin client, which could ask for
all groups, crashes on an answer of NOT_COORDINATOR (librdkafka 5040). Where they cannot be followed (GSSAPI, say), a
consumer of each group asks, which never joins it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition

from probes.kafka.client import Connection, consumer_settings, open_consumer
from probes.kafka.coordinators import Coordinator
from probes.kafka.errors import ClientError, translate
from probes.kafka.wire.errors import CannotConnect
from probes.kafka.wire.offset_fetch import Committed, WireOffsets
from probes.kafka.wire.upstream import Address
from probes.topology import Partition

log = logging.getLogger("offsetwatch.client")


class GroupOffsets(Protocol):
    """Who can be asked what groups have committed."""

    def ask(self, group: str, within: float) -> Future[list[Committed]]:
        """What the group has committed in each place."""

    def coordinator(self, group: str) -> Mapping[str, str]:
        """As `probes.kafka.coordinators.Coordinator.told`."""

    def hear(self, brokers: Iterable[Address]) -> None:
        """Called now and then, by who asks: errors are told here. `brokers`: where those listen that are known."""

    def close(self) -> None: ...


def open_group_offsets(
    connection: Connection,
    client: str,
    groups: Sequence[str],
    places: Iterable[Partition],
    on_error: Callable[[ClientError], None],
) -> GroupOffsets:
    """Whoever can be asked at this cluster. Raises ClientError where a setting is refused."""
    try:
        return WireOffsets(connection, client, places, on_error)
    except CannotConnect as error:
        log.info("%s: a consumer of each group asks what it has committed", error)
        return ConsumerOffsets(connection, client, groups, places, on_error)


class ConsumerOffsets:
    """A consumer and a thread for each group."""

    def __init__(
        self,
        connection: Connection,
        client: str,
        groups: Sequence[str],
        places: Iterable[Partition],
        on_error: Callable[[ClientError], None],
    ) -> None:
        self._places = list(places)
        self._coordinators = {group: Coordinator("group_coordinator") for group in groups}
        self._consumers: dict[str, Consumer] = {}
        for group, coordinator in self._coordinators.items():
            settings = consumer_settings(connection, client=client, group=group)
            self._consumers[group] = open_consumer(settings, on_error, coordinator=coordinator)
        self._pool = ThreadPoolExecutor(max(len(groups), 1), f"{client}-group")

    def ask(self, group: str, within: float) -> Future[list[Committed]]:
        """What the group has committed in each place."""
        return self._pool.submit(self._asked, group, within)

    def coordinator(self, group: str) -> Mapping[str, str]:
        """As that group's consumer knows it."""
        return self._coordinators[group].told

    def hear(self, brokers: Iterable[Address]) -> None:
        """Let the consumers tell what they know: they read nothing."""
        for consumer in self._consumers.values():
            consumer.poll(0)

    def close(self) -> None:
        self._pool.shutdown()
        for consumer in self._consumers.values():
            consumer.close()

    def _asked(self, group: str, within: float) -> list[Committed]:
        found = self._consumers[group].committed([TopicPartition(*where) for where in self._places], within)
        return [((tp.topic, tp.partition), tp.offset if tp.offset >= 0 else None, _problem(tp.error)) for tp in found]


def _problem(error: Any) -> str | None:
    return translate(error).code if error is not None else None
