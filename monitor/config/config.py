"""The configuration: one TOML file, overridden by the environment, checked as a whole before anything starts.

Each package owns its section. Later sources win:

1. the defaults of the sections' models (`docs/offsetwatch.toml` lists them all, with what they mean);
2. the file: `--config FILE`, else `$OFFSETWATCH_CONFIG`, else `offsetwatch.toml` in the current folder if it is there;
3. the environment: `OFFSETWATCH_<SECTION>__<KEY>`, as in `OFFSETWATCH_PROBES__WRITER__RATE=500`.

Unknown keys and wrong types are refused, in files strictly ("500" is no number), in the environment by what the key
wants. A secret stands in a variable or a file of its own (`{ env = "NAME" }`, `{ file = "path" }`) and is read when the
connection is made; no value of `cluster.security`, or of `storage`, is ever printed.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, MutableMapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from alerts.config import UNFIT_URL, AlertsConfig, Secret
from monitor.config.cluster import (
    NAME,
    ClusterConfig,
    EvidenceConfig,
    FromEnvironment,
    FromFile,
    NamedClusterConfig,
    Section,
    alike,
    plain,
    reveal,
)
from monitor.config.overrides import Override, fields_of, overrides, secret_at
from monitor.errors import ConfigError
from probes.config import ProbesConfig
from streaming_jobs.config import NOT_SHOWN, Folder, JobConfig
from streaming_jobs.location import NOT_LOCAL, looks_like_url, nameable

DEFAULT_FILE: Final = "offsetwatch.toml"
FILE_VARIABLE: Final = "OFFSETWATCH_CONFIG"
LEAST_TOKEN: Final = 16
"""Characters of the status page's token: too many to try."""


_STORES_SECRET: Final = re.compile(r"(SECRET|TOKEN|PASSWORD|_KEY$)")
_STORES_OWN: Final = re.compile(r"(AWS|AZURE|GOOGLE)_[A-Z0-9_]+")


class StatusConfig(Section):
    """The status page, served beside the metrics, at alerts.metrics_host and alerts.metrics_port."""

    page: bool = Field(True, description="Serve it; without it there are /metrics, /live and /ready alone.")
    hosts: tuple[str, ...] = Field(
        (),
        description="Names under which it may be asked, without ports. None of them: this machine's own where it "
        "listens on 127.0.0.1, else any.",
    )
    token: Secret | None = Field(
        None,
        description='Who looks at anything but /live and /ready needs it, as { env = "NAME" } or { file = "path" }; '
        "programs send it as a bearer token.",
    )
    certificate: Path | None = Field(None, description="Serve with TLS: the certificate with its chain, PEM.")
    key: Path | None = Field(None, description="Its key, PEM.")

    def read_token(self, environment: Mapping[str, str] | None = None) -> str | None:
        """The token, None where none is configured. Raises ConfigError, which names the key and never the value."""
        if self.token is None:
            return None
        where = FromEnvironment(env=self.token.env) if self.token.env is not None else None
        given = reveal(
            "status.token",
            where or FromFile(file=self.token.file or Path()),
            os.environ if environment is None else environment,
        ).strip()
        if len(given) < LEAST_TOKEN:
            raise ConfigError(f"status.token: it has {len(given)} characters, and needs {LEAST_TOKEN} at least")
        return given

    @model_validator(mode="after")
    def _both(self) -> StatusConfig:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: give both, or none")
        return self


