"""Where silences are kept: in the data folder, or beside tables in an object store, for all who look at these.

There each is an object of its own, by its id, so that of two people who begin one at the same time neither loses it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alerts.incidents.silence import Silence
from alerts.silences import UNREADABLE, FolderSilences, SilenceRefused, Silences, as_text, from_text, path_of
from monitor.config.config import Config
from streaming_jobs.location import HastyUrl, TableLocation, TableUrl

FOLDER: Final = "silences"
EVERY: Final = 5.0
"""Seconds after which the store is asked again: each question costs."""
AWAY: Final = 30.0
"""The same where it did not answer. What was known holds meanwhile; each silence has an end."""
_SUFFIX: Final = ".json"
_log: Final = logging.getLogger("offsetwatch.alerts")


def kept_silences(config: Config) -> Silences:
    """Those that the monitor of this configuration heeds."""
    return silences_beside(config.job.tables_path, config.data / "alerts")


def silences_beside(tables: TableLocation, folder: Path) -> Silences:
    """The same by where the tables are, and by the folder where a monitor keeps what its disk alone has."""
    here = FolderSilences(path_of(folder))
    return SharedSilences(tables / FOLDER, here) if isinstance(tables, TableUrl) else here


class SharedSilences(Silences):
    """Those of an object store, below `url`. `here`: what an earlier version kept on this disk alone is heeded too."""

    def __init__(self, url: TableUrl, here: Silences, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._here, self._clock = url, here, clock
        self._lock = threading.Lock()
        self._held: tuple[Silence, ...] = ()
        self._due = float("-inf")

    def all(self) -> tuple[Silence, ...]:
        """Asked for anew every `EVERY` seconds."""
        with self._lock:
            if self._clock() >= self._due:
                try:
                    self._held = self._read(HastyUrl(str(self._url)))
                    self._due = self._clock() + EVERY
                except OSError as error:
                    self._due = self._clock() + AWAY
                    _log.warning("silences cannot be asked for at %s; those that were known hold: %s", self._url, error)
            return self._held

    def asked(self) -> tuple[Silence, ...]:
        with self._told():
            return self._read(self._url)

    def _read(self, url: TableUrl) -> tuple[Silence, ...]:
        held = {one.id: one for one in self._here.all()}
        for name in url.names():
            if not name.endswith(_SUFFIX):
                continue
            try:
                one = from_text((url / name).read_text())
            except FileNotFoundError:  # it was over for long
                continue
            except OSError:
                raise
            except UNREADABLE as error:
                _log.warning("%s/%s cannot be understood, and silences nothing: %s", self._url, name, error)
                continue
            held[one.id] = one
        return tuple(sorted(held.values(), key=lambda one: (one.since, one.id)))

    @contextmanager
    def _changing(self) -> Iterator[list[Silence]]:
        with self._told():
            before = self._read(self._url)
            held = list(before)
            yield held
            for one in held:
                if one not in before:
                    (self._url / f"{one.id}{_SUFFIX}").write_text(as_text(one), patient=False)
            for id_ in {one.id for one in before} - {one.id for one in held}:
                (self._url / f"{id_}{_SUFFIX}").delete()
        self._due = float("-inf")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SilenceRefused(f"{self._url}: {error}") from error
