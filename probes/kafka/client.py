"""The Kafka clients of the probes: the settings that promise safety, and what of them may be logged.

The defaults are those the field recommends where no record may be lost or doubled: acks=all, idempotence, no automatic
commit, read_committed, auto.offset.reset=earliest, no automatic creation of topics, and one request in flight (with
more, an idempotent librdkafka producer can duplicate on a leader change; a second writer with five is run beside the
first, and says so in its start row).

A user's security settings are merged in and can change nothing else. What is written to the log passes an allow list,
so that no password, key or token can get there.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient

from probes.kafka.coordinators import Coordinator
from probes.kafka.errors import ClientError, ProbeError, Throttled, translate
from probes.topology import GroupProtocol

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
        "group.protocol",
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


Security = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""librdkafka's security and network settings; a function is asked for each client that is opened, so that a secret that
was changed is used by the next one."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster. `given`: settings that are never printed. `token`: for the mechanism OAUTHBEARER, a
    function by its name, "module:function"; it takes what `sasl.oauthbearer.config` says and returns a token and when
    it expires, seconds since 1970.

    Raises ProbeError where the settings hold anything but security and network, or there is no such function."""

    bootstrap: str
    given: Security = field(default_factory=dict, repr=False)
    token: str | None = None

    def __post_init__(self) -> None:
        for key in self.security:
            if not key.startswith(SECURITY_PREFIXES) and key not in NETWORK_SETTINGS:
                raise ProbeError(f"{key} is not a security or network setting of the Kafka client")
        if self.token is not None:
            token_function(self.token)

    @property
    def security(self) -> Mapping[str, str]:
        """The settings, secrets and all, as they are now. Raises what reading them raises."""
        return self.given() if callable(self.given) else self.given

    def login(self) -> bytes:
        """What tells whether the login is another one than before: of the settings with their secrets, and of when the
        files that they name were written. Raises what reading them raises."""
        given = self.security
        files = sorted(path for key, path in given.items() if key.endswith(".location"))
        told = sorted(given.items()), [Path(path).stat().st_mtime_ns for path in files if Path(path).is_file()]
        return hashlib.sha256(repr(told).encode()).digest()

    def through(self, bootstrap: str) -> Connection:
        """The same cluster, reached through another address."""
        return replace(self, bootstrap=bootstrap)


def token_function(name: str) -> Callable[[str], tuple[str, float]]:
    """The function of this name, "module:function". Raises ProbeError where there is none."""
    module, _, function = name.partition(":")
    try:
        found: Callable[[str], tuple[str, float]] = getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever the module does when it is imported
        raise ProbeError(f"the function {name} for tokens cannot be had: {error}") from error
    return found


class Transactional(NamedTuple):
    """A producer's transactional id, and how long a transaction of it may stay open, in seconds."""

    id: str
    timeout: float


def producer_settings(
    connection: Connection,
    *,
    client: str,
    in_flight: int = 1,
    delivery_timeout: float = 30.0,
    linger_ms: int = 5,
    transactional: Transactional | None = None,
) -> dict[str, str]:
    """An idempotent producer's settings, or a transactional one's. Timeouts in seconds."""
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
    if transactional is not None:
        timeout = int(transactional.timeout * 1000)
        settings["transactional.id"] = transactional.id
        settings["transaction.timeout.ms"] = str(timeout)
        settings["message.timeout.ms"] = str(min(timeout, int(delivery_timeout * 1000)))
    return settings