class Config(Section):
    """Everything that can be configured."""

    data: Folder = Field(Path(".offsetwatch"), description="The folder for tables, checkpoints, journals and logs.")
    cluster: ClusterConfig = ClusterConfig()
    clusters: dict[str, NamedClusterConfig] = Field(
        {},
        description="Several clusters, instead of [cluster]: a table for each, by the name that people know it by (40 "
        "letters, digits, '.', '_' or '-'). It has the keys of [cluster]; its id, if it is to be made sure of; and in "
        "its own table probes what its probes do otherwise than [probes] says.",
        examples=[
            "[clusters.orders-eu]",
            'bootstrap = "orders-eu-1:9093,orders-eu-2:9093"',
            'id = "EmAwCgU0SwerVkveuXrJTQ"',
            "[clusters.orders-eu.security]",
            'sasl.password = { file = "/run/secrets/orders-eu" }',
            "[clusters.orders-eu.probes.writer]",
            "rate = 20.0",
        ],
    )
    evidence: EvidenceConfig = EvidenceConfig()
    probes: ProbesConfig = ProbesConfig()
    job: JobConfig = JobConfig()
    alerts: AlertsConfig = AlertsConfig()
    status: StatusConfig = StatusConfig()
    storage: dict[str, FromEnvironment | FromFile | SecretStr] = Field(
        {},
        description="How the object store is reached, where tables are in one: its variables by their own names "
        '(AWS_*, AZURE_*, GOOGLE_*), a secret as { env = "NAME" } or { file = "path" }. Read once by each process, for '
        "itself and those that it starts. A variable that is set is above it.",
        examples=['AWS_REGION = "eu-central-1"', 'AWS_SECRET_ACCESS_KEY = { file = "/run/secrets/bucket" }'],
    )

    _file: Path | None = PrivateAttr(None)
    _variables: dict[tuple[str, ...], str] = PrivateAttr(default_factory=dict)
    _name: str = PrivateAttr("")

    @field_validator("data")
    @classmethod
    def _on_disk(cls, data: Path) -> Path:
        if looks_like_url(data):
            raise ValueError(NOT_LOCAL)
        return data

    @field_validator("storage")
    @classmethod
    def _of_a_store(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if not _STORES_OWN.fullmatch(name):
                raise ValueError(f"no object store has a variable {name}: they begin with AWS_, AZURE_ or GOOGLE_")
        return given

    def lend_storage(self, environment: MutableMapping[str, str]) -> None:
        """Set the variables of `storage` that are not set. Raises ConfigError, which names the key and never the
        value."""
        for name, value in self.storage.items():
            if name not in environment:
                environment[name] = reveal(f"storage.{name}", value, environment)

    @field_validator("clusters")
    @classmethod
    def _told_apart(cls, clusters: dict[str, NamedClusterConfig]) -> dict[str, NamedClusterConfig]:
        """Names can be written, and each cluster has one."""
        before: dict[str, str] = {}
        for name, cluster in clusters.items():
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"a cluster cannot be called {name!r}: a name has up to 40 letters, digits, '.', '_' or '-', and "
                    "begins with a letter or a digit"
                )
            if (other := before.setdefault(alike(name), name)) != name:
                raise ValueError(f"{other} and {name} are too much alike")
            if cluster.id is not None and (other := before.setdefault(f"id {cluster.id}", name)) != name:
                raise ValueError(f"{other} and {name} are the same cluster, {cluster.id}")
        return clusters

    @model_validator(mode="after")
    def _another_cluster(self) -> Config:
        """The probe log is not entrusted to a cluster that it is about."""
        kept = set(_addresses(self.evidence.bootstrap))
        given = {"": self.cluster} if "bootstrap" in self.cluster.model_fields_set else {}
        for name, cluster in (self.clusters or given).items():
            if both := kept & set(_addresses(cluster.bootstrap)):
                watched = f"the cluster {name}" if name else "the cluster under test"
                raise ValueError(f"evidence.bootstrap: {min(both)} is a broker of {watched}: it needs another cluster")
        return self

    @property
    def name(self) -> str:
        """How people call the cluster; "" where it is the only one and needs no name."""
        return self._name

    @property
    def journals(self) -> Path:
        """The folder of the probes' journals: of each of several clusters its own."""
        return self.data / "journals" / "clusters" / self._name if self._name else self.data / "journals"

    def former_journals(self) -> list[Path]:
        """The folders with journals of clusters that were called otherwise, or are named here no more. Raises OSError,
        which names the folder that cannot be read."""
        top = self.data / "journals"
        named = top / "clusters"
        if top.is_dir():
            any(top.iterdir())  # where that is refused, it is not `clusters` that has the wrong rights
        own = {top / "clusters" / name for name in self.clusters} or {top}
        return [folder for folder in (top, *(sorted(named.iterdir()) if named.is_dir() else ())) if folder not in own]

    @property
    def written(self) -> list[Path]:
        """The folders of this machine that are written to, `data` the first of them."""
        job = self.job
        tables = [at for at in (job.tables_path, job.checkpoint_path, job.history_path) if isinstance(at, Path)]
        return [self.data, *tables, job.root, *(one.journals for one in self.each())]

    def each(self) -> list[Config]:
        """The configuration of each cluster, as of a single one; this one where there is but one without a name."""
        return [self.of(name) for name in self.clusters] or [self]

    def of(self, name: str) -> Config:
        """The configuration of one of the clusters. Raises ConfigError where none is called so."""
        if name not in self.clusters:
            known = ", ".join(self.clusters) or "none: the configuration has one cluster, and that has no name"
            raise ConfigError(f"--cluster: there is no cluster {name}; there are {known}")
        cluster = self.clusters[name]
        made = self.model_copy(update={"cluster": cluster, "probes": cluster.probes})
        made._name = name
        return made

    def plain_secrets(self) -> list[str]:
        """The keys of secrets that stand in the file as they are, and not where to find them."""
        clusters: dict[str, ClusterConfig] = {f"clusters.{name}": one for name, one in self.clusters.items()}
        clusters = (clusters or {"cluster": self.cluster}) | {"evidence": self.evidence}
        settings = {f"{key}.security": plain(one.security) for key, one in clusters.items()}
        found = [(*place.split("."), name) for place, names in settings.items() for name in names]
        found += [("storage", name) for name in plain(self.storage, _STORES_SECRET)]
        return [f"{self._file}: {'.'.join(key)}" for key in found if key not in self._variables]

    def named(self, key: str) -> str:
        """A key and where its value comes from, for messages."""
        path = tuple(key.split("."))
        table: Any = self
        for name in path[:-1]:
            table = getattr(table, name)
        given = path[-1] in table.model_fields_set
        if self._name and path[0] == "cluster":
            path = ("clusters", self._name, *path[1:])
        source = self._variables.get(path) or (self._file if given and self._file else "by default")
        return f"{source}: {'.'.join(path)}"


