"""How people call the clusters: the configuration's names, and whose id each of them is.

The id is the cluster's identity in every table; the name is what people read. Which id a name has is known from the
configuration (`clusters.NAME.id`), or else from the file of that name in `<data>/clusters`, which the probes of this
data folder write when they reach the cluster. A cluster that is no longer configured keeps the name that it had.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from monitor.config.config import Config
from monitor.errors import ConfigError, UserError

READ_AGAIN: Final = 5.0
"""Seconds: how late the name of a cluster that was reached for the first time is shown."""


class ClusterNames:
    """The names of the configuration's clusters by their ids: `names(id)` is "" where there is none. For any number of
    threads."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._by_id: Mapping[str, str] = {}
        self._read_at: float | None = None

    def __call__(self, cluster: str) -> str:
        return self._known().get(cluster, "") if cluster and self._config.clusters else ""

    def resolve(self, wanted: str, known: Iterable[str]) -> str:
        """The id of the cluster that is meant by a name or an id. `known`: ids that the tables hold. Raises UserError
        where nothing is known of such a cluster: a name that was mistyped must not look like quiet."""
        names = {name: cluster for cluster, name in self._known().items()}
        ids = sorted({cluster for cluster in known if cluster})
        if wanted in names or wanted in ids or wanted in names.values():
            return names.get(wanted, wanted)
        if wanted in self._config.clusters:
            raise UserError(f"--cluster: {wanted} has not been reached yet, nothing is known of it")
        listed = ", ".join([*names, *(cluster for cluster in ids if cluster not in names.values())]) or "none"
        raise UserError(f"--cluster: nothing is known of a cluster {wanted}; known are: {listed}")

    def _known(self) -> Mapping[str, str]:
        now = self._clock()
        if self._read_at is None or now - self._read_at > READ_AGAIN:
            self._by_id, self._read_at = dict(_recorded(self._config)), now
        return self._by_id


def chosen(config: Config, known: Iterable[str], wanted: str | None) -> str | None:
    """The id of the cluster that `--cluster` means, None where it was not given. Raises UserError as `resolve` does."""
    return ClusterNames(config).resolve(wanted, known) if wanted is not None else None


def only(config: Config, wanted: str) -> Config:
    """The configuration of the cluster that is meant by a name or an id. Raises ConfigError where it has none such."""
    return config.of(wanted if wanted in config.clusters else ClusterNames(config)(wanted) or wanted)


def record(config: Config, cluster: str) -> None:
    """The cluster of this configuration, one of several, was reached and has this id. Raises ConfigError where another
    id was asked for, or where another name has it: two fleets that do not know of each other would take the other one's
    records for foreign ones."""
    name, wanted, at = config.name, config.cluster.expected_id, config.cluster.bootstrap
    if wanted is not None and wanted != cluster:
        raise ConfigError(f"{config.named('cluster.id')}: the cluster at {at} has the id {cluster}, not {wanted}")
    if not name:
        return
    folder = config.data / "clusters"
    with _alone(folder):
        for other in config.clusters:
            if other != name and _read(folder / other) == (cluster, config.clusters[other].bootstrap):
                both = f"clusters.{other} and clusters.{name}"
                raise ConfigError(f"{both} are the same cluster, {cluster}: only one of them can be watched")
        scratch = folder / f".{name}.new"
        scratch.write_text(json.dumps({"id": cluster, "bootstrap": at}), encoding="utf-8")
        scratch.replace(folder / name)


def _recorded(config: Config) -> Iterator[tuple[str, str]]:
    """(id, name); of an id with several names the one that counts comes last."""
    for name, known in _former(config):
        yield known, name
    for name, cluster in config.clusters.items():
        known = cluster.id or _read(config.data / "clusters" / name)[0]
        if known:
            yield known, name


def _former(config: Config) -> list[tuple[str, str]]:
    """(name, id) of clusters that have no such name any more, the newest last."""
    try:
        files = [file for file in (config.data / "clusters").iterdir() if not file.name.startswith(".")]
        files.sort(key=lambda file: file.stat().st_mtime)
    except OSError:
        return []
    told = ((file.name, _read(file)[0]) for file in files if file.name not in config.clusters)
    return [(name, known) for name, known in told if known]


def _read(file: Path) -> tuple[str, str]:
    """Id and addresses; empty where the cluster was never reached, or nobody can read it."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return str(told["id"]), str(told["bootstrap"])
    except (OSError, ValueError, LookupError, TypeError):
        return "", ""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time asks whose an id is, and takes it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
