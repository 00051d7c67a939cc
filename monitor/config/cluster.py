"""A cluster's section of the configuration: where it is, how to log in, and, where there are several, its name.

A secret stands in a variable or a file of its own and is read anew for each client that is opened. No value of
`security` is ever printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator

from monitor.errors import ConfigError
from probes.config import ProbesConfig


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FromEnvironment(Section):
    """A secret that an environment variable holds."""

    env: str = Field(min_length=1)


class FromFile(Section):
    """A secret that a file holds; one line feed at its end does not belong to it."""

    file: Path


_LAST_PORT: Final = 65_535
_ADDRESS: Final = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.%\w]+\]):[0-9]{1,5}")


class ClusterConfig(Section):
    """The cluster under test."""

    bootstrap: str = Field(
        "localhost:9092", min_length=1, description="Addresses of some of its brokers, host:port, comma-separated."
    )
    reachable_within: float = Field(15.0, gt=0, le=3600, description="How long the first answer may take, seconds.")
    security: dict[str, FromEnvironment | FromFile | SecretStr] = Field(
        {},
        description="librdkafka's security and network settings by their own names; a secret as "
        '{ env = "NAME" } or { file = "path" }.',
        examples=[
            'security.protocol = "SASL_SSL"',
            'sasl.mechanism = "SCRAM-SHA-512"',
            'sasl.username = "offsetwatch"',
            'sasl.password = { env = "KAFKA_PASSWORD" }',
            'ssl.ca.location = "/etc/ssl/certs/kafka.pem"',
        ],
    )

    token: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="For the mechanism OAUTHBEARER: a function of yours as module:function. It is given what "
        "sasl.oauthbearer.config says, and returns a token and when it expires, seconds since 1970.",
    )

    _table: str = PrivateAttr("cluster")

    @field_validator("bootstrap")
    @classmethod
    def _addresses(cls, bootstrap: str) -> str:
        for one in bootstrap.split(",") if bootstrap else ():
            if not _ADDRESS.fullmatch(one.strip()):
                raise ValueError("a broker's address is host:port")
            if not 1 <= int(one.rpartition(":")[2]) <= _LAST_PORT:
                raise ValueError(f"a broker's port is 1 to {_LAST_PORT}")
        return bootstrap

    @property
    def expected_id(self) -> str | None:
        """The id that the cluster has to have; None where any will do."""
        return None

    @field_validator("security", mode="before")
    @classmethod
    def _dotted(cls, given: Any) -> Any:
        """TOML reads `sasl.password = ...` without quotes as a table in a table."""
        return dict(_flat("", given)) if isinstance(given, dict) else given

    def secrets(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The security settings with their secrets read. Raises ConfigError naming the key, never a value."""
        environment = os.environ if environment is None else environment
        within = f"{self._table}.security"
        return {key: reveal(f"{within}.{key}", value, environment) for key, value in self.security.items()}


class NamedClusterConfig(ClusterConfig):
    """One of several clusters."""

    bootstrap: str = Field(
        min_length=1, description="Addresses of some of its brokers, host:port, comma-separated."
    )  # nobody means localhost among several
    id: str | None = Field(
        None,
        min_length=1,
        description="Its id, as offsetwatch doctor tells it. Another cluster at these addresses is then refused, and a "
        "monitor without probes knows the name from the start.",
    )
    probes: ProbesConfig = Field(ProbesConfig(), description="What its probes do otherwise than [probes] says.")

    @property
    def expected_id(self) -> str | None:
        return self.id

    def known_as(self, name: str) -> None:
        """Messages name it by this name from here on."""
        self._table = f"clusters.{name}"


class EvidenceConfig(ClusterConfig):
    """A Kafka cluster that carries the probe log, for hosts that share neither a folder nor a bucket: probes append to
    a topic there, and the monitor takes it into its own table.

    It must not be a cluster that is watched: that cannot bear witness in its own cause."""

    bootstrap: str = Field(
        "", description="Addresses of some of its brokers, host:port, comma-separated. Without them it is not used."
    )
    topic: str = Field(
        "offsetwatch.evidence", pattern=r"^[A-Za-z0-9._-]{1,249}$", description="It is made where it is not there."
    )
    replication: int = Field(
        3, ge=1, le=1_000, description="Of a topic that is made: replicas, at most one on each broker."
    )
    retention_hours: float = Field(
        72.0,
        gt=0,
        le=24 * 3650,
        description="Of a topic that is made: for so long the monitor may be away and nothing is lost.",
    )

    _table: str = PrivateAttr("evidence")

    @field_validator("topic")
    @classmethod
    def _legal(cls, topic: str) -> str:
        if topic in (".", ".."):
            raise ValueError("no topic of Kafka's can be called so")
        return topic

    @property
    def used(self) -> bool:
        return bool(self.bootstrap)


NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""What a cluster may be called: it is shown on narrow screens, and names a folder."""


def alike(name: str) -> str:
    """What two names have in common that the environment's variables, or a file system, cannot tell apart."""
    return re.sub(r"[.-]", "_", name.lower())


SECRET: Final = re.compile(r"(password|passphrase|secret|\.pem)$")
"""Settings of librdkafka's whose values are nobody's to read."""


def plain(settings: Mapping[str, Any], secret: re.Pattern[str] = SECRET) -> list[str]:
    """Which of these settings are secrets that stand there as they are."""
    return [name for name, value in settings.items() if isinstance(value, SecretStr) and secret.search(name)]


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        inner = isinstance(value, dict) and not (value.keys() <= {"env", "file"} and _all_text(value.values()))
        if inner and not SECRET.search(f"{prefix}{name}"):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _all_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def is_text(value: str) -> bool:
    """Whether a value from the environment or the command line is text: bytes that are none stand in it as lone
    surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def reveal(key: str, value: FromEnvironment | FromFile | SecretStr, environment: Mapping[str, str]) -> str:
    """The secret, as it is now. Raises ConfigError, which names the key and never the value."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, FromEnvironment):
        if value.env not in environment:
            raise ConfigError(f"{key}: the environment variable {value.env} is not set")
        if not is_text(environment[value.env]):
            raise ConfigError(f"{key}: the environment variable {value.env} cannot be read: it is not text")
        return environment[value.env]
    try:
        return value.file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{key}: {value.file} cannot be read: {reason}") from error