def load(
    path: Path | None = None, environment: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None
) -> Config:
    """The configuration from its three sources. Raises ConfigError: one line that names the source and the key.
    `options`: the names of the options that gave these variables of `environment`."""
    environment = os.environ if environment is None else environment
    if path is None and environment.get(FILE_VARIABLE):
        path = Path(environment[FILE_VARIABLE])
    if path is None and Path(DEFAULT_FILE).is_file():
        path = Path(DEFAULT_FILE)
    return _checked(path, environment, options or {})


def from_environment(environment: Mapping[str, str]) -> Config:
    """The defaults and the environment's overrides, no file. Raises ConfigError like `load`."""
    return _checked(None, environment, {})


def _checked(path: Path | None, environment: Mapping[str, str], options: Mapping[str, str]) -> Config:
    values = _read(path) if path is not None else {}
    changed, complaints = overrides(Config, environment, values, options)
    for override in changed:
        _put(values, override)
    complaints += _one_or_several(values, path, changed)
    own = _given_each_the_probes(values)
    job = values.setdefault("job", {})
    if isinstance(job, dict):
        # The job's folder is the data folder, unless it is given one of its own.
        usual = str(Config.model_fields["data"].default)
        data = values.get("data", usual)
        job.setdefault("root", data if isinstance(data, str) and data else usual)
    try:
        # As JSON, because there "strict" still takes a list for a tuple and a string for a path.
        config = Config.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False)
        told = [one for one in told if not _said_of_all(one["loc"], own, {other["loc"] for other in told})]
        # One of several readings of a value may be refused more than once.
        named = {
            one["loc"][: _of_security(one) + 1] if _of_security(one) else one["loc"]: one for one in reversed(told)
        }
        complaints += [_explain(one, path, changed) for one in reversed(named.values())]
    if complaints:
        raise ConfigError(*dict.fromkeys(complaints))
    config._file, config._variables = path, {o.path: o.variable for o in changed}
    try:
        nameable(config.data)
    except ValueError as error:
        raise ConfigError(f"{config.named('data')}: {error}") from None
    for name, cluster in config.clusters.items():
        cluster.known_as(name)
    return config


