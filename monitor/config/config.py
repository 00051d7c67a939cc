"""The configuration: one TOML file, overridden by the environment, checked as a whole before anything starts.

Each package owns its section. Later sources win:

1. the defaults of the sections' models (`docs/offsetwatch.toml` lists them all, with what they mean);
2. the file: `--config FILE`, else `$OFFSETWATCH_CONFIG`, else `offsetwatch.toml` in the current folder if it is there;
3. the environment: `OFFSETWATCH_<SECTION>__<KEY>`, as in `OFFSETWATCH_PROBES__WRITER__RATE=500`.

Unknown keys and wrong types are refused, in files strictly ("500" is no number), in the environment by what the key
wants. A secret stands in a variable or a file of its own (`{ env = "NAME" }`, `{ file = "path" }`) and is read when the
connection is made; no value of `cluster.security` is ever printed.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_core import ErrorDetails

from alerts.config import AlertsConfig
from monitor.config.overrides import Override, fields_of, overrides
from monitor.errors import ConfigError
from probes.config import ProbesConfig
from streaming_jobs.config import JobConfig

DEFAULT_FILE: Final = "offsetwatch.toml"
FILE_VARIABLE: Final = "OFFSETWATCH_CONFIG"


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FromEnvironment(Section):
    """A secret that an environment variable holds."""

    env: str = Field(min_length=1)


class FromFile(Section):
    """A secret that a file holds; one line feed at its end does not belong to it."""

    file: Path


class ClusterConfig(Section):
    """The cluster under test."""

    bootstrap: str = Field(
        "localhost:9092", min_length=1, description="Addresses of some of its brokers, host:port, comma-separated."
    )
    reachable_within: float = Field(15.0, gt=0, description="How long the first answer may take, seconds.")
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

    @field_validator("security", mode="before")
    @classmethod
    def _dotted(cls, given: Any) -> Any:
        """TOML reads `sasl.password = ...` without quotes as a table in a table."""
        return dict(_flat("", given)) if isinstance(given, dict) else given

    def secrets(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The security settings with their secrets read. Raises ConfigError naming the key, never a value."""
        environment = os.environ if environment is None else environment
        return {key: _reveal(f"cluster.security.{key}", value, environment) for key, value in self.security.items()}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        inner = isinstance(value, dict) and not (value.keys() <= {"env", "file"} and _all_text(value.values()))
        if inner:
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _all_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _reveal(key: str, value: FromEnvironment | FromFile | SecretStr, environment: Mapping[str, str]) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, FromEnvironment):
        if value.env not in environment:
            raise ConfigError(f"{key}: the environment variable {value.env} is not set")
        return environment[value.env]
    try:
        return value.file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{key}: {value.file} cannot be read: {reason}") from error


class Config(Section):
    """Everything that can be configured."""

    data: Path = Field(Path(".offsetwatch"), description="The folder for tables, checkpoints, journals and logs.")
    cluster: ClusterConfig = ClusterConfig()
    probes: ProbesConfig = ProbesConfig()
    job: JobConfig = JobConfig()
    alerts: AlertsConfig = AlertsConfig()

    _file: Path | None = PrivateAttr(None)
    _variables: dict[tuple[str, ...], str] = PrivateAttr(default_factory=dict)

    @property
    def journals(self) -> Path:
        """The folder of the probes' journals."""
        return self.data / "journals"

    def named(self, key: str) -> str:
        """A key and where its value comes from, for messages."""
        path = tuple(key.split("."))
        table: Any = self
        for name in path[:-1]:
            table = getattr(table, name)
        given = path[-1] in table.model_fields_set
        return f"{self._variables.get(path) or (self._file if given and self._file else 'by default')}: {key}"


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration from its three sources. Raises ConfigError: one line that names the source and the key."""
    environment = os.environ if environment is None else environment
    if path is None and environment.get(FILE_VARIABLE):
        path = Path(environment[FILE_VARIABLE])
    if path is None and Path(DEFAULT_FILE).is_file():
        path = Path(DEFAULT_FILE)
    return _checked(path, environment)


def from_environment(environment: Mapping[str, str]) -> Config:
    """The defaults and the environment's overrides, no file. Raises ConfigError like `load`."""
    return _checked(None, environment)


def _checked(path: Path | None, environment: Mapping[str, str]) -> Config:
    values = _read(path) if path is not None else {}
    changed, complaints = overrides(Config, environment)
    for override in changed:
        _put(values, override)
    job = values.setdefault("job", {})
    if isinstance(job, dict) and isinstance(values.get("data", ""), str):
        # The job's folder is the data folder, unless it is given one of its own.
        job.setdefault("root", values.get("data", str(Config.model_fields["data"].default)))
    try:
        # As JSON, because there "strict" still takes a list for a tuple and a string for a path.
        config = Config.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False)
        # One of several readings of a value may be refused more than once.
        named = {tuple(one["loc"][:3]) if _secret(one) else one["loc"]: one for one in reversed(told)}
        complaints += [_explain(one, path, changed) for one in reversed(named.values())]
    if complaints:
        raise ConfigError(*dict.fromkeys(complaints))
    config._file, config._variables = path, {o.path: o.variable for o in changed}
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _put(values: dict[str, Any], override: Override) -> None:
    table = values
    for name in override.path[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return  # the file has a plain value where a table belongs: validation names that
        table = inner
    table[override.path[-1]] = override.value


def _secret(complaint: ErrorDetails) -> bool:
    return complaint["loc"][:2] == ("cluster", "security")


def _explain(first: ErrorDetails, path: Path | None, changed: list[Override]) -> str:
    """One complaint as one line. Never shows a value of `cluster.security`."""
    where = tuple(str(part) for part in first["loc"])
    secret = _secret(first)
    key = ".".join(where[:3] if secret else where) or "the file"
    source = next((o.variable for o in changed if o.path == where[: len(o.path)]), None)
    named = f"{source or path or 'defaults'}: {key}"
    if first["type"] == "extra_forbidden" and not secret:
        siblings = fields_of(Config, where[:-1])
        close = get_close_matches(where[-1], siblings, n=1)
        return f"{named}: unknown key" + (
            f"; did you mean {close[0]}?" if close else f"; known here: {_some(siblings)}"
        )
    if secret and len(where) == 2:
        return f"{named}: must be a table of settings"
    if secret:
        return f'{named}: must be a string, {{ env = "NAME" }} or {{ file = "path" }}'
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = first.get("input")
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool) and not secret else ""
    return f"{named}: {message}{shown}"


def _some(names: list[str]) -> str:
    return ", ".join(names) if names else "nothing"