def consumer_settings(
    connection: Connection,
    *,
    client: str,
    group: str,
    isolation: str = "read_committed",
    prompt: bool = False,
    protocol: GroupProtocol = "classic",
) -> dict[str, str]:
    """A consumer's settings. It belongs to `group` also where it assigns itself: it commits there.

    Brokers hold an answer until there is much to tell, at most `fetch.wait.max.ms`; `prompt`: until there is anything.
    With a fleet of readers on one topic an answer for each record costs probes and brokers more than all the rest."""
    if protocol == "consumer":  # the session's timeout and the assignor are the coordinator's
        joining = {"group.protocol": "consumer"}
    else:
        joining = {"session.timeout.ms": "10000", "partition.assignment.strategy": "range,roundrobin"}
    return (
        _common(connection, client)
        | joining
        | {
            "group.id": group,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "max.poll.interval.ms": "300000",
            "fetch.min.bytes": "1" if prompt else "65536",
            "fetch.wait.max.ms": "200",
            "fetch.error.backoff.ms": "100",
            "queued.max.messages.kbytes": "16384",
        }
    )


def admin_settings(connection: Connection, *, client: str) -> dict[str, str]:
    """The settings of a client that asks and creates, and neither reads nor writes records."""
    return _common(connection, client)


def loggable(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that may be logged: those of the allow list."""
    return {key: value for key, value in sorted(settings.items()) if key in LOGGED}


def open_producer(
    settings: Mapping[str, str], on_error: Callable[[ClientError], None], coordinator: Coordinator | None = None
) -> Producer:
    """A producer. What belongs to no record goes to `on_error`, `Throttled` too; `coordinator` learns that of its
    transactional id. Raises ClientError where a setting is refused."""
    return _open(Producer, dict(settings) | (coordinator.settings if coordinator else {}), on_error)


def open_consumer(
    settings: Mapping[str, str],
    on_error: Callable[[ClientError], None],
    on_commit: Callable[[KafkaError | None, list[Any]], None] | None = None,
    coordinator: Coordinator | None = None,
) -> Consumer:
    """A consumer. `on_commit` gets the outcome of asynchronous commits; `coordinator` learns that of its group. Raises
    ClientError like `open_producer`."""
    full: dict[str, Any] = dict(settings) | (coordinator.settings if coordinator else {})
    if on_commit is not None:
        full["on_commit"] = on_commit
    return _open(Consumer, full, on_error)


def open_admin(settings: Mapping[str, str], on_error: Callable[[ClientError], None] | None = None) -> AdminClient:
    """An admin client. Raises ClientError like `open_producer`."""
    return _open(AdminClient, {**settings, **_HELD}, on_error or (lambda error: None))


def _common(connection: Connection, client: str) -> dict[str, str]:
    token = {_TOKEN: connection.token} if connection.token is not None else {}
    return (
        dict(connection.security)
        | token
        | {
            "bootstrap.servers": connection.bootstrap,
            "client.id": client,
            "allow.auto.create.topics": "false",
            "topic.metadata.refresh.interval.ms": "10000",
            "reconnect.backoff.max.ms": "2000",
            "log.connection.close": "false",
        }
    )


_HELD: Final = {"enable.sparse.connections": "false"}
"""An admin client holds a connection to each broker. One that makes connections as it needs them, as is the default,
makes one to a broker that refuses it again and again without a pause, as long as a request waits for that broker: each
refusal has it ask for another connection, which does away with the pause (seen with librdkafka 2.16). Where a cluster
without a quorum named leaders that were dead, two fleets took both cores of a machine, and its brokers with them."""

_TOKEN: Final = "oauth_cb"
"""Among the settings it is the function's name, which processes can be told; a client is given the function."""


def _open(kind: Any, settings: dict[str, Any], on_error: Callable[[ClientError], None]) -> Any:
    def report(error: KafkaError) -> None:
        on_error(translate(error))

    def delay(told: ThrottleEvent) -> None:
        if told.throttle_time > 0:  # else it tells that there is none any more
            on_error(Throttled(told.broker_id, told.throttle_time))

    if _TOKEN in settings:
        settings[_TOKEN] = token_function(settings[_TOKEN])
    try:
        return kind(settings | {"error_cb": report, "throttle_cb": delay, "logger": log})
    except Exception as error:
        raise translate(error) from error