def _one_or_several(values: Mapping[str, Any], path: Path | None, changed: list[Override]) -> list[str]:
    """A complaint where there is both one cluster and several."""
    if not values.get("clusters") or "cluster" not in values:
        return []
    source = next((o.variable for o in changed if o.path[0] == "cluster"), None) or path
    return [f"{source}: cluster and clusters: give [cluster] where there is one, [clusters.NAME] for each of several"]


def _given_each_the_probes(values: dict[str, Any]) -> dict[str, Any]:
    """Each of several clusters has the probes of all, changed by what it says itself; returns what that is, by name."""
    clusters, common = values.get("clusters"), values.get("probes", {})
    own: dict[str, Any] = {}
    for name, cluster in clusters.items() if isinstance(clusters, dict) else ():
        if isinstance(cluster, dict):
            own[name] = cluster.get("probes", {})
            cluster["probes"] = _changed(common, own[name])
    return own


def _changed(common: Any, own: Any) -> Any:
    if not isinstance(common, dict) or not isinstance(own, dict):
        return own
    return common | {name: _changed(common[name], value) if name in common else value for name, value in own.items()}


def _said_of_all(place: tuple[int | str, ...], own: Mapping[str, Any], places: set[tuple[int | str, ...]]) -> bool:
    """Is this complaint about one cluster's probes the one about [probes] again?"""
    if place[:1] != ("clusters",) or place[2:3] != ("probes",) or place[2:] not in places:
        return False
    table = own[str(place[1])]
    for name in place[3:]:
        if not isinstance(table, dict) or name not in table:
            return True
        table = table[name]
    return not table


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
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


def _of_security(complaint: ErrorDetails) -> int:
    """How many parts of its place lead to a table of settings that may hold secrets, that included; 0 for others."""
    place = complaint["loc"]
    if place[:1] == ("storage",):
        return 1
    if place[:2] in (("cluster", "security"), ("evidence", "security")):
        return 2
    return 3 if place[:1] == ("clusters",) and place[2:3] == ("security",) else 0


def _explain(first: ErrorDetails, path: Path | None, changed: list[Override]) -> str:
    """One complaint as one line. Never shows a value of `cluster.security`, nor what stands in place of a secret."""
    where = tuple(str(part) for part in first["loc"])
    if depth := secret_at(Config, where):
        key = ".".join(where[:depth])
        source = next((o.variable for o in changed if o.path[:depth] == where[:depth]), None)
        return f'{source or path or "defaults"}: {key}: must be {{ env = "NAME" }} or {{ file = "path" }}'
    secret = _of_security(first)
    key = ".".join(where[: secret + 1] if secret else where) or "the file"
    source = next((o.variable for o in changed if o.path == where[: len(o.path)]), None)
    named = f"{source or path or 'defaults'}: {key}"
    if first["type"] == "extra_forbidden" and not secret:
        siblings = fields_of(Config, where[:-1])
        close = get_close_matches(where[-1], siblings, n=1)
        return f"{named}: unknown key" + (
            f"; did you mean {close[0]}?" if close else f"; known here: {_some(siblings)}"
        )
    of_value = first["type"] == "value_error"
    if secret and not of_value and len(where) == secret:
        return f"{named}: must be a table of settings"
    if secret and not of_value:
        return f'{named}: must be a string, {{ env = "NAME" }} or {{ file = "path" }}'
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = first.get("input")
    hidden = (
        secret or not where or first["type"] in (NOT_SHOWN, UNFIT_URL) or (where[:1] == ("alerts",) and "urls" in where)
    )
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool) and not hidden else ""
    return f"{named}: {message}{shown}"


def _addresses(bootstrap: str) -> list[str]:
    return [one.strip() for one in bootstrap.split(",") if one.strip()]


def _some(names: list[str]) -> str:
    return ", ".join(names) if names else "nothing"
