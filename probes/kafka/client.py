"""The Kafka clients of the probes: the settings that promise safety, and what of them may be logged.

The defaults are those the field recommends where no record may be lost or doubled: acks=all, idempotence, no automatic
commit, read_committed, auto.offset.reset=earliest, no automatic creation of topics, and one request in flight (with
more, an idempotent librdkafka producer can duplicate on a leader change; a second writer with five is run beside the
first, and says so in its start row).

A user's security settings are merged in and can change nothing else. What is written to the log passes an allow list,
so that no password, key or token can get there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from probes.kafka.errors import ClientError, ProbeError, translate

log = logging.getLogger("offsetwatch.client")

SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.", "oauthbearer.")
NETWORK_SETTINGS: Final = frozenset(
    {"broker.address.family", "client.dns.lookup", "client.rack", "socket.keepalive.enable"}
)
LOGGED: Final = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "client.id",
        "compression.type",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "message.timeout.ms",
        "partition.assignment.strategy",
        "security.protocol",
        "session.timeout.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""The settings that start rows may show."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster. `security`: librdkafka's security and network settings, never printed.

    Raises ProbeError where `security` holds anything else."""

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for key in self.security:
            if not key.startswith(SECURITY_PREFIXES) and key not in NETWORK_SETTINGS:
                raise ProbeError(f"{key} is not a security or network setting of the Kafka client")

    def through(self, bootstrap: str) -> Connection:
        """The same cluster, reached through another address."""
        return Connection(bootstrap, self.security)


def producer_settings(
    connection: Connection,
    *,
    client: str,
    in_flight: int = 1,
    delivery_timeout: float = 30.0,
    linger_ms: int = 5,
    transactional_id: str | None = None,
    transaction_timeout: float | None = None,
) -> dict[str, str]:
    """An idempotent producer's settings; with `transactional_id` a transactional one. Timeouts in seconds."""
    settings = _common(connection, client) | {
        "acks": "all",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": str(in_flight),
        "linger.ms": str(linger_ms),
        "message.timeout.ms": str(int(delivery_timeout * 1000)),
        "queue.buffering.max.messages": "500000",
        "queue.buffering.max.kbytes": "262144",
        "compression.type": "none",
    }
    if transactional_id is not None and transaction_timeout is not None:
        timeout = int(transaction_timeout * 1000)
        settings["transactional.id"] = transactional_id
        settings["transaction.timeout.ms"] = str(timeout)
        settings["message.timeout.ms"] = str(min(timeout, int(delivery_timeout * 1000)))
    return settings


def consumer_settings(
    connection: Connection, *, client: str, group: str, isolation: str = "read_committed"
) -> dict[str, str]:
    """A consumer's settings. It belongs to `group` also where it assigns itself: it commits there."""
    return _common(connection, client) | {
        "group.id": group,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "session.timeout.ms": "10000",
        "max.poll.interval.ms": "300000",
        "partition.assignment.strategy": "range,roundrobin",
        "fetch.wait.max.ms": "100",
        "fetch.error.backoff.ms": "100",
        "queued.max.messages.kbytes": "16384",
    }


def admin_settings(connection: Connection, *, client: str) -> dict[str, str]:
    """The settings of a client that asks and creates, and neither reads nor writes records."""
    return _common(connection, client)


def loggable(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that may be logged: those of the allow list."""
    return {key: value for key, value in sorted(settings.items()) if key in LOGGED}


def open_producer(settings: Mapping[str, str], on_error: Callable[[ClientError], None]) -> Producer:
    """A producer. Errors that belong to no record go to `on_error`. Raises ClientError where a setting is refused."""
    return _open(Producer, dict(settings), on_error)


def open_consumer(
    settings: Mapping[str, str],
    on_error: Callable[[ClientError], None],
    on_commit: Callable[[KafkaError | None, list[Any]], None] | None = None,
) -> Consumer:
    """A consumer. `on_commit` gets the outcome of asynchronous commits. Raises ClientError like `open_producer`."""
    full: dict[str, Any] = dict(settings)
    if on_commit is not None:
        full["on_commit"] = on_commit
    return _open(Consumer, full, on_error)


def open_admin(settings: Mapping[str, str], on_error: Callable[[ClientError], None] | None = None) -> AdminClient:
    """An admin client. Raises ClientError like `open_producer`."""
    return _open(AdminClient, dict(settings), on_error or (lambda error: None))


def _common(connection: Connection, client: str) -> dict[str, str]:
    return dict(connection.security) | {
        "bootstrap.servers": connection.bootstrap,
        "client.id": client,
        "allow.auto.create.topics": "false",
        "topic.metadata.refresh.interval.ms": "10000",
        "reconnect.backoff.max.ms": "2000",
        "log.connection.close": "false",
    }


def _open(kind: Any, settings: dict[str, Any], on_error: Callable[[ClientError], None]) -> Any:
    def report(error: KafkaError) -> None:
        on_error(translate(error))

    try:
        return kind(settings | {"error_cb": report, "logger": log})
    except Exception as error:
        raise translate(error) from error
