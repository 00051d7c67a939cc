"""Asks the cluster whether it is there, within a time limit, before anything is built on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from monitor.config.cluster import ClusterConfig
from monitor.config.config import Config
from monitor.config.names import record
from monitor.errors import ConfigError
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.cluster import controlled
from probes.kafka.errors import ClientError, ProbeError, translate
from probes.log.commits.folder_clock import folder_clock
from probes.log.commits.holding import StandsOut
from probes.log.evidence.topic import EvidenceTopic, TopicOf
from probes.running.fleet import Fleet
from probes.running.renamed import take_over

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class Reached:
    """A cluster that answered: its id, its brokers as id -> host:port, the client that it answered to."""

    cluster: str
    brokers: Mapping[int, str]
    admin: AdminClient


Of = Literal["cluster", "evidence"]
"""A section of the configuration that says where a cluster is."""


def connection(config: Config, of: Of = "cluster") -> Connection:
    """How to reach the cluster. Raises ConfigError for settings that are none, and for secrets that are not there."""
    given = _section(config, of)
    try:
        return Connection(given.bootstrap, given.secrets, given.token)
    except ProbeError as error:
        raise ConfigError(f"{config.named(f'{of}.security')}: {error}") from error


def reach(config: Config, of: Of = "cluster") -> Reached:
    """Raises ConfigError, one sentence that names the addresses, where they came from, and why nobody answers; at once
    where a broker refuses the login."""
    complaints: list[ClientError] = []
    try:
        admin: Any = open_admin(admin_settings(connection(config, of), client="offsetwatch-doctor"), complaints.append)
    except ClientError as error:
        raise ConfigError(f"{config.named(f'{of}.security')}: {error}") from error
    bootstrap, limit = _section(config, of).bootstrap, _section(config, of).reachable_within

    def look() -> None:
        admin.poll(0.0)  # errors of the connection are told to whoever polls
        if refused := [one for one in complaints if one.code in _NO_LOGIN]:
            raise Refused(str(refused[0]))  # and will not be granted later

    try:
        found = controlled(admin, limit, look)
    except Refused as refused:
        raise ConfigError(
            f"{config.named(f'{of}.security')}: a broker of {bootstrap} refuses the login: {refused}"
        ) from refused
    except Exception as error:
        raise ConfigError(
            f"{config.named(f'{of}.bootstrap')}: no broker answers at {bootstrap} "
            f"within {limit:g} s: {_reason(complaints, translate(error))}"
        ) from error
    if lack := found.lack(f"at {bootstrap}"):
        raise ConfigError(f"{config.named(f'{of}.bootstrap')}: {lack}")
    return Reached(found.id, found.brokers, admin)


def _section(config: Config, of: Of) -> ClusterConfig:
    return config.cluster if of == "cluster" else config.evidence


def evidence_topic(config: Config) -> TopicOf:
    """The topic by way of which the probe log goes. Raises ConfigError as `connection`."""
    given = config.evidence
    return TopicOf(connection(config, "evidence"), given.topic, given.replication, given.retention_hours)


def destination(config: Config) -> str | EvidenceTopic:
    """Where committers append to: the table, or the topic of evidence. Raises ConfigError as `connection`."""
    return EvidenceTopic(evidence_topic(config)) if config.evidence.used else str(config.job.history_path)


def open_fleet(config: Config, say: Callable[[str], None]) -> Fleet:
    """The fleet of one cluster, not started. Raises ConfigError where it does not answer, or is not the one that is
    meant. The probes of one that had another name before, in this data folder, go on with what they had.
    Raises ProbeError where its folder cannot be used."""
    reached = reach(config)
    record(config, reached.cluster)
    brokers = len(reached.brokers)
    say(f"cluster {reached.cluster} at {config.cluster.bootstrap}: {brokers} broker{'s' * (brokers != 1)}")
    if former := take_over(config.journals, config.former_journals(), reached.cluster):
        say(f"it was watched under another name before: its probes go on with the journals of {former}")
    fleet = Fleet(
        config.probes,
        connection(config),
        config.journals,
        folder_clock(config.journals),
        history=destination(config),
        say=say,
    )
    fleet.stands_out = _stands_out()
    return fleet


def _stands_out() -> StandsOut:
    """Whether rows want a verdict at once, by what those before them told."""
    from rules.triage.triage import Triage  # with its first array pyarrow asks for pandas

    triage = Triage()
    return lambda rows: bool(triage.signs(rows))


class Refused(Exception):
    """A broker answered, and does not let us in."""


_NO_LOGIN: Final = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")


def _reason(complaints: list[ClientError], error: ClientError) -> str:
    """The complaint that says most: a refused login or name over a refused connection over a time-out."""
    for code in ("_AUTHENTICATION", "_SSL", "_RESOLVE", "_TRANSPORT"):
        for complaint in complaints:
            if complaint.code == code:
                return str(complaint)
    return str(error)
