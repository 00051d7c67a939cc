"""What a local broker is told: its properties, its logging and its command line, as plain values.

They make a small cluster that starts fast and behaves like a real one: what is changed from Kafka's defaults is size
and patience, never a promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.ports import HOST

Setting = str | int | bool

HEAP_MB: Final = 384
"""A broker's largest heap."""
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Measured on 2 cores with 4.3.1: one broker from 1.8 s and 3 s of CPU down to 1.5 s and 1.9 s, and over its first 8 s
at 46,000 records a second 3.6 instead of 6.6 us of CPU a record."""


@dataclass(frozen=True, slots=True)
class Link:
    """Where a node's peers reach it, if not where its clients do: it listens to other brokers on the port `peers`, and
    they connect to `to_peers`, and to its controller at `to_controller` (None where it is none)."""

    peers: int
    to_peers: int
    to_controller: int | None


SMALL: Final[Mapping[str, Setting]] = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
    # A topic that a typing error has made would be watched with settings that nobody chose.
    "auto.create.topics.enable": False,
    # Kafka waits 3 s for more members of a new group: right for a fleet, not for a cluster of one's own.
    "group.initial.rebalance.delay.ms": 0,
    "transaction.max.timeout.ms": 900_000,
    # How often timed-out transactions are looked for; at the default of 10 s a timeout of 1 s would mean up to 11.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    # A killed broker may not register again before its session is over, and a broker that is asked to end is let
    # go at its next heartbeat but one: 9 s and 2 s by default.
    "broker.session.timeout.ms": 6_000,
    "broker.heartbeat.interval.ms": 1_000,
    # Its default is 128 MiB of the heap.
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    "num.network.threads": 2,
    "num.io.threads": 4,
}
"""What every broker is told."""


def properties(
    node: int,
    ports: Mapping[int, tuple[int, int | None]],
    data: Path,
    overrides: Mapping[str, Setting],
    *,
    links: Mapping[int, Link] | None = None,
    version: str = "4",
) -> dict[str, str]:
    """The server.properties of broker `node` of a cluster in KRaft mode.

    `ports` holds, for each node id, the port of its clients and that of its controller: None where the node is a broker
    only, all others are voters. With `links`, one for each node, brokers and controllers reach each other there."""
    voters = {n: controller for n, (_, controller) in sorted(ports.items()) if controller is not None}
    replicas = min(len(voters), 3)
    in_sync = 2 if replicas >= 3 else 1
    client, controller = ports[node]
    listening, advertised, protocols = {"PLAINTEXT": client}, {"PLAINTEXT": client}, ["PLAINTEXT", "CONTROLLER"]
    if controller is not None:
        listening["CONTROLLER"] = controller
    if links:
        voters = {n: port for n, link in sorted(links.items()) if (port := link.to_controller) is not None}
        listening["PEERS"], advertised["PEERS"] = links[node].peers, links[node].to_peers
        protocols.append("PEERS")
        # From 3.9 on controllers learn each other's addresses also from one another; before, this setting was refused.
        to_controller = links[node].to_controller
        if to_controller is not None and _release(version) >= (3, 9):
            advertised["CONTROLLER"] = to_controller
    told: dict[str, Setting] = {
        "process.roles": "broker" if controller is None else "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{port}" for n, port in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "listeners": _listeners(listening),
        "advertised.listeners": _listeners(advertised),
        "inter.broker.listener.name": "PEERS" if links else "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in protocols),
        "log.dirs": str(data),
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    return {key: _text(value) for key, value in {**SMALL, **told, **overrides}.items()}


@dataclass(frozen=True, slots=True)
class Program:
    """The Kafka that brokers run: a Java with more `options`, and the jars of a release."""

    java: Path
    version: str
    jars: Sequence[Path]
    options: Sequence[str]

    def command(self, logs: Path, logging: Path) -> list[str]:
        """The command line up to the main class; text logs go into `logs`, told how by the file `logging`."""
        return [
            str(self.java),
            "-Xms64m",
            f"-Xmx{HEAP_MB}m",
            *self.options,
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dkafka.logs.dir={logs}",
            f"-Dlog4j2.configurationFile={logging}",
            f"-Dlog4j.configuration=file:{logging}",
            "-cp",
            ":".join(map(str, self.jars)),
        ]


def logging_properties(version: str) -> str:
    """The text of the logging configuration: Log4j 2's from Kafka 4 on, Log4j 1's before."""
    return _LOG4J2 if int(version.split(".")[0]) >= 4 else _LOG4J1


def rendered(settings: Mapping[str, str]) -> str:
    """The settings as the text of a properties file. Raises `ValueError` for a line break in one of them."""
    for key, value in settings.items():
        if "\n" in f"{key}{value}":
            raise ValueError(f"the broker setting {key!r} holds a line break")
    text = "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())
    return "".join(letter if letter.isascii() else _as_numbers(letter) for letter in text)


def _as_numbers(letter: str) -> str:
    """Any letter as files of properties have it, which are Latin-1 to Java."""
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _release(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    return int(major), int(rest.split(".")[0] or 0) if rest else 0


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_LOG4J2: Final = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:kafka.logs.dir}/server.log
appender.file.filePattern = ${sys:kafka.logs.dir}/server.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 50MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 4
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

_LOG4J1: Final = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File=${kafka.logs.dir}/server.log
log4j.appender.file.MaxFileSize=50MB
log4j.appender.file.MaxBackupIndex=4
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
