"""Silences: for a while nobody is told of what happens in one cluster, or in one topic, because somebody works there.

A silence hides nothing: findings are recorded, counted and shown as ever, with a word that they are silenced. Only
receivers are not told that an incident has opened. What is still open when the silence ends is told then; what is over
by then is not told any more.

Silences are written by `offsetwatch silence` and read by the monitor, and hold through restarts of both: in a small
file of the data folder, or, where several monitors take turns at tables elsewhere, where all of them look. Each has an
end, `LONGEST` away at most.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from alerts.incidents.incident import Incident
from alerts.incidents.silence import Silence

LONGEST: Final = timedelta(days=7)
LONGEST_REASON: Final = 300
"""Characters of a reason, which stands beside each incident."""
MOST: Final = 100
"""Silences that may be active at one time."""
KEPT: Final = timedelta(days=2)
"""How long one that is over is kept: what ended while it was active is told to nobody, whenever that is asked."""


UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)
_log: Final = logging.getLogger("offsetwatch.alerts")


class SilenceRefused(Exception):
    """The silence cannot be made or ended. The text is one line that says why."""


def path_of(folder: Path) -> Path:
    """The file of silences in the folder in which is kept who was told what, `alerts/` of the data folder."""
    return folder / "silences.json"


def silenced(incidents: Iterable[Incident], silences: Sequence[Silence], now: datetime) -> list[Incident]:
    """The incidents, each with the silence under which it is, or under which it ended: of several the one that lasts
    longest."""
    made = []
    for one in incidents:
        at = now if one.ended is None else one.ended
        under = [silence for silence in silences if silence.active(at) and silence.covers(one.cluster, one.topics)]
        made.append(replace(one, silence=max(under, key=lambda silence: silence.until)) if under else one)
    return made


class Silences(ABC):
    """Silences, wherever they are kept. `all` and `active` never fail: what cannot be understood silences nothing."""

    @abstractmethod
    def all(self) -> tuple[Silence, ...]:
        """Those that are kept, active or not, the oldest first."""

    @abstractmethod
    def asked(self) -> tuple[Silence, ...]:
        """The same, asked for now. Raises OSError and SilenceRefused where they are not to be had."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[list[Silence]]:
        """The silences as they are; as the list is left, they are kept. Raises SilenceRefused where that cannot be."""

    def active(self, at: datetime) -> list[Silence]:
        return [one for one in self.all() if one.active(at)]

    def add(self, *, cluster: str, topic: str, until: datetime, because: str, by: str, now: datetime) -> Silence:
        """Begin one now. Raises SilenceRefused."""
        if not cluster:
            raise SilenceRefused("a silence needs a cluster: nothing silences everything")
        if not because.strip():
            raise SilenceRefused("a silence needs a reason: who looks at it at night has to know why")
        if until <= now:
            raise SilenceRefused(f"a silence until {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC is over already")
        if len(because) > LONGEST_REASON:
            raise SilenceRefused(f"a reason has {LONGEST_REASON} characters at most, this one {len(because)}")
        if until - now > LONGEST:
            raise SilenceRefused(f"a silence lasts {LONGEST.days} days at most; begin another one then")
        made = Silence(
            id=secrets.token_hex(3),
            cluster=cluster,
            topic=topic,
            since=now,
            until=until,
            because=_readable(" ".join(because.split())),
            by=_readable(by),
        )
        with self._changing() as held:
            if sum(one.active(now) for one in held) >= MOST:
                raise SilenceRefused(f"there are {MOST} silences already")
            held[:] = [*(one for one in held if now - one.until < KEPT), made]
        return made

    def end(self, id_: str, now: datetime) -> Silence:
        """End an active one now, by its id or the first digits of it. Raises SilenceRefused."""
        with self._changing() as held:
            named = [one for one in held if id_ and one.id.startswith(id_) and one.active(now)]
            if len(named) != 1:
                raise SilenceRefused(f"{'no' if not named else 'more than one'} active silence begins with {id_!r}")
            ended = replace(named[0], until=now)
            held[:] = [ended if one.id == ended.id else one for one in held]
        return ended


class FolderSilences(Silences):
    """The silences of one data folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._held: tuple[Silence, ...] = ()

    def all(self) -> tuple[Silence, ...]:
        """Read anew where the file has changed."""
        with self._lock:
            try:
                stat = self._path.stat()
            except OSError:
                self._seen, self._held = None, ()
                return ()
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if seen != self._seen:
                self._seen = seen
                try:
                    self._held = _read(self._path)
                except UNREADABLE as error:
                    self._held = ()
                    _log.warning("%s cannot be understood, so nothing is silenced: %s", self._path, error)
            return self._held

    def asked(self) -> tuple[Silence, ...]:
        with suppress(FileNotFoundError):
            self._path.open("rb").close()  # one that may not be read is not one without silences
        return self.all()

    @contextmanager
    def _changing(self) -> Iterator[list[Silence]]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                held = list(_read(self._path)) if self._path.exists() else []
                yield held
                self._write(held)
        except OSError as error:
            raise SilenceRefused(f"{self._path}: {error.strerror}") from error
        except UNREADABLE:
            raise SilenceRefused(f"{self._path} cannot be understood; without it there are no silences") from None

    def _write(self, silences: Sequence[Silence]) -> None:
        beside = self._path.with_suffix(".new")
        told = {"silences": [asdict(one) for one in silences]}
        beside.write_text(json.dumps(told, indent=1, default=datetime.isoformat), encoding="utf-8")
        os.replace(beside, self._path)  # noqa: PTH105 - the same, and atomic by name


def as_text(silence: Silence) -> str:
    """One silence as JSON."""
    return json.dumps(asdict(silence), default=datetime.isoformat)


def from_text(text: str) -> Silence:
    """What `as_text` wrote. Raises one of `UNREADABLE`."""
    return _silence(json.loads(text))


def _read(path: Path) -> tuple[Silence, ...]:
    held = json.loads(path.read_text(encoding="utf-8"))
    return tuple(map(_silence, held["silences"]))


def _silence(row: Mapping[str, Any]) -> Silence:
    return Silence(
        id=str(row["id"]),
        cluster=str(row["cluster"]),
        topic=str(row["topic"]),
        since=_time(row["since"]),
        until=_time(row["until"]),
        because=_readable(row["because"]),
        by=_readable(row["by"]),
    )


def _readable(text: object) -> str:
    """The text without what is no character: a terminal of another encoding gives bytes, which nobody could be sent."""
    return str(text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
